// Package memory is a garden in memory: it takes Shoots as Gardener does, and
// lets time pass over them as if they were created, changed and deleted.
//
// It starts no goroutine. What a Shoot says of itself follows from the clock:
// every call first makes up for the time since the last one, and a watch wakes
// when the next Shoot changes. So it can be driven by a fake clock, holds
// as many Shoots as there is memory, and costs microseconds per call.
//
// It refuses what Gardener refuses, where that can be said in few lines, in the
// same words. Faults can be asked for: calls that fail, are slow or whose answer
// is lost, operations that fail, and outages.
package memory

import (
	"cmp"
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// Options say how a garden behaves. The zero value does everything at once and
// without a fault.
type Options struct {
	// Project is the garden's project, whose name counts with that of a Shoot.
	// Empty is DefaultProject.
	Project string
	// Installation is whose Shoots are listed and watched, as their label has it.
	// Empty is everybody's.
	Installation string

	// CreateTime, UpdateTime and DeleteTime are how long the operations take.
	CreateTime, UpdateTime, DeleteTime time.Duration
	// RetryTime is after which time an operation that failed is tried again.
	// Zero is DefaultRetryTime.
	RetryTime time.Duration

	// Versions and MachineTypes are what the cloud profile has. None is anything.
	Versions, MachineTypes []string

	// Breaks says how often the operations of a new Shoot fail before one
	// succeeds. Nil is never; a negative number is always, and for good.
	Breaks func(name string) int

	// Latency is how long each call takes.
	Latency time.Duration
	// Fail is asked before each call takes effect; its error is the call's. It
	// may block. Nil is no fault.
	Fail func(ctx context.Context, v Verb, name string) error
	// Lose is asked after a call took effect; its error replaces the answer.
	Lose func(ctx context.Context, v Verb, name string) error
	// FailRate is which part of the calls fails at random, from 0 to 1, in the
	// order that Seed gives.
	FailRate float64
	Seed     uint64

	// History is whether it is kept what was applied to each name.
	History bool
	// Backlog is how many changes a watch may be behind before it has to list
	// anew. Zero is DefaultBacklog.
	Backlog int
	// BookmarkTime is after which silence a watch is told where it is. Zero is
	// DefaultBookmarkTime.
	BookmarkTime time.Duration
}

// What the zero fields of Options mean.
const (
	DefaultProject      = "fundament"
	DefaultRetryTime    = time.Second
	DefaultBacklog      = 100_000
	DefaultBookmarkTime = time.Minute
)

func (o Options) backlogSize() uint64 { return uint64(o.Backlog) } //nolint:gosec // New sees to it that it is positive

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

// A Garden keeps Shoots. Make it with New. It is safe for concurrent use.
type Garden struct {
	o    Options
	uids uuid.UUID // of this garden; its Shoots count on

	mu       sync.Mutex
	shoots   map[string]*item
	schedule schedule // of the shoots that change by themselves
	born     uint64

	version uint64 // of the last change
	log     []change
	dropped uint64        // version of the last change that is not in the log any more
	grown   chan struct{} // closed when the log has grown or an outage begins; nil while nobody waits

	outage bool
	random *rand.Rand
	counts Counts
	busy   map[string]int // writing calls under way, by name
	breaks map[string]int // set by Break before the Shoot was there

	history map[string][]int64
}

// New makes a garden without Shoots.
func New(o Options) *Garden {
	o.Project = cmp.Or(o.Project, DefaultProject)
	o.RetryTime = cmp.Or(o.RetryTime, DefaultRetryTime)
	o.Backlog = cmp.Or(max(o.Backlog, 0), DefaultBacklog)
	o.BookmarkTime = cmp.Or(o.BookmarkTime, DefaultBookmarkTime)
	return &Garden{
		o:       o,
		uids:    uuid.New(),
		shoots:  map[string]*item{},
		version: 1, // as with Gardener, 0 is no version
		dropped: 1,
		random:  rand.New(rand.NewPCG(o.Seed, 0)), //nolint:gosec // faults that can be repeated, no secrets
		counts:  Counts{Calls: map[Verb]int{}, Failed: map[Verb]int{}},
		busy:    map[string]int{},
		breaks:  map[string]int{},
		history: map[string][]int64{},
	}
}

// ApplyShoot makes the Shoot what the manifest says.
func (g *Garden) ApplyShoot(ctx context.Context, m shoot.Manifest, _ bool) (shoot.Applied, error) {
	name := m.Metadata.Name
	return callLocked(ctx, g, Apply, name, func(now time.Time) (shoot.Applied, error) {
		it, ok := g.shoots[name]
		if !ok {
			if err := g.checkNew(m); err != nil {
				return shoot.Applied{}, err
			}
			it = g.createItem(m, now)
			g.noteApplied(name, it)
			g.counts.Created++
			return shoot.Applied{UID: it.uid, Generation: it.generation, Created: true, Changed: true}, nil
		}
		m, err := g.checkChange(m, it)
		if err != nil {
			return shoot.Applied{}, err
		}
		changed := g.changeItem(it, m, now)
		g.noteApplied(name, it)
		return shoot.Applied{UID: it.uid, Generation: it.generation, Changed: changed}, nil
	})
}

// PreflightShoot says whether ApplyShoot would be refused, and stores nothing.
func (g *Garden) PreflightShoot(ctx context.Context, m shoot.Manifest) error {
	_, err := callLocked(ctx, g, Preflight, m.Metadata.Name, func(time.Time) (struct{}, error) {
		it, ok := g.shoots[m.Metadata.Name]
		if !ok {
			return struct{}{}, g.checkNew(m)
		}
		_, err := g.checkChange(m, it)
		return struct{}{}, err
	})
	return err
}

// DeleteShoot asks for the deletion of a Shoot.
func (g *Garden) DeleteShoot(ctx context.Context, ref shoot.Ref) (shoot.Deletion, error) {
	return callLocked(ctx, g, Delete, ref.Name, func(now time.Time) (shoot.Deletion, error) {
		it, ok := g.shoots[ref.Name]
		if !ok {
			return shoot.Deletion{Absent: true}, nil
		}
		if err := checkDelete(ref, it); err != nil {
			return shoot.Deletion{}, err
		}
		if !it.deleting {
			g.counts.Deleted++
			g.startDeletion(it, now)
		}
		return shoot.Deletion{}, nil
	})
}

// Probe asks for as little as possible.
func (g *Garden) Probe(ctx context.Context) error {
	_, err := callLocked(ctx, g, Probe, "", func(time.Time) (struct{}, error) { return struct{}{}, nil })
	return err
}

// GetShoot is the Shoot of a name, shoot.ErrNotFound if there is none.
func (g *Garden) GetShoot(ctx context.Context, name string) (shoot.Observed, error) {
	return callLocked(ctx, g, Get, name, func(time.Time) (shoot.Observed, error) {
		it, ok := g.shoots[name]
		if !ok {
			return shoot.Observed{}, shoot.ErrNotFound
		}
		return it.toObserved(), nil
	})
}

// ListShoots are the Shoots of the installation.
func (g *Garden) ListShoots(ctx context.Context) (shoot.List, error) {
	return callLocked(ctx, g, List, "", func(time.Time) (shoot.List, error) {
		l := shoot.List{Shoots: make([]shoot.Observed, 0, len(g.shoots)), ResourceVersion: strconv.FormatUint(g.version, 10)}
		for _, it := range g.shoots {
			if g.isListed(it) {
				l.Shoots = append(l.Shoots, it.toObserved())
			}
		}
		return l, nil
	})
}

// Project is the name of the garden's project.
func (g *Garden) Project(context.Context) (string, error) { return g.o.Project, nil }

// isListed is whether a Shoot is listed and watched.
func (g *Garden) isListed(it *item) bool {
	return g.o.Installation == "" || it.labels[shoot.LabelInstallation] == g.o.Installation
}

// noteApplied keeps what was applied.
func (g *Garden) noteApplied(name string, it *item) {
	if g.o.History {
		g.history[name] = append(g.history[name], it.lastSentGeneration())
	}
}
