// Package budget prevents the pipeline from taking more nodes out of service than a
// cluster can spare.
//
// It counts the current nodes each time: those that the pipeline has quarantined, those
// that others have cordoned, and those that are not ready. The time at which a node was
// taken out of service is stored on the node, and stays there after its release, so that
// both limits hold across a restart. A granted node that does not show the cordon yet is
// remembered until it does, so neither concurrent workers nor a stale cache can exceed
// the limits.
//
// The budget limits how many nodes of a pool are out of service at a time, and how many
// are taken out of service within a time window. It denies only new quarantines; the
// release of a node never needs it. A denied request is evaluated again when it is
// repeated, so there is no backlog.
//
// A ManualResetBudget keeps an exhausted budget closed until a person resets it.
package budget

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/selector"
)

// Config configures how many nodes may be out of service. The zero value allows none;
// Default returns the shipped values.
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

// OnExhausted is the policy for an exhausted budget.
type OnExhausted string

// The policies for an exhausted budget.
const (
	AutoResume  OnExhausted = "auto-resume"
	ManualReset OnExhausted = "manual-reset"
)

// Default returns the shipped budget.
func Default() Config {
	return Config{
		MaxPercent:            10,
		MinAllowedNodes:       1,
		Window:                5 * time.Minute,
		WindowMaxPercent:      5,
		WindowMinAllowedNodes: 1,
		OnExhausted:           AutoResume,
	}
}

// validateAndParseSelector returns the nodes that the budget covers, or all errors of the settings.
func (c Config) validateAndParseSelector() (nodes selector.Selector, err error) {
	var errs []error
	percentages := map[string]int{
		"max_percent":        c.MaxPercent,
		"window_max_percent": c.WindowMaxPercent,
	}
	for setting, percent := range percentages {
		if percent < 0 || percent > 100 {
			errs = append(errs, fmt.Errorf("%s is %d: it must be between 0 and 100", setting, percent))
		}
	}
	if c.MinAllowedNodes < 0 || c.WindowMinAllowedNodes < 0 || c.Window < 0 {
		errs = append(errs, errors.New("min_allowed_nodes, window_min_allowed_nodes and window must not be negative"))
	}
	if c.OnExhausted != "" && c.OnExhausted != AutoResume && c.OnExhausted != ManualReset {
		errs = append(errs, fmt.Errorf("on_exhausted is %q: it must be auto-resume or manual-reset", c.OnExhausted))
	}
	nodes, err = selector.Parse(c.Selector)
	return nodes, errors.Join(append(errs, err)...)
}

// limitsFor returns the limits of a pool with a number of members. maxOutOfService is how many may
// be out of service, and maxPerWindow is how many may be taken out of service within the window.
func (c Config) limitsFor(members int) (maxOutOfService, maxPerWindow int) {
	maxOutOfService = max(c.MinAllowedNodes, members*c.MaxPercent/100)
	maxPerWindow = max(c.WindowMinAllowedNodes, members*c.WindowMaxPercent/100)
	return maxOutOfService, maxPerWindow
}

// resumeThreshold returns the number of nodes out of service at which an exhausted budget
// grants again. A fifth of the budget, and at least one node, must be free. Otherwise
// each released node would be replaced by the next one at once.
func resumeThreshold(maxOutOfService int) (resumeAt int) {
	fifth := (maxOutOfService + 4) / 5 // rounded up
	return maxOutOfService - max(1, fifth)
}

// grantTimeout limits how long a grant counts that the node never shows. No cache is stale
// for that long. It matters if a node changed twice before it was observed.
const grantTimeout = 5 * time.Minute

// A grant is a node that may be taken out of service and does not show the cordon yet.
type grant struct {
	number uint64 // distinguishes it from other grants of the node
	pool   string
	at     time.Time
	before *taking // previous taking of the node, which the grant replaced
}

// A taking records that a node was taken out of service.
type taking struct {
	pool string
	at   time.Time
}

// An exhaustion records that the budget of a pool was exhausted.
type exhaustion struct {
	why     denialReason
	since   time.Time
	latched bool // it lasts until a person resets the budget
}

