package nfsmountconf

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/test/check"
)

func machine(t *testing.T) (string, host.FS) {
	t.Helper()
	dir, fs := hosttest.OpenHost(t, "debian-12")
	hosttest.WriteFile(t, dir, "/usr/sbin/mount.nfs", "\x7fELF\x00%s: (linux nfs-utils 2.8.3)\n\x00")
	return dir, fs
}

func readAll(fs host.FS) conf {
	return readConf(fs, readHelper(fs), func(string) bool { return true })
}

// kinds maps an option of these tests to its kind. The last option of a kind wins.
var kinds = map[string]string{"soft": "hard", "nocto": "cto", "nfsvers": "vers"}

// differences uses the last option of a kind, as the kernel does.
func differences(desired, observed []string) []string {
	kindOf := func(option string) string {
		name, _, _ := strings.Cut(option, "=")
		if kind, ok := kinds[name]; ok {
			return kind
		}
		return name
	}
	last := map[string]string{}
	for _, option := range observed {
		last[kindOf(option)] = option
	}
	var differing []string
	for _, option := range desired {
		if last[kindOf(option)] != option {
			differing = append(differing, kindOf(option))
		}
	}
	return differing
}

func apply(t *testing.T, s *Subject, pairs ...string) {
	t.Helper()
	hosttest.Apply(t, s, hosttest.Settings(pairs...))
}

func expect(t *testing.T, s *Subject, name, value string, state host.State, parts ...string) host.Observation {
	t.Helper()
	got := hosttest.Observe(t, s, name, value)
	hosttest.ExpectState(t, got, state, parts...)
	if got.Effect != host.NextMount {
		t.Errorf("%s: got effect %s", name, got.Effect)
	}
	return got
}

func TestOptionsAreWrittenAsMountReadsThem(t *testing.T) {
	dir, fs := machine(t)
	s := New(fs, differences)
	expect(t, s, "_all", "nocto,hard", host.Drifted)
	apply(t, s, "filer1", "nconnect=4", "_all", "nocto,hard,v4.1")
	want := host.OwnHeader + `[ NFSMount_Global_Options ]
cto=False
hard=True
v4.1=True
[ Server "filer1" ]
nconnect=4
`
	check.Equal(t, "file", want, hosttest.ReadFile(t, dir, DropIn))
	expect(t, s, "_all", "nocto,hard,v4.1", host.InSync)
	if got := expect(t, s, "filer1", "nconnect=4", host.InSync); got.Observed != "nconnect=4,v4.1,hard,nocto" {
		t.Errorf("observed: got %q", got.Observed)
	}
	changes := 0
	apply(t, New(fs.WithHook(func(host.Op, string) error { changes++; return nil }), differences), "filer1", "nconnect=4", "_all", "nocto,hard,v4.1")
	check.Equal(t, "changes of a second Apply", 0, changes)
}

// The expected options are the output of mount.nfs 2.6.2 of Debian 12. It ran with -v, with these files, and without options for a mount of
// 127.0.0.1.
func TestOptionsAreJoinedAsMountDoes(t *testing.T) {
	const managed = "[ NFSMount_Global_Options ]\nnconnect=4\ncto=False\nrsize=262144\nhard=True\nresvport=False\nv4.1=True\n" +
		"[ Server \"127.0.0.1\" ]\nnconnect=8\nsoft=True\nrsize=1048576\n"
	const other = "[ NFSMount_Global_Options ]\nnconnect=2\ntimeo=300\n[ Server \"127.0.0.1\" ]\nnconnect=3\n"
	tests := map[string]struct {
		files map[string]string
		want  string
	}{
		"only the drop-in":     {map[string]string{DropIn: managed}, "rsize=1048576,soft,nconnect=8,v4.1,noresvport,hard,nocto"},
		"a later file":         {map[string]string{DropIn: managed, directory + "/zz.conf": other}, "nconnect=3,rsize=1048576,soft,timeo=300,v4.1,noresvport,hard,nocto"},
		"the main file before": {map[string]string{DropIn: managed, mainFile: other}, "rsize=1048576,soft,nconnect=8,v4.1,noresvport,hard,nocto,timeo=300"},
		"one version only": {map[string]string{DropIn: "[ NFSMount_Global_Options ]\nvers=4.1\nhard=True\nproto=tcp\nac=False\ncto=False\n" +
			"[Server \"127.0.0.1\"]\nsoft=True\nvers=4.2\nac=True\nacregmin=5\n"}, "acregmin=5,ac,vers=4.2,soft,nocto,proto=tcp,hard"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir, fs := machine(t)
			for file, data := range test.files {
				hosttest.WriteFile(t, dir, file, data)
			}
			c := readAll(fs)
			check.Equal(t, "result", test.want, strings.Join(c.optionsOf("127.0.0.1", ""), ","))
		})
	}
}

