package view

// Names returns the output of -o name.
func (s Status) Names() []string {
	return each(s.Profiles, func(p Profile) string { return profileResource + p.Name })
}

// Names returns the output of -o name.
func (p Plan) Names() []string { return []string{profileResource + p.Name} }

// Names returns the output of -o name.
func (r NodeReport) Names() []string { return []string{nodeResource + r.Name} }

// Names returns the output of -o name.
func (v VolumeReport) Names() []string {
	return each(v.Volumes, func(volume Volume) string { return volumeResource + volume.Volume })
}

// Names returns the output of -o name: the nodes and volumes that differ.
func (d Diff) Names() []string {
	var names []string
	for _, g := range d.Groups {
		for _, node := range g.Nodes {
			names = append(names, nodeResource+node)
		}
	}
	for _, g := range d.Volumes {
		for _, volume := range g.Volumes {
			names = append(names, volumeResource+volume)
		}
	}
	return names
}
