package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func getCommand(env *environment) *cobra.Command {
	var o output
	var watch bool
	cmd := &cobra.Command{
		Use:  "get PROFILE",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if watch && o != "" && o != "text" && !o.isWide() {
				return fmt.Errorf("--watch supports only text: remove --watch or --output %s", o)
			}
			return showTree(cmd.Context(), env, args[0], o, watch)
		},
	}
	o.addFlag(cmd)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "Follow the rollout until you press Ctrl-C")
	return cmd
}

func showTree(ctx context.Context, env *environment, name string, o output, isWatching bool) error {
	c, err := env.connect()
	if err != nil {
		return err
	}
	v := newLiveView(c, name)
	if err := v.read(ctx); err != nil {
		err = fmt.Errorf("get StorageClientProfile %s: %w", name, err)
		if apierrors.IsNotFound(err) {
			err = suggestName(ctx, c, profileKind, err, name)
		}
		return err
	}
	settings, err := readManagerSettings(ctx, c, managerFlags{})
	if err != nil {
		return err
	}
	v.allow = settings.accepted()
	screen, isTerminal := env.screen()
	if !isWatching {
		tree, _ := v.tree()
		if done, err := o.writeStructured(env, tree); done || err != nil {
			return err
		}
		screen.Height = 0
		return writeTree(env.raw, tree.Draw(screen, env.now()))
	}
	var d display = &lineDisplay{out: env.Out}
	if isTerminal {
		d = &screenDisplay{out: env.raw, size: env.screen}
	}
	return watchTree(ctx, env, v, d)
}

// watchTree shows the tree until the context is done or the profile is deleted.
func watchTree(ctx context.Context, env *environment, v *liveView, d display) (err error) {
	watching, stop := context.WithCancel(ctx)
	done, message := make(chan struct{}), ""
	go func() {
		defer close(done)
		v.follow(watching)
	}()
	defer func() {
		stop()
		<-done
		if closeErr := d.close(message); err == nil {
			err = closeErr
		}
	}()
	// Ages increase without any other change.
	ticks, stopTicks := env.ticks(time.Second)
	defer stopTicks()
	for {
		tree, exists := v.tree()
		if !exists {
			message = "Profile " + v.name + " was deleted."
			return nil
		}
		if err := d.show(tree, env.now()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-v.changed:
		case <-ticks:
		}
	}
}

func startTicks(every time.Duration) (<-chan time.Time, func()) {
	ticker := time.NewTicker(every)
	return ticker.C, ticker.Stop
}
