package trialrunner

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/probe"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/test/shortdir"
)

// released is the commit that wrote the messages in testdata.
const released = "3733d37f"

// recordedOrder and recordedResult are the content of the recorded messages: no field is zero.
var (
	recordedOrder = probe.Order{
		ID: "a", Server: "filer", Path: "/e", FSType: "nfs", Options: []string{"vers=4.1"}, OwnOptions: []string{"vers=3"}, User: 65534,
		Timeout: time.Minute, HostNetwork: "net:[1]", Passes: []probe.OrderedPass{{Round: 1, Arm: probe.Before}, {Round: 1, Arm: probe.After}},
		Work: probe.Work{Name: "Mount", Path: "d", AllowWrites: true, Pause: time.Second, MaxEntries: 5, MaxBytes: 6},
	}
	recordedResult = probe.Result{
		Tried: true, Mount: probe.Mount{Succeeded: true, Message: "m"}, Observed: []string{"vers=4.1"}, Transports: 4, Identifier: "x",
		Proofs: []probe.Proof{{Type: probe.OwnNetwork, Holds: true, Message: "net:[2]"}}, Own: &probe.Mount{Succeeded: true, Message: "o"},
		Passes: []probe.Pass{{Round: 1, Arm: probe.Before, Phases: []probe.Phase{{
			Name: "First", Duration: 3, Units: 4, BytesSent: 5, BytesReceived: 6, Operations: []probe.Operation{{Name: "READ", Count: 7}},
		}}}},
	}
)

func recorded(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", released, name+".json"))
	check.NoError(t, err)
	return data
}

// callRecorded calls a runner that responds with these bytes.
func callRecorded(t *testing.T, response []byte) (probe.Result, error) {
	t.Helper()
	socket := filepath.Join(shortdir.New(t), "s")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	check.NoError(t, err)
	defer listener.Close()
	go func() {
		if connection, err := listener.Accept(); err == nil {
			var order probe.Order
			_ = json.NewDecoder(connection).Decode(&order)
			_, _ = connection.Write(response)
			_ = connection.Close()
		}
	}()
	return ask(context.Background(), socket, recordedOrder, me())
}

func TestMessagesOfTheReleaseBefore(t *testing.T) {
	var order probe.Order
	if err := readMessage(bytes.NewReader(recorded(t, "order")), &order); err != nil {
		t.Error(err)
	}
	check.Equal(t, "order", recordedOrder, order)
	result, err := callRecorded(t, recorded(t, "answer"))
	if diff := cmp.Diff(recordedResult, result); err != nil || diff != "" {
		t.Errorf("result, error %v (-want +got):\n%s", err, diff)
	}
	if _, err := callRecorded(t, recorded(t, "busy")); !IsTemporary(err) || err.Error() != errBusy.Error() {
		t.Errorf("a busy runner: got %v", err)
	}
	// The runner of that release reads this order if its bytes are the same.
	var sent bytes.Buffer
	if err := writeMessage(&sent, recordedOrder); err != nil || sent.String() != string(recorded(t, "order")) {
		t.Errorf("sent %s, error %v", sent.String(), err)
	}
}

func TestAnAnswerOfTheNextReleaseIsUnderstood(t *testing.T) {
	later := strings.Replace(string(recorded(t, "answer")), `{"result":{`, `{"later":1,"result":{"later":[2],`, 1)
	result, err := callRecorded(t, []byte(later))
	if diff := cmp.Diff(recordedResult, result); err != nil || diff != "" {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
	_, err = callRecorded(t, []byte(`{"result":{},"refused":"later","later":true}`))
	if err == nil || err.Error() != "later" || IsTemporary(err) {
		t.Errorf("got %v", err)
	}
}

// During an upgrade, an agent of the next release may call this runner.
func TestAnOrderOfTheNextReleaseIsNotCarriedOut(t *testing.T) {
	worked := false
	socket := serve(t, &Runner{uid: me(), Work: func(context.Context, probe.Order) (probe.Result, error) {
		worked = true
		return probe.Result{}, nil
	}})
	connection, err := (&net.Dialer{}).DialContext(t.Context(), "unix", socket)
	check.NoError(t, err)
	defer connection.Close()
	if _, err := connection.Write([]byte(strings.Replace(string(recorded(t, "order")), "{", `{"later":true,`, 1))); err != nil {
		t.Fatal(err)
	}
	var response answer
	check.NoError(t, json.NewDecoder(connection).Decode(&response))
	if worked || response.Refused != `the trial runner cannot read the order; it may have an earlier release: json: unknown field "later"` {
		t.Errorf("got %+v, worked %t", response, worked)
	}
}

// A runner of the release before rejects an order with a new field. An agent of the release before rejects a response with one.
func TestTheFieldsOfMessagesAreAContract(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "fields.golden"))
	check.NoError(t, err)
	got := append(hosttest.JSONFields(reflect.TypeFor[probe.Order]()), hosttest.JSONFields(reflect.TypeFor[answer]())...)
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(string(data)), "\n"), got); diff != "" {
		t.Errorf("fields of orders and answers (-contract +got):\n%s", diff)
	}
}
