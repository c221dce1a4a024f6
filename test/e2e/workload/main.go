// Command workload is the program in the containers of the end-to-end test: an application with its data on a volume, and the process
// that holds a pod's namespaces.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

const usage = `usage:
  workload                   hold the pod's namespaces
  workload serve FILE        write FILE.HOSTNAME, then answer on :8080/ready by whether FILE can be read, until SIGTERM
  workload cat FILE          print FILE
  workload write FILE TEXT   write TEXT to FILE, down to the server's disk
  workload list DIRECTORY    list DIRECTORY with the attributes of its entries, as ls -l does, every four seconds until SIGTERM`

// listPause is longer than the default lifetime of cached attributes.
const listPause = 4 * time.Second

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 0:
		return pause()
	case len(args) == 2 && args[0] == "serve":
		return serve(args[1])
	case len(args) == 2 && args[0] == "cat":
		data, err := os.ReadFile(args[1])
		fmt.Print(string(data))
		return err
	case len(args) == 3 && args[0] == "write":
		return write(args[1], args[2])
	case len(args) == 2 && args[0] == "list":
		return list(args[1])
	}
	return errors.New(usage)
}

// pause waits for a signal to end. As process 1 of a shared process namespace, it also reaps orphans.
func pause() error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return nil
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
	return nil
}

func serve(path string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	if err := write(path+"."+host, time.Now().Format(time.RFC3339)); err != nil {
		return err
	}
	server := &http.Server{Addr: ":8080", ReadHeaderTimeout: 5 * time.Second, Handler: readiness(path)}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func readiness(path string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if _, err := os.ReadFile(path); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
}

func write(path, text string) error {
	file, err := os.Create(filepath.Clean(path))
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Sync(), file.Close())
}

func list(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	for ctx.Err() == nil {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if _, err := entry.Info(); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(listPause):
		}
	}
	return nil
}
