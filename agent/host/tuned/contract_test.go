package tuned

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/sysctl"
	"github.com/storageclient/operator/test/check"
)

const (
	// releasesVariable contains directories with releases of tuned, separated by colons, from which the record is made. See "make record-tuned".
	releasesVariable = "SCO_TUNED"
	record           = "testdata/started.txt"
	declared         = "1024"
)

// started contains the changed values below /proc/sys after tuned has started: after its profile alone, and after the system's sysctls. Error is set if tuned
// does not start.
type started struct {
	Profile, All   map[string]string
	Error, release string
}

// parameters are the parameters of the trees. All of them have the declared value before tuned starts.
var parameters = []string{"net.core.rmem_max", "net.core.wmem_max", "net.ipv4.tcp_max_orphans"}

// writeProfiles writes random profiles. Since tuned 2.24, they are in other directories. Releases before 2.17 reject repeated sections and options:
// isUnique leaves them out.
func writeProfiles(t *testing.T, dir string, r *rand.Rand, isNew, isUnique bool) {
	t.Helper()
	pick := func(choices ...string) string { return choices[r.IntN(len(choices))] }
	directories := []string{"/etc/tuned", "/usr/lib/tuned"}
	if isNew {
		directories = []string{"/etc/tuned/profiles", "/usr/lib/tuned/profiles", "/opt/tuned"}
	}
	for _, directory := range []string{"/etc/tuned", "/usr/lib/tuned", "/opt/tuned"} {
		check.NoError(t, os.RemoveAll(filepath.Join(dir, directory)))
	}
	if isNew {
		hosttest.WriteFile(t, dir, "/usr/lib/tuned/profiles/z/tuned.conf", "")
		// New releases do not read this directory.
		hosttest.WriteFile(t, dir, "/etc/tuned/a/tuned.conf", "[sysctl]\nnet.core.rmem_max=5\n")
	}
	for _, directory := range directories {
		for _, name := range []string{"a", "b", "c"} {
			if r.IntN(3) > 0 {
				hosttest.WriteFile(t, dir, filepath.Join(directory, name, "tuned.conf"), profileText(pick, r, isUnique))
			}
		}
	}
	hosttest.WriteFile(t, dir, profileFile, pick("a\n", "a\n", "a b\n", "c a"))
	main := pick("", "# none\n", "reapply_sysctl = 0\n", "reapply_sysctl=false # x\n", "reapply_sysctl = 1\n")
	if isNew {
		main += pick("", "", "profile_dirs = /usr/lib/tuned/profiles, /opt/tuned\n", "profile_dirs=/opt/tuned;/etc/tuned/profiles\n") +
			pick("", "", "reapply_sysctl_exclude = net.core.r*, vm.*\n", "reapply_sysctl_exclude=net.ipv4.tcp_max_orphan?\n")
	}
	hosttest.WriteFile(t, dir, mainConf, main)
}

func profileText(pick func(...string) string, r *rand.Rand, isUnique bool) string {
	var text strings.Builder
	seen := map[string]bool{}
	isRepeated := func(line string) bool {
		name, _, _ := strings.Cut(line, "=")
		name = strings.Trim(strings.TrimSuffix(name, "# x"), "[] \t")
		defer func() { seen[name] = true }()
		return isUnique && seen[name] && name != ""
	}
	text.WriteString("# " + pick("a", "[sysctl]") + "\n")
	if r.IntN(2) == 0 {
		text.WriteString("[main]\nsummary=x\n" + pick("include=b", "include=c", "include = c, b", "include=b;c", "include=a", "include=a", ";include=b") + "\n")
	}
	for range 1 + r.IntN(3) {
		section := pick("[sysctl]", "[sysctl]", "[sysctl]", "[my]\ntype=sysctl", "[variables]", "[ sysctl ]", "[sysctl] # x")
		if isRepeated(section) {
			continue
		}
		text.WriteString(section + "\n")
		if section == "[variables]" {
			text.WriteString(pick("x=7", "x = 9", "x=1024") + "\n" + pick("", "y=${x}", "y=8") + "\n")
			continue
		}
		for range r.IntN(4) {
			line := pick(
				"net.core.rmem_max=1024", "net.core.rmem_max = 7", "net.core.rmem_max=\"9\"", "net.core.rmem_max=${x}", "net.core.rmem_max=7 # x",
				"net.core.wmem_max=9 ; x", "#net.core.wmem_max=7", ";net.core.wmem_max=7", "net.core.wmem_max = ${y}",
				"net.core.wmem_max=>512", "net.core.wmem_max=>4096", "net.core.wmem_max=<512", "net.core.wmem_max=1024",
				"net.ipv4.tcp_max_orphans=1024", "net.ipv4.tcp_max_orphans=9", "net.ipv4.tcp_max_orphans=0x400",
				"  net.core.rmem_max=6", "\tnet.core.wmem_max=6", "enabled=0", "enabled=false", "enabled=true", "replace=1", "replace=true", "replace=no",
				"drop=net.core.rmem_max", "drop=net.core.wmem_max, net.core.rmem_max", "priority=-1", "priority=5", "",
			)
			if !isRepeated(line) {
				text.WriteString(line + "\n")
			}
		}
	}
	return text.String()
}

