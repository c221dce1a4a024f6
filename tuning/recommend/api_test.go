package recommend

import (
	"math"
	"reflect"
	"strconv"
	"testing"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// fill gives every field a different value, to detect lost or swapped fields.
func fill(v reflect.Value, next *uint64) {
	*next++
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), next)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(v.Index(i), next)
		}
	case reflect.String:
		v.SetString("s" + strconv.FormatUint(*next, 10))
	case reflect.Int:
		v.SetInt(int64(*next))
	case reflect.Uint64:
		v.SetUint(*next)
	case reflect.Float64:
		v.SetFloat(float64(*next))
	default:
		panic("no value for a " + v.Kind().String())
	}
}

func TestTheAPIKeepsTheWholeSample(t *testing.T) {
	var want Sample
	var n uint64
	fill(reflect.ValueOf(&want).Elem(), &n)
	want.Seconds = 60.5
	m, err := ForAPI(want)
	check.NoError(t, err)
	got, err := FromAPI([]v1alpha1.MountSample{m}, 60500)
	check.NoError(t, err)
	check.Equal(t, "result", []Sample{want}, got)
}

func TestACounterBeyondTheLimitOfTheAPIIsAnError(t *testing.T) {
	if m, err := ForAPI(Sample{MountPoint: "/mnt", Requests: math.MaxUint64}); err == nil {
		t.Errorf("%+v", m)
	}
}
