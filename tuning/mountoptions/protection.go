package mountoptions

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

// protection describes one kind of protection of a mount and the strength of each related option. The last of several
// related options wins.
type protection struct {
	name string
	// levels maps each related option, as it appears in the mount options, to its strength.
	levels map[string]level
	// initial is the effective value if the mount options do not contain a related option.
	initial standing
}

// level is the strength of an option: the minimum, and the maximum if the other side can choose. Only levels of the
// same protection are comparable.
type level struct{ minimum, maximum int }

func exactly(n int) level { return level{n, n} }

// inOrder assigns increasing levels to the values of an option, which are ordered from the weakest to the strongest.
func inOrder(name string, values ...string) map[string]level {
	levels := map[string]level{}
	for i, value := range values {
		levels[name+"="+value] = exactly(i)
	}
	return levels
}

// access is based on mount(8): ro and rw. If the server lets the node write, only ro prevents pods from writing.
var access = protection{
	name:    "access",
	levels:  map[string]level{"rw": exactly(0), "ro": exactly(1)},
	initial: standing{text: "rw", level: exactly(0), known: true},
}

// nfsSec is based on nfs(5), sec= and "Security considerations". none does not identify users, sys trusts the client,
// and krb5 authenticates the user. krb5i also protects the data from changes, and krb5p from being read. null means
// none (kernel, fs/nfs/fs_context.c).
//
// A mount without sec negotiates, and counts as sys: servers offer sys by default (exports(5)). So a rule can request
// sys for volumes that do not set sec, and none stays weaker than the default.
var nfsSec = protection{
	name:    keySec,
	levels:  overlayLevels(inOrder(keySec, "none", "sys", "krb5", "krb5i", "krb5p"), map[string]level{"sec=null": exactly(0)}),
	initial: standing{text: "sys", level: exactly(1), known: true},
}

// nfsXprtsec is based on nfs(5), xprtsec=: tls encrypts, mtls also authenticates the client. Without the option, mounts
// are not encrypted (nfs_init_fs_context of fs/nfs/fs_context.c).
var nfsXprtsec = protection{
	name:    "xprtsec",
	levels:  inOrder("xprtsec", "none", "tls", "mtls"),
	initial: standing{text: "none", level: exactly(0), known: true},
}

// smbVersion is based on mount.cifs(8), vers=, and smb_version_operations of fs/smb/client. 3 means any version from
// 3.0. default means the highest version from 2.1 that the server also supports; a mount without vers requests it.
//
// Such a mount is only guaranteed 2.1, so a rule can set any version from 2.1 for volumes that do not set vers. Users
// pin 3.0 for servers that require it.
var smbVersion = protection{
	name: keyVersion,
	levels: overlayLevels(inOrder(keyVersion, "1.0", "2.0", "2.1", "3.0", "3.02", "3.1.1"), map[string]level{
		"vers=3.0.2": exactly(4), "vers=3.11": exactly(5), "vers=3": {3, 5}, "vers=" + versionDefault: {2, 5},
	}),
	initial: standing{text: versionDefault, level: exactly(2), known: true},
}

// smbSec is based on mount.cifs(8), sec=, and cifs_parse_security_flavors of fs/smb/client/fs_context.c. Values that
// end in i also sign: see smbSigning.
var smbSec = protection{
	name: keySec,
	levels: map[string]level{
		"sec=none": exactly(0), "sec=ntlm": exactly(1), "sec=ntlmi": exactly(1), "sec=ntlmv2": exactly(2), "sec=ntlmv2i": exactly(2),
		"sec=ntlmssp": exactly(2), "sec=ntlmsspi": exactly(2), "sec=krb5": exactly(3), "sec=krb5i": exactly(3),
	},
	initial: standing{text: "ntlmssp", level: exactly(2), known: true},
}

// smbSigning is based on the same function: every sec= sets or resets signing, and sign enables it. seal encrypts; no
// option reverses seal.
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

