package main

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

const (
	// lookEvery is how often the nodes are read.
	lookEvery = 2 * time.Second
	// handOver is how long the manager may take to ask a node, and the agent to begin.
	handOver = 45 * time.Second
	// late is how much longer than the window an agent may take.
	late = time.Minute
)

// progress is how far one node is.
type progress struct {
	// asked and begun are when that was first seen.
	asked, begun time.Time
	// stage is what was last told of it.
	stage string
}

// seen is one look at a node.
type seen struct {
	clientNode *v1alpha1.StorageClientNode
	id         string
	request    v1alpha1.SampleRequest
	// since is when the request was made.
	since, now time.Time
}

// follow says what a look at a node means: an answer, or the stage it is at.
func (p *progress) follow(s seen) (a answer, done bool) {
	asked, reported := s.clientNode.Spec.Sample, s.clientNode.Status.Sample
	isAsked := asked != nil && asked.ID == s.id
	if isAsked && p.asked.IsZero() {
		p.asked = s.now
	}
	if isAsked && reported != nil && reported.ID == s.id {
		return p.followAnswer(s, reported)
	}
	switch {
	case !p.begun.IsZero() && !isAsked:
		return answer{why: "the request was taken back before the agent had answered"}, true
	case isAsked && s.now.After(p.asked.Add(handOver)):
		return answer{why: fmt.Sprintf("its agent has not begun within %s: it is silent, or older than this plugin; see \"kubectl storageclient node %s\"", handOver, s.clientNode.Name)}, true
	case isAsked:
		p.stage = "waits for its agent"
	case asked != nil && s.now.Before(s.request.StartBefore()):
		p.stage = "answers another request first"
	case asked != nil:
		return answer{why: "it was busy with another request: try again"}, true
	case s.now.After(s.since.Add(handOver)):
		return answer{why: fmt.Sprintf("the manager has not asked it within %s: the rollout holds the node, the manager does not run or is older than this plugin, "+
			"or this machine's clock is wrong; see \"kubectl storageclient node %s\"", handOver, s.clientNode.Name)}, true
	default:
		p.stage = "waits for the manager"
	}
	return answer{}, false
}

func (p *progress) followAnswer(s seen, reported *v1alpha1.NodeSampleStatus) (a answer, done bool) {
	switch reported.Phase {
	case v1alpha1.SampleFinished:
		return answer{sample: reported}, true
	case v1alpha1.SampleFailed:
		return answer{why: reported.Message}, true
	case v1alpha1.SampleRunning:
	}
	if p.begun.IsZero() {
		p.begun = s.now
	}
	window := time.Duration(s.request.Seconds) * time.Second
	if s.now.After(p.begun.Add(window + late)) {
		return answer{why: "its agent has not ended the window in time"}, true
	}
	p.stage = "measures, until about " + p.begun.Add(window).Format(time.TimeOnly)
	return answer{}, false
}

// wait follows the nodes until each has answered, or is not waited for any more.
func (s *sampling) wait(ctx context.Context) error {
	since := s.env.now()
	s.answers = map[string]answer{}
	following := map[string]*progress{}
	for _, name := range s.nodes {
		following[name] = &progress{}
	}
	ticks, stop := s.env.ticks(lookEvery)
	defer stop()
	for {
		for _, name := range s.nodes {
			if _, done := s.answers[name]; done {
				continue
			}
			if err := s.look(ctx, name, following[name], since); err != nil {
				return err
			}
		}
		if len(s.answers) == len(s.nodes) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("ended before %s had answered; the request is taken back", text.Count(len(s.nodes)-len(s.answers), "node"))
		case <-ticks:
		}
	}
}

// look reads a node, and tells what is new of it.
func (s *sampling) look(ctx context.Context, name string, p *progress, since time.Time) error {
	clientNode := &v1alpha1.StorageClientNode{}
	err := s.client.Get(ctx, client.ObjectKey{Name: name}, clientNode)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // Whoever waits says so.
	}
	switch {
	case apierrors.IsNotFound(err):
		s.answers[name] = answer{why: "it is gone, or not managed any more"}
	case err != nil:
		return fmt.Errorf("get StorageClientNode %s: %w", name, err)
	default:
		before := p.stage
		a, done := p.follow(seen{clientNode: clientNode, id: s.request.SampleID(s.volumeClaim.UID), request: s.request, since: since, now: s.env.now()})
		if !done {
			if p.stage != before {
				s.tell(name + " " + p.stage)
			}
			return nil
		}
		s.answers[name] = a
	}
	if why := s.answers[name].why; why != "" {
		s.tell(name + " gives no sample: " + why)
	} else {
		s.tell(name + " has answered")
	}
	return nil
}