// Budget decides whether another node may be taken out of service. Its methods are safe
// for concurrent use.
type Budget struct {
	cfg      Config
	selected selector.Selector
	nodes    func() []*corev1.Node
	metrics  *metrics

	mu          sync.Mutex
	grantNumber uint64 // number of grants so far
	countNumber uint64 // number of counts of all nodes so far
	grants      map[types.UID]grant
	takings     map[types.UID]taking     // within the window, including nodes that are back in service
	exhausted   map[string]exhaustion    // by pool
	states      map[types.UID]*nodeState // of the nodes that exist
	members     map[string]int           // number of nodes by pool, as last counted
}

// New creates a budget. nodes returns all nodes from a cache, whose objects must not be changed. A nil
// registerer means no metrics.
func New(cfg Config, nodes func() []*corev1.Node, reg prometheus.Registerer) (*Budget, error) {
	selected, err := cfg.validateAndParseSelector()
	if err != nil {
		return nil, fmt.Errorf("budget: %w", err)
	}
	b := &Budget{
		cfg:       cfg,
		selected:  selected,
		nodes:     nodes,
		grants:    map[types.UID]grant{},
		takings:   map[types.UID]taking{},
		exhausted: map[string]exhaustion{},
		states:    map[types.UID]*nodeState{},
	}
	b.metrics, err = newMetrics(b, reg)
	if err != nil {
		return nil, fmt.Errorf("budget: %w", err)
	}
	return b, nil
}

// Reserve requests that a node may be taken out of service. A denial gives the numbers
// and the pool. Without a denial the node counts from now on, even if it does not show
// the cordon yet. The caller calls release if the node was not taken out of service, and
// never if the outcome is unknown. A node that is already quarantined costs nothing.
func (b *Budget) Reserve(node *corev1.Node, now time.Time) (release func(), denial string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if isQuarantinedByUs(node) {
		return func() {}, ""
	}
	if !b.coversNode(node) {
		b.metrics.countDenial(reasonForeign)
		return func() {}, fmt.Sprintf(
			"node %q is not covered by the budget: budget.selector or budget.control_plane excludes it", node.Name)
	}
	pool := b.poolLabelValue(node)
	counts := b.countPoolsAndUpdateState(node, now)
	why, denial := b.checkLimitsAndRecordExhaustion(pool, counts[pool], now)
	if denial != "" {
		b.metrics.countDenial(why)
		return func() {}, denial
	}
	return b.grantNodeOnce(node.UID, pool, now), ""
}

// LimitOf returns the pool of a node and how many of its nodes may be out of service, as last
// counted. It returns nil if the node does not count.
func (b *Budget) LimitOf(node *corev1.Node) *v1alpha1.PoolBudget {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.members == nil {
		b.countPoolsAndUpdateState(nil, time.Now())
	}
	pool := b.poolLabelValue(node)
	members, counted := b.members[pool]
	if !counted || !b.coversNode(node) {
		return nil
	}
	limit, _ := b.cfg.limitsFor(members)
	return &v1alpha1.PoolBudget{Pool: pool, Limit: int32(limit)} //nolint:gosec // a number of nodes
}

// grantNodeOnce counts a node as taken out of service. If the node has a pending grant,
// release does nothing: the failure of this request does not mean that the first one
// failed.
func (b *Budget) grantNodeOnce(uid types.UID, pool string, now time.Time) (release func()) {
	if _, pending := b.grants[uid]; pending {
		return func() {}
	}
	b.grantNumber++
	granted := grant{number: b.grantNumber, pool: pool, at: now}
	if before, ok := b.takings[uid]; ok {
		granted.before = &before
	}
	b.grants[uid] = granted
	b.takings[uid] = taking{pool: pool, at: now}
	return func() { b.withdrawGrant(uid, granted) }
}

// withdrawGrant removes a grant of a node, unless it was observed, has expired or was replaced.
func (b *Budget) withdrawGrant(uid types.UID, granted grant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.grants[uid].number != granted.number {
		return
	}
	delete(b.grants, uid)
	delete(b.takings, uid)
	if granted.before != nil {
		b.takings[uid] = *granted.before
	}
}
