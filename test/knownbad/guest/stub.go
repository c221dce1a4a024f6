package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"slices"
	"time"
)

const stubPort = "12050"

// Numbers of NFSv4.1, see RFC 8881.
const (
	exchangeID, createSession, destroySession, destroyClientID = 42, 43, 44, 57

	opIllegal   = 10044
	useNonPNFS  = 0x10000
	backChannel = 2
)

// words appends numbers of 32 bits.
func words(to []byte, numbers ...uint32) []byte {
	for _, n := range numbers {
		to = binary.BigEndian.AppendUint32(to, n)
	}
	return to
}

// skipOpaque skips a length and that many bytes, filled to words.
func skipOpaque(b []byte) []byte {
	return b[4+(int(binary.BigEndian.Uint32(b))+3)&^3:]
}

// replyTo returns the reply to a call, of an NFSv4.1 server whose sessions have a larger back channel than the client has requested.
func replyTo(call []byte) (reply []byte, isSession bool) {
	xid, procedure := binary.BigEndian.Uint32(call), binary.BigEndian.Uint32(call[20:])
	// An accepted reply without a verifier.
	reply = words(nil, xid, 1, 0, 0, 0, 0)
	if procedure == 0 {
		return reply, false
	}
	// Credentials, verifier and tag, then the minor version and the number of operations.
	rest := skipOpaque(skipOpaque(skipOpaque(call[28:])[4:]))
	op := binary.BigEndian.Uint32(rest[8:])
	if !slices.Contains([]uint32{exchangeID, createSession, destroySession, destroyClientID}, op) {
		return words(reply, opIllegal, 0, 1, op, opIllegal), false
	}
	reply = words(reply, 0, 0, 1, op, 0)
	switch op {
	case exchangeID:
		// The client ID, its sequence, the flags, no protection, the owner, the scope and no name of the implementation.
		reply = words(reply, 0, 1, 1, useNonPNFS, 0, 0, 0)
		for range 2 {
			reply = append(words(reply, 4), "stub"...)
		}
		reply = words(reply, 0)
	case createSession:
		reply = words(reply, 1, 2, 3, 4, 1, backChannel)
		// The forward channel is small enough. The back channel has larger calls than the client can receive.
		reply = words(reply, 0, 65536, 65536, 1024, 8, 16, 0, 0, 1<<24, 1<<24, 1<<24, 8, 16, 0)
	}
	return reply, op == createSession
}

// serveStub replies to the calls of one connection.
func serveStub(conn net.Conn, sessions chan<- struct{}) {
	defer conn.Close()
	for {
		var mark [4]byte
		if _, err := io.ReadFull(conn, mark[:]); err != nil {
			return
		}
		call := make([]byte, binary.BigEndian.Uint32(mark[:])&^(1<<31))
		if _, err := io.ReadFull(conn, call); err != nil {
			return
		}
		reply, isSession := replyTo(call)
		if _, err := conn.Write(append(words(nil, 1<<31|uint32(len(reply))), reply...)); err != nil {
			return
		}
		if isSession {
			select {
			case sessions <- struct{}{}:
			default:
			}
		}
	}
}

// tryMount mounts from a server whose CREATE_SESSION reply is invalid. The mount fails, or it never returns. It is the last trial.
func tryMount(*machine) (finding, error) {
	found := finding{protocol: "NFSv4.1"}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:"+stubPort)
	if err != nil {
		return found, err
	}
	sessions := make(chan struct{}, 1)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serveStub(conn, sessions)
		}
	}()
	mount := exec.CommandContext(context.Background(), "mount", "-t", "nfs", "-o", "vers=4.1,retry=0,port="+stubPort, "127.0.0.1:/", "/mnt/c")
	done := make(chan error, 1)
	go func() {
		out, err := mount.CombinedOutput()
		done <- fmt.Errorf("%w: %s", err, out)
	}()
	select {
	case <-sessions:
	case err := <-done:
		return found, fmt.Errorf("the mount finished before CREATE_SESSION: %w", err)
	case <-time.After(10 * time.Minute):
		return found, errors.New("the client sends no CREATE_SESSION")
	}
	select {
	case err := <-done:
		found.measured = fmt.Sprintf("the mount returns: %v", err)
	case <-time.After(2 * time.Minute):
		state, _ := do("sh", "-c", "grep -slx mount.nfs /proc/[0-9]*/comm | sed 's/comm$/status/' | xargs grep -h State:")
		found.appears, found.measured = true, "the mount has not returned after two minutes: "+state
	}
	return found, nil
}
