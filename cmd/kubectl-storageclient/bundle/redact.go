// Package bundle collects information about a cluster for support, without confidential data. It is pure.
package bundle

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// Redactor replaces addresses, servers and mount sources with pseudonyms. A word has the same pseudonym everywhere in a bundle. Words
// from objects (Server, Source) are also replaced in all texts, and so are IP addresses of any kind.
type Redactor struct {
	// off disables all replacements except for passwords.
	off    bool
	names  map[string]string
	counts map[string]int
	words  *regexp.Regexp
}

// NewRedactor returns a redactor. If off is set, it replaces only passwords.
func NewRedactor(off bool) *Redactor {
	return &Redactor{off: off, names: map[string]string{}, counts: map[string]int{}}
}

// minWordLength is the minimum length of words that are replaced in texts: shorter server names also occur in unrelated words.
const minWordLength = 4

// isIdentifying reports whether a word with a pseudonym is replaced in texts. Words that can have another meaning are not.
func isIdentifying(word, name string) bool {
	return len(word) >= minWordLength && (strings.HasPrefix(name, "server-") || strings.ContainsAny(word, "./:#@"))
}

// Server returns the pseudonym of a server's name or address.
func (r *Redactor) Server(name string) string { return r.pseudonym("server", name) }

// Source returns the pseudonym of a mount source: an export, a share, a device or a volume handle. It returns a root path unchanged.
func (r *Redactor) Source(path string) string {
	if strings.Trim(path, "/") == "" {
		return path
	}
	return r.pseudonym("source", path)
}

func (r *Redactor) pseudonym(kind, word string) string {
	if r.off || word == "" {
		return word
	}
	if name, known := r.names[word]; known {
		return name
	}
	r.counts[kind]++
	r.names[word] = fmt.Sprintf("%s-%d", kind, r.counts[kind])
	r.words = nil
	return r.names[word]
}

var (
	secrets = regexp.MustCompile(`(?i)\b(password2?|passwd|pass|credentials|cred|token|secret)=[^\s,;"'\\]+`)
	bearer  = regexp.MustCompile(`(?i)\b(bearer\s+)[A-Za-z0-9._~+/-]{8,}=*`)
	ipv4    = regexp.MustCompile(`\b\d{1,3}(\.\d{1,3}){3}\b`)
	ipv6    = regexp.MustCompile(`[0-9A-Fa-f:]*:[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*`)
	users   = regexp.MustCompile(`(?i)\b(user(?:name)?|domain|dom)=[^\s,;"'\\]+`)
)

// Text replaces all words with a pseudonym in a text, and assigns pseudonyms to new addresses. It always removes passwords.
func (r *Redactor) Text(text string) string {
	text = secrets.ReplaceAllString(text, "${1}=REDACTED")
	text = bearer.ReplaceAllString(text, "${1}REDACTED")
	if r.off {
		return text
	}
	text = users.ReplaceAllString(text, "${1}=REDACTED")
	if words := r.knownWords(); words != nil {
		text = replaceWords(words, text, func(word string) string { return r.names[word] })
	}
	text = ipv4.ReplaceAllStringFunc(text, r.address)
	return ipv6.ReplaceAllStringFunc(text, r.address)
}

// knownWords returns a pattern for all words with a pseudonym, longest first.
func (r *Redactor) knownWords() *regexp.Regexp {
	if r.words != nil {
		return r.words
	}
	var words []string
	for word, name := range r.names {
		if isIdentifying(word, name) {
			words = append(words, word)
		}
	}
	if len(words) == 0 {
		return nil
	}
	slices.SortFunc(words, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	for i := range words {
		words[i] = regexp.QuoteMeta(words[i])
	}
	r.words = regexp.MustCompile(strings.Join(words, "|"))
	return r.words
}

// replaceWords replaces matches that are not part of a longer name.
func replaceWords(words *regexp.Regexp, text string, name func(string) string) string {
	var out strings.Builder
	done := 0
	for _, at := range words.FindAllStringIndex(text, -1) {
		if isNamePart(text, at[0]-1) || isNamePart(text, at[1]) {
			continue
		}
		out.WriteString(text[done:at[0]] + name(text[at[0]:at[1]]))
		done = at[1]
	}
	out.WriteString(text[done:])
	return out.String()
}

func isNamePart(text string, i int) bool {
	if i < 0 || i >= len(text) {
		return false
	}
	c := text[i]
	return c == '_' || c == '-' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}

// address returns the pseudonym of an address. It returns loopback and unspecified addresses unchanged.
func (r *Redactor) address(word string) string {
	trimmed := strings.TrimRight(word, ":.")
	if strings.HasSuffix(word, "::") {
		trimmed = word
	}
	address, err := netip.ParseAddr(trimmed)
	if err != nil || address.IsLoopback() || address.IsUnspecified() {
		return word
	}
	return r.pseudonym("address", trimmed) + word[len(trimmed):]
}
