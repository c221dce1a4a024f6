package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/overview"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// Tree is the output of "get" for a profile.
type Tree struct {
	Name    string `json:"name"`
	Summary string `json:"summary"`
	Done    bool   `json:"done"`
	// Matched is the number of nodes in the profile's status. UpToDate is the number of nodes with the declared settings.
	Matched  int32 `json:"matched"`
	UpToDate int32 `json:"upToDate"`
	// Nodes are sorted by zone and name.
	Nodes   []overview.Progress   `json:"nodes"`
	Lost    []v1alpha1.LostNode   `json:"lostNodes,omitempty"`
	Volumes v1alpha1.VolumeCounts `json:"volumes"`
	// LimitedBy is the reason why the next reboot waits.
	LimitedBy string `json:"limitedBy,omitempty"`
	// EstimatedCompletion is the earliest time at which the last node can be back. Nil if unknown.
	EstimatedCompletion *metav1.Time `json:"estimatedCompletion,omitempty"`
	// Notes describe data that could not be read, with the consequences.
	Notes []string `json:"notes,omitempty"`
}

// NewTree returns the tree of a profile.
func NewTree(p *v1alpha1.StorageClientProfile, nodes []overview.Progress, notes ...string) Tree {
	out := Tree{
		Name: p.Name, Matched: p.Status.Nodes.Matched, UpToDate: p.Status.Nodes.UpToDate, Nodes: nodes, Lost: p.Status.LostNodes,
		Volumes: p.Status.Volumes, LimitedBy: p.Status.Plan.LimitedBy, EstimatedCompletion: p.Status.Plan.EstimatedCompletion, Notes: notes,
	}
	out.Summary, out.Done = Verdict(p)
	slices.SortStableFunc(out.Nodes, func(a, b overview.Progress) int {
		return cmp.Or(strings.Compare(cmp.Or(a.Zone, lastZone), cmp.Or(b.Zone, lastZone)), strings.Compare(a.Name, b.Name))
	})
	return out
}

// Names returns the output of -o name: the nodes.
func (t Tree) Names() []string {
	return lists.Each(t.Nodes, func(n overview.Progress) string { return nodeResource + n.Name })
}

// lastZone sorts after all labels: nodes without a zone are last.
const lastZone = "~"

// Screen describes the output device of a tree.
type Screen struct {
	// Width and Height are the maximum length and number of lines. Zero means unlimited.
	Width, Height int
	Colour        bool
}

// Draw returns the tree as lines without line ends.
func (t Tree) Draw(screen Screen, now time.Time) []string {
	head := t.head(screen, now)
	height := 0
	if screen.Height > 0 {
		height = max(screen.Height-len(head)-1, 1)
	}
	return append(head, t.zones(screen, height, now)...)
}

// summaryLines is the maximum number of lines of a long sentence if space is limited.
const summaryLines = 4

func (t Tree) head(screen Screen, now time.Time) []string {
	lines := screen.wrap(t.Summary, summaryLines)
	if t.Matched > 0 || len(t.Nodes) > 0 {
		lines = append(lines, screen.bar("Nodes", t.UpToDate, t.Matched, t.phases()))
	}
	if t.Volumes.Matched > 0 {
		var rest []string
		if n := t.Volumes.Blocked; n > 0 {
			rest = append(rest, fmt.Sprintf("%d left unchanged", n))
		}
		if n := t.Volumes.StaleMounts; n > 0 {
			rest = append(rest, fmt.Sprintf("%d stale mounts", n))
		}
		lines = append(lines, screen.bar("Volumes", t.Volumes.UpToDate, t.Volumes.Matched, strings.Join(rest, ", ")))
	}
	if t.EstimatedCompletion != nil {
		remaining := t.EstimatedCompletion.Sub(now)
		eta := "in " + duration.HumanDuration(remaining)
		if remaining <= 0 {
			eta = "overdue"
		}
		lines = append(lines, screen.fit(plain("Last node back "+formatTime(t.EstimatedCompletion)+" at the earliest ("+eta+")")))
	}
	if t.LimitedBy != "" {
		lines = append(lines, screen.wrap("Waiting: "+t.LimitedBy, 2)...)
	}
	for _, note := range t.Notes {
		lines = append(lines, screen.wrap("Note: "+note, summaryLines)...)
	}
	return append(lines, "")
}

func (t Tree) phases() string {
	counts := map[string]int{}
	for _, n := range t.Nodes {
		if !n.Done {
			counts[stateOf(n)]++
		}
	}
	names := slices.SortedFunc(maps.Keys(counts), compareStates)
	return strings.Join(lists.Each(names, func(name string) string { return fmt.Sprintf("%d %s", counts[name], name) }), ", ")
}

// stateOf returns the phase of a node, or the reason of its condition if it is not in a rollout.
func stateOf(n overview.Progress) string {
	if n.Phase == "" || n.Phase == "-" {
		return cmp.Or(n.Reason, "Unknown")
	}
	return n.Phase
}

