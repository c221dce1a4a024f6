package view

import "github.com/storageclient/operator/tuning/lists"

// Names returns the output of -o name.
func (s Status) Names() []string {
	return lists.Each(s.Profiles, func(p Profile) string { return profileResource + p.Name })
}

// Names returns the output of -o name.
func (p Plan) Names() []string { return []string{profileResource + p.Name} }

// Names returns the output of -o name.
func (r NodeReport) Names() []string { return []string{nodeResource + r.Name} }

// Names returns the output of -o name.
func (v VolumeReport) Names() []string {
	return lists.Each(v.Volumes, func(volume Volume) string { return volumeResource + volume.Volume })
}

// Names returns the output of -o name: the nodes and volumes that differ.
func (d Diff) Names() []string {
	var names []string
	for _, g := range d.Groups {
		names = append(names, lists.Each(g.Nodes, func(node string) string { return nodeResource + node })...)
	}
	for _, g := range d.Volumes {
		names = append(names, lists.Each(g.Volumes, func(volume string) string { return volumeResource + volume })...)
	}
	return names
}
