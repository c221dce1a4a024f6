package fleet

import (
	"testing"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
)

func TestSetsFollowTheNewestVersionOfAProfile(t *testing.T) {
	const key = "net.core.somaxconn"
	t.Run("the next version has what another object of the version before had", func(t *testing.T) {
		var sets ProfileSets
		of := func(version, value string) string {
			return string(sets.Of(lists.Pointers([]v1alpha1.StorageClientProfile{stored("a", version, value)}), catalogue.AllowList{}).ByName("a").Spec.Node.Sysctls[key])
		}
		of("1", "4096")
		of("1", "1024")
		check.Equal(t, "value in the set", "1024", of("2", "1024"))
	})
	t.Run("the caller changes its list", func(t *testing.T) {
		var sets ProfileSets
		list := []v1alpha1.StorageClientProfile{stored("a", "1", "4096")}
		sets.Of(lists.Pointers(list), catalogue.AllowList{})
		list[0] = stored("a", "2", "1024")
		check.Equal(t, "value in the set", "1024", sets.Of(lists.Pointers(list), catalogue.AllowList{}).ByName("a").Spec.Node.Sysctls[key])
	})
}
