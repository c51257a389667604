package inspect

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/fleetloop/fleetloop/internal/sentinel/source"
)

const (
	// maxGroups limits the number of separate groups.
	maxGroups = 200

	// maxOdd limits the number of resources that are remembered individually, at about 150 bytes
	// each.
	maxOdd = 100_000
)

// A coverageCounter counts, for each resource of one collection, how many watches select it.
//
// It remembers only resources that are not selected by exactly one watch, which are few in a
// correct setup. It stores how each was counted, so that it can count the resource again after a
// change.
type coverageCounter struct {
	reader     *Watch // the watch whose source reads the collection
	collection string
	watches    []*Watch // watches of this collection
	configs    map[*Watch]*CoveredConfig
	keys       []string // the labels that the selectors use

	resources   int
	unreadable  int
	selected    []int // by watch: resources that it selects
	alone       []int // by watch: resources that only it selects
	unwatched   int
	overlapping int

	groups   map[string]*group // by the key of findOrCreateLabelGroup
	odd      map[string]*group // by id: resources not selected by exactly one watch
	overflow bool              // odd is not complete

	selecting []int  // indexes of the watches that select the current resource
	key       []byte // key of its group
}

// A group is a Group with the indexes of its watches.
type group struct {
	Group
	watches []int
}

func newCoverageCounter(watchesOfAPI []*Watch, collection string, configs map[*Watch]*CoveredConfig) *coverageCounter {
	c := &coverageCounter{reader: watchesOfAPI[0], collection: collection, configs: configs}
	for _, watch := range watchesOfAPI {
		if watch.Collection != collection {
			continue
		}
		c.watches = append(c.watches, watch)
		for _, requirement := range watch.Selector.Requirements() {
			c.keys = append(c.keys, requirement.Key)
		}
	}
	if len(c.watches) > 0 {
		c.reader = c.watches[0] // its token is for this collection
	}
	slices.Sort(c.keys)
	c.keys = slices.Compact(c.keys)
	c.resetCounts()
	return c
}

func (c *coverageCounter) resetCounts() {
	c.resources, c.unreadable, c.unwatched, c.overlapping = 0, 0, 0, 0
	c.selected = make([]int, len(c.watches))
	c.alone = make([]int, len(c.watches))
	c.groups = map[string]*group{}
	c.odd = map[string]*group{}
	c.overflow = false
}

// visitItem counts a resource of the walk.
func (c *coverageCounter) visitItem(it *source.Item, _ time.Time) {
	c.resources++
	if it.Fault.Skips() {
		c.unreadable++
		return
	}
	c.storeSelectingWatches(it)
	for _, i := range c.selecting {
		c.selected[i]++
	}
	if len(c.selecting) == 1 {
		c.alone[c.selecting[0]]++
		return
	}
	if c.odd[string(it.ID)] == nil { // pages may have shifted
		c.countGapOrOverlap(it)
	}
}

// A changeRecounter is a coverageCounter that processes changes. It corrects only gaps and overlaps.
type changeRecounter coverageCounter

func (*changeRecounter) resetCounts() {}

func (r *changeRecounter) visitItem(it *source.Item, _ time.Time) {
	c := (*coverageCounter)(r)
	if it.Fault.Skips() {
		c.unreadable++ // counted twice if it was unreadable before
		return
	}
	c.uncountGapOrOverlap(it.ID)
	c.storeSelectingWatches(it)
	if len(c.selecting) != 1 {
		c.countGapOrOverlap(it)
	}
}

// storeSelectingWatches finds the watches that select a resource.
func (c *coverageCounter) storeSelectingWatches(it *source.Item) {
	c.selecting = c.selecting[:0]
	for i, w := range c.watches {
		if w.selectsAndOwns(it) {
			c.selecting = append(c.selecting, i)
		}
	}
}

// countGapOrOverlap counts a resource that is not selected by exactly one watch, as
// storeSelectingWatches found.
func (c *coverageCounter) countGapOrOverlap(it *source.Item) {
	g := c.findOrCreateLabelGroup(it)
	g.Resources++
	if g.Example == "" {
		g.Example = string(it.ID)
	}
	if len(c.selecting) == 0 {
		c.unwatched++
	} else {
		c.overlapping++
	}
	if len(c.odd) >= maxOdd {
		c.overflow = true
		return
	}
	c.odd[string(it.ID)] = g
}

