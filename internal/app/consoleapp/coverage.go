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

// checkSentinelCoverage compares the resources of the fleet API with what SentinelConfigs watch.
// It reads the resources with the token of the person. Collections that none watches are read too,
// as far as the page shows them.
func (f *fleetAPIClient) checkSentinelCoverage(
	ctx context.Context, person console.Person, sentinels []hosts.NamedSentinel,
) (hosts.Coverage, error) {
	client, err := f.clientWithToken(person.Token)
	if err != nil {
		return hosts.Coverage{}, err
	}

	// Collect what the sentinels watch, and the collections that the page shows in any case.
	var watches []*inspect.Watch
	apis := map[string]bool{}
	collections := []string{v1.CollectionClusters, v1.CollectionNodePools}
	for _, s := range sentinels {
		w, err := inspect.NewWatchOfSpec(s.Name, &s.Config.Spec, client.Raw())
		if err != nil {
			return hosts.Coverage{}, fmt.Errorf("%w %s: %w", hosts.ErrInvalidSentinel, s.Name, err)
		}
		apis[s.Config.Spec.HyperfleetAPI.URL] = true
		watches = append(watches, w)
		if !slices.Contains(collections, w.Collection) {
			collections = append(collections, w.Collection)
		}
	}

	report, err := inspect.CheckCoverage(ctx, watches, collections, func(string, int) {})
	if fleetclient.IsUnauthorized(err) {
		err = errors.Join(console.ErrToken, err)
	}
	if err != nil {
		return hosts.Coverage{}, err
	}

	// The lists are never nil, because the page expects JSON lists.
	coverage := hosts.Coverage{
		AsOf:        report.Ended,
		Collections: []hosts.CollectionCoverage{},
		Gaps:        []hosts.CoverageGroup{},
		Overlaps:    []hosts.CoverageGroup{},
	}
	if len(apis) > 1 {
		coverage.SeveralAPIs = slices.Sorted(maps.Keys(apis))
	}
	for _, c := range report.Collections {
		if !c.Served {
			continue
		}
		coverage.Collections = append(coverage.Collections, hosts.CollectionCoverage{
			Collection:  c.Collection,
			Resources:   c.Resources,
			Unwatched:   c.Unwatched,
			Overlapping: c.Overlapping,
			Invalid:     c.Unreadable,
			Inexact:     c.WalkOnly,
		})
		coverage.Gaps = append(coverage.Gaps, toCoverageGroups(c.Collection, c.Gaps)...)
		coverage.Overlaps = append(coverage.Overlaps, toCoverageGroups(c.Collection, c.Overlaps)...)
	}
	fillExampleNames(ctx, client, coverage.Gaps)
	fillExampleNames(ctx, client, coverage.Overlaps)
	return coverage, nil
}

func toCoverageGroups(collection string, groups []inspect.Group) []hosts.CoverageGroup {
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
			Collection: collection,
			Labels:     strings.Join(labels, ","),
			Others:     g.Others,
			Resources:  g.Resources,
			Sentinels:  g.Configs,
			ExampleID:  g.Example,
		}
	}
	return list
}

// fillExampleNames reads the names of examples. The page shows the id of one that cannot be read.
func fillExampleNames(ctx context.Context, client *fleetclient.Client, groups []hosts.CoverageGroup) {
	for i := range groups[:min(len(groups), maxExamples)] {
		g := &groups[i]
		if r, err := client.Collection(g.Collection).Get(ctx, g.ExampleID); err == nil {
			g.ExampleName = r.Name
		}
	}
}
