package sysctl

import (
	"strings"
	"syscall"
	"testing"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/test/check"
)

const (
	ratio = "vm.dirty_ratio"
	bytes = "vm.dirty_bytes"
)

// couplingKernel clears one parameter of a pair when the other is written, like mm/page-writeback.c. It rejects 0 for dirty_bytes.
type couplingKernel struct{ host.FS }

func (k couplingKernel) WriteValue(name, value string) error {
	cleared := map[string]string{"dirty_ratio": "dirty_bytes", "dirty_bytes": "dirty_ratio"}
	base := name[strings.LastIndex(name, "/")+1:]
	if base == "dirty_bytes" && value == "0" {
		return syscall.EINVAL
	}
	if err := k.FS.WriteValue(name, value); err != nil || cleared[base] == "" {
		return err
	}
	return k.FS.WriteValue(strings.TrimSuffix(name, base)+cleared[base], "0")
}

// pairOn returns a host with coupled dirty_ratio and dirty_bytes.
func pairOn(t *testing.T, ratioValue, bytesValue string) (*Subject, func() [2]string) {
	t.Helper()
	dir, fs := debian(t)
	write := func(name, value string) { hosttest.WriteFile(t, dir, "/proc/sys/vm/"+name, value+"\n") }
	write("dirty_ratio", ratioValue)
	write("dirty_bytes", bytesValue)
	s := New(fs)
	s.kernel = couplingKernel{fs}
	return s, func() [2]string {
		read := func(name string) string {
			return strings.TrimSpace(hosttest.ReadFile(t, dir, "/proc/sys/vm/"+name))
		}
		return [2]string{read("dirty_ratio"), read("dirty_bytes")}
	}
}

func originalOf(t *testing.T, s *Subject, name string) host.Original {
	t.Helper()
	original, err := s.Original(t.Context(), name)
	check.NoError(t, err)
	return original
}

func TestPairIsRestoredTogether(t *testing.T) {
	tests := map[string]struct {
		ratio, bytes string
		set          []string
	}{
		"bytes were effective, the ratio is set":        {"0", "50000000", []string{ratio, "15"}},
		"bytes were effective, and other bytes are set": {"0", "50000000", []string{bytes, "80000000"}},
		"the ratio was effective, bytes are set":        {"20", "0", []string{bytes, "80000000"}},
		"the ratio was effective, and another is set":   {"20", "0", []string{ratio, "15"}},
		"the ratio was effective, and the same is set":  {"20", "0", []string{ratio, "20"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s, read := pairOn(t, test.ratio, test.bytes)
			before := read()
			original := originalOf(t, s, test.set[0])
			hosttest.Apply(t, s, hosttest.Settings(test.set...))
			hosttest.ExpectState(t, hosttest.Observe(t, s, test.set[0], test.set[1]), host.InSync)
			hosttest.Apply(t, s, nil)
			restored := s.Restore(t.Context(), map[string]host.Original{test.set[0]: original})
			hosttest.ExpectState(t, restored[0], host.InSync)
			check.Equal(t, "ratio and bytes", before, read())
		})
	}
}

// The journal may contain only one value of a pair, as for values that an image set. If that value is 0, the other one was effective.
func TestAPairWithAnUnknownCounterpart(t *testing.T) {
	tests := map[string]struct {
		name, value, file string
		now               [2]string
		state             host.State
		message           string
		want              [2]string
	}{
		"the ratio was effective":                    {ratio, "20", "", [2]string{"15", "0"}, host.InSync, "", [2]string{"20", "0"}},
		"bytes were effective, and a file has them":  {ratio, "0", "vm.dirty_bytes = 50000000\n", [2]string{"15", "0"}, host.InSync, "", [2]string{"0", "50000000"}},
		"bytes were effective, and no file has them": {ratio, "0", "", [2]string{"15", "0"}, host.Failed, "vm.dirty_bytes was effective before", [2]string{"15", "0"}},
		"another user has set the bytes again":       {ratio, "0", "", [2]string{"0", "60000000"}, host.InSync, "effective again", [2]string{"0", "60000000"}},
		"an image has set the bytes":                 {bytes, "", "", [2]string{"0", "60000000"}, host.InSync, "effective again", [2]string{"0", "60000000"}},
		"the ratio was effective, bytes are managed": {bytes, "0", "vm.dirty_ratio = 30\n", [2]string{"0", "60000000"}, host.InSync, "", [2]string{"30", "0"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s, read := pairOn(t, test.now[0], test.now[1])
			if test.file != "" {
				hosttest.WriteFile(t, s.fs.Dir(), "/etc/sysctl.d/50-node.conf", test.file)
			}
			restored := s.Restore(t.Context(), map[string]host.Original{test.name: {Present: true, Value: test.value}})
			hosttest.ExpectState(t, restored[0], test.state, test.message)
			check.Equal(t, "ratio and bytes", test.want, read())
		})
	}
}

