package shard

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/internal/kube/leases/member"
)

// What the zero fields of a GroupConfig mean.
const (
	DefaultLeaseDuration = 10 * time.Second
	DefaultRenewEvery    = 2 * time.Second
)

// collectAfter is how long the record of a member that is over can be looked
// at before it is deleted.
const collectAfter = 10 * time.Minute

// GroupConfig says which group a member joins, and how quickly it notices.
type GroupConfig struct {
	// Name is the group's: members of the same name divide among themselves.
	Name string

	// Identity is how people call this member, such as its pod's name. Two
	// members of one identity are two members nevertheless.
	Identity string

	// LeaseDuration is for how long a member may say nothing before its share
	// goes to others. It owns nothing itself after four fifths of that. Zero
	// means DefaultLeaseDuration.
	LeaseDuration time.Duration

	// RenewEvery is how often a member says that it is there. Zero means
	// DefaultRenewEvery; more than a quarter of LeaseDuration is an error.
	RenewEvery time.Duration
}

// Leases keep the records of one group. Several members write to them, and
// each write is for a version: of two for the same one succeeds.
type Leases interface {
	// Watch calls handle with all records as they are when it is called, or
	// later, and then with each change in the order of versions, until ctx
	// ends or it can not go on, and says why. It waits for handle.
	Watch(ctx context.Context, handle func(member.Change)) error

	// Put writes r if the record is at r.Version still, or not there and the
	// version zero, and gives it with its new version. The error is
	// member.ErrConflict if it is at another, and member.ErrGone or
	// ErrConflict if it is not there any more. After any other error it may
	// have been written, or may be yet.
	Put(ctx context.Context, r member.Record) (member.Record, error)

	// Delete deletes the record of r's name if it is at r's version. Errors
	// are as those of Put.
	Delete(ctx context.Context, r member.Record) error
}

// Deps are what a group works with. Leases are needed; what else is nil is
// done without.
type Deps struct {
	Leases     Leases
	Log        *slog.Logger
	Registerer prometheus.Registerer // has the metrics while Run does
}

// A Group divides a fleet among replicas that come and go: each is a member,
// and owns the resources that are its own by rendezvous among all members.
// It implements sentinel.Shard.
//
// At no time is a resource owned by two members. When one leaves, or comes,
// what has to change hands does so within a few requests, as soon as the attempts
// to publish that are under way for it are over. When one is lost, its share is nobody's
// until its lease has run out, and then the others'. A member that can not write its
// lease owns nothing before others take over, whatever it was that kept it, a
// process that was stopped included: that is looked at when it is asked, by
// its own clock, which only has to run evenly. All clocks may differ.
//
// Make it with NewGroup and call Run once. Until then it owns nothing.
type Group struct {
	cfg     GroupConfig
	deps    Deps
	log     *slog.Logger
	base    time.Time
	machine *machine
	holds   *holdings
	metrics *metrics

	// Of the goroutine that runs: what was last told to others.
	published uint64
	active    bool
	epoch     uint64
	since     time.Time

	mu       sync.Mutex
	members  []string
	status   error
	watching atomic.Pointer[error] // why the watch does not work
}

