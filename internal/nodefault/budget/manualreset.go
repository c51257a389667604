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

	mu    sync.Mutex
	known map[string]time.Time // stored pools; nil before the first read
}

// NewManualResetBudget wraps a budget, with its Lease in a namespace.
func NewManualResetBudget(b *Budget, leases typed.LeasesGetter, namespace string, log *slog.Logger) *ManualResetBudget {
	return &ManualResetBudget{budget: b, leases: leases.Leases(namespace), namespace: namespace, log: log}
}

// Reserve calls Reserve of the budget. It denies while the Lease cannot be read, because
// a person may have to reset the budget first.
func (k *ManualResetBudget) Reserve(node *corev1.Node, now time.Time) (release func(), denial string) {
	if err := k.restoreClosedPoolsOnce(); err != nil {
		return nil, fmt.Sprintf("cannot read whether the budget waits for a manual reset: %v", err)
	}
	release, denial = k.budget.Reserve(node, now)
	if denial != "" && k.hasClosedPool() {
		denial += "; to reset it: kubectl delete lease -n " + k.namespace + " " + nodefault.BudgetLease
	}
	return release, denial
}

// LimitOf calls LimitOf of the budget.
func (k *ManualResetBudget) LimitOf(node *corev1.Node) *v1alpha1.PoolBudget {
	return k.budget.LimitOf(node)
}

func (k *ManualResetBudget) hasClosedPool() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.known) > 0
}

// restoreClosedPoolsOnce closes the pools that the Lease lists as closed, once.
func (k *ManualResetBudget) restoreClosedPoolsOnce() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaseTimeout)
	defer cancel()
	_, stored, err := k.readLease(ctx)
	if err != nil {
		return err
	}
	for pool, since := range stored {
		k.budget.CloseUntilReset(pool, since)
	}
	k.known = stored
	return nil
}

// readLease returns the stored pools. Without a Lease the map is empty.
func (k *ManualResetBudget) readLease(ctx context.Context) (lease *coordinationv1.Lease, closedSince map[string]time.Time, err error) {
	stored := map[string]time.Time{}
	lease, err = k.leases.Get(ctx, nodefault.BudgetLease, metav1.GetOptions{})
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
func (k *ManualResetBudget) Start(ctx context.Context) error {
	ticker := time.NewTicker(leaseInterval)
	defer ticker.Stop()
	failing := false
	for {
		err := k.syncClosedPoolsWithLease(ctx, time.Now())
		if err != nil && !failing && ctx.Err() == nil {
			k.log.WarnContext(ctx, "store exhausted budget failed, it would be lost at a restart", "err", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (k *ManualResetBudget) syncClosedPoolsWithLease(ctx context.Context, now time.Time) error {
	if err := k.restoreClosedPoolsOnce(); err != nil { //nolint:contextcheck // Reserve, which does it too, has none
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	lease, stored, err := k.readLease(ctx)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	closed := maps.Clone(stored)
	for _, p := range k.budget.Status(now) {
		if !p.Latched {
			continue
		}
		_, was := k.known[p.Name]
		if _, is := stored[p.Name]; was && !is {
			k.budget.Reset(p.Name)
			k.log.InfoContext(ctx, "budget reset by a person", "pool", p.Name)
			continue
		}
		closed[p.Name] = p.Since.UTC()
	}
	if !maps.EqualFunc(closed, stored, time.Time.Equal) {
		if err := k.createOrUpdateLease(ctx, lease, closed); err != nil {
			return err
		}
	}
	k.known = closed
	return nil
}

func (k *ManualResetBudget) createOrUpdateLease(ctx context.Context, lease *coordinationv1.Lease, closedSince map[string]time.Time) error {
	text, err := json.Marshal(closedSince)
	if err != nil {
		return fmt.Errorf("write Lease %q: %w", nodefault.BudgetLease, err)
	}
	if lease == nil {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Name: nodefault.BudgetLease, Annotations: map[string]string{LeaseAnnotation: string(text)},
		}}
		_, err = k.leases.Create(ctx, lease, metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	} else {
		lease = lease.DeepCopy()
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, LeaseAnnotation, string(text))
		_, err = k.leases.Update(ctx, lease, metav1.UpdateOptions{FieldManager: v1alpha1.FieldManager})
	}
	if err != nil {
		return fmt.Errorf("write Lease %q: %w", nodefault.BudgetLease, err)
	}
	return nil
}
