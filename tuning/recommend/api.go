package recommend

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
)

// ForAPI converts a sample to the format of status.sample. The field names are the same; the API does not contain the window.
func ForAPI(s Sample) (v1alpha1.MountSample, error) {
	var m v1alpha1.MountSample
	s.Seconds = 0
	if err := convert(s, &m); err != nil {
		return v1alpha1.MountSample{}, fmt.Errorf("convert sample of %s: %w", s.MountPoint, err)
	}
	return m, nil
}

// FromAPI converts samples from the format of the API. milliseconds is the length of their window.
func FromAPI(mounts []v1alpha1.MountSample, milliseconds int64) ([]Sample, error) {
	samples := make([]Sample, 0, len(mounts))
	for _, m := range mounts {
		var s Sample
		if err := convert(m, &s); err != nil {
			return nil, fmt.Errorf("convert sample of %s: %w", m.MountPoint, err)
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