func TestOmittedMountOptions(t *testing.T) {
	for name, test := range map[string]struct{ server, all, want string }{
		"denied for the server, requested for all":         {"ac=False", "ac=True", "noac"},
		"requested for the server, denied for all":         {"ac=True", "ac=False", "ac"},
		"requested for the server, denied by its opposite": {"ac=True", "noac=True", "ac"},
		"commented out with a semicolon":                   {"ac=True", ";hard=True", "ac"},
		"a version under another name":                     {"vers=4.2", "v4.1=True", "vers=4.2"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, fs := machine(t)
			hosttest.WriteFile(t, dir, DropIn, "[ NFSMount_Global_Options ]\n"+test.all+"\n[ Server \"filer1\" ]\n"+test.server+"\n")
			c := readAll(fs)
			check.Equal(t, "result", test.want, strings.Join(c.optionsOf("filer1", ""), ","))
		})
	}
}

// mount.nfs 2.6.2, 2.8.3 and 3.1.1 ignore it.
func TestALastLineWithoutAnEndIsIgnored(t *testing.T) {
	dir, fs := machine(t)
	s := New(fs, differences)
	apply(t, s, "_all", "nconnect=4")
	hosttest.WriteFile(t, dir, directory+"/zzz.conf", "[ NFSMount_Global_Options ]\nhard=True\nnconnect=2")
	if got := expect(t, s, "_all", "nconnect=4", host.InSync); got.Observed != "hard,nconnect=4" {
		t.Errorf("observed: got %s", got.Observed)
	}
}

func TestOtherFilesAndSectionsShadowTheAgentsFile(t *testing.T) {
	tests := map[string]struct {
		file, data string
		name       string
		state      host.State
		message    string
	}{
		"the main file, which is read before":   {mainFile, "[ NFSMount_Global_Options ]\nnconnect=2\n", "_all", host.InSync, ""},
		"a later file":                          {directory + "/zz.conf", "[NFSMount_Global_Options]\nNconnect = 2\n", "_all", host.Shadowed, directory + "/zz.conf sets another value for nconnect"},
		"a later file with the same value":      {directory + "/zz.conf", "[NFSMount_Global_Options]\nnconnect=4\n", "_all", host.InSync, ""},
		"a later file that is commented out":    {directory + "/zz.conf", "[NFSMount_Global_Options]\n# nconnect=2\n", "_all", host.InSync, ""},
		"a file of another name":                {directory + "/zz.txt", "[NFSMount_Global_Options]\nnconnect=2\n", "_all", host.InSync, ""},
		"a section for a server":                {mainFile, "[ Server \"Other\" ]\nnconnect=2\n", "_all", host.Shadowed, mainFile + " has a section for other, which sets another value for nconnect"},
		"a section for a server in the drop-in": {mainFile, "[ Server \"filer1\" ]\nnconnect=2\n", "_all", host.InSync, ""},
		"a section for a mount point":           {mainFile, "[ MountPoint \"/data\" ]\nnconnect=2\n", "filer1", host.Shadowed, "a section for /data"},
		"a section for another server":          {mainFile, "[ Server \"other\" ]\nnconnect=2\n", "filer1", host.InSync, ""},
		"the same value in quotes":              {directory + "/zz.conf", "[NFSMount_Global_Options]\nnconnect=\"4\"\n", "_all", host.InSync, ""},
		"another name for the same, later":      {mainFile, "[ NFSMount_Global_Options ]\nsoft=True\n", "_all", host.Shadowed, mainFile + " sets another value for hard"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir, fs := machine(t)
			s := New(fs, differences)
			apply(t, s, "_all", "nconnect=4,hard", "filer1", "nconnect=8")
			hosttest.WriteFile(t, dir, test.file, test.data)
			value := map[string]string{"_all": "nconnect=4,hard", "filer1": "nconnect=8"}[test.name]
			expect(t, s, test.name, value, test.state, test.message)
		})
	}
}

