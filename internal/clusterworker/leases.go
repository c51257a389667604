package clusterworker

import (
	"context"
	"sync"
	"time"
)

const (
	// leaseChecks is how many times per lease duration the keeper checks the held
	// leases.
	leaseChecks = 8
	// leaseMargin is the part of a lease, as a divisor, by which a call ends before a
	// lease that could not be renewed.
	leaseMargin = 12
)

// A leaseKeeper renews the leases of rows whose calls run, so that no other worker
// takes them. It cancels a call whose lease could not be renewed.
type leaseKeeper struct {
	worker *Worker

	mu   sync.Mutex
	held map[string]*heldLease // by cluster
}

// A heldLease is the lease of a row with a running call.
type heldLease struct {
	claim Claim // Until is the known end of the lease
	// renewUntil is when renewal stops. A call that runs longer ignores its deadline.
	renewUntil time.Time
	cancel     context.CancelCauseFunc
	timer      *time.Timer // calls cancel
}

// startRenewingLease renews the lease of a row until stopRenewingLease. The context ends shortly
// before a lease that could not be renewed.
func (k *leaseKeeper) startRenewingLease(ctx context.Context, claim timedClaim) (callCtx context.Context, lease *heldLease) {
	callCtx, cancel := context.WithCancelCause(ctx)
	cfg := k.worker.cfg
	maxCallDuration := cfg.totalCallTimeout() + 2*cfg.CallTimeout // a read may precede a call, and a probe may follow it
	lease = &heldLease{claim: claim.Claim, renewUntil: time.Now().Add(maxCallDuration), cancel: cancel}
	lease.timer = time.AfterFunc(k.timeUntilCallCanceled(lease), func() { cancel(errLeaseOver) })
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held[claim.ClusterID] = lease
	return callCtx, lease
}

// timeUntilCallCanceled returns how long a call may continue under its lease.
func (k *leaseKeeper) timeUntilCallCanceled(lease *heldLease) time.Duration {
	return time.Until(lease.claim.Until) - k.worker.cfg.Lease/leaseMargin
}

// stopRenewingLease stops the renewal of a lease, and returns when the lease ends.
func (k *leaseKeeper) stopRenewingLease(lease *heldLease) (leaseEnd time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.held, lease.claim.ClusterID)
	lease.timer.Stop()
	lease.cancel(nil)
	return lease.claim.Until
}

// renewLeasesUntilDone renews leases until there are no more calls or ctx ends.
func (k *leaseKeeper) renewLeasesUntilDone(ctx context.Context) {
	ticker := time.NewTicker(max(time.Millisecond, k.worker.cfg.Lease/leaseChecks))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.worker.ended:
			return
		case <-ticker.C:
			k.renewDueLeases(ctx)
		}
	}
}

// renewDueLeases renews the leases of which a quarter has passed. Failed renewals are
// retried at the next check.
func (k *leaseKeeper) renewDueLeases(ctx context.Context) {
	w := k.worker
	began := time.Now()
	claims := k.listClaimsDueForRenewal(began)
	if len(claims) == 0 {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, min(storeTimeout, w.cfg.Lease/4), errStoreTimeout)
	defer cancel()
	renewed, err := w.deps.Store.RenewLeases(ctx, claims, w.cfg.Lease)
	w.db.recordRequestResult(ctx, toRenew, err)
	if err != nil {
		return
	}
	w.metrics.renewals.Add(float64(len(renewed)))
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range renewed {
		// A lease whose call has ended keeps the earlier end, which is the safe side.
		if lease, ok := k.held[id]; ok && lease.timer.Stop() {
			lease.claim.Until = began.Add(w.cfg.Lease)
			lease.timer.Reset(k.timeUntilCallCanceled(lease))
		}
	}
}

func (k *leaseKeeper) listClaimsDueForRenewal(now time.Time) (claims []Claim) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, lease := range k.held {
		quarterPassed := lease.claim.Until.Sub(now) <= k.worker.cfg.Lease*3/4
		if quarterPassed && now.Before(lease.renewUntil) {
			claims = append(claims, lease.claim)
		}
	}
	return claims
}
