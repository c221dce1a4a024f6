package v1alpha1

import (
	"errors"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// DefaultClusterMaxUnavailable is the default of the manager's --max-unavailable, the budget of the whole cluster.
const DefaultClusterMaxUnavailable = "5%"

// DefaultClusterMaxConcurrentLive is the default of the manager's --max-concurrent-live, the maximum number of the cluster's nodes
// that apply a live change at the same time.
const DefaultClusterMaxConcurrentLive = "10%"

// ResolveShare returns the number of nodes for a limit. Percentages are rounded down; the result is at least 1.
func ResolveShare(limit intstr.IntOrString, nodes int) int {
	share, err := intstr.GetScaledValueFromIntOrPercent(&limit, nodes, false)
	if err != nil {
		return 1
	}
	return max(share, 1)
}

// ParseShare parses a share in the form of the API: an integer of at least 1, or 1% to 100%.
func ParseShare(text string) (intstr.IntOrString, error) {
	number, percent := strings.CutSuffix(text, "%")
	value, err := strconv.ParseInt(number, 10, 32)
	if err != nil || value < 1 || (percent && value > 100) {
		return intstr.IntOrString{}, errors.New("must be an integer of at least 1 or a percentage from 1% to 100%")
	}
	if percent {
		return intstr.FromString(number + "%"), nil
	}
	return intstr.FromInt32(int32(value)), nil
}
