// Package connect checks that a storage server responds over a new TCP connection, in the protocol with which the node mounts from it. Both sides
// send data, because a handshake alone does not show which buffers a connection gets.
package connect

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Protocol is the protocol of a request.
type Protocol string

// Supported protocols.
const (
	NFS Protocol = "NFS"
	SMB Protocol = "SMB"
)

// Timeout limits one check, from the connection to the response.
const Timeout = 5 * time.Second

// maxAnswer limits the bytes that are read of a response. Both kinds of responses are far smaller.
const maxAnswer = 64 << 10

// Server is the endpoint of a storage server.
type Server struct {
	// Name is the server's name in the mount.
	Name string
	// Address is the address and port.
	Address string
	// Protocol is the protocol of the mount. Version is the major version of NFS.
	Protocol Protocol
	Version  uint32
}

// String returns the server's name for messages.
func (s Server) String() string {
	return fmt.Sprintf("%s server %s (%s)", s.Protocol, s.Name, s.Address)
}

// Probe makes a new connection. It returns nil once the server has responded over it, whatever the response is.
func Probe(ctx context.Context, server Server) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", server.Address)
	if err != nil {
		return err
	}
	defer connection.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := connection.SetDeadline(deadline); err != nil {
			return err
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = connection.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if server.Protocol == SMB {
		return negotiate(connection)
	}
	return callNull(connection, server.Version)
}

const (
	nfsProgram = 100003
	// lastFragment marks the only fragment of a record.
	lastFragment = 1 << 31
)

// callNull calls the NULL procedure, which every RPC program has and which has no effect, without credentials (RFC 5531).
func callNull(connection io.ReadWriter, version uint32) error {
	id := make([]byte, 4)
	_, _ = rand.Read(id)
	call := append([]byte(nil), id...)
	// Call, RPC version 2, program, version, procedure 0, and empty credentials and verifier, each with a flavor and a length.
	for _, word := range []uint32{0, 2, nfsProgram, version, 0, 0, 0, 0, 0} {
		call = binary.BigEndian.AppendUint32(call, word)
	}
	record := binary.BigEndian.AppendUint32(nil, lastFragment|uint32(len(call)))
	if _, err := connection.Write(append(record, call...)); err != nil {
		return err
	}
	answer, err := readFrame(connection, ^uint32(lastFragment))
	if err != nil {
		return err
	}
	const reply = 1
	if len(answer) < 8 || string(answer[:4]) != string(id) || binary.BigEndian.Uint32(answer[4:]) != reply {
		return errors.New("the response is not an RPC reply")
	}
	return nil
}

// negotiate queries the server for its dialect of SMB 2 and 3 (MS-SMB2 2.2.3). It does not log in.
func negotiate(connection io.ReadWriter) error {
	dialects := []uint16{0x0202, 0x0210, 0x0300, 0x0302}
	request := make([]byte, 64+36, 64+36+2*len(dialects))
	copy(request, "\xfeSMB")
	binary.LittleEndian.PutUint16(request[4:], 64)
	// The requested number of credits is 1. The command, its number and the rest of the header are 0.
	binary.LittleEndian.PutUint16(request[14:], 1)
	body := request[64:]
	binary.LittleEndian.PutUint16(body, 36)
	binary.LittleEndian.PutUint16(body[2:], uint16(len(dialects)))
	// Signing is enabled.
	binary.LittleEndian.PutUint16(body[4:], 1)
	_, _ = rand.Read(body[12:28])
	for _, dialect := range dialects {
		request = binary.LittleEndian.AppendUint16(request, dialect)
	}
	frame := binary.BigEndian.AppendUint32(nil, uint32(len(request)))
	if _, err := connection.Write(append(frame, request...)); err != nil {
		return err
	}
	answer, err := readFrame(connection, 0x00ffffff)
	if err != nil {
		return err
	}
	if len(answer) < 64 || string(answer[:4]) != "\xfeSMB" {
		return errors.New("the response is not an SMB 2 message")
	}
	return nil
}

// readFrame reads a frame that starts with its length, under a mask.
func readFrame(connection io.Reader, mask uint32) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(connection, head); err != nil {
		return nil, fmt.Errorf("no response: %w", err)
	}
	length := binary.BigEndian.Uint32(head) & mask
	if length > maxAnswer {
		return nil, fmt.Errorf("the response is too long: %d bytes", length)
	}
	answer := make([]byte, length)
	if _, err := io.ReadFull(connection, answer); err != nil {
		return nil, fmt.Errorf("the response is incomplete: %w", err)
	}
	return answer, nil
}
