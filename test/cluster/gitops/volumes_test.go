//go:build gitops

package gitops

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/test/cluster/controlplane"
)

// volumeOf returns the manifest of a volume. An empty list declares no mountOptions.
func volumeOf(name, list string) string {
	options := ""
	if list != "" {
		options = "  mountOptions: " + list + "\n"
	}
	return fmt.Sprintf(`apiVersion: v1
kind: PersistentVolume
metadata: {name: %s, labels: {round: "0"}}
spec:
  capacity: {storage: 100Gi}
  accessModes: [ReadWriteMany]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: gitops
%s  csi: {driver: file.csi.azure.com, volumeHandle: %s, volumeAttributes: {protocol: nfs, server: account1.file.core.windows.net}}
`, name, options, name)
}

// volumeProfile is a profile of all volumes of the story.
func volumeProfile(policy string) string {
	return fmt.Sprintf(`apiVersion: tuning.storageclient.dev/v1alpha1
kind: StorageClientProfile
metadata: {name: volumes}
spec:
  nodeSelector: {matchLabels: {sandbox-pool: none}}
  volumes:
  - {name: nfs, selector: {storageClassNames: [gitops], protocols: [NFS]}, mountOptions: [actimeo=30, nconnect=4], gitOpsOwned: %s}
  rollout: {volumes: {maxPerStep: 100%%, soakSeconds: 1, onNoEvidence: Proceed}}
`, policy)
}

// applyWays are the ways in which Argo CD applies a volume, with and without the block.
var applyWays = map[string]string{"csa": "", "ssa": "ServerSideApply=true", "rep": "Replace=true"}

const (
	declared = `["hard","timeo=600"]`
	tuned    = `["hard","timeo=600","actimeo=30","nconnect=4"]`
	added    = `["actimeo=30","nconnect=4"]`
	// syncs is the number of refreshes and of syncs over which lists must not change.
	syncs = 20
)

// cedeBlock matches the block of a message that the user adds to the Application.
var cedeBlock = regexp.MustCompile(`\{ignoreDifferences: .*?RespectIgnoreDifferences=true\]\}\}`)

func (w *world) mountOptions(t *testing.T, name string) string {
	t.Helper()
	object := w.get(t, volumeKind, "", name)
	if object == nil {
		return "no volume"
	}
	list, _, _ := unstructured.NestedStringSlice(object.Object, "spec", "mountOptions")
	if len(list) == 0 {
		return "[]"
	}
	out, err := json.Marshal(list)
	check.NoError(t, err)
	return string(out)
}

// row returns the state and the reason of a volume from the plugin's table.
func (w *world) row(t *testing.T, name string) string {
	t.Helper()
	output, _ := w.try("kubectl", "storageclient", "volumes", "volumes")
	for line := range strings.Lines(output) {
		if fields := strings.Fields(line); len(fields) > 3 && fields[0] == name {
			return fields[2] + " " + fields[3]
		}
	}
	return "no row in " + output
}

