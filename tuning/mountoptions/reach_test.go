package mountoptions

import "testing"

func TestChangesTransport(t *testing.T) {
	for name, test := range map[string]struct {
		protocol     Protocol
		before, list []string
		want         bool
	}{
		"attribute timers do not":                 {NFS, []string{"vers=4.1"}, []string{"vers=4.1", "actimeo=30", "rsize=65536"}, false},
		"the same version in other words":         {NFS, []string{"nfsvers=4.1"}, []string{"vers=4", "minorversion=1"}, false},
		"another version":                         {NFS, []string{"vers=3"}, []string{"vers=4.2"}, true},
		"a version where mount negotiated one":    {NFS, nil, []string{"vers=4.2"}, true},
		"another transport":                       {NFS, []string{"tcp"}, []string{"proto=rdma"}, true},
		"another port":                            {NFS, nil, []string{"port=20049"}, true},
		"more connections":                        {NFS, nil, []string{"nconnect=8"}, true},
		"as many connections":                     {NFS, []string{"nconnect=8"}, []string{"hard", "nconnect=8"}, false},
		"connections from other ports":            {NFS, nil, []string{"noresvport"}, true},
		"another port of mountd":                  {NFS, nil, []string{"mountport=635"}, true},
		"another version of SMB":                  {SMB, []string{"vers=3.0"}, []string{"vers=3.1.1"}, true},
		"more channels":                           {SMB, nil, []string{"max_channels=4"}, true},
		"a cache of SMB does not":                 {SMB, []string{"vers=3.0"}, []string{"vers=3.0", "cache=strict", "actimeo=30"}, false},
		"XFS has no server, and its options none": {XFS, nil, []string{"noatime", "logbsize=256k"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.protocol.ChangesTransport(test.before, test.list); got != test.want {
				t.Errorf("from %v to %v: got %t, want %t", test.before, test.list, got, test.want)
			}
		})
	}
}
