package judge

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

// replacerOf searches for a tool that wrote the mount options as a part of the whole volume. Its field manager has owned them since then.
func replacerOf(pv *corev1.PersistentVolume) (replacer owner, replaced bool) {
	for _, entry := range pv.ManagedFields {
		if !OwnsMountOptions(entry) || entry.Manager == v1alpha1.VolumesFieldManager {
			continue
		}
		if isReplacer(entry) {
			return owner{tool: kubectlReplace, sign: fmt.Sprintf("field manager %q", entry.Manager)}, true
		}
		if manager, found := managerOf(entry); found {
			return manager, true
		}
	}
	return owner{}, false
}

// isReplacer reports whether an entry of the managed fields belongs to kubectl replace. A user may have run it only once. The entry identifies
// who changed the mount options, but does not show that another tool manages them.
func isReplacer(entry metav1.ManagedFieldsEntry) bool {
	return entry.Operation == metav1.ManagedFieldsOperationUpdate && entry.Subresource == "" && entry.Manager == "kubectl-replace"
}

// keepReplaced returns the verdict on a volume that another tool wrote as a whole, without the annotations. The tool declares the options, although
// they equal the operator's last write.
func (s *scope) keepReplaced(replacer owner) Verdict {
	if s.isSatisfied() {
		v, _ := s.keepCurrent()
		return v
	}
	return blockedFor(v1alpha1.VolumeReasonConflict, fmt.Sprintf("Not changed: %s writes the whole volume; mountOptions are %s; %s",
		replacer, listText(s.current), s.remedyText(replacer)))
}

// changerOf returns the tool that probably changed the volume.
func (s *scope) changerOf() (changer owner, known bool) {
	if changer, known = replacerOf(s.Volume); known {
		return changer, true
	}
	return ownerOf(s.Volume)
}

// changedText is the message for mount options that differ from the applied ones.
func (s *scope) changedText() string {
	changer, known := s.changerOf()
	actor := "Another user or controller"
	if known {
		actor = changer.String()
	}
	change, remedy := "changed mountOptions to "+listText(s.current), "set these again"
	if s.record.Recalled {
		change = fmt.Sprintf("replaced the volume: mountOptions are %s, and the operator's annotations are gone", listText(s.current))
	}
	if known {
		remedy = s.remedyText(changer)
	}
	return fmt.Sprintf("%s %s; last written: %s; %s, or %s", actor, change, listText(s.record.Applied), remedy, s.adoptText())
}

// removedText is the message for annotations that were restored once and removed again.
func (s *scope) removedText() string {
	changer, known := s.changerOf()
	out := "The operator's annotations were removed again after it restored them; "
	if known {
		out += fmt.Sprintf("%s may remove them: %s, and ", changer, s.remedyText(changer))
	} else {
		out += "stop the user or controller that removes them, and "
	}
	return out + s.adoptText()
}

// remedyText returns the text to paste into a tool, so that it declares the mount options or lets the operator manage them.
func (s *scope) remedyText(manager owner) string {
	declare, cede := manager.blocks(s.Volume.Name, s.merged.options)
	if declare != "" {
		return fmt.Sprintf("set mountOptions to %s there, %s", listText(s.merged.options), declare)
	}
	if manager.tool == argoCD && s.record.Recalled {
		cede += ", and remove Replace=true from its sync options"
	}
	return "configure it to leave them unchanged, " + cede
}

// adoptText returns the command that makes the current mount options the original ones. Declared options are merged into them from then on.
func (s *scope) adoptText() string {
	list := "[]"
	if len(s.current) > 0 {
		list = listText(s.current)
	}
	list = "'" + strings.ReplaceAll(list, "'", `'\''`) + "'"
	return fmt.Sprintf("to adopt the current mountOptions as the original ones, run: "+
		"kubectl annotate --overwrite pv %s %s=%s %s=%s --field-manager="+v1alpha1.PluginFieldManager,
		s.Volume.Name, v1alpha1.OriginalMountOptionsAnnotation, list, v1alpha1.AppliedMountOptionsAnnotation, list)
}