// xfsQuotas are based on xfs(5) and xfs_fs_parse_param of fs/xfs/xfs_super.c. Each kind of quota is either enforced,
// only counted, or off. noquota disables all kinds, including options before it.
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

func overlayLevels(base, additional map[string]level) map[string]level {
	maps.Copy(base, additional)
	return base
}

// standing is the strength of a protection in a set of mount options.
type standing struct {
	// text is the effective value or flag.
	text string
	level
	// known reports whether the table contains the value.
	known bool
}

// read returns the standing of the options. If an option contains several flavors, server and client choose one.
func (p protection) read(options []Option) standing {
	s := p.initial
	for _, o := range options {
		if p.isAbout(o) {
			s = p.readOne(o)
		}
	}
	return s
}

// Protects reports whether an option affects a protection of the mount, regardless of its value.
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
		s.level = level{min(s.minimum, l.minimum), max(s.maximum, l.maximum)}
	}
	return s
}

// isWeaker reports whether a standing is weaker than another one. If either value is unknown, a different value counts as weaker.
func (s standing) isWeaker(than standing) bool {
	switch {
	case s.text == than.text:
		return false
	case !s.known || !than.known:
		return true
	}
	return s.minimum < than.minimum || s.maximum < than.maximum
}

// Weakened returns the protections that become weaker if wanted follows floor in the options of a mount. The baseline is the floor, or
// the default if the floor does not set the protection. In each Difference, Desired is the new value and Observed the value that must
// not be weakened.
func (p Protocol) Weakened(floor, wanted []string) []Difference {
	return tableOf(p).weakened(Parse(floor), Parse(wanted))
}

func (t *table) weakened(floor, wanted []Option) []Difference {
	var out []Difference
	for _, p := range t.protections {
		have, get := p.read(floor), p.read(slices.Concat(floor, wanted))
		if get.isWeaker(have) {
			out = append(out, Difference{Option: p.name, Desired: get.text, Observed: have.text, Message: "the operator never weakens a mount", Weaker: true})
		}
	}
	return out
}

// withoutWeaker omits desired options that make a mount weaker than its floor options, regardless of the conflict policy.
func (t *table) withoutWeaker(floor, wanted []Option) (remaining []Option, skipped []Difference) {
	weaker := map[string]bool{}
	for _, o := range wanted {
		group := t.groupOf(o)
		if _, isEvaluated := weaker[group]; !isEvaluated {
			lost := t.weakened(floor, t.inGroup(wanted, group))
			weaker[group] = len(lost) > 0
			skipped = append(skipped, lost...)
		}
		if !weaker[group] {
			remaining = append(remaining, o)
		}
	}
	return remaining, skipped
}

// CheckProtection warns about options of a rule that are left out because they would weaken volumes. Options that are
// weaker than the default are left out of all volumes that do not have them. If the rule replaces values, weaker
// options are left out of stricter volumes.
func (p Protocol) CheckProtection(options []string, policy v1alpha1.ConflictPolicy) []Problem {
	t := tableOf(p)
	var problems []Problem
	for _, option := range options {
		o := parseOne(option)
		below, stricter := t.weakened(nil, []Option{o}), t.stricterThan(o)
		replaces := policy == v1alpha1.ConflictUseProfile || policy == v1alpha1.ConflictUseProfileOverClass
		var message string
		switch {
		case t.validateOption(option, o) != "":
		case len(below) > 0:
			message = fmt.Sprintf("is left out: mounts have %s=%s by default, which is stronger, and the operator never weakens a mount; only a "+
				"volume itself can set it",
				below[0].Option, below[0].Observed)
		case replaces && len(stricter) > 0:
			message = fmt.Sprintf("is left out for volumes with %s: the operator never weakens a mount, regardless of onConflict", text.List(stricter))
		}
		if message != "" {
			problems = append(problems, Problem{Option: option, Message: message, Warning: true})
		}
	}
	return problems
}

// stricterThan returns the options that a rule must not replace with the given option.
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
