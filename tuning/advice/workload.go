package advice

import (
	"github.com/storageclient/operator/tuning/mountoptions"
)

func serverCopy(s *scope) {
	for _, rule := range s.rulesOf(mountoptions.NFS) {
		if rule.transport.Version == "4.2" {
			s.add(rule.field, "NFSv4.2 can copy on the server: copy_file_range, which cp of coreutils uses, is faster than "+
				"reading and writing through the client")
		}
	}
	for _, rule := range s.rulesOf(mountoptions.SMB) {
		s.add(rule.field, "SMB can copy on the server: copy_file_range is faster than reading and writing through the client; "+
			"ODX exists in Windows, but not in Linux")
	}
}