// Ranks of states: failed states that need an action first, then active states, then waiting states.
const (
	rankFailed = iota
	rankActive
	rankWaiting
)

var rankColours = [...]string{rankFailed: red, rankActive: yellow, rankWaiting: ""}

func compareStates(a, b string) int {
	return cmp.Or(cmp.Compare(rankOf(a), rankOf(b)), strings.Compare(a, b))
}

func rankOf(state string) int {
	switch state {
	case string(v1alpha1.RolloutFailed), v1alpha1.NodeReasonSettingsFailed:
		return rankFailed
	case string(v1alpha1.RolloutClaimed), string(v1alpha1.RolloutDraining), string(v1alpha1.RolloutRebooting), string(v1alpha1.RolloutSettling), string(v1alpha1.RolloutReleasing):
		return rankActive
	}
	return rankWaiting
}

// zones draws the nodes within the given number of lines. Zero means all.
func (t Tree) zones(screen Screen, height int, now time.Time) []string {
	all := t.rows(screen, limits{waiting: len(t.Nodes), messages: true}, now)
	if height == 0 || len(all) <= height {
		return all
	}
	// Show as many waiting nodes per zone as fit. If none fit, omit the messages too.
	for _, messages := range []bool{true, false} {
		for waiting := len(t.Nodes) - 1; waiting >= 0; waiting-- {
			if rows := t.rows(screen, limits{waiting, messages}, now); len(rows) <= height {
				return rows
			}
		}
	}
	rows := t.rows(screen, limits{}, now)
	return append(rows[:height-1], screen.fit(plain(fmt.Sprintf("and %d more lines: enlarge the window, or run status %s --nodes",
		len(rows)-height+1, t.Name))))
}

// limits contains the maximum number of waiting nodes per zone, and whether messages get separate lines.
type limits struct {
	waiting  int
	messages bool
}

func (t Tree) rows(screen Screen, limit limits, now time.Time) []string {
	var out []string
	for begin := 0; begin < len(t.Nodes); {
		end := begin
		for end < len(t.Nodes) && t.Nodes[end].Zone == t.Nodes[begin].Zone {
			end++
		}
		out = append(out, t.zoneRows(screen, t.Nodes[begin:end], limit, now)...)
		begin = end
	}
	if len(t.Lost) > 0 {
		out = append(out, "(deleted)")
		for i, lost := range t.Lost {
			standing := overview.Progress{Node: overview.Node{Name: lost.Name, Phase: string(v1alpha1.RolloutFailed), Reason: lost.Reason, Message: lost.Message, Since: lost.Since}}
			out = append(out, t.nodeRows(screen, branch(i, len(t.Lost)), standing, limit, now)...)
		}
	}
	return out
}

func (t Tree) zoneRows(screen Screen, nodes []overview.Progress, limit limits, now time.Time) []string {
	open := slices.DeleteFunc(slices.Clone(nodes), func(n overview.Progress) bool { return n.Done })
	slices.SortStableFunc(open, func(a, b overview.Progress) int { return compareStates(stateOf(a), stateOf(b)) })
	done, hidden := len(nodes)-len(open), 0
	if first := slices.IndexFunc(open, func(n overview.Progress) bool { return rankOf(stateOf(n)) == rankWaiting }); first >= 0 {
		hidden = max(len(open)-first-limit.waiting, 0)
		open = open[:len(open)-hidden]
	}
	var closing []segment
	if hidden > 0 {
		closing = append(closing, plain(fmt.Sprintf("and %d more waiting", hidden)))
	}
	if done > 0 {
		closing = append(closing, segment{fmt.Sprintf("%d up to date", done), green})
	}
	rows := []string{screen.fit(segment{cmp.Or(nodes[0].Zone, "(no zone)"), bold}, plain(fmt.Sprintf("  %d/%d", done, len(nodes))))}
	total := len(open) + len(closing)
	for i, n := range open {
		rows = append(rows, t.nodeRows(screen, branch(i, total), n, limit, now)...)
	}
	for i, s := range closing {
		rows = append(rows, screen.fit(plain(branch(len(open)+i, total)), s))
	}
	return rows
}

func branch(i, total int) string {
	if i == total-1 {
		return "└─ "
	}
	return "├─ "
}

// maxNameWidth is the maximum length of a name if lines are limited.
const maxNameWidth = 30

func (t Tree) nameWidth(screen Screen) int {
	longest := 0
	for _, n := range t.Nodes {
		if !n.Done {
			longest = max(longest, len([]rune(n.Name)))
		}
	}
	if screen.Width > 0 {
		longest = min(longest, maxNameWidth)
	}
	return longest
}

// stateWidth fits "Rebooting" and "RebootPending", ageWidth "59m59s".
const (
	stateWidth = 13
	ageWidth   = 6
)

