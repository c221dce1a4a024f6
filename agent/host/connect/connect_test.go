package connect

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/storageclient/operator/test/check"
)

// serve responds to one connection.
func serve(t *testing.T, protocol Protocol, answer func(net.Conn)) Server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		defer connection.Close()
		answer(connection)
	}()
	return Server{Name: "filer1", Address: listener.Addr().String(), Protocol: protocol, Version: 3}
}

func readRecord(connection net.Conn, mask uint32) []byte {
	head := make([]byte, 4)
	if _, err := io.ReadFull(connection, head); err != nil {
		return nil
	}
	data := make([]byte, binary.BigEndian.Uint32(head)&mask)
	_, _ = io.ReadFull(connection, data)
	return data
}

func words(numbers ...uint32) []byte {
	var out []byte
	for _, n := range numbers {
		out = binary.BigEndian.AppendUint32(out, n)
	}
	return out
}

// The request is the one of rpcinfo and of a kernel: RFC 5531, section 9.
func TestNFSProbeCallsTheNullProcedure(t *testing.T) {
	called := make(chan []byte, 1)
	server := serve(t, NFS, func(connection net.Conn) {
		call := readRecord(connection, 0x7fffffff)
		called <- call
		// Accepted, and success.
		reply := append(bytes.Clone(call[:4]), words(1, 0, 0, 0, 0)...)
		_, _ = connection.Write(append(words(1<<31|uint32(len(reply))), reply...))
	})
	check.NoError(t, Probe(t.Context(), server))
	call := <-called
	if want := words(0, 2, 100003, 3, 0, 0, 0, 0, 0); !bytes.Equal(call[4:], want) {
		t.Errorf("call: got %x, want %x", call[4:], want)
	}
}

func TestSMBProbeNegotiates(t *testing.T) {
	requests := make(chan []byte, 1)
	server := serve(t, SMB, func(connection net.Conn) {
		requests <- readRecord(connection, 0xffffff)
		answer := make([]byte, 129)
		copy(answer, "\xfeSMB")
		_, _ = connection.Write(append(words(uint32(len(answer))), answer...))
	})
	check.NoError(t, Probe(t.Context(), server))
	request := <-requests
	if len(request) != 64+36+8 || string(request[:4]) != "\xfeSMB" || binary.LittleEndian.Uint16(request[4:]) != 64 ||
		binary.LittleEndian.Uint16(request[64:]) != 36 || binary.LittleEndian.Uint16(request[66:]) != 4 {
		t.Errorf("unexpected request %x", request)
	}
	if dialects := request[100:]; !bytes.Equal(dialects, []byte{0x02, 0x02, 0x10, 0x02, 0x00, 0x03, 0x02, 0x03}) {
		t.Errorf("unexpected dialects %x", dialects)
	}
}

func TestInvalidResponses(t *testing.T) {
	write := func(data []byte) func(net.Conn) {
		return func(connection net.Conn) {
			_ = readRecord(connection, 0xffffff)
			_, _ = connection.Write(data)
		}
	}
	for name, test := range map[string]struct {
		protocol Protocol
		answer   func(net.Conn)
		want     string
	}{
		"a connection that is closed":      {NFS, write(nil), "no response: EOF"},
		"a reply to another call":          {NFS, write(append(words(1<<31|8), words(7, 1)...)), "not an RPC reply"},
		"a call":                           {NFS, write(append(words(1<<31|8), words(0, 0)...)), "not an RPC reply"},
		"an incomplete reply":              {NFS, write(words(1<<31 | 24)), "incomplete"},
		"a response that is too long":      {NFS, write(words(1<<31 | 1<<20)), "too long: 1048576 bytes"},
		"a response of SMB 1":              {SMB, write(append(words(64), append([]byte("\xffSMB"), make([]byte, 60)...)...)), "not an SMB 2 message"},
		"a response that is too short":     {SMB, write(append(words(4), "\xfeSMB"...)), "not an SMB 2 message"},
		"an error page of another server":  {SMB, write([]byte("HTTP/1.1 400 Bad Request\r\n")), "too long: "},
		"a handshake and not a byte after": {NFS, func(connection net.Conn) { _, _ = io.Copy(io.Discard, connection) }, "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			if test.want == "timeout" {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
				defer cancel()
			}
			if err := Probe(ctx, serve(t, test.protocol, test.answer)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestNoServerListens(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check.NoError(t, err)
	address := listener.Addr().String()
	check.NoError(t, listener.Close())
	if err := Probe(t.Context(), Server{Address: address, Protocol: NFS}); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("got %v", err)
	}
}