// uncountGapOrOverlap reverts the count of a resource, if it was odd.
func (c *coverageCounter) uncountGapOrOverlap(id []byte) {
	g := c.odd[string(id)]
	if g == nil {
		return
	}
	delete(c.odd, string(id))
	g.Resources--
	if g.Example == string(id) {
		g.Example = ""
	}
	if len(g.watches) == 0 {
		c.unwatched--
	} else {
		c.overlapping--
	}
}

// findOrCreateLabelGroup returns the group of an odd resource, and creates it if necessary.
func (c *coverageCounter) findOrCreateLabelGroup(it *source.Item) *group {
	c.storeGroupKey(it)
	if g := c.groups[string(c.key)]; g != nil {
		return g
	}
	g := &group{Group: Group{Labels: []LabelValue{}}, watches: slices.Clone(c.selecting)}
	if len(c.groups) >= maxGroups {
		return c.findOrAddRemainder(g)
	}
	for _, i := range c.selecting {
		g.Configs = append(g.Configs, c.watches[i].Name)
	}
	for _, label := range c.keys {
		labelValue := LabelValue{Label: label}
		if value, ok := it.Labels.Get(label); ok {
			labelValue.Value = &value
		}
		g.Labels = append(g.Labels, labelValue)
	}
	c.groups[string(c.key)] = g
	return g
}

// storeGroupKey stores the key of the group of a resource: its watches, and the values of its labels.
func (c *coverageCounter) storeGroupKey(it *source.Item) {
	c.key = c.key[:0]
	for _, i := range c.selecting {
		c.key = binary.AppendVarint(c.key, int64(i)+1)
	}
	c.key = append(c.key, 0)
	for _, label := range c.keys {
		value, ok := it.Labels.Get(label)
		if !ok {
			c.key = append(c.key, 0)
			continue
		}
		c.key = binary.AppendUvarint(c.key, uint64(len(value))+1)
		c.key = append(c.key, value...)
	}
}

// findOrAddRemainder returns the group for all resources above the limit of groups. There is one for
// gaps and one for overlaps, whatever their watches and labels. If there is none yet, it is g.
func (c *coverageCounter) findOrAddRemainder(g *group) *group {
	kind := byte(1)
	if len(g.watches) > 0 {
		kind = 2
	}
	key := string([]byte{kind, 0xff, 0xff})
	if remainder := c.groups[key]; remainder != nil {
		return remainder
	}
	g.Others = true
	c.groups[key] = g
	return g
}

// copyCountsToConfigs stores the counts of the walk for each watch.
func (c *coverageCounter) copyCountsToConfigs() {
	for i, w := range c.watches {
		c.configs[w].Selected = c.selected[i]
		c.configs[w].Alone = c.alone[i]
	}
}

// fillCountsGapsAndOverlaps stores the counts, the gaps and the overlaps.
func (c *coverageCounter) fillCountsGapsAndOverlaps(r *CoveredCollection) {
	r.Resources = c.resources
	r.Unreadable = c.unreadable
	r.Unwatched = c.unwatched
	r.Overlapping = c.overlapping
	c.fillMissingExamples()
	for _, g := range slices.SortedFunc(maps.Values(c.groups), compareGroups) {
		switch {
		case g.Resources == 0: // a change has mended the gap or overlap
		case len(g.watches) == 0:
			r.Gaps = append(r.Gaps, g.Group)
		default:
			r.Overlaps = append(r.Overlaps, g.Group)
		}
	}
}

// fillMissingExamples sets the example of groups whose example has changed.
func (c *coverageCounter) fillMissingExamples() {
	for id, g := range c.odd {
		if g.Example == "" || g.Example > id && !c.overflow {
			g.Example = id
		}
	}
}

// compareGroups sorts the larger group first, and the remainder last.
func compareGroups(a, b *group) int {
	if a.Others != b.Others {
		if a.Others {
			return 1
		}
		return -1
	}
	return cmp.Or(
		cmp.Compare(b.Resources, a.Resources),
		slices.Compare(a.Configs, b.Configs),
		slices.CompareFunc(a.Labels, b.Labels, func(x, y LabelValue) int {
			return cmp.Compare(formatLabel(x), formatLabel(y))
		}),
	)
}

// formatLabel returns a label in its usual notation.
func formatLabel(l LabelValue) string {
	if l.Value == nil {
		return l.Label + " missing"
	}
	return l.Label + "=" + *l.Value
}
