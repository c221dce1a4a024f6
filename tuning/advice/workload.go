package advice

import (
	"github.com/storageclient/operator/tuning/mountoptions"
)

// largeDirectories tells those who tune for large directories: they ask for a larger hash table of inodes or of names.
func largeDirectories(text string) func(*scope) []finding {
	return func(s *scope) []finding {
		if tables := s.hashTables(); len(tables) > 0 {
			return []finding{{tables[0].field, "is for large directories: " + text}}
		}
		return nil
	}
}

func recursiveListing(s *scope) []finding {
	return s.findOptions(mountoptions.NFS, "recursive ls, find and du need names and attributes of everything: if they run often, a longer time pays off", "actimeo")
}

func serverCopy(s *scope) []finding {
	var found []finding
	for _, rule := range s.rulesOf(mountoptions.NFS) {
		if rule.transport.Version == "4.2" {
			found = append(found, finding{rule.field, "NFSv4.2 can copy on the server: copy_file_range, which cp of coreutils uses, is faster than reading and writing through the client"})
		}
	}
	for _, rule := range s.rulesOf(mountoptions.SMB) {
		found = append(found, finding{rule.field, "SMB can copy on the server: copy_file_range is faster than reading and writing through the client; " +
			"ODX exists in Windows, but not in Linux"})
	}
	return found
}

func testFirst(s *scope) []finding {
	for _, rule := range s.rulesOf(mountoptions.NFS) {
		_, nocto := rule.lastValue("nocto")
		seconds, timer := rule.lastNumber("actimeo")
		if nocto || timer && seconds > 60 {
			return []finding{{rule.field, "follow the application vendor's advice first, and measure with your own workload on a canary before production"}}
		}
	}
	return nil
}

func watchOperations(s *scope) []finding {
	if ahead := s.readAheads(); len(ahead) > 0 {
		return []finding{{ahead[0].field, "judge it by the READs of one file, not by a node's averages: use a file larger than memory or drop caches first, " +
			"and mind that the server's cache may still be warm"}}
	}
	return nil
}
