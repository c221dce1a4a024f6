package mounts

import "testing"

func TestClientName(t *testing.T) {
	const nfs4, nfs3 = "30 1 0:50 / /mnt/a rw - nfs4 10.0.0.1:/a rw,vers=4.1,addr=10.0.0.1\n", "30 1 0:50 / /mnt/a rw - nfs 10.0.0.1:/a rw,vers=3,addr=10.0.0.1\n"
	for name, c := range map[string]struct {
		mounts, identifier, parameter, want string
	}{
		"by its host name if no other name is set":                {mounts: nfs4, identifier: "(null)", want: "node1"},
		"by the module's parameter too":                           {mounts: nfs4, identifier: "(null)", parameter: "id-1", want: "id-1/node1"},
		"the name of the network namespace wins":                  {mounts: nfs4, identifier: "ns-1", parameter: "id-1", want: "ns-1/node1"},
		"NFSv3 sends no name":                                     {mounts: nfs3, parameter: "id-1"},
		"a host without mounts sends no name and lacks the files": {mounts: "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"/proc/1/mountinfo": c.mounts, hostNameFile: "node1\n"}
			if c.identifier != "" {
				files[identifierFile] = c.identifier + "\n"
			}
			if c.parameter != "" {
				files[uniqueIDFile] = c.parameter + "\n"
			}
			if got := reader(t, files).ClientName(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