// The releases before 2.8.3 keep a tag only in the section that is read last (seen with mount.nfs 2.6.2 of Debian 12, not with 2.8.3 and 3.1.1).
func TestOptionsAreNotTakenFromOtherSections(t *testing.T) {
	type settings map[string]string
	tests := map[string]struct {
		release string
		foreign map[string]string
		desired settings
		// unsupported contains the expected parts of messages. Other settings are InSync.
		unsupported settings
	}{
		"two servers with the same option": {
			"2.6.2", nil, settings{"filer1": "nconnect=4,nocto", "filer2": "nconnect=8"},
			settings{"filer2": `nfs-utils 2.6.2 reads nconnect from the last section for a server only, and ` + DropIn + ` sets it in [ Server "filer1" ]`},
		},
		"two servers with different options":                {"2.6.2", nil, settings{"filer1": "nconnect=4", "filer2": "nocto"}, nil},
		"two servers with an option and its opposite":       {"2.6.2", nil, settings{"filer1": "cto", "filer2": "nocto"}, settings{"filer2": "reads cto from"}},
		"two servers of which the first is not written":     {"2.6.2", map[string]string{mainFile: "[Server \"other\"]\nhard=True\n"}, settings{"filer1": "nconnect=4,hard", "filer2": "nconnect=8"}, settings{"filer1": mainFile}},
		"a server and all servers":                          {"2.6.2", nil, settings{"filer1": "nconnect=4", "_all": "nconnect=8"}, nil},
		"a section in the main file":                        {"2.6.2", map[string]string{mainFile: "[ Server \"Other\" ]\nNconnect = 2\n"}, settings{"filer1": "nconnect=4"}, settings{"filer1": mainFile + ` sets it in [ Server "other" ]`}},
		"a section in a file that is read before":           {"2.6.2", map[string]string{directory + "/a.conf": "[server \"other\"]\nnconnect=2\n"}, settings{"filer1": "nconnect=4"}, settings{"filer1": directory + "/a.conf"}},
		"a section in a file that is read later":            {"2.6.2", map[string]string{directory + "/zzz.conf": "[server \"other\"]\nnconnect=2\n"}, settings{"filer1": "nconnect=4"}, settings{"filer1": directory + "/zzz.conf"}},
		"a section that has already lost it":                {"2.6.2", map[string]string{mainFile: "[server \"a\"]\nhard=True\n[server \"b\"]\nhard=True\n"}, settings{"filer1": "hard"}, settings{"filer1": `"a"`}},
		"a section for the same server":                     {"2.6.2", map[string]string{mainFile: "[ Server \"filer1\" ]\nnconnect=2\n"}, settings{"filer1": "nconnect=4"}, nil},
		"a section for a mount point":                       {"2.6.2", map[string]string{mainFile: "[ MountPoint \"/m\" ]\nnconnect=4\n"}, settings{"filer1": "nconnect=4"}, nil},
		"a section that is commented out":                   {"2.6.2", map[string]string{mainFile: "#[ Server \"other\" ]\n#nconnect=2\n"}, settings{"filer1": "nconnect=4"}, nil},
		"a mount point that lost its option to another":     {"2.6.2", map[string]string{mainFile: "[MountPoint \"/a\"]\nnconnect=2\n[MountPoint \"/b\"]\nnconnect=4\n"}, settings{"filer1": "nconnect=4"}, nil},
		"an unknown release":                                {"", nil, settings{"filer1": "nconnect=4", "filer2": "nconnect=8"}, settings{"filer2": "unknown release"}},
		"the last release with the fault":                   {"2.8.2", nil, settings{"filer1": "nconnect=4", "filer2": "nconnect=8"}, settings{"filer2": "install nfs-utils 2.8.3 or later"}},
		"a release of two numbers":                          {"2.8", nil, settings{"filer1": "nconnect=4", "filer2": "nconnect=8"}, settings{"filer2": "nfs-utils 2.8 "}},
		"the first release without the fault":               {"2.8.3", nil, settings{"filer1": "nconnect=4", "filer2": "nconnect=8"}, nil},
		"a later release":                                   {"2.10.1", map[string]string{mainFile: "[server \"other\"]\nnconnect=2\n"}, settings{"filer1": "nconnect=4", "filer2": "nconnect=8"}, nil},
		"a later major release, before a release candidate": {"3.1.1-rc2", nil, settings{"filer1": "nconnect=4", "filer2": "nconnect=8"}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir, fs := machine(t)
			text := ""
			if test.release != "" {
				text = "%s: (linux nfs-utils " + test.release + ")\n"
			}
			hosttest.WriteFile(t, dir, "/usr/sbin/mount.nfs", text)
			for file, data := range test.foreign {
				hosttest.WriteFile(t, dir, file, data)
			}
			s, pairs := New(fs, differences), []string{}
			for server, options := range test.desired {
				pairs = append(pairs, server, options)
			}
			apply(t, s, pairs...)
			for _, got := range s.Observe(t.Context(), hosttest.Settings(pairs...)) {
				want, message := host.InSync, test.unsupported[got.Name]
				if message != "" {
					want = host.Unsupported
				}
				hosttest.ExpectState(t, got, want, message)
			}
			written, err := s.readDropIn()
			check.NoError(t, err)
			for server := range test.desired {
				if isWritten := len(written[sectionOf(server)]) > 0; isWritten == (test.unsupported[server] != "") {
					t.Errorf("%s: written %t", server, isWritten)
				}
			}
		})
	}
}

