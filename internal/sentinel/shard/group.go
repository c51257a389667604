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
)

// Defaults of the zero fields of a GroupConfig.
const (
	DefaultLeaseDuration = 10 * time.Second
	DefaultRenewEvery    = 2 * time.Second
)

// collectAfter is how long the record of a member that has ended stays visible before it is
// deleted.
const collectAfter = 10 * time.Minute

// GroupConfig selects the group that a member joins, and its reaction times.
type GroupConfig struct {
	// Name is the name of the group: members of the same name divide the resources among
	// themselves.
	Name string

	// Identity is the display name of this member, such as its pod's name. Two processes with the
	// same identity are still two members.
	Identity string

	// LeaseDuration is how long a member may be silent before its share goes to others. The member
	// itself owns nothing after four fifths of that. Zero means DefaultLeaseDuration.
	LeaseDuration time.Duration

	// RenewEvery is the interval at which a member renews its lease. Zero means DefaultRenewEvery;
	// more than a quarter of LeaseDuration is an error.
	RenewEvery time.Duration
}

// LeaseStore stores the records of one group. Several members write to them. Each write names the
// version that it replaces: of two writes for the same version one succeeds.
type LeaseStore interface {
	// Watch calls handle with all records, and then with each change in the order of versions. The
	// first records are in their state at the time of the call, or later. Watch returns when ctx
	// ends or on an error. It waits for handle.
	Watch(ctx context.Context, handle func(LeaseChange)) error

	// Put writes r if the stored record still has r.Version, or does not exist and the version is
	// zero. It returns the record with its new version. The error is ErrConflict if the
	// record has another version, and ErrGone or ErrConflict if it no longer exists. After
	// any other error the record may have been written, or may still be written.
	Put(ctx context.Context, r Record) (Record, error)

	// Delete deletes the record of r's name if it has r's version. Errors are those of Put.
	Delete(ctx context.Context, r Record) error
}

// Deps holds the dependencies of a group. Leases is required; all others may be nil.
type Deps struct {
	Leases     LeaseStore
	Log        *slog.Logger
	Registerer prometheus.Registerer // has the metrics while Run runs
}

// A Group divides a fleet among replicas that come and go. Each replica is a member, and owns the
// resources that rendezvous hashing among all members assigns to it. It implements sentinel.Shard.
//
// No resource is ever owned by two members at once. When a member leaves or joins, resources change
// their owner within a few requests, as soon as the current attempts to publish for them have
// ended. The share of a lost member has no owner until its lease has expired, and then belongs to
// the others. A member that cannot write its lease owns nothing before others take over. This holds
// for any cause, including a stopped process, because ownership is checked on each call, against
// the member's own clock. That clock must only run evenly; clocks may differ.
//
// Create it with NewGroup and call Run once. Until then it owns nothing.
type Group struct {
	cfg     GroupConfig
	deps    Deps
	log     *slog.Logger
	base    time.Time // the origin of the times of machine and holds
	machine *membership
	holds   *holdings
	metrics *metrics

	// Used only by the goroutine of Run: what was last reported.
	reportedChanges uint64 // membership.changes
	reportedActive  bool   // membership.active

	// The epoch of the last written record, and when it began.
	writtenEpoch uint64
	epochBegan   time.Time

	mu       sync.Mutex
	members  []string
	status   error
	watching atomic.Pointer[error] // why the watch does not work
}

// NewGroup returns a member of a group, and starts nothing.
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
		return nil, fmt.Errorf("join shard group %q: the lease duration %s is too short, the minimum is 1s",
			cfg.Name, cfg.LeaseDuration)
	case cfg.RenewEvery < 0 || cfg.RenewEvery > cfg.LeaseDuration/4:
		return nil, fmt.Errorf("join shard group %q: the renew interval %s is too long for a lease duration of %s",
			cfg.Name, cfg.RenewEvery, cfg.LeaseDuration)
	case deps.Leases == nil:
		return nil, fmt.Errorf("join shard group %q: leases are required", cfg.Name)
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	if deps.Registerer == nil {
		deps.Registerer = prometheus.NewRegistry()
	}
	name := newRandomLeaseName(cfg.Name, cfg.Identity)
	g := &Group{
		cfg:     cfg,
		deps:    deps,
		log:     deps.Log.With("group", cfg.Name, "lease", name),
		base:    time.Now(),
		machine: newMembership(newTiming(cfg), name, cfg.Identity),
		status:  errors.New("not started"),
	}
	g.holds = newHoldings(g.sinceStart)
	g.metrics = newMetrics(g.holds.ownsNothing)
	return g, nil
}

func newTiming(cfg GroupConfig) timing {
	return timing{
		lease:   cfg.LeaseDuration,
		fence:   cfg.LeaseDuration / 5 * 4,
		renew:   cfg.RenewEvery,
		retry:   cfg.RenewEvery / 4,
		collect: max(collectAfter, 2*cfg.LeaseDuration),
	}
}

// newRandomLeaseName returns a name that no other process has, and that is a valid name of a Kubernetes
// object.
func newRandomLeaseName(group, identity string) string {
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

// sinceStart returns the time since the creation of the group, by a monotonic clock.
func (g *Group) sinceStart() time.Duration { return time.Since(g.base) }

// Owns reports whether this member owns the resource with an id now.
func (g *Group) Owns(id []byte) bool { return g.holds.ownsHash(hashID(id)) }

// Acquire is called before an attempt to publish about a resource, and release after it. Until then
// no other member gets the resource, unless this member is lost. ok is false if this member does
// not own the resource.
func (g *Group) Acquire(id []byte) (release func(), ok bool) { return g.holds.beginAttempt(hashID(id)) }

// Changed returns a channel that is closed when this member's share differs from that at the time
// of the call.
func (g *Group) Changed() <-chan struct{} { return g.holds.nextChange() }

// Ready returns why the member owns nothing now, or nil.
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
	if watchErr := g.watching.Load(); watchErr != nil && *watchErr != nil {
		err = fmt.Errorf("%w (%w)", err, *watchErr)
	}
	return err
}

// Members returns the identities of all members that have a share, or are getting one, including
// this one, in order. It returns none before the members are known.
func (g *Group) Members() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.members)
}

// updateShareAndStatus applies the machine's conclusion about what the member owns.
func (g *Group) updateShareAndStatus(ctx context.Context) {
	m := g.machine
	switch {
	case g.reportedChanges != m.changes:
		g.holds.setHoldingAndNotify(m.currentHolding())
		g.recordAndLogMembers(ctx)
		g.reportedChanges, g.reportedActive = m.changes, m.active
	case m.active:
		g.holds.extendUntil(m.holdingExpiry())
	}
	if g.holds.hasNoAttemptOutsideShare() {
		m.recordDrained()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.status = m.statusError(g.sinceStart())
}

// recordAndLogMembers reports the current members.
func (g *Group) recordAndLogMembers(ctx context.Context) {
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
	case g.reportedActive:
		g.log.WarnContext(ctx, "shard fenced", "reason", m.statusError(g.sinceStart()))
	}
}
