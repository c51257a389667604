package survey

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// Collections are all that a fleet API may have.
func Collections() []string {
	return []string{v1.CollectionClusters, v1.CollectionNodePools, v1.CollectionManifests, v1.CollectionWorkloads}
}

// A CoverageReport says whether each resource is selected by exactly one of
// several configurations.
type CoverageReport struct {
	// Proven is true if each is. It is false if one is not, or could not be
	// read.
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

	// Selected is how many resources it selected when they were read, Alone
	// how many of them no other did.
	Selected int `json:"selected"`
	Alone    int `json:"exclusive"`
}

// A CoveredCollection is what was found in one collection of one API.
type CoveredCollection struct {
	Endpoint   string `json:"endpoint"`
	Collection string `json:"collection"`

	// Served is false if the API has no such collection.
	Served bool `json:"available"`

	// Configs are the names of the configurations that watch it.
	Configs []string `json:"configs"`

	Began time.Time `json:"start_time"`
	Ended time.Time `json:"end_time"`

	// At is the instant at which gaps and overlaps are as reported: what
	// changed while the collection was read was gone over again. It is left
	// out where that can not be done, as WalkOnly says; a resource that was
	// relabelled in between may then count as it was or as it is.
	At       time.Time `json:"as_of,omitzero"`
	WalkOnly string    `json:"inexact_reason,omitempty"`

	// Resources is how many there were when they were read.
	Resources int `json:"resources"`

	// Unreadable is how many have no id, or decide by fields that can not be
	// read. No sentinel announces them.
	Unreadable int `json:"invalid"`

	// Unwatched is how many resources no configuration selects, and Gaps are
	// these by their labels. Overlapping is how many are selected by more than
	// one, and Overlaps are these by the configurations and their labels. The
	// largest come first; what there was no room for is summed up in the last.
	Unwatched   int     `json:"unwatched"`
	Gaps        []Group `json:"gaps"`
	Overlapping int     `json:"overlapping"`
	Overlaps    []Group `json:"overlaps"`
}

// A Group are resources that are alike in the labels that the selectors
// mention.
type Group struct {
	// Configs are the names of those that select them all; none for a gap.
	Configs []string `json:"configs,omitempty"`

	Labels []LabelValue `json:"labels"`

	// Others says that this is the rest, whatever its labels.
	Others bool `json:"others,omitempty"`

	Resources int    `json:"resources"`
	Example   string `json:"example"`
}

// A LabelValue is one label of a group of resources.
type LabelValue struct {
	Label string `json:"label"`
	// Value is nil where the label is missing.
	Value *string `json:"value"`
}

// Cover reads collections of every API that watches name, and says whether
// each resource is selected by exactly one watch. Of a collection that an API
// does not serve nothing is asked, unless a watch is of it.
func Cover(ctx context.Context, watches []*Watch, collections []string, progress func(collection string, resources int)) (*CoverageReport, error) {
	r := &CoverageReport{Proven: true, Began: reportTime(time.Now())}
	configs := map[*Watch]*CoveredConfig{}
	for _, w := range watches {
		configs[w] = &CoveredConfig{Name: w.Name, Endpoint: w.Endpoint, Collection: w.Collection, Selector: w.Selector.String()}
	}
	for _, endpoint := range endpoints(watches) {
		for _, collection := range collections {
			c := newCensus(endpoint, collection, configs)
			found, err := c.takeCensus(ctx, func(n int) { progress(collection, n) })
			if err != nil {
				return nil, err
			}
			r.Collections = append(r.Collections, *found)
			r.Proven = r.Proven && found.Unwatched == 0 && found.Overlapping == 0 && found.Unreadable == 0
		}
	}
	for _, w := range watches {
		r.Configs = append(r.Configs, *configs[w])
	}
	r.Ended = reportTime(time.Now())
	return r, nil
}

// endpoints are the watches by endpoint, in the order in which these are first
// named.
func endpoints(watches []*Watch) [][]*Watch {
	var list [][]*Watch
	for _, w := range watches {
		i := slices.IndexFunc(list, func(of []*Watch) bool { return of[0].Endpoint == w.Endpoint })
		if i < 0 {
			i, list = len(list), append(list, nil)
		}
		list[i] = append(list[i], w)
	}
	return list
}

// takeCensus reads the collection, and then what changed meanwhile.
func (c *census) takeCensus(ctx context.Context, progress func(int)) (*CoveredCollection, error) {
	r := &CoveredCollection{
		Endpoint: c.reader.Endpoint, Collection: c.collection, Served: true,
		Configs: []string{}, Gaps: []Group{}, Overlaps: []Group{}, Began: reportTime(time.Now()),
	}
	for _, w := range c.watches {
		r.Configs = append(r.Configs, w.Name)
	}
	k := newWalk(c.reader, c.collection, progress)
	cursor, err := k.walkAll(ctx, c)
	switch {
	case statusOf(err) == http.StatusNotFound && len(c.watches) == 0:
		r.Served = false
	case err != nil:
		return nil, fmt.Errorf("read %s of %s: %w", c.collection, c.reader.Endpoint, err)
	default:
		c.noteCounts()
		r.At, r.WalkOnly = c.applyChanges(ctx, k, cursor)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	r.Ended = reportTime(time.Now())
	c.fillReport(r)
	return r, nil
}

// applyChanges goes over what changed since the walk began, so that what was found
// holds at one instant, or says why it can not.
func (c *census) applyChanges(ctx context.Context, k *walk, cursor string) (at time.Time, whyNot string) {
	switch {
	case cursor == "":
		return at, "the API has no change cursor"
	case c.overflow:
		return at, "too many gaps and overlaps to check again"
	}
	if err := k.walkChanges(ctx, cursor, (*recount)(c), c.forgetOdd); err != nil {
		return at, "reading the changes failed: " + err.Error()
	}
	if c.overflow {
		return at, "too many gaps and overlaps to check again"
	}
	return reportTime(time.Now()), ""
}
