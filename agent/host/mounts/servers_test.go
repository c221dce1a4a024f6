package mounts

import (
	"testing"

	"github.com/storageclient/operator/agent/host/connect"
	"github.com/storageclient/operator/test/check"
)

func TestServersOfMountsOverTCP(t *testing.T) {
	lines := `40 1 0:52 / /mnt/a rw - nfs4 filer1:/a rw,vers=4.1,proto=tcp,clientaddr=10.0.0.9,addr=10.0.0.1
41 1 0:53 / /mnt/b rw - nfs4 filer1:/b rw,vers=4.2,proto=tcp,addr=10.0.0.1
42 1 0:54 / /mnt/c rw - nfs filer2:/c rw,vers=3,proto=tcp6,mountaddr=fd00::2,mountport=635,addr=fd00::2
43 1 0:55 / /mnt/d rw - nfs4 127.0.0.1:/d rw,vers=4.1,proto=tcp,port=20049,addr=127.0.0.1
44 1 0:56 / /mnt/e rw - nfs filer3:/e rw,vers=3,proto=udp,addr=10.0.0.3
45 1 0:57 / /mnt/f rw - nfs4 filer4:/f rw,vers=4.1,proto=rdma,port=20049,addr=10.0.0.4
46 1 0:58 / /mnt/g rw - cifs //files.example/share rw,vers=3.1.1,addr=10.0.0.5
47 1 0:59 / /mnt/h rw - cifs //files.example/other rw,vers=3.1.1,port=4445,addr=10.0.0.5
48 1 0:60 / /mnt/i rw - cifs //direct.example/share rw,vers=3.1.1,rdma,addr=10.0.0.6
49 1 8:1 / /mnt/j rw - xfs /dev/sda1 rw
`
	got, err := reader(t, map[string]string{"/proc/1/mountinfo": lines}).Servers()
	check.NoError(t, err)
	want := []connect.Server{
		{Name: "filer1", Address: "10.0.0.1:2049", Protocol: connect.NFS, Version: 4},
		{Name: "filer2", Address: "[fd00::2]:2049", Protocol: connect.NFS, Version: 3},
		{Name: "127.0.0.1:20049", Address: "127.0.0.1:20049", Protocol: connect.NFS, Version: 4},
		{Name: "files.example", Address: "10.0.0.5:445", Protocol: connect.SMB},
		{Name: "files.example", Address: "10.0.0.5:4445", Protocol: connect.SMB},
	}
	check.Equal(t, "servers", want, got)
}
