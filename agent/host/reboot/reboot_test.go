package reboot

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/test/shortdir"
)

// bus is a system bus that has only logind. It responds to every call with the error errName, or with success if errName is empty.
type bus struct {
	t       *testing.T
	errName string
	calls   []string
	// inhibitors contains the inhibitors that logind lists.
	inhibitors []inhibitor
}

func (b *bus) serve(listener net.Listener) {
	conn, err := listener.Accept()
	if err != nil {
		return
	}
	defer conn.Close()
	reader := bufio.NewReader(conn)
	if !b.authenticate(reader, conn) {
		return
	}
	for {
		call, err := dbus.DecodeMessage(reader)
		if err != nil {
			return
		}
		reply := b.reply(call)
		if err := reply.EncodeTo(conn, binary.LittleEndian); err != nil {
			b.t.Error(err)
			return
		}
	}
}

// authenticate handles the text part of the protocol: AUTH until BEGIN.
func (b *bus) authenticate(reader *bufio.Reader, conn net.Conn) bool {
	if _, err := reader.ReadByte(); err != nil {
		return false
	}
	for {
		line, err := reader.ReadString('\n')
		if err != nil {
			return false
		}
		response := "ERROR"
		switch {
		case strings.HasPrefix(line, "BEGIN"):
			return true
		case strings.HasPrefix(line, "AUTH EXTERNAL"):
			response = "DATA"
		case strings.HasPrefix(line, "DATA"):
			response = "OK 0123456789abcdef0123456789abcdef"
		case strings.HasPrefix(line, "AUTH"):
			response = "REJECTED EXTERNAL"
		}
		if _, err := conn.Write([]byte(response + "\r\n")); err != nil {
			return false
		}
	}
}

func (b *bus) reply(call *dbus.Message) *dbus.Message {
	member := call.Headers[dbus.FieldMember].Value().(string)
	reply := &dbus.Message{Type: dbus.TypeMethodReply, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldReplySerial: dbus.MakeVariant(call.Serial()),
	}}
	switch member {
	case "Hello":
		reply.Body = []any{":1.1"}
		reply.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(":1.1"))
	case "ListInhibitors":
		reply.Body = []any{b.inhibitors}
		reply.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(b.inhibitors))
		b.setError(reply)
	default:
		b.calls = append(b.calls, member)
		if !cmp.Equal(call.Body, []any{false}) {
			b.t.Errorf("%s: got %v, want false, because no user can respond", member, call.Body)
		}
		b.setError(reply)
	}
	return reply
}

// setError makes a reply an error if the bus returns one.
func (b *bus) setError(reply *dbus.Message) {
	if b.errName == "" {
		return
	}
	reply.Type, reply.Body = dbus.TypeError, nil
	delete(reply.Headers, dbus.FieldSignature)
	reply.Headers[dbus.FieldErrorName] = dbus.MakeVariant(b.errName)
}

type runner struct {
	argv []string
	err  error
}

func (r *runner) Run(_ context.Context, argv ...string) ([]byte, error) {
	r.argv = argv
	return nil, r.err
}

func TestReboot(t *testing.T) {
	tests := map[string]struct {
		noBus    bool
		errName  string
		fallback error
		calls    []string
		argv     []string
		wantErr  string
	}{
		"logind agrees":      {calls: []string{"Reboot"}},
		"logind rejects it":  {errName: "org.freedesktop.DBus.Error.AccessDenied", calls: []string{"Reboot"}, wantErr: "AccessDenied"},
		"there is no logind": {errName: "org.freedesktop.DBus.Error.ServiceUnknown", calls: []string{"Reboot"}, argv: systemctl},
		"logind exits":       {errName: "org.freedesktop.DBus.Error.NoReply", calls: []string{"Reboot"}, argv: systemctl},
		"logind hangs":       {errName: "org.freedesktop.DBus.Error.TimedOut", calls: []string{"Reboot"}, argv: systemctl},
		"there is no bus":    {noBus: true, argv: systemctl},
		"no method reboots":  {noBus: true, argv: systemctl, fallback: errors.New("no systemctl"), wantErr: "no systemctl"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := shortdir.New(t)
			b := &bus{t: t, errName: test.errName}
			done := make(chan struct{})
			if test.noBus {
				close(done)
			} else {
				listen(t, b, dir, done)
			}
			fs, err := host.OpenFS(dir)
			check.NoError(t, err)
			defer fs.Close()
			r, synced := &runner{err: test.fallback}, false
			err = Logind{fs: fs, runner: r, sync: func() { synced = true }}.Reboot(t.Context())
			<-done
			if test.wantErr == "" && err != nil || test.wantErr != "" && (err == nil || !strings.Contains(err.Error(), test.wantErr)) {
				t.Errorf("error: got %v, want %q", err, test.wantErr)
			}
			check.Equal(t, "calls to logind", test.calls, b.calls)
			if len(r.argv) > 0 && !strings.Contains(strings.Join(r.argv, " "), "SKIP_AUTO_KEXEC=1") {
				t.Errorf("command: got %q, which may start a kernel that is loaded for kexec", r.argv)
			}
			check.Equal(t, "command", test.argv, r.argv)
			if !synced {
				t.Error("no sync before the reboot")
			}
		})
	}
}

func listen(t *testing.T, b *bus, dir string, done chan<- struct{}) {
	t.Helper()
	socket := filepath.Join(dir, busSocket)
	check.NoError(t, os.MkdirAll(filepath.Dir(socket), 0o755))
	listener, err := net.Listen("unix", socket)
	check.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		b.serve(listener)
		close(done)
	}()
}

func TestASyncThatHangsEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	hang := make(chan struct{})
	defer close(hang)
	Logind{sync: func() { <-hang }}.syncDisks(ctx)
}