// nodeRows draws one node: name, state, age and reason. If lines are limited, the message of a node gets a separate line, except for
// nodes that only wait for their turn.
func (t Tree) nodeRows(screen Screen, prefix string, n overview.Progress, limit limits, now time.Time) []string {
	state, width := stateOf(n), t.nameWidth(screen)
	detail, message := text.Line(n.Message), ""
	isWaiting := state == string(v1alpha1.RolloutWaiting) || state == string(v1alpha1.RolloutApplying)
	if screen.Width > 0 && !isWaiting {
		detail, message = "", detail
	}
	if n.Reason != "" && n.Reason != state {
		detail = strings.TrimSuffix(n.Reason+": "+detail, ": ")
	}
	rows := []string{screen.fit(plain(prefix), plain(pad(cutMiddle(n.Name, width), width)+"  "), segment{pad(state, stateWidth), rankColours[rankOf(state)]},
		plain(" "+pad(ageOf(n.Since, now), ageWidth)+" "+detail))}
	if message != "" && limit.messages {
		stem := "│    "
		if strings.HasPrefix(prefix, "└") {
			stem = "     "
		}
		rows = append(rows, screen.fit(plain(stem+message)))
	}
	return rows
}

// cutMiddle shortens a name to a width. It keeps the end, because names of a pool differ there.
func cutMiddle(name string, width int) string {
	letters := []rune(name)
	if len(letters) <= width || width < 3 {
		return name
	}
	front := (width - 1) / 2
	return string(letters[:front]) + "…" + string(letters[len(letters)-(width-1-front):])
}

func pad(s string, width int) string { return s + strings.Repeat(" ", max(width-len([]rune(s)), 0)) }

const barWidth = 24

func (screen Screen) bar(title string, part, whole int32, rest string) string {
	full := 0
	if whole > 0 {
		full = int(int64(min(part, whole)) * barWidth / int64(whole))
	}
	return screen.fit(plain(pad(title, 8)+"["), segment{strings.Repeat("#", full), green}, plain(strings.Repeat("-", barWidth-full)+"] "+share(part, whole)+text.Labelled("  ", rest)))
}

type segment struct{ text, colour string }

func plain(s string) segment { return segment{text: s} }

// Color codes of terminals.
const (
	bold   = "1"
	red    = "31"
	green  = "32"
	yellow = "33"
)

// fit joins segments to a line and cuts it at the width.
func (screen Screen) fit(segments ...segment) string {
	var out strings.Builder
	remaining, total := screen.Width, 0
	for i := range segments {
		segments[i].text = text.Escape(segments[i].text, "")
		total += len([]rune(segments[i].text))
	}
	for _, s := range segments {
		letters := []rune(s.text)
		if screen.Width > 0 && total > screen.Width && len(letters) >= remaining {
			s.text = string(letters[:max(remaining-1, 0)]) + "…"
			out.WriteString(screen.paint(s))
			break
		}
		remaining -= len(letters)
		out.WriteString(screen.paint(s))
	}
	return strings.TrimRight(out.String(), " ")
}

func (screen Screen) paint(s segment) string {
	if !screen.Colour || s.colour == "" || s.text == "" {
		return s.text
	}
	return "\x1b[" + s.colour + "m" + s.text + "\x1b[0m"
}

// wrap breaks a text into lines of the width, up to a maximum number.
func (screen Screen) wrap(s string, maxLines int) []string {
	s = text.Line(s)
	if screen.Width <= 0 {
		return []string{s}
	}
	var lines []string
	line := ""
	words := strings.Fields(s)
	for i, word := range words {
		switch {
		case line == "":
			line = word
		case len([]rune(line))+1+len([]rune(word)) <= screen.Width:
			line += " " + word
		case len(lines) == maxLines-1:
			return append(lines, screen.fit(plain(line+" "+strings.Join(words[i:], " "))))
		default:
			lines, line = append(lines, screen.fit(plain(line))), word
		}
	}
	return append(lines, screen.fit(plain(line)))
}

// Since returns the changes since an older tree for logs, with one line for each change. If old is empty, it returns everything that
// is not done.
func (t Tree) Since(old Tree, now time.Time) []string {
	before := lists.Map(old.Nodes, func(n overview.Progress) (string, overview.Progress) { return n.Name, n })
	at := now.UTC().Format(time.RFC3339) + " "
	var out []string
	if t.Summary != old.Summary {
		out = append(out, at+text.Line(t.Summary))
	}
	for _, note := range t.Notes {
		if !slices.Contains(old.Notes, note) {
			out = append(out, at+"Note: "+text.Line(note))
		}
	}
	for _, n := range t.Nodes {
		previous, known := before[n.Name]
		delete(before, n.Name)
		if known && stateOf(previous) == stateOf(n) && previous.Reason == n.Reason || !known && n.Done {
			continue
		}
		line := at + n.Name + " " + stateOf(n)
		if n.Reason != "" && n.Reason != stateOf(n) {
			line += " " + n.Reason
		}
		if n.Message != "" {
			line += ": " + text.Line(n.Message)
		}
		out = append(out, line)
	}
	for _, n := range old.Nodes {
		if _, isRemoved := before[n.Name]; isRemoved {
			out = append(out, at+n.Name+" is no longer a node of "+t.Name)
		}
	}
	return out
}
