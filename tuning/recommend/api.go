package recommend

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
)

// ForAPI is a sample as status.sample holds it. The names of its fields are those of the API; the window is not part of it.
func ForAPI(s Sample) (v1alpha1.MountSample, error) {
	var m v1alpha1.MountSample
	s.Seconds = 0
	if err := convert(s, &m); err != nil {
		return v1alpha1.MountSample{}, fmt.Errorf("sample of %s: %w", s.MountPoint, err)
	}
	return m, nil
}

// FromAPI are samples as the API holds them, of a window of so many milliseconds.
func FromAPI(mounts []v1alpha1.MountSample, milliseconds int64) ([]Sample, error) {
	samples := make([]Sample, 0, len(mounts))
	for _, m := range mounts {
		var s Sample
		if err := convert(m, &s); err != nil {
			return nil, fmt.Errorf("sample of %s: %w", m.MountPoint, err)
		}
		s.Seconds = (time.Duration(milliseconds) * time.Millisecond).Seconds()
		samples = append(samples, s)
	}
	return samples, nil
}

func convert(from, to any) error {
	data, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, to)
}