// NewGroup makes a member of a group, and starts nothing.
func NewGroup(cfg GroupConfig, deps Deps) (*Group, error) {
	if cfg.LeaseDuration == 0 {
		cfg.LeaseDuration = DefaultLeaseDuration
	}
	if cfg.RenewEvery == 0 {
		cfg.RenewEvery = min(DefaultRenewEvery, cfg.LeaseDuration/4)
	}
	switch {
	case cfg.Name == "" || cfg.Identity == "":
		return nil, errors.New("join shard group: a group name and a member identity are required")
	case cfg.LeaseDuration < time.Second:
		return nil, fmt.Errorf("join shard group %q: the lease duration %s is too short, the minimum is 1s", cfg.Name, cfg.LeaseDuration)
	case cfg.RenewEvery < 0 || cfg.RenewEvery > cfg.LeaseDuration/4:
		return nil, fmt.Errorf("join shard group %q: the renew interval %s is too long for a lease duration of %s", cfg.Name, cfg.RenewEvery, cfg.LeaseDuration)
	case deps.Leases == nil:
		return nil, fmt.Errorf("join shard group %q: leases are required", cfg.Name)
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	if deps.Registerer == nil {
		deps.Registerer = prometheus.NewRegistry()
	}
	name := recordName(cfg.Name, cfg.Identity)
	g := &Group{
		cfg: cfg, deps: deps, log: deps.Log.With("group", cfg.Name, "lease", name), base: time.Now(),
		machine: newMachine(timingOf(cfg), name, cfg.Identity), status: errors.New("not started"),
	}
	g.holds = newHoldings(g.sinceStart)
	g.metrics = newMetrics(g.holds.ownsNothing)
	return g, nil
}

func timingOf(cfg GroupConfig) timing {
	return timing{
		lease: cfg.LeaseDuration, fence: cfg.LeaseDuration / 5 * 4, renew: cfg.RenewEvery,
		retry: cfg.RenewEvery / 4, collect: max(collectAfter, 2*cfg.LeaseDuration),
	}
}

// recordName makes a name that no other process has, and that Kubernetes
// takes for that of an object.
func recordName(group, identity string) string {
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails
	const longest = 200
	name := []byte(strings.ToLower(group + "-" + identity))
	for i, c := range name {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			name[i] = '-'
		}
	}
	readable := strings.Trim(string(name[:min(len(name), longest)]), "-")
	return strings.TrimPrefix(readable+"-"+hex.EncodeToString(random[:]), "-")
}

// sinceStart is the time since the group was made, by a clock that nobody sets.
func (g *Group) sinceStart() time.Duration { return time.Since(g.base) }

// Owns reports whether the resource with an id is ours just now.
func (g *Group) Owns(id []byte) bool { return g.holds.ownsID(hashID(id)) }

// Acquire is called before an attempt to publish about a resource, and release
// after it: until then the resource is given to no other member, unless this
// one is lost. It is not ok if the resource is not ours.
func (g *Group) Acquire(id []byte) (release func(), ok bool) { return g.holds.acquireID(hashID(id)) }

// Changed is closed when what is ours is another than it was when Changed was
// called.
func (g *Group) Changed() <-chan struct{} { return g.holds.awaitChange() }

// Ready says why the member owns nothing just now, or nil.
func (g *Group) Ready() error {
	g.mu.Lock()
	status := g.status
	g.mu.Unlock()
	if status == nil && g.holds.ownsNothing() {
		status = errors.New("its lease expired")
	}
	if status == nil {
		return nil
	}
	err := fmt.Errorf("no shard in group %q: %w", g.cfg.Name, status)
	if p := g.watching.Load(); p != nil && *p != nil {
		err = fmt.Errorf("%w (%w)", err, *p)
	}
	return err
}

// Members are the identities of all members that have a share, or are getting
// one, this one included, in order. There are none before it is known.
func (g *Group) Members() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.members)
}

// applyHolding makes what the machine concluded what the member owns.
func (g *Group) applyHolding(ctx context.Context) {
	m := g.machine
	switch {
	case g.published != m.changes:
		g.holds.setHolding(m.currentHolding())
		g.reportMembers(ctx)
		g.published, g.active = m.changes, m.active
	case m.active:
		g.holds.extendUntil(m.holdingExpiry())
	}
	if g.holds.isDrained() {
		m.noteDrained()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.status = m.statusError(g.sinceStart())
}

// reportMembers says who the members are now.
func (g *Group) reportMembers(ctx context.Context) {
	m := g.machine
	var members []string
	if m.joined {
		members = append(members, g.cfg.Identity)
		for name := range maps.Keys(m.guard) {
			members = append(members, m.peers[name].record.Identity)
		}
		slices.Sort(members)
	}
	g.mu.Lock()
	g.members = members
	g.mu.Unlock()
	g.metrics.members.Set(float64(len(members)))
	switch {
	case m.active:
		g.log.InfoContext(ctx, "shard acquired", "members", members, "epoch", m.epoch)
	case m.leaving:
		g.log.InfoContext(ctx, "shard released")
	case g.active:
		g.log.WarnContext(ctx, "shard fenced", "reason", m.statusError(g.sinceStart()))
	}
}
