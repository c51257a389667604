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

// DefaultPropagation is how long an API server may take to go by admission
// policies that were created or changed, unless New is told otherwise.
const DefaultPropagation = 30 * time.Second

// annotationObjects holds the UID and generation of each object of the guard.
const annotationObjects = "kubernaut.io/admission-policy-objects"

// ErrOff is why there is no Period where an installation does without the guard.
var ErrOff = errors.New("the admission policies are disabled (--admission-policies=off)")

// A Period is a time in which the API server has checked every request, without
// a gap. The zero value is none.
type Period struct {
	// ID is drawn at random once the period has begun. Nobody can have written it
	// anywhere before.
	ID string
	// Since is when the period began, by the API server's clock, in whole seconds.
	Since time.Time
}

// Covers reports whether an object that the API server created at a time was
// created within the period.
func (p Period) Covers(created time.Time) bool { return p.ID != "" && !created.Before(p.Since) }

// Off is a guard that an installation does without: there is never a Period.
type Off struct{}

// Period gives ErrOff.
func (Off) Period() (Period, error) { return Period{}, ErrOff }

// Confirm gives ErrOff.
func (Off) Confirm(context.Context) (Period, error) { return Period{}, ErrOff }

// A periodRecord keeps the current period in a Lease, so that neither a restart nor
// another replica is a gap.
type periodRecord struct {
	client      kubernetes.Interface
	namespace   string
	propagation time.Duration

	settling string    // the objects that API servers may not go by yet
	settled  time.Time // when all of them do

	seen   string    // the ID of the period that was seen last
	usable time.Time // when the API server's clock is past its begin

	gapped  bool      // the objects were not as they should be, and no period was seen since
	lastGap time.Time // when that was last, by the API server's clock; zero is that it did not say
	refused string    // the ID of a period that somebody made up in the gap
}

// settlingError is that the guard is as it should be, but not for long enough.
type settlingError struct{ until time.Time }

// Error says until when.
func (e settlingError) Error() string {
	return fmt.Sprintf("the admission policies were created or changed: waiting until %s for every API server to enforce them", e.until.UTC().Format(time.RFC3339))
}

// currentPeriod is the period of the guard that consists of objects. It begins one
// once the objects have been the same for as long as changes take to propagate.
func (r *periodRecord) currentPeriod(ctx context.Context, objects string) (Period, error) {
	lease, err := r.readLease(ctx)
	if err != nil {
		return Period{}, err
	}
	if p := periodOf(lease); p.ID != "" && lease.Annotations[annotationObjects] == objects {
		genuine, err := r.isGenuine(ctx, p)
		if err != nil {
			return Period{}, err
		}
		if genuine {
			r.settling, r.gapped = "", false
			return p, r.checkBegun(p)
		}
	}
	if r.settling != objects {
		r.settling, r.settled = objects, time.Now().Add(r.propagation)
	}
	if time.Now().Before(r.settled) {
		return Period{}, settlingError{r.settled}
	}
	if err := r.beginPeriod(ctx, lease, objects); err != nil {
		return Period{}, err
	}
	r.settling = ""
	return Period{}, settlingError{time.Now().Add(time.Second)} // then the API server's clock is past Since
}

// checkBegun is why a period has not begun yet: its time is up to a second ahead when it is
// written down, and an execution that is created before would be refused.
func (r *periodRecord) checkBegun(p Period) error {
	if r.seen != p.ID {
		r.seen, r.usable = p.ID, time.Now().Add(min(max(0, time.Until(p.Since)), time.Second))
	}
	if time.Now().Before(r.usable) {
		return settlingError{r.usable}
	}
	return nil
}

// noteGap notes that a look, begun at a time, found the objects not as they should be:
// nobody was kept from writing the record.
func (r *periodRecord) noteGap(ctx context.Context, began time.Time) {
	r.settling, r.gapped, r.lastGap = "", true, time.Time{}
	if now, err := r.serverTime(ctx); err == nil {
		r.lastGap = now.Add(-time.Since(began))
	}
}

// isGenuine reports whether a stored period can be one that a replica has begun. In
// a gap, whoever has a right on Leases can store another. Other replicas begin one
// no sooner than changes have propagated after the gap, and as of the next second.
func (r *periodRecord) isGenuine(ctx context.Context, p Period) (bool, error) {
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
	if !p.Since.After(r.lastGap.Add(r.propagation)) || p.Since.After(now.Add(time.Second)) {
		r.refused = p.ID
		return false, nil
	}
	return true, nil
}

// beginPeriod writes down that a period begins.
func (r *periodRecord) beginPeriod(ctx context.Context, lease *coordinationv1.Lease, objects string) error {
	now, err := r.serverTime(ctx)
	if err != nil {
		return err
	}
	p := Period{ID: rand.Text(), Since: now.Add(time.Second)} // times of objects are cut off to whole seconds
	lease.Annotations = map[string]string{annotationObjects: objects}
	lease.Spec.HolderIdentity, lease.Spec.AcquireTime = &p.ID, &metav1.MicroTime{Time: p.Since}
	if err := r.writeLease(ctx, lease); err != nil {
		return err
	}
	r.seen, r.usable = p.ID, time.Now().Add(time.Second)
	return nil
}

// endPeriod writes down that the period is over, if there is one: the API server does
// not go by the objects, and they look the same as before.
func (r *periodRecord) endPeriod(ctx context.Context) error {
	r.settling = ""
	lease, err := r.readLease(ctx)
	if err != nil || periodOf(lease).ID == "" {
		return err
	}
	lease.Annotations = nil
	lease.Spec.HolderIdentity, lease.Spec.AcquireTime = nil, nil
	return r.writeLease(ctx, lease)
}

// readLease gives the record, or a new one.
func (r *periodRecord) readLease(ctx context.Context) (*coordinationv1.Lease, error) {
	lease, err := r.client.CoordinationV1().Leases(r.namespace).Get(ctx, RecordName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: RecordName, Namespace: r.namespace}}, nil
	}
	if err != nil {
		return nil, unknownError{fmt.Errorf("read admission policy record in Lease %q: %w", RecordName, err)}
	}
	return lease, nil
}

// writeLease fails if another replica has written since the record was read.
func (r *periodRecord) writeLease(ctx context.Context, lease *coordinationv1.Lease) error {
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

// serverTime is the API server's clock, by which it dates objects.
func (r *periodRecord) serverTime(ctx context.Context) (time.Time, error) {
	trial := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{GenerateName: "clock-probe-"}}
	made, err := r.client.CoordinationV1().Leases(r.namespace).Create(ctx, trial, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return time.Time{}, unknownError{fmt.Errorf("read the API server's clock: %w", err)}
	}
	return made.CreationTimestamp.Time, nil
}

// periodOf is the period of a record. The zero value is none.
func periodOf(lease *coordinationv1.Lease) Period {
	if lease.Spec.HolderIdentity == nil || lease.Spec.AcquireTime == nil {
		return Period{}
	}
	return Period{ID: *lease.Spec.HolderIdentity, Since: lease.Spec.AcquireTime.Time}
}