// A file of another user appears after the agent has written its own.
func TestOptionsOfAnotherUserReturn(t *testing.T) {
	dir, fs := machine(t)
	hosttest.WriteFile(t, dir, "/usr/sbin/mount.nfs", "")
	s := New(fs, differences)
	apply(t, s, "filer1", "nconnect=4", "_all", "hard")
	hosttest.WriteFile(t, dir, mainFile, "[ Server \"other\" ]\nnconnect=2\n")
	expect(t, s, "filer1", "nconnect=4", host.InSync, mainFile+` sets it in [ Server "other" ]: leave it out of one of the two`)
	apply(t, s, "_all", "hard")
	apply(t, s, "filer1", "nconnect=4", "_all", "hard")
	expect(t, s, "filer1", "nconnect=4", host.Unsupported, mainFile)
	all := readAll(fs)
	check.Equal(t, "options of the other server", []string{"nconnect=2", "hard"}, all.optionsOf("other", ""))
	expect(t, s, "_all", "hard", host.InSync)
}

func TestAnOptionMovesToAnotherServer(t *testing.T) {
	dir, fs := machine(t)
	hosttest.WriteFile(t, dir, "/usr/sbin/mount.nfs", "")
	s := New(fs, differences)
	apply(t, s, "filer2", "nconnect=4")
	apply(t, s, "filer1", "nconnect=4", "filer2", "hard")
	expect(t, s, "filer1", "nconnect=4", host.InSync)
}

func TestAgentSectionsThatMountTreatsAsOne(t *testing.T) {
	_, fs := machine(t)
	s := New(fs, differences)
	apply(t, s, "_all", "hard", "filer1", "soft")
	expect(t, s, "filer1", "soft", host.Shadowed, "the section for all servers")
}

