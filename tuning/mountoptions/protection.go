package mountoptions

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

// protection is something that options of a mount protect, and how well each option that is about it does. Of several such
// options the last one counts.
type protection struct {
	// name is what messages call it.
	name string
	// levels are the options that are about it, as a list holds them.
	levels map[string]level
	// initial is what is in force where a list says nothing.
	initial standing
}

// level is how strong an option is: at the least, and at the most where it leaves a choice to the other side. Only the levels
// of one protection compare.
type level struct{ least, most int }

func exactly(n int) level { return level{n, n} }

// inOrder are values of an option from the weakest to the strongest.
func inOrder(name string, values ...string) map[string]level {
	levels := map[string]level{}
	for i, value := range values {
		levels[name+"="+value] = exactly(i)
	}
	return levels
}

// access is from mount(8): ro and rw. Nothing else keeps pods from writing where the server lets the node write.
var access = protection{
	name:    "access",
	levels:  map[string]level{"rw": exactly(0), "ro": exactly(1)},
	initial: standing{text: "rw", level: exactly(0), known: true},
}

// nfsSec is from nfs(5), sec= and "Security considerations": none identifies nobody, sys believes the client, krb5 proves who
// the user is, krb5i protects the data from changes too and krb5p from being read. A mount without sec negotiates. It is held
// for sys, which is what a server offers that asks for no more (exports(5): the default is sys), so that a rule may ask for
// sys where a volume says nothing, and none is below the default. null is none (kernel, fs/nfs/fs_context.c).
var nfsSec = protection{
	name:    keySec,
	levels:  overlayLevels(inOrder(keySec, "none", "sys", "krb5", "krb5i", "krb5p"), map[string]level{"sec=null": exactly(0)}),
	initial: standing{text: "sys", level: exactly(1), known: true},
}

// nfsXprtsec is from nfs(5), xprtsec=: tls encrypts, mtls proves who the client is too. Without the option no mount is
// encrypted (nfs_init_fs_context of fs/nfs/fs_context.c).
var nfsXprtsec = protection{
	name:    "xprtsec",
	levels:  inOrder("xprtsec", "none", "tls", "mtls"),
	initial: standing{text: "none", level: exactly(0), known: true},
}

// smbVersion is from mount.cifs(8), vers=, and smb_version_operations of fs/smb/client: 3 is any version from 3.0 on, default
// the highest from 2.1 on that the server has too, which is what a mount without vers asks for. Such a mount is sure of 2.1 and
// no more, so a rule may name any version from there on for volumes that say nothing: people pin 3.0 for servers that need it.
var smbVersion = protection{
	name: keyVersion,
	levels: overlayLevels(inOrder(keyVersion, "1.0", "2.0", "2.1", "3.0", "3.02", "3.1.1"), map[string]level{
		"vers=3.0.2": exactly(4), "vers=3.11": exactly(5), "vers=3": {3, 5}, "vers=" + versionDefault: {2, 5},
	}),
	initial: standing{text: versionDefault, level: exactly(2), known: true},
}

// smbSec is from mount.cifs(8), sec=, and cifs_parse_security_flavors of fs/smb/client/fs_context.c. What ends in i signs: see
// smbSigning.
var smbSec = protection{
	name: keySec,
	levels: map[string]level{
		"sec=none": exactly(0), "sec=ntlm": exactly(1), "sec=ntlmi": exactly(1), "sec=ntlmv2": exactly(2), "sec=ntlmv2i": exactly(2),
		"sec=ntlmssp": exactly(2), "sec=ntlmsspi": exactly(2), "sec=krb5": exactly(3), "sec=krb5i": exactly(3),
	},
	initial: standing{text: "ntlmssp", level: exactly(2), known: true},
}

// smbSigning is from the same function: every sec= sets anew whether packets are signed, and sign turns it on. seal
// encrypts, and no option takes that back.
var (
	smbSigning = protection{
		name: "signing",
		levels: map[string]level{
			"sec=none": exactly(0), "sec=ntlm": exactly(0), "sec=ntlmv2": exactly(0), "sec=ntlmssp": exactly(0), "sec=krb5": exactly(0),
			"sec=ntlmi": exactly(1), "sec=ntlmv2i": exactly(1), "sec=ntlmsspi": exactly(1), "sec=krb5i": exactly(1), "sign": exactly(1),
		},
		initial: standing{text: "off", known: true},
	}
	smbSeal = protection{
		name:    "seal",
		levels:  map[string]level{"seal": exactly(1)},
		initial: standing{text: "off", known: true},
	}
)

// xfsQuotas are from xfs(5) and xfs_fs_parse_param of fs/xfs/xfs_super.c: each kind is counted and enforced, only counted, or
// neither; noquota turns all of them off, whatever comes before it.
var xfsQuotas = []protection{
	quota("user quota", "uquota usrquota quota", "uqnoenforce qnoenforce"),
	quota("group quota", "gquota grpquota", "gqnoenforce"),
	quota("project quota", "pquota prjquota", "pqnoenforce"),
}

