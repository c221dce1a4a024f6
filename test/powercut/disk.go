package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
)

// block is the size of an atomic write, in bytes.
const block = 4096

// disk is a disk with a cache that loses its content when the power is cut. Each block that was written but not flushed is kept or lost
// at random, so a later write may be kept and an earlier one lost.
type disk struct {
	mutex sync.Mutex
	// durable survives a cut. cached contains, by block number, the writes since the last flush.
	durable []byte
	cached  map[int64][][]byte
	flushes int
}

func newDisk(image []byte) *disk { return &disk{durable: image, cached: map[int64][][]byte{}} }

// view returns the current content of a block.
func (d *disk) view(n int64) []byte {
	if versions := d.cached[n]; len(versions) > 0 {
		return versions[len(versions)-1]
	}
	return d.durable[n*block : (n+1)*block]
}

func (d *disk) read(at int64, data []byte) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	for len(data) > 0 {
		n := copy(data, d.view(at / block)[at%block:])
		data, at = data[n:], at+int64(n)
	}
}

func (d *disk) write(at int64, data []byte) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	for len(data) > 0 {
		next := append([]byte(nil), d.view(at/block)...)
		n := copy(next[at%block:], data)
		d.cached[at/block] = append(d.cached[at/block], next)
		data, at = data[n:], at+int64(n)
	}
}

func (d *disk) flush() {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	for n, versions := range d.cached {
		copy(d.durable[n*block:], versions[len(versions)-1])
	}
	clear(d.cached)
	d.flushes++
}

// cut cuts the power. Each block keeps its content of the last flush, or any version since. cut returns the number of blocks in the
// cache, and how many of them lost their last write.
func (d *disk) cut(chance *rand.Rand) (cached, lost int) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	cached = len(d.cached)
	for n := range int64(len(d.durable) / block) {
		versions := d.cached[n]
		if len(versions) == 0 {
			continue
		}
		survivor := chance.IntN(len(versions) + 1)
		if survivor > 0 {
			copy(d.durable[n*block:], versions[survivor-1])
		}
		if survivor < len(versions) {
			lost++
		}
	}
	clear(d.cached)
	return cached, lost
}

// The part of the NBD protocol (github.com/NetworkBlockDevice/nbd, doc/proto.md) that QEMU uses.
const (
	nbdMagic       = 0x4e42444d41474943
	nbdOptMagic    = 0x49484156454f5054
	nbdReplyMagic  = 0x3e889045565a9
	nbdRequest     = 0x25609513
	nbdSimpleReply = 0x67446698

	nbdFixedNewstyle, nbdNoZeroes = 1, 2
	nbdHasFlags, nbdSendFlush     = 1, 4

	nbdOptExportName, nbdOptAbort, nbdOptGo = 1, 2, 7
	nbdReplyAck, nbdReplyInfo               = 1, 3
	nbdErrUnsupported                       = 1<<31 + 1

	nbdRead, nbdWrite, nbdDisconnect, nbdFlush = 0, 1, 2, 3
)

// serve speaks NBD on one connection until it ends.
func (d *disk) serve(conn net.Conn) error {
	defer conn.Close()
	if err := d.negotiate(conn); err != nil {
		return fmt.Errorf("negotiate: %w", err)
	}
	for {
		var request struct {
			Magic       uint32
			Flags, Type uint16
			Handle      uint64
			At          int64
			Length      uint32
		}
		if err := binary.Read(conn, binary.BigEndian, &request); err != nil {
			return err
		}
		if request.Magic != nbdRequest {
			return errors.New("no NBD request")
		}
		var response []byte
		switch request.Type {
		case nbdRead:
			response = make([]byte, request.Length)
			d.read(request.At, response)
		case nbdWrite:
			data := make([]byte, request.Length)
			if _, err := io.ReadFull(conn, data); err != nil {
				return err
			}
			d.write(request.At, data)
		case nbdFlush:
			d.flush()
		case nbdDisconnect:
			return nil
		default:
			return fmt.Errorf("unsupported NBD request of type %d", request.Type)
		}
		head := binary.BigEndian.AppendUint32(nil, nbdSimpleReply)
		head = binary.BigEndian.AppendUint32(head, 0)
		head = binary.BigEndian.AppendUint64(head, request.Handle)
		if _, err := conn.Write(append(head, response...)); err != nil {
			return err
		}
	}
}

func (d *disk) negotiate(conn net.Conn) error {
	hello := binary.BigEndian.AppendUint64(nil, nbdMagic)
	hello = binary.BigEndian.AppendUint64(hello, nbdOptMagic)
	hello = binary.BigEndian.AppendUint16(hello, nbdFixedNewstyle|nbdNoZeroes)
	if _, err := conn.Write(hello); err != nil {
		return err
	}
	var flags uint32
	if err := binary.Read(conn, binary.BigEndian, &flags); err != nil {
		return err
	}
	export := binary.BigEndian.AppendUint64(nil, uint64(len(d.durable)))
	export = binary.BigEndian.AppendUint16(export, nbdHasFlags|nbdSendFlush)
	for {
		var option struct {
			Magic        uint64
			Type, Length uint32
		}
		if err := binary.Read(conn, binary.BigEndian, &option); err != nil {
			return err
		}
		if _, err := io.CopyN(io.Discard, conn, int64(option.Length)); err != nil {
			return err
		}
		reply := func(kind uint32, data []byte) error {
			head := binary.BigEndian.AppendUint64(nil, nbdReplyMagic)
			for _, n := range []uint32{option.Type, kind, uint32(len(data))} {
				head = binary.BigEndian.AppendUint32(head, n)
			}
			_, err := conn.Write(append(head, data...))
			return err
		}
		switch option.Type {
		case nbdOptExportName:
			_, err := conn.Write(export)
			return err
		case nbdOptGo:
			// Information of type 0 is the export itself.
			return errors.Join(reply(nbdReplyInfo, append([]byte{0, 0}, export...)), reply(nbdReplyAck, nil))
		case nbdOptAbort:
			return errors.Join(reply(nbdReplyAck, nil), errors.New("aborted"))
		}
		if err := reply(nbdErrUnsupported, nil); err != nil {
			return err
		}
	}
}