func TestDriftOfTheAgentsFile(t *testing.T) {
	dir, fs := machine(t)
	s := New(fs, differences)
	apply(t, s, "_all", "nconnect=4")
	for name, data := range map[string]string{
		"gone": "", "another value": "[ NFSMount_Global_Options ]\nnconnect=8\n", "one more": "[ NFSMount_Global_Options ]\nnconnect=4\nsoft=True\n",
	} {
		hosttest.WriteFile(t, dir, DropIn, data)
		t.Run(name, func(t *testing.T) { expect(t, s, "_all", "nconnect=4", host.Drifted, DropIn) })
		apply(t, s, "_all", "nconnect=4")
		expect(t, s, "_all", "nconnect=4", host.InSync)
	}
}

func TestARepeatedOptionIsNotMissing(t *testing.T) {
	_, fs := machine(t)
	s := New(fs, differences)
	apply(t, s, "_all", "nconnect=4,hard,nconnect=4")
	expect(t, s, "_all", "nconnect=4,hard,nconnect=4", host.InSync)
}

func TestAHostThatMountsNoNFS(t *testing.T) {
	dir := hosttest.CopyHost(t, "debian-12")
	fs, err := host.OpenFS(dir)
	check.NoError(t, err)
	s := New(fs, differences)
	apply(t, s, "_all", "hard")
	expect(t, s, "_all", "hard", host.Unsupported, "nfs-common")
	if fs.Exists(DropIn) {
		t.Error("wrote a file that no program reads")
	}
}

func TestAHostWhoseMountHelperIsInSbin(t *testing.T) {
	dir, fs := hosttest.OpenHost(t, "debian-12")
	check.NoError(t, os.Remove(filepath.Join(dir, "/sbin")))
	hosttest.WriteFile(t, dir, "/sbin/mount.nfs", "")
	s := New(fs, differences)
	apply(t, s, "_all", "hard")
	expect(t, s, "_all", "hard", host.InSync)
}

func TestInvalidSettingsAreRejected(t *testing.T) {
	for name, setting := range map[string]host.Setting{
		"a server that closes the section": {Name: `a"]`, Value: "hard"},
		"a line end in an option":          {Name: "a", Value: "hard\nsoft"},
		"a blank":                          {Name: "a", Value: "hard soft"},
		"a section in an option":           {Name: "a", Value: "[x]"},
		"no option":                        {Name: "a", Value: ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, fs := machine(t)
			s := New(fs, differences)
			apply(t, s, setting.Name, setting.Value)
			expect(t, s, setting.Name, setting.Value, host.Failed)
			if fs.Exists(DropIn) {
				t.Error("wrote a file")
			}
		})
	}
}

func TestAFileThatCannotBeWrittenIsFailed(t *testing.T) {
	_, fs := machine(t)
	s := New(fs.WithHook(func(host.Op, string) error { return errors.New("no space left on device") }), differences)
	if err := s.Apply(t.Context(), hosttest.Settings("_all", "hard")); err == nil {
		t.Error("Apply: got no error")
	}
	expect(t, s, "_all", "hard", host.Failed, "no space left")
}

// The file is a directory, which even root cannot read as a file.
func TestUnreadableFileIsNotTreatedAsMissing(t *testing.T) {
	dir, fs := machine(t)
	hosttest.WriteFile(t, dir, DropIn+"/x", "")
	s := New(fs, differences)
	expect(t, s, "_all", "hard", host.Failed, DropIn)
	hosttest.ExpectState(t, s.Restore(t.Context(), map[string]host.Original{"_all": {}})[0], host.Failed, DropIn)
}

func TestRestoreEqualsBefore(t *testing.T) {
	dir, fs := machine(t)
	hosttest.WriteFile(t, dir, mainFile, "[ NFSMount_Global_Options ]\nnconnect=2\n")
	before := hosttest.ReadTree(t, dir, "/etc")
	s := New(fs, differences)
	apply(t, s, "_all", "hard", "filer1", "soft")
	originals := map[string]host.Original{"_all": {}, "filer1": {}}
	for _, o := range s.Restore(t.Context(), originals) {
		if o.State != host.Failed {
			t.Errorf("got %+v while the agent's file contains the setting", o)
		}
	}
	apply(t, s)
	for _, o := range s.Restore(t.Context(), originals) {
		if o.State != host.InSync {
			t.Errorf("got %+v", o)
		}
	}
	check.Equal(t, "host", before, hosttest.ReadTree(t, dir, "/etc"))
	if fs.Exists(directory) {
		t.Errorf("%s was created and not removed", directory)
	}
}