// Profiles and files are read as the real releases of tuned read them. The record contains their results for the same trees.
func TestProfilesAreReadAsTunedReadsThem(t *testing.T) {
	recorded := readRecord(t)
	var lines []string
	compared := map[string]int{}
	for seed := range uint64(180) {
		isNew, isUnique := seed%2 == 1 && seed < 100, seed >= 100
		m := newMachine(t)
		m.active, m.enabled = true, true
		r := rand.New(rand.NewPCG(seed, 1))
		writeProfiles(t, m.dir, r, isNew, isUnique)
		hosttest.WriteFile(t, m.dir, "/usr/lib/systemd/systemd-sysctl", "")
		hosttest.WriteFile(t, m.dir, "/dev/null", "")
		tree := hosttest.Tree{
			Rand: r, Directories: []string{"/etc/sysctl.d", "/run/sysctl.d"}, Names: []string{"10-a.conf", "zz.conf", "zzz.conf", "zz-tuned.conf"},
			Lines: []string{
				"", "# net.core.rmem_max=7", ";net.core.wmem_max=7", "net.core.rmem_max = 7", "-net.core.wmem_max=7", "net.core.wmem_max=1024", " net.core.wmem_max=8",
				"net.core.rmem_max=1024", "net.ipv4.tcp_max_orphans=7", "net.ipv4.tcp_max_orphans = 1024", "junk", "=7",
			},
		}
		tree.Write(t, m.dir, sysctl.SystemConf)
		for _, name := range parameters {
			hosttest.WriteFile(t, m.dir, "/proc/sys/"+strings.ReplaceAll(name, ".", "/"), declared+"\n")
		}
		values, desired := sysctl.New(m.fs), hosttest.Settings(parameters[0], declared, parameters[1], declared, parameters[2], declared)
		hosttest.Apply(t, values, desired)
		key := fmt.Sprint("seed ", seed)
		if releases := os.Getenv(releasesVariable); releases != "" {
			lines = append(lines, startReleases(t, key, m.dir, strings.Split(releases, ":"), isNew)...)
			recorded = parseRecord(t, lines)
		}
		if len(recorded[key]) == 0 {
			t.Fatalf("%s: run make record-tuned", key)
		}
		for _, want := range recorded[key] {
			// Releases before 2.13 do not have the option drop.
			hasDrop := strings.Contains(fmt.Sprint(hosttest.ReadTree(t, m.dir, "/etc/tuned", "/usr/lib/tuned")), "drop=")
			if isOld := want.release == "2.10.0" || want.release == "2.12.0"; want.Error == "" && (!isOld || !hasDrop) {
				compared[want.release]++
				expectStarted(t, m, key+": tuned "+want.release, values, desired, want)
			}
		}
	}
	for _, release := range []string{"2.10.0", "2.12.0", "2.14.0", "2.15.0", "2.20.0", "2.25.1", "2.27.0"} {
		if compared[release] < 10 {
			t.Errorf("tuned %s: got %d trees with which it starts, want at least 10", release, compared[release])
		}
	}
	if len(lines) > 0 {
		check.NoError(t, os.WriteFile(record, []byte(strings.Join(lines, "\n")+"\n"), 0o644))
	}
}

