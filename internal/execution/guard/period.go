package guard

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// RecordName is the name of the Lease, in the namespace of executions, that
// holds the current Period. Only the controller writes it.
const RecordName = "fleetloop-admission-policy-record"

// DefaultPropagation is the default of New for how long an API server may take to enforce created
// or changed admission policies.
const DefaultPropagation = 30 * time.Second

// annotationObjects holds the UID and generation of each object of the guard.
const annotationObjects = "kubernaut.io/admission-policy-objects"

// ErrOff is the error of Off: the installation does not use the guard.
var ErrOff = errors.New("the admission policies are disabled (--admission-policies=off)")

// Period is a time in which the API server checked every request, without a gap. The zero value
// means none.
type Period struct {
	// ID is random and drawn after the period has begun, so that it cannot appear in earlier
	// writes.
	ID string
	// Since is the begin of the period by the API server's clock, in whole seconds.
	Since time.Time
}

// Covers reports whether an object with this creation time was created within the period.
func (p Period) Covers(created time.Time) bool { return p.ID != "" && !created.Before(p.Since) }

// Off is the guard of an installation without admission policies. It never has a Period.
type Off struct{}

// Period returns ErrOff.
func (Off) Period() (Period, error) { return Period{}, ErrOff }

// Confirm returns ErrOff.
func (Off) Confirm(context.Context) (Period, error) { return Period{}, ErrOff }

// periodRecord stores the current period in a Lease, so that neither a restart nor another replica
// is a gap.
type periodRecord struct {
	client      kubernetes.Interface
	namespace   string
	propagation time.Duration

	settling string    // the versions that API servers may not enforce yet
	settled  time.Time // when all of them enforce it

	seen   string    // the ID of the last observed period
	usable time.Time // when the API server's clock is past its start

	gapped  bool      // the objects were wrong, and no period was observed since
	lastGap time.Time // the last time of that by the API server's clock; zero means unknown
	refused string    // the ID of a period that was forged in the gap
}

// settlingError is the error while the objects are correct, but not every API server may enforce
// them yet.
type settlingError struct{ until time.Time }

// Error includes the time when the wait ends.
func (e settlingError) Error() string {
	return fmt.Sprintf("the admission policies were created or changed: waiting until %s for every API server to enforce them",
		e.until.UTC().Format(time.RFC3339))
}

// currentOrBeginPeriod returns the period for the given object versions. It begins a new one once the
// objects have been unchanged for the propagation time.
func (r *periodRecord) currentOrBeginPeriod(ctx context.Context, objects string) (Period, error) {
	lease, err := r.readOrNewLease(ctx)
	if err != nil {
		return Period{}, err
	}
	p := periodOf(lease)
	if p.ID != "" && lease.Annotations[annotationObjects] == objects {
		genuine, err := r.hasBegunAfterLastGap(ctx, p)
		if err != nil {
			return Period{}, err
		}
		if genuine {
			r.settling = ""
			r.gapped = false
			return p, r.checkPeriodStartReached(p)
		}
	}
	if r.settling != objects {
		r.settling = objects
		r.settled = time.Now().Add(r.propagation)
	}
	if time.Now().Before(r.settled) {
		return Period{}, settlingError{r.settled}
	}
	if err := r.beginPeriod(ctx, lease, objects); err != nil {
		return Period{}, err
	}
	r.settling = ""
	return Period{}, settlingError{time.Now().Add(time.Second)} // until the API server's clock is past Since
}

// checkPeriodStartReached returns an error until the period has begun. Its start is up to a second in the future
// when it is written, and an execution created before it would be refused.
func (r *periodRecord) checkPeriodStartReached(p Period) error {
	if r.seen != p.ID {
		r.seen, r.usable = p.ID, time.Now().Add(min(max(0, time.Until(p.Since)), time.Second))
	}
	if time.Now().Before(r.usable) {
		return settlingError{r.usable}
	}
	return nil
}