func TestDirectoryWithFilesOfOthersIsKept(t *testing.T) {
	dir, fs := machine(t)
	hosttest.WriteFile(t, dir, directory+"/other.conf", "")
	s := New(fs, differences)
	apply(t, s, "_all", "hard")
	apply(t, s)
	if !fs.Exists(directory + "/other.conf") {
		t.Error("the file of another user was removed")
	}
}

func TestApplyConvergesAfterACrashAtEveryChange(t *testing.T) {
	for n := 1; ; n++ {
		dir, fs := machine(t)
		apply(t, New(fs, differences), "_all", "soft")
		before, count := hosttest.ReadFile(t, dir, DropIn), 0
		crashed := New(fs.WithHook(func(host.Op, string) error {
			if count++; count >= n {
				return errors.New("crash")
			}
			return nil
		}), differences)
		_ = crashed.Apply(t.Context(), hosttest.Settings("_all", "hard", "filer1", "nconnect=4"))
		if got := hosttest.ReadFile(t, dir, DropIn); !slices.Contains([]string{before, renderDropIn(hosttest.Settings("_all", "hard", "filer1", "nconnect=4"))}, got) {
			t.Errorf("after a crash at change %d: got file %q", n, got)
		}
		s := New(fs, differences)
		apply(t, s, "_all", "hard", "filer1", "nconnect=4")
		expect(t, s, "filer1", "nconnect=4", host.InSync)
		if got := hosttest.ReadTree(t, dir, directory); len(got) != 1 {
			t.Errorf("after a crash at change %d: got %v", n, got)
		}
		if count < n {
			if n < 5 {
				t.Errorf("got only %d changes", n-1)
			}
			return
		}
	}
}

func TestReadOnlyEtcRejectsMountDefaults(t *testing.T) {
	dir, fs := machine(t)
	hosttest.WriteFile(t, dir, "/proc/1/mountinfo", "25 1 8:1 / / rw - ext4 /dev/sda1 rw\n")
	s := New(fs.WithHook(func(host.Op, string) error { return syscall.EROFS }), differences)
	apply(t, s, allServers, "hard")
	expect(t, s, allServers, "hard", host.Unsupported, "/etc is read-only", "mount.nfs reads its defaults only there")
}

