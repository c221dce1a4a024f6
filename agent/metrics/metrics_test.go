package metrics

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/counters"
)

type fixed struct {
	blocks []mounts.Superblock
	err    error
}

func (f fixed) Superblocks() ([]mounts.Superblock, error) { return f.blocks, f.err }

func superblock(device string) mounts.Superblock {
	read := mounts.Operation{
		Name: "READ", Count: 8, Transmissions: 10, MajorTimeouts: 1, Errors: 2,
		Queue: 1500 * time.Millisecond, RoundTrip: 2 * time.Second, Execution: 4 * time.Second,
	}
	return mounts.Superblock{
		Mount: mounts.Mount{
			Device: device, Volume: "pv1", Server: "filer", Export: "/e", Protocol: "NFSv4.1", Connections: 2, SlotLimit: 64, ReadAheadKiB: 128,
		},
		Volumes: []string{"pv1", "pv2"}, Nconnect: 4, Bytes: counters.Bytes{WireRead: 100, WireWritten: 50}, Operations: []mounts.Operation{read},
	}
}

// scrape returns the output for a scraper, without comments.
func scrape(t *testing.T, reader SuperblockReader) []string {
	t.Helper()
	handler, err := NewHandler(&Collector{Mounts: reader, Log: logr.Discard()})
	check.NoError(t, err)
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	if recorder.Code != http.StatusOK {
		t.Fatalf("status: got %d: %s", recorder.Code, recorder.Body)
	}
	var lines []string
	for line := range strings.Lines(recorder.Body.String()) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

func TestMountsAreReported(t *testing.T) {
	mount, read := `{device="0:52",export="/e",server="filer",volume="pv1"} `, `{device="0:52",export="/e",operation="READ",server="filer",volume="pv1"} `
	want := []string{
		"storageclient_mount_connections" + mount + "2",
		`storageclient_mount_info{device="0:52",export="/e",protocol="NFSv4.1",server="filer",volume="pv1"} 1`,
		`storageclient_mount_info{device="0:52",export="/e",protocol="NFSv4.1",server="filer",volume="pv2"} 1`,
		"storageclient_mount_nconnect" + mount + "4",
		"storageclient_mount_operation_errors_total" + read + "2",
		"storageclient_mount_operation_execution_seconds_total" + read + "4",
		"storageclient_mount_operation_major_timeouts_total" + read + "1",
		"storageclient_mount_operation_queue_seconds_total" + read + "1.5",
		"storageclient_mount_operation_retransmissions_total" + read + "2",
		"storageclient_mount_operation_round_trip_seconds_total" + read + "2",
		"storageclient_mount_operations_total" + read + "8",
		"storageclient_mount_read_ahead_bytes" + mount + "131072",
		"storageclient_mount_read_bytes_total" + mount + "100",
		"storageclient_mount_slot_limit" + mount + "64",
		"storageclient_mount_written_bytes_total" + mount + "50",
		"storageclient_mounts_omitted 0",
		"storageclient_mounts_success 1",
	}
	check.Equal(t, "result", want, scrape(t, fixed{blocks: []mounts.Superblock{superblock("0:52")}}))
}

func TestOddMountsDoNotFailTheScrape(t *testing.T) {
	odd := superblock("0:60")
	odd.Export, odd.Volumes = "/\xff", nil
	twice := superblock("0:61")
	twice.Operations = append(twice.Operations, twice.Operations[0])
	twice.Operations[0].Transmissions = 0 // fewer than the completed requests
	bare := mounts.Superblock{Mount: mounts.Mount{Device: "0:62"}, Nconnect: 1}
	got := scrape(t, fixed{blocks: []mounts.Superblock{odd, twice, bare, superblock("0:63")}})
	for _, want := range []string{
		`storageclient_mount_operation_retransmissions_total{device="0:61",export="/e",operation="READ",server="filer",volume="pv1"} 0`,
		`storageclient_mount_nconnect{device="0:62",export="",server="",volume=""} 1`,
		`storageclient_mount_operations_total{device="0:63",export="/e",operation="READ",server="filer",volume="pv1"} 8`,
	} {
		if !strings.Contains(strings.Join(got, "\n"), want) {
			t.Errorf("%s is missing in\n%s", want, strings.Join(got, "\n"))
		}
	}
}

func TestMountsThatCannotBeRead(t *testing.T) {
	check.Equal(t, "result", []string{"storageclient_mounts_success 0"}, scrape(t, fixed{err: errors.New("no proc")}))
}

func TestTheNumberOfMountsIsLimited(t *testing.T) {
	var many fixed
	for i := range maxSuperblocks + 3 {
		many.blocks = append(many.blocks, superblock(fmt.Sprint("0:", i)))
	}
	text := strings.Join(scrape(t, many), "\n")
	if got := strings.Count(text, "storageclient_mount_nconnect{"); got != maxSuperblocks || !strings.Contains(text, "storageclient_mounts_omitted 3") {
		t.Errorf("got %d reported superblocks", got)
	}
}

func TestNamesFollowTheConventions(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(&Collector{Mounts: fixed{blocks: []mounts.Superblock{superblock("0:52")}}, Log: logr.Discard()})
	families, err := registry.Gather()
	check.NoError(t, err)
	if problems, err := promlint.NewWithMetricFamilies(families).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

func TestCheckAddress(t *testing.T) {
	for address, want := range map[string]string{
		"0": "", "127.0.0.1:9810": "", "[::1]:9810": "", "127.1.2.3:1": "",
		":9810": "loopback", "0.0.0.0:9810": "loopback", "10.0.0.1:9810": "loopback", "localhost:9810": "must be an IP address",
		"9810": "127.0.0.1:9810", "": "127.0.0.1:9810", "127.0.0.1:0": "1 to 65535", "127.0.0.1:x": "1 to 65535",
	} {
		err := CheckAddress(address)
		if (err != nil) != (want != "") || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got %v, want %q", address, err, want)
		}
	}
}

func TestCheckSecureAddress(t *testing.T) {
	for address, want := range map[string]string{
		"[10.0.0.1]:9810": "", "10.0.0.1:9810": "", "[fd00::1]:9810": "", "127.0.0.1:9810": "",
		":9810": "one of the node's addresses", "0.0.0.0:9810": "one of the node's addresses", "[::]:9810": "one of the node's addresses", "[224.0.0.1]:9810": "one of the node's addresses",
		"node:9810": "IP address", "0": "127.0.0.1:9810", "10.0.0.1:0": "1 to 65535",
	} {
		err := CheckSecureAddress(address)
		if (err != nil) != (want != "") || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got %v, want %q", address, err, want)
		}
	}
}
