// Package budget keeps us from taking more nodes out of service than a cluster
// can spare.
//
// It counts the nodes as they are, each time that it is asked: those that are
// ours, those that somebody else has cordoned, and those that are not ready.
// When each was taken out stands on the node, and stays there when it is back in
// service, so that both bounds hold across a restart. What was granted and cannot be
// seen yet is remembered until it can be: neither workers side by side nor a
// cache that lags have it exceed its bound.
//
// It bounds how many nodes of a pool are out of service at a time, and how many
// we take out within a while. It denies what is new, and nothing else: giving
// nodes back never asks it. What it denied is judged afresh when it is asked
// again, so there is no backlog.
package budget

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/internal/selector"
)

// Config says how many nodes may be out of service. It is taken as it is: the
// zero value allows none. Default is what is shipped.
type Config struct {
	MaxPercent      int `key:"max_percent" env:"NODE_FAULT_BUDGET_MAX_PERCENT" flag:"budget-max-percent" default:"10" validate:"gte=0,lte=100" doc:"Maximum share of a pool that may be out of service, in percent, rounded down. Quarantined nodes, nodes cordoned by others and nodes that are not ready count."`
	MinAllowedNodes int `key:"min_allowed_nodes" env:"NODE_FAULT_BUDGET_MIN_ALLOWED_NODES" flag:"budget-min-allowed-nodes" default:"1" validate:"gte=0" doc:"Number of nodes of a pool that may always be out of service, even if max_percent allows fewer. It lets small pools be repaired."`

	Window                time.Duration `key:"window" env:"NODE_FAULT_BUDGET_WINDOW" default:"5m" validate:"gte=0" doc:"Time window of the rate limit for taking nodes out of service; 0s disables the rate limit."`
	WindowMaxPercent      int           `key:"window_max_percent" env:"NODE_FAULT_BUDGET_WINDOW_MAX_PERCENT" default:"5" validate:"gte=0,lte=100" doc:"Maximum share of a pool that may be taken out of service within the window, in percent, rounded down."`
	WindowMinAllowedNodes int           `key:"window_min_allowed_nodes" env:"NODE_FAULT_BUDGET_WINDOW_MIN_ALLOWED_NODES" default:"1" validate:"gte=0" doc:"Number of nodes of a pool that may always be taken out of service within the window, even if window_max_percent allows fewer."`

	Pool         string `key:"pool_label" env:"NODE_FAULT_BUDGET_POOL_LABEL" doc:"Node label whose values are the pools. Each pool has a separate budget, and so have the nodes without the label. Empty means one pool."`
	Selector     string `key:"selector" env:"NODE_FAULT_BUDGET_SELECTOR" doc:"Label selector of the nodes that count and that may be taken out of service; empty selects all nodes."`
	ControlPlane bool   `key:"control_plane" env:"NODE_FAULT_BUDGET_CONTROL_PLANE" default:"false" doc:"Count control plane nodes, and allow taking them out of service."`

	OnExhausted OnExhausted `key:"on_exhausted" env:"NODE_FAULT_BUDGET_ON_EXHAUSTED" default:"auto-resume" validate:"oneof=auto-resume manual-reset" doc:"What happens when the budget is exhausted: auto-resume (further nodes wait until a fifth of the budget is free) or manual-reset (further nodes wait until a person resets the budget)."`
}

// OnExhausted is what follows when a budget is exhausted.
type OnExhausted string

// What follows when a budget is exhausted.
const (
	AutoResume  OnExhausted = "auto-resume"
	ManualReset OnExhausted = "manual-reset"
)

// Default is the budget that is shipped.
func Default() Config {
	return Config{MaxPercent: 10, MinAllowedNodes: 1, Window: 5 * time.Minute, WindowMaxPercent: 5, WindowMinAllowedNodes: 1, OnExhausted: AutoResume}
}

func (c Config) validateConfig() (selector.Selector, error) {
	var errs []error
	for what, percent := range map[string]int{"max_percent": c.MaxPercent, "window_max_percent": c.WindowMaxPercent} {
		if percent < 0 || percent > 100 {
			errs = append(errs, fmt.Errorf("%s is %d: it must be between 0 and 100", what, percent))
		}
	}
	if c.MinAllowedNodes < 0 || c.WindowMinAllowedNodes < 0 || c.Window < 0 {
		errs = append(errs, errors.New("min_allowed_nodes, window_min_allowed_nodes and window must not be negative"))
	}
	if c.OnExhausted != "" && c.OnExhausted != AutoResume && c.OnExhausted != ManualReset {
		errs = append(errs, fmt.Errorf("on_exhausted is %q: it must be auto-resume or manual-reset", c.OnExhausted))
	}
	nodes, err := selector.Parse(c.Selector)
	return nodes, errors.Join(append(errs, err)...)
}

