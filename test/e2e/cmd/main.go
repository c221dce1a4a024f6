// Command cmd runs the cluster of the end-to-end test by hand:
//
//	go run ./test/e2e/cmd up [IMAGE.tar...]    a fresh cluster, with these images on its nodes
//	go run ./test/e2e/cmd in COMMAND...        a command in its network, e.g. kubectl get nodes
//	go run ./test/e2e/cmd node N COMMAND       a shell command on machine N
//	go run ./test/e2e/cmd load IMAGE.tar...    imports images on its nodes
//	go run ./test/e2e/cmd down                 ends it
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/storageclient/operator/test/e2e/cluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	dirs, err := cluster.FindDirs()
	if err != nil {
		return err
	}
	c := cluster.New(dirs)
	switch {
	case len(args) >= 1 && args[0] == "up":
		return up(ctx, dirs, c, args[1:])
	case len(args) >= 2 && args[0] == "in":
		return c.Exec(args[1:]...)
	case len(args) == 3 && args[0] == "node":
		return node(ctx, c, args[1], args[2])
	case len(args) >= 2 && args[0] == "load":
		return load(ctx, c, args[1:])
	case len(args) == 1 && args[0] == "down":
		return c.Down()
	}
	return errors.New("usage: up [IMAGE.tar...] | in COMMAND... | node N COMMAND | load IMAGE.tar... | down")
}

func up(ctx context.Context, dirs cluster.Dirs, c *cluster.Cluster, images []string) error {
	begin := time.Now()
	progress := func(format string, args ...any) {
		fmt.Printf("%4.0f s  %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
	}
	if !cluster.InNamespace() {
		if err := cluster.Prepare(ctx, dirs, progress); err != nil {
			return err
		}
		return cluster.EnterNamespace()
	}
	if err := c.Acquire(); err != nil {
		return err
	}
	if err := c.Up(ctx, images, progress); err != nil {
		return errors.Join(err, c.Down())
	}
	return nil
}

func load(ctx context.Context, c *cluster.Cluster, images []string) error {
	if err := c.Join(); err != nil {
		return err
	}
	return c.Import(ctx, images...)
}

func node(ctx context.Context, c *cluster.Cluster, number, script string) error {
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > len(c.Machines()) {
		return fmt.Errorf("unknown machine %q", number)
	}
	if err := c.Join(); err != nil {
		return err
	}
	out, err := c.Machines()[n-1].Run(ctx, script)
	fmt.Print(out)
	return err
}
