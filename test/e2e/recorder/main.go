// recorder writes down every ten seconds what the agent goes by to tell whether storage servers answer, with the agent's own reader, and
// meanwhile uses mounts: each directory in another way. What it writes is for the agent's tests to play.
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
	lasts := flag.Duration("for", time.Minute, "how long")
	flag.Parse()
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

// sample is one reading of all servers, and when it began.
type sample struct {
	At      time.Time               `json:"at"`
	Servers []mounts.ServerCounters `json:"servers"`
}

// use works in a directory until the process ends: by its number all the time, now and then, in bursts with long pauses, or not at all.
// What fails is tried again.
func use(dir string, number int) {
	name := filepath.Join(dir, fmt.Sprintf("recorded-%d", number))
	block := bytes.Repeat([]byte("recorded"), 1<<15)
	for turn := 0; ; turn++ {
		switch number % 5 {
		case 0: // Nothing but what the kernel does by itself.
			return
		case 1: // A little all the time.
			_, _ = os.ReadDir(dir)
			time.Sleep(time.Second)
		case 2: // Writes as fast as the server takes them, for a minute, and then a minute of nothing.
			for end := time.Now().Add(time.Minute); time.Now().Before(end); {
				_ = os.WriteFile(name, block, 0o600)
			}
			time.Sleep(time.Minute)
		case 3: // Something is asked, and then nothing for six minutes.
			_ = os.WriteFile(name, []byte("now and then"), 0o600)
			time.Sleep(6 * time.Minute)
		case 4: // Files come, are read and go.
			_ = os.WriteFile(name, block[:4096], 0o600)
			_, _ = os.ReadFile(name)
			_ = os.Remove(name)
			time.Sleep(100 * time.Millisecond)
		}
	}
}
