package main

import (
	"bytes"
	"fmt"
	"io/fs"
)

// file is one entry of an initial RAM file system.
type file struct {
	name string
	mode fs.FileMode
	data []byte
}

// initramfs packs files as the kernel unpacks them: cpio in the form "newc" (Documentation/driver-api/early-userspace).
func initramfs(files []file) []byte {
	var b bytes.Buffer
	pad := func() {
		for b.Len()%4 != 0 {
			b.WriteByte(0)
		}
	}
	entry := func(number int, name string, mode uint32, data []byte) {
		b.WriteString("070701")
		for _, n := range []int{number, int(mode), 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0} {
			fmt.Fprintf(&b, "%08x", n)
		}
		b.WriteString(name + "\x00")
		pad()
		b.Write(data)
		pad()
	}
	const directory, regular = 0o040000, 0o100000
	for i, f := range files {
		kind := uint32(regular)
		if f.mode.IsDir() {
			kind = directory
		}
		entry(i+1, f.name, kind|uint32(f.mode.Perm()), f.data)
	}
	entry(0, "TRAILER!!!", 0, nil)
	return b.Bytes()
}
