package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/journal"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/catalogue"
)

const fileHeader = "# Written by storage-client-node-agent. What is changed here is overwritten.\n"

// The permitted lines of each generated file after its header. The first group names the keys.
var (
	sysctlLine = regexp.MustCompile(`^(?:# Done once, not at boot: )?([A-Za-z0-9_][A-Za-z0-9_.,:/@+-]*) = [A-Za-z0-9_.,:=/@+-]+(?: [A-Za-z0-9_.,:=/@+-]+)*$`)
	moduleLine = regexp.MustCompile(`^options ([A-Za-z0-9_]+(?: [A-Za-z0-9_]+=[A-Za-z0-9_.,:=/@+-]+)+)$`)
	grubLine   = regexp.MustCompile(`^GRUB_CMDLINE_LINUX_DEFAULT="\$GRUB_CMDLINE_LINUX_DEFAULT((?: [A-Za-z0-9_.,:/@+][A-Za-z0-9_.,:=/@+-]*)+)"$`)
	safeBytes  = regexp.MustCompile(`^[A-Za-z0-9_.,:=/@+#()\[\]" \n-]*$`)
)

// keysOf returns the canonical keys that a line of a generated file sets, and false for an unexpected line.
func keysOf(name, line string) (keys []string, ok bool) {
	pattern, found := map[string]*regexp.Regexp{trace: sysctlLine, modules: moduleLine, grub: grubLine}[name]
	if !found {
		return nil, safeBytes.MatchString(line)
	}
	match := pattern.FindStringSubmatch(line)
	if match == nil {
		return nil, false
	}
	words := strings.Fields(match[1])
	switch name {
	case trace:
		return []string{catalogue.SysctlKey(match[1])}, true
	case modules:
		for _, word := range words[1:] {
			parameter, _, _ := strings.Cut(word, "=")
			keys = append(keys, catalogue.ModuleKey(words[0], parameter))
		}
	case grub:
		for _, word := range words {
			key, _ := catalogue.KernelArgumentKey(word)
			keys = append(keys, key)
		}
	}
	return keys, true
}

// checkFiles checks all changed files of the host.
func checkFiles(t *testing.T, before, after map[string]string, everyKey bool) {
	t.Helper()
	for name, data := range after {
		if previous, exists := before[name]; exists && previous == data {
			continue
		}
		switch {
		case name == journal.File:
		case strings.HasPrefix(name, "/proc/"), name == grubCfg:
			if _, exists := before[name]; !exists {
				t.Errorf("%s was created", name)
			}
		case !strings.HasPrefix(name, "/etc/") || !strings.Contains(filepath.Base(name), "storage-client"):
			t.Errorf("%s does not belong to the agent and was changed: %q", name, data)
		default:
			checkFile(t, name, data, everyKey)
		}
	}
	for name := range before {
		if _, exists := after[name]; !exists {
			t.Errorf("%s was removed", name)
		}
	}
}

func checkFile(t *testing.T, name, data string, everyKey bool) {
	t.Helper()
	body, ok := strings.CutPrefix(data, fileHeader)
	if !ok || !strings.HasSuffix(body, "\n") {
		t.Errorf("%s: got %q", name, data)
	}
	for line := range strings.Lines(body) {
		keys, ok := keysOf(name, strings.TrimSuffix(line, "\n"))
		if !ok {
			t.Errorf("%s has the line %q", name, line)
		}
		for _, key := range keys {
			if _, known := catalogue.Lookup(key); !known && !everyKey {
				t.Errorf("%s sets %s, which is not in the catalogue", name, key)
			}
		}
	}
}

// The generated menu takes arguments only from the drop-in of the agent, so its lines need no check.
func FuzzNothingButPermittedBytesReachesAFile(f *testing.F) {
	for _, seed := range []struct{ key, value string }{
		{rmem, "16777216"}, {rmem, "1\nkernel.core_pattern = |/bin/sh"}, {rmem, "1;reboot"}, {flush, "1"},
		{"sysctl/net.core.rmem_max\nkernel.core_pattern", "x"}, {"sysctl/-net.core.rmem_max", "1"}, {"sysctl//etc/passwd", "x"},
		{"sysctl/net.core/../../../etc/passwd", "x"}, {"sysctl/kernel.core_pattern", "|/bin/sh"},
		{slots, "128"}, {slots, "128 install nfs /bin/sh"}, {"module/nfs/max_session_slots", "180"},
		{"module/nfs/x\ninstall", "1"}, {"module/../x", "1"}, {"module/a b/c", "1"},
		{ihash, "1048576"}, {ihash, `1"; reboot; "`}, {ihash, "$(reboot)"}, {ihash, "1 init=/bin/sh"}, {"kernelArgument/init", "/bin/sh"},
		{"kernelArgument/a\"\nb", "1"}, {"kernelArgument/-- x", ""}, {"kernelArgument/`x`", ""}, {"kernelArgument/quiet", ""},
		{"", ""}, {"other/key", "x"}, {"sysctl/", "1"}, {"module/", "1"}, {"kernelArgument/", "1"},
	} {
		for _, mode := range []byte{0, 1, 2, 3} {
			f.Add(seed.key, seed.value, rmem, seed.value, mode)
		}
	}
	f.Fuzz(func(t *testing.T, key, value, key2, value2 string, mode byte) {
		everyKey, image := mode&1 != 0, mode&2 != 0
		dir := fuzzHost(t)
		before := hosttest.ReadTree(t, dir, "/")
		files, err := host.OpenFS(dir)
		check.NoError(t, err)
		defer files.Close()
		if image {
			files = files.AsImage()
		}
		var allowed Allowed
		if everyKey {
			allowed.Parameters = []string{`(?s).*`}
		}
		h := NewMachine(files, &hosttest.Commands{Dir: dir, KernelLog: kernelLog(262144)}, "/var/lib/kubelet")
		spec := v1alpha1.StorageClientNodeSpec{Settings: []v1alpha1.NodeSetting{setting(key, value), setting(key2, value2)}}
		for range 2 {
			p, err := h.beginPass(spec, allowed)
			check.NoError(t, err)
			check.NoError(t, p.carryOut(context.Background()))
			check.NoError(t, errors.Join(p.setUnconfirmed(context.Background(), "", "", time.Now), h.Journal.Confirm()))
		}
		checkFiles(t, before, hosttest.ReadTree(t, dir, "/"), everyKey)
	})
}

// fuzzHost copies a host to memory, so that a sync is free.
func fuzzHost(t *testing.T) string {
	t.Helper()
	from := hosttest.CopyHost
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		dir, err := os.MkdirTemp("/dev/shm", "storage-client-fuzz-")
		if err == nil {
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			check.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join("..", "test", "fixtures", "hosts", "debian-12"))))
			return dir
		}
	}
	return from(t, "debian-12")
}