// Earlier releases of the agent wrote sections that share an option, regardless of the release of nfs-utils.
func TestAnUpgradeKeepsTheSectionsOfTheDropIn(t *testing.T) {
	const other = "[ Server \"other\" ]\nnconnect=2\n"
	type pairs []string
	for name, test := range map[string]struct {
		foreign map[string]string
		// before is in the drop-in, desired now.
		before, desired pairs
		// states and messages belong to the desired settings in order.
		states   []host.State
		messages []string
	}{
		"two servers: the last section has the option": {nil, pairs{"filer1", "nconnect=4,hard", "filer2", "nconnect=8"}, pairs{"filer1", "nconnect=4,hard", "filer2", "nconnect=8"},
			[]host.State{host.Shadowed, host.InSync}, []string{`nfs-utils 2.6.2 reads nconnect from the last section for a server only, and ` + DropIn + ` sets it in [ Server "filer2" ]`, "filer1"}},
		"a server of an earlier file": {map[string]string{mainFile: other}, pairs{"filer1", "nconnect=4"}, pairs{"filer1", "nconnect=4"},
			[]host.State{host.InSync}, []string{mainFile + ` sets it in [ Server "other" ]`}},
		"a server of a later file": {map[string]string{directory + "/zzz.conf": other}, pairs{"filer1", "nconnect=4"}, pairs{"filer1", "nconnect=4"},
			[]host.State{host.Shadowed}, []string{directory + `/zzz.conf sets it in [ Server "other" ]`}},
		"a new server whose name is first": {nil, pairs{"filer1", "nconnect=4"}, pairs{"a", "nconnect=8", "filer1", "nconnect=4"},
			[]host.State{host.Unsupported, host.InSync}, []string{`sets it in [ Server "filer1" ]`, "new mounts"}},
		"a new server without a common option": {nil, pairs{"filer1", "nconnect=4"}, pairs{"a", "hard", "filer1", "nconnect=4"},
			[]host.State{host.InSync, host.InSync}, []string{"", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			dir, fs := machine(t)
			hosttest.WriteFile(t, dir, DropIn, renderDropIn(hosttest.Settings(test.before...)))
			hosttest.WriteFile(t, dir, "/usr/sbin/mount.nfs", "%s: (linux nfs-utils 2.6.2)\n")
			for file, data := range test.foreign {
				hosttest.WriteFile(t, dir, file, data)
			}
			before := hosttest.ReadTree(t, dir, "/etc")
			s := New(fs, differences)
			apply(t, s, test.desired...)
			for i, got := range s.Observe(t.Context(), hosttest.Settings(test.desired...)) {
				hosttest.ExpectState(t, got, test.states[i], test.messages[i])
			}
			if slices.Equal(test.before, test.desired) {
				check.Equal(t, "host", before, hosttest.ReadTree(t, dir, "/etc"))
			}
			sections := renderDropIn(hosttest.Settings(test.before...))[len(host.OwnHeader):]
			if got := hosttest.ReadFile(t, dir, DropIn); !strings.Contains(got, sections) {
				t.Errorf("the earlier sections changed:\n%s", got)
			}
		})
	}
}

// mount.nfs 2.6.2 skips such files.
func TestUnreadableFilesOfOthersChangeNoState(t *testing.T) {
	for name, file := range map[string]string{
		"a directory as a file": directory + "/x.conf", "a directory as the main file": mainFile, "a directory as the program": "/usr/sbin/mount.nfs",
	} {
		t.Run(name, func(t *testing.T) {
			dir, fs := machine(t)
			hosttest.WriteFile(t, dir, "/usr/sbin/mount.nfs", "")
			s := New(fs, differences)
			apply(t, s, "filer1", "nconnect=4", "filer2", "hard")
			check.NoError(t, os.RemoveAll(filepath.Join(dir, file)))
			hosttest.WriteFile(t, dir, file+"/x", "")
			expect(t, s, "filer1", "nconnect=4", host.InSync)
			for _, desired := range [][]string{{"filer2", "hard"}, {}} {
				apply(t, s, desired...)
				hosttest.ExpectState(t, s.Restore(t.Context(), map[string]host.Original{"filer1": {}})[0], host.InSync)
			}
			if fs.Exists(DropIn) {
				t.Error("the drop-in was not removed")
			}
		})
	}
}

func TestTheProgramIsReadAgainAfterAnUpdate(t *testing.T) {
	const program = "/usr/sbin/mount.nfs"
	dir, fs := machine(t)
	s, at := New(fs, differences), time.Unix(1700000000, 0)
	for _, step := range []struct {
		story, text, release string
		at                   time.Time
	}{
		{"no release", "x", "", at},
		{"a release", "(linux nfs-utils 2.6.2)", "2.6.2", at},
		{"the same size and time", "(linux nfs-utils 2.6.3)", "2.6.2", at},
		{"another time", "(linux nfs-utils 2.6.3)", "2.6.3", at.Add(1)},
		{"another size", "(linux nfs-utils 2.10.1)", "2.10.1", at.Add(1)},
	} {
		hosttest.WriteFile(t, dir, program, step.text)
		check.NoError(t, os.Chtimes(filepath.Join(dir, program), step.at, step.at))
		if got := s.readProgram().release; got != step.release {
			t.Errorf("%s: got release %q, want %q", step.story, got, step.release)
		}
	}
	check.NoError(t, os.Remove(filepath.Join(dir, program)))
	check.Equal(t, "release after its removal", "", s.readProgram().release)
}
