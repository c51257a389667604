package inspect

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/sentinel/source"
)

// AllCollections returns all collections that a fleet API may have.
func AllCollections() []string {
	return []string{v1.CollectionClusters, v1.CollectionNodePools, v1.CollectionManifests, v1.CollectionWorkloads}
}

// A CoverageReport says whether each resource is selected by exactly one of
// several configurations.
type CoverageReport struct {
	// Proven is true if each resource is. It is false if one is not, or could not be read.
	Proven bool `json:"covered"`

	Began time.Time `json:"start_time"`
	Ended time.Time `json:"end_time"`

	Configs     []CoveredConfig     `json:"configs"`
	Collections []CoveredCollection `json:"collections"`
}

// A CoveredConfig is one of the configurations.
type CoveredConfig struct {
	Name       string `json:"name"`
	Endpoint   string `json:"endpoint"`
	Collection string `json:"collection"`
	Selector   string `json:"selector"`

	// Selected is the number of resources that it selected when they were read, Alone the number of
	// those that no other configuration selected.
	Selected int `json:"selected"`
	Alone    int `json:"exclusive"`
}

// A CoveredCollection is the result for one collection of one API.
type CoveredCollection struct {
	Endpoint   string `json:"endpoint"`
	Collection string `json:"collection"`

	// Served is false if the API has no such collection.
	Served bool `json:"available"`

	// Configs holds the names of the configurations that watch it.
	Configs []string `json:"configs"`

	Began time.Time `json:"start_time"`
	Ended time.Time `json:"end_time"`

	// At is the time for which the gaps and overlaps are valid: changes during the read were
	// processed afterwards. It is omitted if that is impossible, as WalkOnly says. A resource that
	// was relabelled meanwhile may then count with its old or its new labels.
	At       time.Time `json:"as_of,omitzero"`
	WalkOnly string    `json:"inexact_reason,omitempty"`

	// Resources is the number of resources when they were read.
	Resources int `json:"resources"`

	// Unreadable is the number of resources without an id, or with unreadable fields that affect
	// decisions. No sentinel announces them.
	Unreadable int `json:"invalid"`

	// Unwatched is the number of resources that no configuration selects, and Gaps lists them by
	// their labels. Overlapping is the number of those that several select, and Overlaps lists them
	// by the configurations and their labels. The largest groups come first; the last one sums up
	// those above the limit.
	Unwatched   int     `json:"unwatched"`
	Gaps        []Group `json:"gaps"`
	Overlapping int     `json:"overlapping"`
	Overlaps    []Group `json:"overlaps"`
}

// A Group is a set of resources with the same values of the labels that the selectors use.
type Group struct {
	// Configs holds the names of the configurations that select all of them; none for a gap.
	Configs []string `json:"configs,omitempty"`

	Labels []LabelValue `json:"labels"`

	// Others says that this is the remainder, whatever its labels.
	Others bool `json:"others,omitempty"`

	Resources int    `json:"resources"`
	Example   string `json:"example"`
}

// A LabelValue is one label of a group of resources.
type LabelValue struct {
	Label string `json:"label"`
	// Value is nil if the label is missing.
	Value *string `json:"value"`
}

// CheckCoverage reads collections of every API that watches use, and reports whether each resource is
// selected by exactly one watch. It skips a collection that an API does not serve, unless a watch
// uses it.
func CheckCoverage(
	ctx context.Context,
	watches []*Watch,
	collections []string,
	onProgress func(collection string, resources int),
) (*CoverageReport, error) {
	r := &CoverageReport{Proven: true, Began: truncateToMillis(time.Now())}
	configs := map[*Watch]*CoveredConfig{}
	for _, w := range watches {
		configs[w] = &CoveredConfig{
			Name:       w.Name,
			Endpoint:   w.Endpoint,
			Collection: w.Collection,
			Selector:   w.formatSelection(),
		}
	}
	for _, watchesOfAPI := range groupByEndpoint(watches) {
		for _, collection := range collections {
			counter := newCoverageCounter(watchesOfAPI, collection, configs)
			report := func(resources int) { onProgress(collection, resources) }
			covered, err := counter.readAndReportCoverage(ctx, report)
			if err != nil {
				return nil, err
			}
			r.Collections = append(r.Collections, *covered)
			isProven := covered.Unwatched == 0 && covered.Overlapping == 0 && covered.Unreadable == 0
			r.Proven = r.Proven && isProven
		}
	}
	for _, w := range watches {
		r.Configs = append(r.Configs, *configs[w])
	}
	r.Ended = truncateToMillis(time.Now())
	return r, nil
}

// groupByEndpoint returns the watches by endpoint, in the order of their first occurrence.
func groupByEndpoint(watches []*Watch) [][]*Watch {
	var groups [][]*Watch
	for _, w := range watches {
		i := slices.IndexFunc(groups, func(group []*Watch) bool { return group[0].Endpoint == w.Endpoint })
		if i < 0 {
			groups = append(groups, []*Watch{w})
			continue
		}
		groups[i] = append(groups[i], w)
	}
	return groups
}

// readAndReportCoverage reads the collection, and then the changes during the read.
func (c *coverageCounter) readAndReportCoverage(ctx context.Context, onProgress func(int)) (*CoveredCollection, error) {
	r := &CoveredCollection{
		Endpoint:   c.reader.Endpoint,
		Collection: c.collection,
		Served:     true,
		Configs:    []string{},
		Gaps:       []Group{},
		Overlaps:   []Group{},
		Began:      truncateToMillis(time.Now()),
	}
	for _, w := range c.watches {
		r.Configs = append(r.Configs, w.Name)
	}
	k := newWalk(c.reader, c.collection, onProgress)
	cursor, err := k.walkAllWithRetries(ctx, c)
	switch {
	case source.HTTPStatusOf(err) == http.StatusNotFound && len(c.watches) == 0:
		r.Served = false
	case err != nil:
		return nil, fmt.Errorf("read %s of %s: %w", c.collection, c.reader.Endpoint, err)
	default:
		c.copyCountsToConfigs()
		r.At, r.WalkOnly = c.recountChanges(ctx, k, cursor)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	r.Ended = truncateToMillis(time.Now())
	c.fillCountsGapsAndOverlaps(r)
	return r, nil
}

// recountChanges processes the changes since the walk began, so that the result is valid for one
// point in time. Otherwise it returns why that is impossible.
func (c *coverageCounter) recountChanges(ctx context.Context, k *collectionWalk, cursor string) (validAt time.Time, whyNot string) {
	switch {
	case cursor == "":
		return validAt, "the API has no change cursor"
	case c.overflow:
		return validAt, "too many gaps and overlaps to check again"
	}
	if err := k.walkChangesSince(ctx, cursor, (*changeRecounter)(c), c.uncountGapOrOverlap); err != nil {
		return validAt, "reading the changes failed: " + err.Error()
	}
	if c.overflow {
		return validAt, "too many gaps and overlaps to check again"
	}
	return truncateToMillis(time.Now()), ""
}