func expectStarted(t *testing.T, m *machine, key string, values *sysctl.Subject, desired []host.Setting, want started) {
	t.Helper()
	s := m.subject()
	before := values.Observe(t.Context(), desired)
	values.SetReapplier(s.ReappliesSysctl)
	after := values.Observe(t.Context(), desired)
	minor, err := strconv.Atoi(strings.Split(want.release, ".")[1])
	check.NoError(t, err)
	active := strings.TrimSpace(hosttest.ReadFile(t, m.dir, profileFile))
	found, err := s.findConflicts(active, minor < 17)
	check.NoError(t, err)
	_, hasPlugin, err := s.profileSysctls(strings.Fields(active), minor < 17)
	check.NoError(t, err)
	isReapplied, err := s.readReapply()
	check.NoError(t, err)
	describe := func() string {
		return fmt.Sprint(hosttest.ReadTree(t, m.dir, "/etc/tuned", "/usr/lib/tuned", "/opt/tuned", "/etc/sysctl.d", "/run/sysctl.d", sysctl.SystemConf))
	}
	for i, name := range parameters {
		file := strings.ReplaceAll(name, ".", "/")
		got, isFinal := declared, false
		if j := slices.IndexFunc(found, func(c conflict) bool { return c.declared == name }); j >= 0 {
			got, isFinal = found[j].text, found[j].isFinal
		}
		alone, all := cmp.Or(want.Profile[file], declared), cmp.Or(want.All[file], declared)
		if !sysctl.Changes(name, alone, declared) {
			// For example text that the kernel does not accept.
			alone = declared
		}
		// The agent also reports a conflict for an expression that tuned evaluates to the declared value.
		if sysctl.Changes(name, got, alone) && !strings.ContainsAny(got, "<>$") {
			t.Errorf("%s: %s: the profile sets %q, tuned sets %q\n%s", key, name, got, alone, describe())
		}
		isSetAgain := !isFinal && isReapplied(name) && sysctl.Changes(name, all, declared)
		// Another release could have the plug-in.
		isSetAgain = isSetAgain || !hasPlugin && after[i].State == host.Shadowed
		if before[i].State == host.InSync && (after[i].State == host.Shadowed) != isSetAgain {
			t.Errorf("%s: %s: got %s (%s), and %q after the start of tuned\n%s", key, name, after[i].State, after[i].Message, all, describe())
		}
	}
}

// startReleases starts releases of tuned in a directory, and returns a line for each. Their layout of profiles is the one of the tree.
func startReleases(t *testing.T, key, dir string, releases []string, isNew bool) (lines []string) {
	t.Helper()
	for _, release := range releases {
		_, err := os.Stat(filepath.Join(release, "usr/lib/tuned/profiles"))
		if (err == nil) != isNew {
			continue
		}
		command := exec.CommandContext(t.Context(), "python3", "testdata/start.py", release)
		command.Stdin, command.Stderr = strings.NewReader(dir+"\n"), os.Stderr
		out, err := command.Output()
		check.NoError(t, err)
		lines = append(lines, fmt.Sprintf("%s: tuned %s: %s", key, filepath.Base(release), strings.TrimSpace(string(out))))
	}
	return lines
}

func readRecord(t *testing.T) map[string][]started {
	t.Helper()
	file, err := os.Open(record)
	if err != nil {
		return nil
	}
	defer file.Close()
	var lines []string
	for scanner := bufio.NewScanner(file); scanner.Scan(); {
		lines = append(lines, scanner.Text())
	}
	return parseRecord(t, lines)
}

// parseRecord returns the results of all releases for each tree.
func parseRecord(t *testing.T, lines []string) map[string][]started {
	t.Helper()
	all := map[string][]started{}
	for _, line := range lines {
		parts := strings.SplitN(line, ": ", 3)
		var s started
		if err := json.Unmarshal([]byte(parts[len(parts)-1]), &s); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		s.release = strings.TrimPrefix(parts[1], "tuned ")
		all[parts[0]] = append(all[parts[0]], s)
	}
	return all
}
