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
// It reads the resources with the token of the person.
func (f *fleetAPIClient) checkSentinelCoverage(
	ctx context.Context, person console.Person, sentinels []hosts.NamedSentinel,
) (hosts.Coverage, error) {
	client, err := f.clientWithToken(person.Token)
	if err != nil {
		return hosts.Coverage{}, err
	}
	watches, err := newWatches(sentinels, client)
	if err != nil {
		return hosts.Coverage{}, err
	}
	report, err := inspect.CheckCoverage(ctx, watches, defaultAndWatchedCollections(watches), func(string, int) {})
	if fleetclient.IsUnauthorized(err) {
		err = errors.Join(console.ErrToken, err)
	}
	if err != nil {
		return hosts.Coverage{}, err
	}

	coverage := newCoverage(report)
	coverage.SeveralAPIs = apiURLsIfSeveral(sentinels)
	fillExampleNames(ctx, client, coverage.Gaps)
	fillExampleNames(ctx, client, coverage.Overlaps)
	return coverage, nil
}

// newWatches returns what each of the sentinels watches.
func newWatches(sentinels []hosts.NamedSentinel, client *fleetclient.Client) ([]*inspect.Watch, error) {
	var watches []*inspect.Watch
	for _, s := range sentinels {
		w, err := inspect.NewWatchOfSpec(s.Name, &s.Config.Spec, client.Raw())
		if err != nil {
			return nil, fmt.Errorf("%w %s: %w", hosts.ErrInvalidSentinel, s.Name, err)
		}
		watches = append(watches, w)
	}
	return watches, nil
}

// defaultAndWatchedCollections returns the collections that are watched, and those that the page shows in any
// case.
func defaultAndWatchedCollections(watches []*inspect.Watch) []string {
	collections := []string{v1.CollectionClusters, v1.CollectionNodePools}
	for _, w := range watches {
		if !slices.Contains(collections, w.Collection) {
			collections = append(collections, w.Collection)
		}
	}
	return collections
}

// newCoverage returns a report as the page shows it. Its lists are never nil, because the page
// expects JSON lists.
func newCoverage(report *inspect.CoverageReport) hosts.Coverage {
	coverage := hosts.Coverage{
		AsOf:        report.Ended,
		Collections: []hosts.CollectionCoverage{},
		Gaps:        []hosts.CoverageGroup{},
		Overlaps:    []hosts.CoverageGroup{},
	}
	for _, c := range report.Collections {
		if !c.Served {
			continue // the fleet API does not have the collection
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
	return coverage
}

// apiURLsIfSeveral returns the URLs of the fleet APIs that the sentinels read, if there are several.
// The report takes all of them for that of the console.
func apiURLsIfSeveral(sentinels []hosts.NamedSentinel) []string {
	apis := map[string]bool{}
	for _, s := range sentinels {
		apis[s.Config.Spec.HyperfleetAPI.URL] = true
	}
	if len(apis) < 2 {
		return nil
	}
	return slices.Sorted(maps.Keys(apis))
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
