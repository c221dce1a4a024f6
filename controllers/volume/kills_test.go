package volume

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
)

// passKilledAt runs a pass and kills the manager before the read or write with the given number. It reports whether the manager died.
func (s *story) passKilledAt(at int) (died bool) {
	count := 0
	s.intrude = func() {
		if count == at {
			panic(errDied)
		}
		count++
	}
	_, died = s.m.pass(1)
	if s.intrude = nil; died {
		s.m = newManager(s.world)
	}
	s.now = s.now.Add(passInterval)
	return died
}

// ends returns the options of the volumes, and the state of the recorded option sets.
func (s *story) ends() string {
	var out []string
	for _, name := range s.names() {
		out = append(out, name+" has "+strings.Join(s.volumes[name].pv.Spec.MountOptions, ","))
	}
	records := s.records()
	for _, set := range slices.Sorted(maps.Keys(records)) {
		out = append(out, fmt.Sprintf("recorded: %s, cleared %q", records[set].State("filer"), lists.Each(records[set].Cleared, func(kind string) string { return s.kinds[kind] })))
	}
	return strings.Join(out, "; ")
}

// The ledger is written before a volume and settled after it. At whatever read or write a manager dies, the next manager gets the
// same result.
func TestAManagerDiesBetweenAnyTwoSteps(t *testing.T) {
	fail := func(s *story, name string) { s.poisoned, s.outspoken = true, false; s.mount(name) }
	toCanary := func(s *story) {
		s.volumesByAge("a", "b", "c")
		s.addProfile("eda", []string{"nocto", poison}, func(p *v1alpha1.StorageClientProfile) {
			p.Spec.Rollout.Volumes = &v1alpha1.VolumeRollout{MaxPerStep: ptr.To(intstr.FromString("100%")), SoakSeconds: ptr.To[int32](60)}
		})
		s.until(2 * time.Minute)
	}
	toSuspected := func(s *story) {
		toCanary(s)
		fail(s, "a")
		s.until(90 * time.Second)
	}
	mountedLater := func(s *story) {
		// If the manager died after it wrote the volume, this mount is too early.
		s.mount("a")
		s.until(2 * time.Minute)
		s.mount("a")
		s.until(5 * time.Minute)
	}
	for name, test := range map[string]struct {
		before, after func(*story)
		// want is the result. unseen is the result if the manager died before it recorded a temporary observation. Empty if impossible.
		want, unseen string
	}{
		"a failed mount is recorded, the volume restored, and that recorded": {
			func(s *story) { toCanary(s); fail(s, "a"); s.now = s.now.Add(time.Minute) },
			mountedLater,
			"a has hard; b has hard; c has hard; recorded: Failing, cleared []", "",
		},
		"the options are found to be the cause": {
			func(s *story) { toSuspected(s); s.mount("a"); s.now = s.now.Add(time.Minute) },
			func(s *story) { s.until(5 * time.Minute) },
			"a has hard; b has hard; c has hard; recorded: Failing, cleared []", "",
		},
		"the failure is cleared, and the options are applied again": {
			func(s *story) {
				toCanary(s)
				s.unwell["a"] = true
				s.mount("a")
				s.until(6 * time.Minute)
				s.mount("a")
				s.now = s.now.Add(time.Minute)
			},
			func(s *story) { s.until(3 * time.Minute) },
			`a has hard,nocto,nordirplus; b has hard; c has hard; recorded: Untried, cleared ["sick server"]`, "",
		},
		"a mount is recorded, and the batch is written": {
			func(s *story) { toCanary(s); s.mount("a"); s.now = s.now.Add(time.Minute) },
			func(s *story) { s.until(5 * time.Minute) },
			"a has hard,nocto,nordirplus; b has hard,nocto,nordirplus; c has hard,nocto,nordirplus; recorded: Works, cleared []", "",
		},
		"a mount is recorded, and gone by the time of the next manager": {
			func(s *story) { toCanary(s); s.mount("a"); s.now = s.now.Add(time.Minute) },
			func(s *story) { delete(s.mounts, "a"); s.until(5 * time.Minute) },
			"a has hard,nocto,nordirplus; b has hard,nocto,nordirplus; c has hard,nocto,nordirplus; recorded: Works, cleared []",
			"a has hard,nocto,nordirplus; b has hard; c has hard",
		},
		"a failure is cleared once no rule declares the options": {
			func(s *story) {
				toSuspected(s)
				s.mount("a")
				s.until(2 * time.Minute)
				s.editProfile("eda", func(p *v1alpha1.StorageClientProfile) { declare(p, []string{"nocto"}) })
			},
			func(s *story) { s.until(3 * time.Minute) },
			"a has hard,nocto; b has hard; c has hard", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			kills, unseen := 0, 0
			for at := 0; ; at++ {
				w := newWorld(7)
				w.verbose = true
				s := &story{world: w, m: newManager(w)}
				test.before(s)
				died := s.passKilledAt(at)
				want := test.want
				if test.unseen != "" && len(s.records()) == 0 {
					want, unseen = test.unseen, unseen+1
				}
				test.after(s)
				if got := s.ends(); got != want || s.broken != nil {
					t.Fatalf("killed before step %d: error %v\ngot %s\nwant %s\n%s", at, s.broken, got, want, strings.Join(s.log, "\n"))
				}
				if !died {
					break
				}
				kills++
			}
			if kills < 6 { // reads of the cache, the volumes, the ledger and the observations, and at least one write
				t.Errorf("got %d steps at which a manager was killed, want at least 6", kills)
			}
			if test.unseen != "" && (unseen == 0 || unseen == kills) {
				t.Errorf("got %d of %d managers without a record, want some but not all", unseen, kills)
			}
		})
	}
}
