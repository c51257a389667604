package budget

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

const (
	// LeaseAnnotation holds the closed pools and their times as a JSON object.
	LeaseAnnotation = "fleetloop.io/budgets-exhausted"

	leaseInterval = 5 * time.Second
	leaseTimeout  = 5 * time.Second
)

// A ManualResetBudget wraps a budget and keeps it closed once it is exhausted, until a person resets
// it, across restarts and changes of the leader.
//
// One Lease stores the closed pools. It exists as long as a pool is closed. Deleting it
// resets the budgets of all pools:
//
//	kubectl delete lease -n fleetloop-system fleetloop-node-fault-budget
type ManualResetBudget struct {
	budget *Budget
	leases typed.LeaseInterface
	log    *slog.Logger

	namespace string

	mu          sync.Mutex
	closedSince map[string]time.Time // closed pools, as in the Lease; nil before the first read
}

// NewManualResetBudget wraps a budget, with its Lease in a namespace.
func NewManualResetBudget(
	b *Budget, leases typed.LeasesGetter, namespace string, log *slog.Logger,
) *ManualResetBudget {
	return &ManualResetBudget{
		budget:    b,
		leases:    leases.Leases(namespace),
		log:       log,
		namespace: namespace,
	}
}

// Reserve calls Reserve of the budget. It denies while the Lease cannot be read, because
// a person may have to reset the budget first.
func (m *ManualResetBudget) Reserve(node *corev1.Node, now time.Time) (release func(), denial string) {
	if err := m.restoreClosedPoolsOnce(); err != nil {
		return nil, fmt.Sprintf("cannot read whether the budget waits for a manual reset: %v", err)
	}
	release, denial = m.budget.Reserve(node, now)
	if denial != "" && m.hasClosedPool() {
		denial += "; to reset it: kubectl delete lease -n " + m.namespace + " " + nodefault.BudgetLease
	}
	return release, denial
}

// LimitOf calls LimitOf of the budget.
func (m *ManualResetBudget) LimitOf(node *corev1.Node) *v1alpha1.PoolBudget {
	return m.budget.LimitOf(node)
}

func (m *ManualResetBudget) hasClosedPool() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.closedSince) > 0
}

// restoreClosedPoolsOnce closes the pools that the Lease lists as closed, once.
func (m *ManualResetBudget) restoreClosedPoolsOnce() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closedSince != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaseTimeout)
	defer cancel()
	_, stored, err := m.readLease(ctx)
	if err != nil {
		return err
	}
	for pool, since := range stored {
		m.budget.CloseUntilReset(pool, since)
	}
	m.closedSince = stored
	return nil
}

// readLease returns the stored pools. Without a Lease the map is empty.
func (m *ManualResetBudget) readLease(
	ctx context.Context,
) (lease *coordinationv1.Lease, closedSince map[string]time.Time, err error) {
	stored := map[string]time.Time{}
	lease, err = m.leases.Get(ctx, nodefault.BudgetLease, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, stored, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read Lease %q: %w", nodefault.BudgetLease, err)
	}
	if text := lease.Annotations[LeaseAnnotation]; text != "" {
		if err := json.Unmarshal([]byte(text), &stored); err != nil {
			return nil, nil, fmt.Errorf("read annotation %s of Lease %q: %w", LeaseAnnotation, nodefault.BudgetLease, err)
		}
	}
	return lease, stored, nil
}

// Start stores newly closed pools and resets the pools that a person has reset, until ctx
// ends. A manager runs it in the leader.
func (m *ManualResetBudget) Start(ctx context.Context) error {
	ticker := time.NewTicker(leaseInterval)
	defer ticker.Stop()
	failing := false
	for {
		err := m.storeClosedPoolsAndApplyResets(ctx, time.Now())
		if err != nil && !failing && ctx.Err() == nil {
			m.log.WarnContext(ctx, "store exhausted budget failed, it would be lost at a restart", "err", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// storeClosedPoolsAndApplyResets resets the pools that a person has removed from the Lease, and stores
// the other closed pools in it.
func (m *ManualResetBudget) storeClosedPoolsAndApplyResets(ctx context.Context, now time.Time) error {
	if err := m.restoreClosedPoolsOnce(); err != nil { //nolint:contextcheck // Reserve, which does it too, has none
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	lease, stored, err := m.readLease(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	closed := maps.Clone(stored)
	for _, pool := range m.budget.Status(now) {
		if !pool.Latched {
			continue
		}
		_, wasStored := m.closedSince[pool.Name]
		_, isStored := stored[pool.Name]
		if wasStored && !isStored {
			m.budget.Reset(pool.Name)
			m.log.InfoContext(ctx, "budget reset by a person", "pool", pool.Name)
			continue
		}
		closed[pool.Name] = pool.Since.UTC()
	}
	if !maps.EqualFunc(closed, stored, time.Time.Equal) {
		if err := m.createOrUpdateLease(ctx, lease, closed); err != nil {
			return err
		}
	}
	m.closedSince = closed
	return nil
}

func (m *ManualResetBudget) createOrUpdateLease(
	ctx context.Context, lease *coordinationv1.Lease, closedSince map[string]time.Time,
) error {
	text, err := json.Marshal(closedSince)
	if err != nil {
		return fmt.Errorf("write Lease %q: %w", nodefault.BudgetLease, err)
	}
	if lease == nil {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Name:        nodefault.BudgetLease,
			Annotations: map[string]string{LeaseAnnotation: string(text)},
		}}
		_, err = m.leases.Create(ctx, lease, metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	} else {
		lease = lease.DeepCopy()
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, LeaseAnnotation, string(text))
		_, err = m.leases.Update(ctx, lease, metav1.UpdateOptions{FieldManager: v1alpha1.FieldManager})
	}
	if err != nil {
		return fmt.Errorf("write Lease %q: %w", nodefault.BudgetLease, err)
	}
	return nil
}