// recordGap notes that an observation found wrong or missing objects. In such a gap, any user with a
// right on Leases could write the record.
func (r *periodRecord) recordGap(ctx context.Context, began time.Time) {
	r.settling = ""
	r.gapped = true
	r.lastGap = time.Time{}
	if now, err := r.serverTime(ctx); err == nil {
		r.lastGap = now.Add(-time.Since(began))
	}
}

// hasBegunAfterLastGap reports whether a replica can have begun a stored period. In a gap, a user with a right
// on Leases can store another one. Replicas begin a period only after the changes since the gap
// have propagated, and at most one second in the future.
func (r *periodRecord) hasBegunAfterLastGap(ctx context.Context, p Period) (genuine bool, err error) {
	if !r.gapped {
		return true, nil
	}
	if p.ID == r.refused {
		return false, nil
	}
	now, err := r.serverTime(ctx)
	if err != nil {
		return false, err
	}
	if r.lastGap.IsZero() {
		r.lastGap = now
	}
	tooEarly := !p.Since.After(r.lastGap.Add(r.propagation))
	inFuture := p.Since.After(now.Add(time.Second))
	if tooEarly || inFuture {
		r.refused = p.ID
		return false, nil
	}
	return true, nil
}

// beginPeriod records a new period.
func (r *periodRecord) beginPeriod(ctx context.Context, lease *coordinationv1.Lease, objects string) error {
	now, err := r.serverTime(ctx)
	if err != nil {
		return err
	}
	p := Period{ID: rand.Text(), Since: now.Add(time.Second)} // creation times are truncated to whole seconds
	lease.Annotations = map[string]string{annotationObjects: objects}
	lease.Spec.HolderIdentity, lease.Spec.AcquireTime = &p.ID, &metav1.MicroTime{Time: p.Since}
	if err := r.createOrUpdateLease(ctx, lease); err != nil {
		return err
	}
	r.seen, r.usable = p.ID, time.Now().Add(time.Second)
	return nil
}

// endPeriod ends the recorded period, if one exists. It is for an API server that does not enforce
// the objects although they are unchanged.
func (r *periodRecord) endPeriod(ctx context.Context) error {
	r.settling = ""
	lease, err := r.readOrNewLease(ctx)
	if err != nil || periodOf(lease).ID == "" {
		return err
	}
	lease.Annotations = nil
	lease.Spec.HolderIdentity, lease.Spec.AcquireTime = nil, nil
	return r.createOrUpdateLease(ctx, lease)
}

// readOrNewLease returns the stored record, or a new one.
func (r *periodRecord) readOrNewLease(ctx context.Context) (*coordinationv1.Lease, error) {
	lease, err := r.client.CoordinationV1().Leases(r.namespace).Get(ctx, RecordName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: RecordName, Namespace: r.namespace}}, nil
	}
	if err != nil {
		return nil, unknownError{fmt.Errorf("read admission policy record in Lease %q: %w", RecordName, err)}
	}
	return lease, nil
}

// createOrUpdateLease writes the record. It fails if another replica has written since the record was read.
func (r *periodRecord) createOrUpdateLease(ctx context.Context, lease *coordinationv1.Lease) error {
	leases := r.client.CoordinationV1().Leases(r.namespace)
	var err error
	if lease.ResourceVersion == "" {
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	} else {
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil {
		return unknownError{fmt.Errorf("write admission policy record in Lease %q: %w", RecordName, err)}
	}
	return nil
}

// serverTime returns the time of the API server's clock, which sets the creation times of objects.
func (r *periodRecord) serverTime(ctx context.Context) (time.Time, error) {
	trial := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{GenerateName: "clock-probe-"}}
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	created, err := r.client.CoordinationV1().Leases(r.namespace).Create(ctx, trial, dryRun)
	if err != nil {
		return time.Time{}, unknownError{fmt.Errorf("read the API server's clock: %w", err)}
	}
	return created.CreationTimestamp.Time, nil
}

// periodOf returns the period in a record. The zero value means none.
func periodOf(lease *coordinationv1.Lease) Period {
	if lease.Spec.HolderIdentity == nil || lease.Spec.AcquireTime == nil {
		return Period{}
	}
	return Period{ID: *lease.Spec.HolderIdentity, Since: lease.Spec.AcquireTime.Time}
}
