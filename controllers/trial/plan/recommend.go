package plan

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/recommend"
	"github.com/storageclient/operator/tuning/text"
)

const (
	maxRecommendations = 32
	maxSeen            = 1024
	maxOptions         = 16
	maxOption          = 128
)

// recommend sets the recommendations, based on the counters of nodes.
func (p *planner) recommend(t Trial, status *v1alpha1.StorageClientTrialStatus) {
	mounts, err := MountsOf(status.Samples)
	if err != nil {
		p.end(t, status, v1alpha1.TrialReasonVoid, "The counters of the nodes cannot be read: "+err.Error(), true)
		return
	}
	status.Recommendations = recommendationsOf(mounts)
	p.end(t, status, v1alpha1.TrialReasonDecided, conclusionOf(mounts, status.Recommendations), false)
}

// MountsOf evaluates the counters of nodes.
func MountsOf(samples []v1alpha1.TrialSample) ([]recommend.Mount, error) {
	var mounts []recommend.Mount
	for _, s := range samples {
		counted, err := recommend.FromAPI(s.Mounts, s.Milliseconds)
		if err != nil {
			return nil, fmt.Errorf("node %s: %w", s.Node, err)
		}
		mounts = append(mounts, recommend.EvaluateNode(s.Node, counted)...)
	}
	return mounts, nil
}

// recommendationsOf converts findings to the API, one per rule. Without findings, it returns the reason as the only recommendation.
func recommendationsOf(mounts []recommend.Mount) []v1alpha1.TrialRecommendation {
	groups := recommend.ByRule(mounts)
	if len(groups) == 0 {
		nodes := sets.New(lists.Each(mounts, func(m recommend.Mount) string { return m.Node })...)
		return []v1alpha1.TrialRecommendation{{Text: recommend.Conclude(mounts).Text(), Nodes: int32(nodes.Len())}}
	}
	var recommendations []v1alpha1.TrialRecommendation
	for _, g := range groups[:min(len(groups), maxRecommendations)] {
		first := g.Findings[0]
		r := v1alpha1.TrialRecommendation{
			Rule: g.Rule.ID, Cause: v1alpha1.TrialCause(g.Rule.Cause), Text: text.CutBytes(g.Nodes[0]+": "+first.Seen, maxSeen), ByHand: first.ByHand,
			Effect: text.CutBytes(first.Effect, maxNote), Against: text.CutBytes(first.Against, maxNote),
			Source: text.CutBytes(g.Rule.Source, maxNote), Nodes: int32(sets.New(g.Nodes...).Len()),
		}
		options := recommend.ListTexts(g.Findings)
		r.Options = lists.Each(options[:min(len(options), maxOptions)], func(option string) string { return text.CutBytes(option, maxOption) })
		recommendations = append(recommendations, r)
	}
	return recommendations
}

func conclusionOf(mounts []recommend.Mount, recommendations []v1alpha1.TrialRecommendation) string {
	outcome := recommend.Conclude(mounts)
	switch outcome {
	case recommend.Helps:
	case recommend.HelpsNot:
		return fmt.Sprintf("No client setting will help (%s): %s", recommendations[0].Rule, recommendations[0].Effect)
	default:
		return outcome.Text()
	}
	var helps []string
	for _, r := range recommendations {
		if r.Cause == v1alpha1.TrialCause(recommend.CauseClient) && !r.ByHand {
			helps = append(helps, fmt.Sprintf("%s (%s)", strings.Join(r.Options, ", "), r.Rule))
		}
	}
	return strings.TrimSuffix(outcome.Text(), ".") + ": " + text.List(helps)
}
