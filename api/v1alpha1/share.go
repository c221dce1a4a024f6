package v1alpha1

import (
	"errors"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// DefaultClusterMaxUnavailable is the budget of the whole cluster where the manager is not told another.
const DefaultClusterMaxUnavailable = "5%"

// DefaultClusterMaxConcurrentLive is how many of the cluster's nodes take a live change at a time where the manager is not told
// another number.
const DefaultClusterMaxConcurrentLive = "10%"

// ResolveShare resolves a limit against a number of nodes: percentages are rounded down, and it is never under 1.
func ResolveShare(limit intstr.IntOrString, nodes int) int {
	share, err := intstr.GetScaledValueFromIntOrPercent(&limit, nodes, false)
	if err != nil {
		return 1
	}
	return max(share, 1)
}

// ParseShare accepts what the API accepts for a share: an integer of at least 1, or 1% to 100%.
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
