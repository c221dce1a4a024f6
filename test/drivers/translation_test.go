// Package drivers compares how this project and the kubelet interpret in-tree volumes.
package drivers

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/test/check"
)

// The kubelet hands some in-tree volumes to a CSI driver. The project must treat them like the result of the kubelet's translation.
func TestInTreeVolumesAreReadAsTranslated(t *testing.T) {
	for name, source := range map[string]corev1.PersistentVolumeSource{
		"Azure Files": {AzureFile: &corev1.AzureFilePersistentVolumeSource{
			SecretName: "azure-storage-account-acc-secret", ShareName: "share", SecretNamespace: ptr.To("eda")}},
		"Azure Files with a secret of another name": {AzureFile: &corev1.AzureFilePersistentVolumeSource{
			SecretName: "acc", ShareName: "share", SecretNamespace: ptr.To("eda")}},
		"Azure Disk": {AzureDisk: &corev1.AzureDiskVolumeSource{DiskName: "d", DataDiskURI: "/subscriptions/s/d", FSType: ptr.To("xfs"), ReadOnly: ptr.To(true)}},
		"EBS":        {AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1", FSType: "xfs"}},
		"Google":     {GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "d", FSType: "xfs", ReadOnly: true}},
		"Cinder":     {Cinder: &corev1.CinderPersistentVolumeSource{VolumeID: "1", FSType: "xfs"}},
		"vSphere":    {VsphereVolume: &corev1.VsphereVirtualDiskVolumeSource{VolumePath: "[ds] a.vmdk", FSType: "xfs"}},
		"Portworx":   {PortworxVolume: &corev1.PortworxVolumeSource{VolumeID: "1", FSType: "xfs"}},
	} {
		t.Run(name, func(t *testing.T) {
			pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv", Labels: map[string]string{corev1.LabelTopologyZone: "europe-west1-b"}}}
			pv.Spec.PersistentVolumeSource = source
			translated, err := csitranslation.New().TranslateInTreePVToCSI(klog.Background(), pv.DeepCopy())
			check.NoError(t, err)
			got := judge.SourceOf(pv)
			if diff := cmp.Diff(judge.SourceOf(translated), got); diff != "" || got.Driver == "" {
				t.Errorf("driver %q: %s", got.Driver, diff)
			}
		})
	}
}