// limitsFor are how many of so many nodes may be out of service, and how many of
// them may be taken out within the window.
func (c Config) limitsFor(members int) (level, rate int) {
	return max(c.MinAllowedNodes, members*c.MaxPercent/100), max(c.WindowMinAllowedNodes, members*c.WindowMaxPercent/100)
}

// resumeLevel is with how many nodes out of service a budget that was exhausted
// grants again: a fifth of it has to be free, and one at least, lest every node
// that comes back has the next one go.
func resumeLevel(level int) int { return level - max(1, (level+4)/5) }

// patience is how long a grant counts that the nodes never showed: no cache lags
// so far behind. It matters when a node was changed twice before it was seen.
const patience = 5 * time.Minute

// A grant is a node that may be taken out of service, until it is seen to be.
type grant struct {
	number uint64 // tells it from others of the node
	pool   string
	at     time.Time
	before *taking // that it has taken the place of
	look   uint64  // that has met the node last
}

// A taking is a node that was taken out of service.
type taking struct {
	pool string
	at   time.Time
}

// A trip is that a pool's budget was exhausted.
type trip struct {
	why     reason
	since   time.Time
	latched bool
}

// Budget says whether another node may be taken out of service. Its methods are
// safe to be called at the same time.
type Budget struct {
	cfg     Config
	chosen  selector.Selector
	nodes   func() []*corev1.Node
	metrics *metrics

	mu      sync.Mutex
	granted uint64 // so many, ever
	looks   uint64 // at all nodes, ever
	grants  map[types.UID]grant
	takings map[types.UID]taking // within the window, whatever became of them
	trips   map[string]trip      // by pool
	read    map[types.UID]stamp  // of annotations
}

// New makes a budget. nodes gives all nodes as a cache has them, and none of
// them is changed. A nil registerer is no metrics.
func New(cfg Config, nodes func() []*corev1.Node, reg prometheus.Registerer) (*Budget, error) {
	chosen, err := cfg.validateConfig()
	if err != nil {
		return nil, fmt.Errorf("budget: %w", err)
	}
	b := &Budget{
		cfg: cfg, chosen: chosen, nodes: nodes,
		grants: map[types.UID]grant{}, takings: map[types.UID]taking{}, trips: map[string]trip{}, read: map[types.UID]stamp{},
	}
	b.metrics, err = newMetrics(b, reg)
	if err != nil {
		return nil, fmt.Errorf("budget: %w", err)
	}
	return b, nil
}

// Reserve asks to take a node out of service. With a denial, which says the
// numbers and the pool, it may not be. Without one it counts from now on, and the
// nodes need not show it: call release if nothing came of it, and never if the
// outcome is not known. A node that is ours costs nothing more.
func (b *Budget) Reserve(node *corev1.Node, now time.Time) (release func(), denial string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if isOurs(node) {
		return func() {}, ""
	}
	if !b.countsNode(node) {
		b.metrics.countDenial(reasonForeign)
		return func() {}, fmt.Sprintf("node %q is not covered by the budget: budget.selector or budget.control_plane excludes it", node.Name)
	}
	pool := b.poolOf(node)
	c := b.countByPool(node, now)[pool]
	if why, text := b.denialReason(pool, c, now); text != "" {
		b.metrics.countDenial(why)
		return func() {}, text
	}
	return b.grantNode(node.UID, pool, now), ""
}

// grantNode counts a node as taken out. One that was granted and not seen yet may be
// asked for again by who has not seen it either: that it comes to nothing this
// time says nothing of the first time.
func (b *Budget) grantNode(uid types.UID, pool string, now time.Time) (release func()) {
	if _, stands := b.grants[uid]; stands {
		return func() {}
	}
	b.granted++
	g := grant{number: b.granted, pool: pool, at: now, look: b.looks}
	if before, ok := b.takings[uid]; ok {
		g.before = &before
	}
	b.grants[uid], b.takings[uid] = g, taking{pool: pool, at: now}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.grants[uid].number != g.number { // seen, too old, or granted anew
			return
		}
		delete(b.grants, uid)
		delete(b.takings, uid)
		if g.before != nil {
			b.takings[uid] = *g.before
		}
	}
}