func quota(name, enforced, counted string) protection {
	p := protection{name: name, levels: map[string]level{"noquota": exactly(0)}, initial: standing{text: "noquota", known: true}}
	for option := range strings.FieldsSeq(counted) {
		p.levels[option] = exactly(1)
	}
	for option := range strings.FieldsSeq(enforced) {
		p.levels[option] = exactly(2)
	}
	return p
}

func overlayLevels(base, more map[string]level) map[string]level {
	maps.Copy(base, more)
	return base
}

// standing is what a list says of a protection.
type standing struct {
	// text is the value in force, or the flag.
	text string
	level
	// known is false for a value that is not in the table.
	known bool
}

// read returns how a list stands. Of a list of flavours, server and client choose one.
func (p protection) read(options []Option) standing {
	s := p.initial
	for _, o := range options {
		if p.isAbout(o) {
			s = p.readOne(o)
		}
	}
	return s
}

// Protects says whether an option is about what protects a mount, whichever value it has.
func (p Protocol) Protects(option string) bool {
	o := parseOne(option)
	return slices.ContainsFunc(tableOf(p).protections, func(known protection) bool { return known.isAbout(o) })
}

func (p protection) isAbout(o Option) bool {
	for option := range p.levels {
		if parseOne(option).Name == o.Name {
			return true
		}
	}
	return false
}

func (p protection) readOne(o Option) standing {
	s := standing{text: o.Name, known: true}
	if o.HasValue {
		s.text = o.Value
	}
	for i, value := range strings.Split(o.Value, ":") {
		l, known := p.levels[Option{Name: o.Name, Value: value, HasValue: o.HasValue}.String()]
		s.known = s.known && known
		if i == 0 {
			s.level = l
		}
		s.level = level{min(s.least, l.least), max(s.most, l.most)}
	}
	return s
}

// isWeaker says whether a standing is weaker than another one. Of a value that nobody knows, every other one may be weaker.
func (s standing) isWeaker(than standing) bool {
	switch {
	case s.text == than.text:
		return false
	case !s.known || !than.known:
		return true
	}
	return s.least < than.least || s.most < than.most
}

// Weakened returns in what a list that follows another one in a mount's options makes it weaker: with both, what protects the
// mount is less than with the first one alone, or than by default where that one does not say. Wanted is what the second list
// says, Observed what it may not take away.
func (p Protocol) Weakened(floor, wanted []string) []Difference {
	return tableOf(p).weakened(Parse(floor), Parse(wanted))
}

func (t *table) weakened(floor, wanted []Option) []Difference {
	var out []Difference
	for _, p := range t.protections {
		have, get := p.read(floor), p.read(slices.Concat(floor, wanted))
		if get.isWeaker(have) {
			out = append(out, Difference{Option: p.name, Wanted: get.text, Observed: have.text, Message: "nothing is made weaker", Weaker: true})
		}
	}
	return out
}

// withoutWeaker leaves out of wanted options those that make a mount weaker than the options that it has, whatever goes over
// what otherwise.
func (t *table) withoutWeaker(floor, wanted []Option) (left []Option, kept []Difference) {
	weaker := map[string]bool{}
	for _, o := range wanted {
		group := t.groupOf(o)
		if _, judged := weaker[group]; !judged {
			lost := t.weakened(floor, t.inGroup(wanted, group))
			weaker[group] = len(lost) > 0
			kept = append(kept, lost...)
		}
		if !weaker[group] {
			left = append(left, o)
		}
	}
	return left, kept
}

// CheckProtection warns of options that a rule declares and that are kept from volumes which they would make weaker: from all
// that do not have them, where they are weaker than the default, and from stricter ones, where the rule replaces values.
func (p Protocol) CheckProtection(options []string, policy v1alpha1.ConflictPolicy) []Problem {
	t := tableOf(p)
	var problems []Problem
	for _, option := range options {
		o := parseOne(option)
		below, stricter := t.weakened(nil, []Option{o}), t.stricterThan(o)
		replaces := policy == v1alpha1.ConflictUseProfile || policy == v1alpha1.ConflictUseProfileOverClass
		var message string
		switch {
		case t.refuseOption(option, o) != "":
		case len(below) > 0:
			message = fmt.Sprintf("is left out: mounts have %s=%s by default, which is stronger, and nothing is made weaker; only a volume itself can set it",
				below[0].Option, below[0].Observed)
		case replaces && len(stricter) > 0:
			message = fmt.Sprintf("is left out where a volume has %s: nothing is made weaker, whatever onConflict says", text.List(stricter))
		}
		if message != "" {
			problems = append(problems, Problem{Option: option, Message: message, Warning: true})
		}
	}
	return problems
}

// stricterThan are the options that a rule may not replace by a given one.
func (t *table) stricterThan(o Option) []string {
	var out []string
	for _, p := range t.protections {
		if !p.isAbout(o) {
			continue
		}
		for option := range p.levels {
			if p.readOne(o).isWeaker(p.readOne(parseOne(option))) {
				out = append(out, option)
			}
		}
	}
	return out
}
