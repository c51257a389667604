package consoleapp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/console"
	"github.com/fleetloop/fleetloop/internal/console/hosts"
	"github.com/fleetloop/fleetloop/internal/sentinel/inspect"
)

// maxExamples limits the examples whose names are read.
const maxExamples = 20

// checkCoverage reads the resources of the console's fleet API with the token of the person, and
// compares them with what SentinelConfigs watch. Collections that none watches are read too, as far as
// the page shows them.
func (f *fleet) checkCoverage(ctx context.Context, who console.Person, list []hosts.NamedSentinel) (hosts.Coverage, error) {
	client, err := f.as(who.Token)
	if err != nil {
		return hosts.Coverage{}, err
	}
	var watches []*inspect.Watch
	apis := map[string]bool{}
	collections := []string{v1.CollectionClusters, v1.CollectionNodePools}
	for _, s := range list {
		w, _, err := newWatch(s.Name, s.Config, client.Raw())
		if err != nil {
			return hosts.Coverage{}, fmt.Errorf("%w %s: %w", hosts.ErrInvalidSentinel, s.Name, err)
		}
		apis[s.Config.Spec.HyperfleetAPI.URL] = true
		watches = append(watches, w)
		if !slices.Contains(collections, w.Collection) {
			collections = append(collections, w.Collection)
		}
	}
	coverage := hosts.Coverage{Collections: []hosts.CollectionCoverage{}, Gaps: []hosts.CoverageGroup{}, Overlaps: []hosts.CoverageGroup{}}
	report, err := inspect.CheckCoverage(ctx, watches, collections, func(string, int) {})
	if fleetclient.IsUnauthorized(err) {
		err = errors.Join(console.ErrToken, err)
	}
	if err != nil {
		return hosts.Coverage{}, err
	}
	coverage.AsOf = report.Ended
	if len(apis) > 1 {
		coverage.SeveralAPIs = slices.Sorted(maps.Keys(apis))
	}
	for _, c := range report.Collections {
		if !c.Served {
			continue
		}
		coverage.Collections = append(coverage.Collections, hosts.CollectionCoverage{
			Collection: c.Collection, Resources: c.Resources, Unwatched: c.Unwatched, Overlapping: c.Overlapping, Invalid: c.Unreadable, Inexact: c.WalkOnly,
		})
		coverage.Gaps = append(coverage.Gaps, groupsOf(c.Collection, c.Gaps)...)
		coverage.Overlaps = append(coverage.Overlaps, groupsOf(c.Collection, c.Overlaps)...)
	}
	nameExamples(ctx, client, coverage.Gaps)
	nameExamples(ctx, client, coverage.Overlaps)
	return coverage, nil
}

func groupsOf(collection string, groups []inspect.Group) []hosts.CoverageGroup {
	list := make([]hosts.CoverageGroup, len(groups))
	for i, g := range groups {
		var labels []string
		for _, l := range g.Labels {
			if l.Value == nil {
				labels = append(labels, "!"+l.Label)
			} else {
				labels = append(labels, l.Label+"="+*l.Value)
			}
		}
		list[i] = hosts.CoverageGroup{
			Collection: collection, Labels: strings.Join(labels, ","), Others: g.Others, Resources: g.Resources, Sentinels: g.Configs, ExampleID: g.Example,
		}
	}
	return list
}

// nameExamples reads the names of examples. The page shows the id of one that cannot be read.
func nameExamples(ctx context.Context, client *fleetclient.Client, groups []hosts.CoverageGroup) {
	for i := range groups[:min(len(groups), maxExamples)] {
		g := &groups[i]
		if r, err := client.Collection(g.Collection).Get(ctx, g.ExampleID); err == nil {
			g.ExampleName = r.Name
		}
	}
}
