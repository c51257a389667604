// Package memory is an in-memory garden: it accepts Shoots as Gardener does, and
// advances them over time as if they were created, changed and deleted.
//
// It starts no goroutine. The state of a Shoot follows from the clock: every call first
// makes up for the time since the last one, and a watch wakes when the next Shoot
// changes. So a fake clock can drive it, it holds as many Shoots as there is memory,
// and costs microseconds per call.
//
// It rejects the requests that Gardener rejects, as far as a few lines of code can
// decide that, and in the same words. Faults can be injected: calls that fail, are slow
// or whose answer is lost, operations that fail, and outages.
package memory

import (
	"cmp"
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// Options are the settings of a garden. With the zero value every operation is
// immediate and succeeds.
type Options struct {
	// Project is the name of the garden's project, which counts towards the length of a
	// Shoot's name. Empty means DefaultProject.
	Project string
	// Installation is the label value of the Shoots that are listed and watched. Empty
	// means all.
	Installation string

	// CreateTime, UpdateTime and DeleteTime are the durations of the operations.
	CreateTime, UpdateTime, DeleteTime time.Duration
	// RetryTime is the delay before a failed operation is retried. Zero means
	// DefaultRetryTime.
	RetryTime time.Duration

	// Versions and MachineTypes are those of the cloud profile. Empty allows any.
	Versions, MachineTypes []string

	// Breaks returns how many operations of a new Shoot fail before one succeeds. Nil
	// means none; a negative number means permanent failure.
	Breaks func(name string) int

	// Latency is the duration of each call.
	Latency time.Duration
	// Fail is called before each call takes effect, and may return its error. It may
	// block. Nil injects no fault.
	Fail func(ctx context.Context, v Verb, name string) error
	// Lose is called after a call took effect, and may return an error that replaces
	// the answer.
	Lose func(ctx context.Context, v Verb, name string) error
	// FailRate is the share of the calls that fail at random, from 0 to 1, in an order
	// that depends on Seed.
	FailRate float64
	Seed     uint64

	// History is whether the garden records the generations that were applied to each
	// name.
	History bool
	// Backlog is how many changes a watch may lag behind before it has to list again.
	// Zero means DefaultBacklog.
	Backlog int
	// BookmarkTime is the silence after which a watch receives a bookmark. Zero means
	// DefaultBookmarkTime.
	BookmarkTime time.Duration
}

// Defaults of zero fields of Options.
const (
	DefaultProject      = "fundament"
	DefaultRetryTime    = time.Second
	DefaultBacklog      = 100_000
	DefaultBookmarkTime = time.Minute
)

// isListedShoot reports whether lists and watches include a Shoot.
func (o *Options) isListedShoot(stored *storedShoot) bool {
	return o.Installation == "" || stored.labels[shoot.LabelInstallation] == o.Installation
}

// A Verb is a kind of call.
type Verb string

// The verbs.
const (
	Apply     Verb = "apply"
	Delete    Verb = "delete"
	Probe     Verb = "probe"
	Get       Verb = "get"
	List      Verb = "list"
	Watch     Verb = "watch"
	Preflight Verb = "preflight"
)

// A Garden stores Shoots. Create it with New. It is safe for concurrent use.
type Garden struct {
	o Options

	mu      sync.Mutex
	store   store
	outage  bool
	random  *rand.Rand
	calls   callCounter
	history map[string][]int64
}

// New returns a garden without Shoots.
func New(options Options) *Garden {
	options.Project = cmp.Or(options.Project, DefaultProject)
	options.RetryTime = cmp.Or(options.RetryTime, DefaultRetryTime)
	options.Backlog = cmp.Or(max(options.Backlog, 0), DefaultBacklog)
	options.BookmarkTime = cmp.Or(options.BookmarkTime, DefaultBookmarkTime)
	return &Garden{
		o: options,
		store: store{
			o: options, shoots: map[string]*storedShoot{}, breaks: map[string]int{},
			changes: changeLog{backlog: options.Backlog, version: 1, dropped: 1}, // as in Gardener, 0 is not a version
		},
		random:  rand.New(rand.NewPCG(options.Seed, 0)), //nolint:gosec // faults that can be repeated, no secrets
		calls:   callCounter{counts: Counts{Calls: map[Verb]int{}, Failed: map[Verb]int{}}, busy: map[string]int{}},
		history: map[string][]int64{},
	}
}

// lockAndAdvance locks the garden and advances its Shoots to the current time.
func (g *Garden) lockAndAdvance() (now time.Time) {
	g.mu.Lock()
	now = time.Now()
	g.store.runAllStepsUntil(now)
	return now
}

// ApplyShoot creates or updates the Shoot to match the manifest.
func (g *Garden) ApplyShoot(ctx context.Context, manifest shoot.Manifest, _ bool) (shoot.Applied, error) {
	name := manifest.Metadata.Name
	return callCountedAndLocked(ctx, g, Apply, name, func(now time.Time) (shoot.Applied, error) {
		it, ok := g.store.shoots[name]
		created, changed, sentBefore := !ok, !ok, int64(0)
		if ok {
			sentBefore = it.lastSentGeneration()
			m, err := planAndValidateChange(&g.o, manifest, it)
			if err != nil {
				return shoot.Applied{}, err
			}
			changed = g.store.updateShootAndStartOperation(it, m, now)
		} else {
			if err := validateNewShoot(&g.o, manifest); err != nil {
				return shoot.Applied{}, err
			}
			it = g.store.createShootAndStartOperation(manifest, now)
		}
		g.calls.countApply(created, changed)
		if g.o.History {
			g.history[name] = append(g.history[name], it.lastSentGeneration())
		}
		return shoot.Applied{UID: it.uid, Generation: it.generation, Created: created, Changed: changed, SentBefore: sentBefore}, nil
	})
}

// DryRunShoot returns the error that ApplyShoot would return, and stores nothing.
func (g *Garden) DryRunShoot(ctx context.Context, manifest shoot.Manifest) error {
	_, err := callCountedAndLocked(ctx, g, Preflight, manifest.Metadata.Name, func(time.Time) (struct{}, error) {
		it, ok := g.store.shoots[manifest.Metadata.Name]
		if !ok {
			return struct{}{}, validateNewShoot(&g.o, manifest)
		}
		_, err := planAndValidateChange(&g.o, manifest, it)
		return struct{}{}, err
	})
	return err
}

// DeleteShoot requests the deletion of a Shoot.
func (g *Garden) DeleteShoot(ctx context.Context, ref shoot.Ref) (shoot.Deletion, error) {
	return callCountedAndLocked(ctx, g, Delete, ref.Name, func(now time.Time) (shoot.Deletion, error) {
		it, ok := g.store.shoots[ref.Name]
		if !ok {
			return shoot.Deletion{Absent: true}, nil
		}
		if err := shoot.CheckOwnedByRef(ref, it.labels); err != nil {
			return shoot.Deletion{}, err
		}
		if !it.deleting {
			g.calls.counts.Deleted++
			g.store.startDeletion(it, now)
		}
		return shoot.Deletion{UID: it.uid}, nil
	})
}

// Probe does nothing but to answer.
func (g *Garden) Probe(ctx context.Context) error {
	_, err := callCountedAndLocked(ctx, g, Probe, "", func(time.Time) (struct{}, error) { return struct{}{}, nil })
	return err
}

// GetShoot returns the Shoot of a name. It returns shoot.ErrNotFound for an absent Shoot.
func (g *Garden) GetShoot(ctx context.Context, name string) (shoot.Observed, error) {
	return callCountedAndLocked(ctx, g, Get, name, func(time.Time) (shoot.Observed, error) {
		it, ok := g.store.shoots[name]
		if !ok {
			return shoot.Observed{}, shoot.ErrNotFound
		}
		return it.toObservedShoot(), nil
	})
}

// ListShoots returns the Shoots of the installation.
func (g *Garden) ListShoots(ctx context.Context) (shoot.List, error) {
	return callCountedAndLocked(ctx, g, List, "", func(time.Time) (shoot.List, error) {
		l := shoot.List{Shoots: make([]shoot.Observed, 0, len(g.store.shoots)), ResourceVersion: strconv.FormatUint(g.store.changes.version, 10)}
		for _, it := range g.store.shoots {
			if g.o.isListedShoot(it) {
				l.Shoots = append(l.Shoots, it.toObservedShoot())
			}
		}
		return l, nil
	})
}

// FindProjectName returns the name of the garden's project.
func (g *Garden) FindProjectName(context.Context) (projectName string, err error) {
	return g.o.Project, nil
}