func TestRatioOfZeroIsNotRestored(t *testing.T) {
	s, read := pairOn(t, "15", "0")
	restored := s.Restore(t.Context(), map[string]host.Original{ratio: {Present: true, Value: "0", Counterpart: "0"}})
	hosttest.ExpectState(t, restored[0], host.InSync, "blocks all writes")
	check.Equal(t, "ratio and bytes", [2]string{"15", "0"}, read())
}

// uncoupledKernel does not clear the counterpart. No current kernel behaves like this.
type uncoupledKernel struct{ host.FS }

func TestPairThatIsNotRestoredIsReported(t *testing.T) {
	s, _ := pairOn(t, "15", "7")
	s.kernel = uncoupledKernel{s.fs}
	restored := s.Restore(t.Context(), map[string]host.Original{ratio: {Present: true, Value: "20", Counterpart: "0"}})
	hosttest.ExpectState(t, restored[0], host.Failed, `vm.dirty_bytes is "7"`, "did not clear it")
}

func TestBothOfAPairCannotBeDesired(t *testing.T) {
	s, read := pairOn(t, "20", "0")
	before := read()
	both := hosttest.Settings(bytes, "80000000", ratio, "15")
	hosttest.Apply(t, s, both)
	for _, o := range s.Observe(t.Context(), both) {
		hosttest.ExpectState(t, o, host.Failed, "declare only one of them")
	}
	if after := read(); after != before || s.fs.Exists(DropIn) {
		t.Errorf("ratio and bytes: got %v, drop-in %t", after, s.fs.Exists(DropIn))
	}
}

func TestCounterpartReplacesAParameter(t *testing.T) {
	s, read := pairOn(t, "20", "0")
	original := originalOf(t, s, ratio)
	hosttest.Apply(t, s, hosttest.Settings(ratio, "15"))
	hosttest.Apply(t, s, hosttest.Settings(bytes, "80000000"))
	hosttest.ExpectState(t, s.Restore(t.Context(), map[string]host.Original{ratio: original})[0], host.InSync, "is set instead")
	check.Equal(t, "ratio and bytes", [2]string{"0", "80000000"}, read())
}

func TestALaterFileThatSetsTheCounterpartShadows(t *testing.T) {
	s, _ := pairOn(t, "20", "0")
	hosttest.WriteFile(t, s.fs.Dir(), "/etc/sysctl.d/zzz-node.conf", "vm.dirty_bytes = 50000000\n")
	hosttest.Apply(t, s, hosttest.Settings(ratio, "15"))
	hosttest.ExpectState(t, hosttest.Observe(t, s, ratio, "15"), host.Shadowed, "/etc/sysctl.d/zzz-node.conf")
}

// boundedKernel rejects a lower bound above the upper one, and an upper bound below the lower one, like sunrpc for its ports.
type boundedKernel struct{ host.FS }

func (k boundedKernel) WriteValue(name, value string) error {
	other, tooFar := "/proc/sys/sunrpc/max_resvport", func(value, other string) bool { return value > other }
	if strings.HasSuffix(name, "max_resvport") {
		other, tooFar = "/proc/sys/sunrpc/min_resvport", func(value, other string) bool { return value < other }
	}
	bound, err := k.ReadValue(other)
	if err != nil {
		return err
	}
	if tooFar(value, bound) {
		return syscall.EINVAL
	}
	return k.FS.WriteValue(name, value)
}

func TestRelatedBoundsAreSetAndRestoredInEitherOrder(t *testing.T) {
	const lower, upper = "sunrpc.min_resvport", "sunrpc.max_resvport"
	for name, set := range map[string][2]string{"above": {"800", "900"}, "below": {"100", "200"}} {
		t.Run(name, func(t *testing.T) {
			dir, fs := debian(t)
			hosttest.WriteFile(t, dir, "/proc/sys/sunrpc/min_resvport", "300\n")
			hosttest.WriteFile(t, dir, "/proc/sys/sunrpc/max_resvport", "400\n")
			s := New(fs)
			s.kernel = boundedKernel{fs}
			originals := map[string]host.Original{lower: originalOf(t, s, lower), upper: originalOf(t, s, upper)}
			desired := hosttest.Settings(upper, set[1], lower, set[0])
			hosttest.Apply(t, s, desired)
			for _, o := range s.Observe(t.Context(), desired) {
				hosttest.ExpectState(t, o, host.InSync)
			}
			hosttest.Apply(t, s, nil)
			for _, o := range s.Restore(t.Context(), originals) {
				hosttest.ExpectState(t, o, host.InSync)
			}
		})
	}
}