// message returns the line that explains a volume.
func (w *world) message(t *testing.T, name string) string {
	t.Helper()
	for line := range strings.Lines(w.run(t, "kubectl", "storageclient", "volumes", "volumes")) {
		if strings.HasPrefix(line, name+": ") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// writesOf returns how often the manager has changed each volume.
func (w *world) writesOf(t *testing.T) map[string]int {
	t.Helper()
	check.NoError(t, w.Plane.AwaitAudit(t.Context()))
	writes, err := w.Plane.Writes()
	check.NoError(t, err)
	count := map[string]int{}
	for _, write := range writes {
		if write.User == controlplane.Manager && write.Resource == "persistentvolumes" && write.Code < 300 && !write.DryRun {
			count[write.Name]++
		}
	}
	return count
}

func (a *argo) awaitRow(t *testing.T, volume, want string) {
	t.Helper()
	a.await(t, volume+" to be "+want, func() (bool, string) {
		got := a.row(t, volume)
		return got == want, got + " " + a.mountOptions(t, volume)
	})
}

// paste adds the block of a volume's message to an Application, word for word.
func (a *argo) paste(t *testing.T, app, volume string) {
	t.Helper()
	message := a.message(t, volume)
	block := cedeBlock.FindString(message)
	if block == "" {
		t.Fatalf("no block in the message of %s: %s", volume, message)
	}
	patch, err := yaml.YAMLToJSON([]byte("spec: " + block))
	if err != nil {
		t.Fatalf("%v in the block %s", err, block)
	}
	var mine struct {
		Spec map[string]any `json:"spec"`
	}
	check.NoError(t, json.Unmarshal(patch, &mine))
	// A merge patch replaces lists: the options and differences that the Application has stay.
	application := a.application(t, app)
	options, _, _ := unstructured.NestedStringSlice(application.Object, "spec", "syncPolicy", "syncOptions")
	differences, _, _ := unstructured.NestedSlice(application.Object, "spec", "ignoreDifferences")
	if strings.Contains(message, "take Replace=true out") || strings.Contains(message, "remove Replace=true") {
		options = slices.DeleteFunc(options, func(o string) bool { return o == "Replace=true" })
	}
	for _, option := range mine.Spec["syncPolicy"].(map[string]any)["syncOptions"].([]any) {
		if !slices.Contains(options, option.(string)) {
			options = append(options, option.(string))
		}
	}
	differences = append(differences, mine.Spec["ignoreDifferences"].([]any)...)
	merged, err := json.Marshal(map[string]any{"spec": map[string]any{"ignoreDifferences": differences, "syncPolicy": map[string]any{"syncOptions": options}}})
	check.NoError(t, err)
	a.patch(t, app, merged)
}

// volumesStory has a volume with a list and a volume without a list in each Application. Applications with a name that ends with "ign" have the block.
func volumesStory(t *testing.T, a *argo) {
	var apps, all []string
	files := map[string]string{}
	for _, suffix := range []string{"", "ign"} {
		for way := range applyWays {
			app := way + suffix
			apps = append(apps, app)
			for kind, list := range map[string]string{"listed": declared, "bare": ""} {
				files["volumes/"+app+"/"+kind+".yaml"] = volumeOf(app+"-"+kind, list)
				all = append(all, app+"-"+kind)
			}
		}
	}
	slices.Sort(apps)
	slices.Sort(all)
	step := func(what string, do func(*testing.T)) {
		t.Helper()
		if !t.Run(what, do) {
			t.FailNow()
		}
	}
	original := func(volume string) string {
		if strings.HasSuffix(volume, "bare") {
			return "[]"
		}
		return declared
	}
	want := func(volume string) string {
		if strings.HasSuffix(volume, "bare") {
			return added
		}
		return tuned
	}
	before := a.writesOf(t)
	// writesSince returns the volumes that the manager has written since.
	writesSince := func(t *testing.T, before map[string]int, volumes []string) map[string]int {
		t.Helper()
		out := map[string]int{}
		for name, n := range a.writesOf(t) {
			if slices.Contains(volumes, name) && n > before[name] {
				out[name] = n - before[name]
			}
		}
		return out
	}

	step("ReportOnly writes no volume that Argo CD manages", func(t *testing.T) {
		a.commit(t, "volumes", files)
		for _, app := range apps {
			options := []string{}
			if option := applyWays[app[:3]]; option != "" {
				options = append(options, option)
			}
			a.apply(t, a.applicationOf(app, "volumes/"+app, "{automated: {selfHeal: true}, syncOptions: ["+strings.Join(options, ",")+"]}"))
		}
		for _, app := range apps {
			a.expect(t, app, "Synced/Healthy", "")
		}
		a.apply(t, volumeProfile("ReportOnly"))
		for _, volume := range all {
			a.awaitRow(t, volume, "Exception VolumeDeclaredElsewhere")
		}
		if got := writesSince(t, before, all); len(got) > 0 {
			t.Errorf("the manager wrote %v", got)
		}
		t.Log(a.message(t, "csa-listed"))
	})
	step("with the block of the message, Patch writes once and Argo CD stays Synced", func(t *testing.T) {
		for _, app := range apps {
			if strings.HasSuffix(app, "ign") {
				a.paste(t, app, app+"-listed")
				a.paste(t, app, app+"-bare")
			}
		}
		a.kubectl(t, `patch scp volumes --type=json --patch '[{"op":"replace","path":"/spec/volumes/0/gitOpsOwned","value":"Patch"}]'`)
		for _, volume := range all {
			if strings.Contains(volume, "ign-") {
				a.awaitRow(t, volume, "UpToDate VolumeUpToDate")
				if got := a.mountOptions(t, volume); got != want(volume) {
					t.Errorf("%s: got %s, want %s", volume, got, want(volume))
				}
			}
		}
	})
	step("without the block each writes once, and the volume is in conflict", func(t *testing.T) {
		for _, app := range []string{"csa", "ssa", "rep"} {
			a.awaitRow(t, app+"-listed", "Blocked VolumeConflict")
			if got := a.mountOptions(t, app+"-listed"); got != declared {
				t.Errorf("%s-listed: got %s, want what Git declares", app, got)
			}
			t.Log(a.message(t, app+"-listed"))
		}
		for _, app := range []string{"csa", "ssa", "rep"} {
			t.Logf("%s-bare, of which Git declares no list: %s %s", app, a.row(t, app+"-bare"), a.mountOptions(t, app+"-bare"))
		}
	})
	step(fmt.Sprintf("nothing changes over %d refreshes and syncs", syncs), func(t *testing.T) {
		// A replacement removes the annotations of the operator, which then writes them once more. Without the block it also removes the
		// list.
		for _, app := range apps {
			a.sync(t, app)
			a.sync(t, app)
		}
		lists := map[string]string{}
		for _, volume := range all {
			lists[volume] = a.mountOptions(t, volume)
		}
		steady := a.writesOf(t)
		for i := range syncs {
			for _, app := range apps {
				a.startSync(t, app)
			}
			for _, app := range apps {
				a.await(t, fmt.Sprint("sync ", i+1, " of ", app), func() (bool, string) {
					application := a.application(t, app)
					return application.Object["operation"] == nil && pictureOf(application).phase == "Succeeded", pictureOf(application).String()
				})
				if i%5 == 0 {
					a.refresh(t, app)
				}
			}
		}
		for _, volume := range all {
			if got := a.mountOptions(t, volume); got != lists[volume] {
				t.Errorf("%s: got %s after the syncs, before %s", volume, got, lists[volume])
			}
		}
		if got := writesSince(t, steady, all); len(got) > 0 {
			t.Errorf("the manager wrote %v during the syncs", got)
		}
		for volume, writes := range writesSince(t, before, all) {
			if most := map[bool]int{true: 2, false: 1}[strings.HasPrefix(volume, "repign")]; writes > most {
				t.Errorf("%s: the manager wrote %d times since the start, want at most %d", volume, writes, most)
			}
		}
		for _, volume := range all {
			t.Logf("%s: %s, %s", volume, a.row(t, volume), a.mountOptions(t, volume))
		}
		for _, app := range apps {
			if strings.HasSuffix(app, "ign") {
				a.expect(t, app, "Synced/Healthy", "")
			}
		}
	})
	step("the remedy of a conflict works word for word", func(t *testing.T) {
		for _, app := range []string{"csa", "ssa", "rep"} {
			a.paste(t, app, app+"-listed")
			message := a.message(t, app+"-listed")
			_, command, found := strings.Cut(message, "run: kubectl ")
			if !found {
				t.Fatalf("no command in the message %s", message)
			}
			command, _, _ = strings.Cut(command, " (")
			t.Log("kubectl " + command)
			a.kubectl(t, command)
			a.awaitRow(t, app+"-listed", "UpToDate VolumeUpToDate")
			for range 3 {
				a.sync(t, app)
			}
			if got := a.mountOptions(t, app+"-listed"); got != tuned {
				t.Errorf("%s-listed: got %s, want %s", app, got, tuned)
			}
		}
	})
	step("the original lists come back with the deletion of the profile, and stay", func(t *testing.T) {
		// A change of the volumes lets Argo CD write its last-applied annotation or its apply manager with the operator's list.
		for name, content := range files {
			files[name] = strings.Replace(content, `round: "0"`, `round: "1"`, 1)
		}
		a.commit(t, "a label", files)
		for _, app := range apps {
			a.refresh(t, app)
			a.sync(t, app)
		}
		a.kubectl(t, "delete scp volumes --timeout=60s")
		for _, volume := range all {
			a.await(t, volume+" to be restored", func() (bool, string) { got := a.mountOptions(t, volume); return got == original(volume), got })
		}
		for _, app := range apps {
			a.sync(t, app)
		}
		for _, volume := range all {
			if got := a.mountOptions(t, volume); got != original(volume) {
				t.Errorf("%s: got %s after a further sync, want %s", volume, got, original(volume))
			}
			for key := range a.get(t, volumeKind, "", volume).GetAnnotations() {
				if strings.HasPrefix(key, "tuning.storageclient.dev/") {
					t.Errorf("%s still has %s", volume, key)
				}
			}
		}
	})
	for _, app := range apps {
		check.NoError(t, a.delete(t.Context(), a.application(t, app)))
	}
	for _, app := range apps {
		a.expectGone(t, app)
	}
}
