// Command recorder records every ten seconds the data from which the agent detects unresponsive storage servers, with the agent's reader.
// In the meantime it uses the mounts, each directory in a different way. The agent's tests replay its output.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/mounts"
)

const every = 10 * time.Second

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() (err error) {
	out := flag.String("o", "", "file for the samples: gzip, in each line JSON with the time and a list of servers")
	lasts := flag.Duration("for", time.Minute, "duration")
	mapped := flag.String("map", "", "directory whose files are read through mappings, again and again; nothing is recorded")
	flag.Parse()
	if *mapped != "" {
		return readMapped(*mapped)
	}
	fs, err := host.OpenFS("/")
	if err != nil {
		return err
	}
	defer fs.Close()
	file, err := os.Create(*out)
	if err != nil {
		return err
	}
	packed := gzip.NewWriter(file)
	defer func() { err = errors.Join(err, packed.Close(), file.Close()) }()
	for i, dir := range flag.Args() {
		go use(dir, i)
	}
	reader, lines := mounts.NewReader(fs, mounts.DefaultKubeletDir), json.NewEncoder(packed)
	end, turns := time.After(*lasts), time.NewTicker(every)
	for {
		at := time.Now()
		counters, err := reader.Counters()
		if err != nil {
			return err
		}
		if err := lines.Encode(sample{At: at, Servers: counters}); err != nil {
			return fmt.Errorf("write sample: %w", err)
		}
		select {
		case <-end:
			return nil
		case <-turns.C:
		}
	}
}

// sample is one reading of all servers, with its start time.
type sample struct {
	At      time.Time               `json:"at"`
	Servers []mounts.ServerCounters `json:"servers"`
}

// use works in a directory until the process ends. The number selects continuous use, occasional use, bursts with long pauses, or no use.
// It tries again after errors.
func use(dir string, number int) {
	name := filepath.Join(dir, fmt.Sprintf("recorded-%d", number))
	block := bytes.Repeat([]byte("recorded"), 1<<15)
	for turn := 0; ; turn++ {
		switch number % 5 {
		case 0: // Only the requests of the kernel itself.
			return
		case 1: // A low constant load.
			_, _ = os.ReadDir(dir)
			time.Sleep(time.Second)
		case 2: // Writes as fast as the server accepts them, for a minute, and then a minute without requests.
			for end := time.Now().Add(time.Minute); time.Now().Before(end); {
				_ = os.WriteFile(name, block, 0o600)
			}
			time.Sleep(time.Minute)
		case 3: // A request, and then none for six minutes.
			_ = os.WriteFile(name, []byte("now and then"), 0o600)
			time.Sleep(6 * time.Minute)
		case 4: // Creates, reads and deletes files.
			_ = os.WriteFile(name, block[:4096], 0o600)
			_, _ = os.ReadFile(name)
			_ = os.Remove(name)
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// readMapped maps the files of a directory into memory and reads every fourth page of them, again and again. Each pass starts without cached
// pages.
func readMapped(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	sum := 0
	for {
		for _, e := range entries {
			file, err := os.Open(filepath.Join(dir, e.Name()))
			if err != nil {
				return err
			}
			info, err := file.Stat()
			if err != nil {
				return err
			}
			data, err := unix.Mmap(int(file.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
			if err != nil {
				return fmt.Errorf("map %s: %w", file.Name(), err)
			}
			for i := 0; i < len(data); i += 4 * os.Getpagesize() {
				sum += int(data[i])
			}
			err = errors.Join(unix.Munmap(data), unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED), file.Close())
			if err != nil {
				return err
			}
		}
		if sum < 0 {
			return errors.New("overflow")
		}
	}
}
