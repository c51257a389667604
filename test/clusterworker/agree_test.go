package clusterworker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// A state is what database and garden have at one time.
type state struct {
	rows map[string]row
	// removed is whether the rows of deleted clusters are removed.
	removed bool
	shoots  map[string][]unstructured.Unstructured // by cluster
}

func (r *fixture) state(ctx context.Context) (state, error) {
	rows, err := r.rows(ctx)
	if err != nil {
		return state{}, err
	}
	list, err := r.shoots.List(ctx, metav1.ListOptions{})
	if err != nil {
		return state{}, err
	}
	s := state{rows: rows, shoots: map[string][]unstructured.Unstructured{}}
	for _, o := range list.Items {
		id := o.GetLabels()[shoot.LabelCluster]
		s.shoots[id] = append(s.shoots[id], o)
	}
	return s, nil
}

// agrees is an error unless database and garden have the cluster as its owner
// wants it.
func (s state) agrees(c *cluster) error {
	x := s.rows[c.id]
	shoots := s.shoots[c.id]
	if c.deleted && s.removed {
		if len(shoots) != 0 || x.ID != "" {
			return fmt.Errorf("it is deleted, and has %d Shoots and the row %+v", len(shoots), x)
		}
		return nil
	}
	if err := x.settled(); err != nil {
		return err
	}
	if c.deleted {
		if len(shoots) != 0 || x.ShootStatus != string(v1.ShootDeleted) {
			return fmt.Errorf("it is deleted, and has %d Shoots and the status %q", len(shoots), x.ShootStatus)
		}
		return nil
	}
	if len(shoots) != 1 {
		return fmt.Errorf("it has %d Shoots", len(shoots))
	}
	o := shoots[0]
	if o.GetName() != x.ShootName || o.GetDeletionTimestamp() != nil {
		return fmt.Errorf("its Shoot is %q, deleted %v, and the row says %q", o.GetName(), o.GetDeletionTimestamp(), x.ShootName)
	}
	if d := cmp.Diff(c.wanted(), madeOf(&o)); d != "" {
		return fmt.Errorf("its Shoot is not as it was changed last (-want +got):\n%s", d)
	}
	if sent := sentTo(&o); sent != x.Generation {
		return fmt.Errorf("its Shoot is of generation %d, the row of %d", sent, x.Generation)
	}
	observed, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
	if x.ShootStatus != string(v1.ShootReady) || observed != o.GetGeneration() {
		return fmt.Errorf("its status is %q, and Gardener has seen generation %d of its Shoot, which is at %d", x.ShootStatus, observed, o.GetGeneration())
	}
	return nil
}

// A made is the part of a Shoot that changes of a cluster get to.
type made struct {
	Name   string
	Change string
	Pools  map[string]string // change and maximum by name
}

// wanted is what a cluster's Shoot should be.
func (c *cluster) wanted() made {
	m := made{Name: c.name, Change: strconv.Itoa(c.change), Pools: map[string]string{}}
	for name, p := range c.pools {
		m.Pools[name] = fmt.Sprintf("%d up to %d", p.change, p.maximum())
	}
	if len(c.pools) == 0 {
		m.Pools["default"] = " up to 3"
	}
	return m
}

// madeOf is what a Shoot is.
func madeOf(o *unstructured.Unstructured) made {
	change, _, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "provider", "controlPlaneConfig", "change")
	m := made{Name: o.GetAnnotations()[shoot.AnnotationName], Change: fmt.Sprint(change), Pools: map[string]string{}}
	workers, _, _ := unstructured.NestedSlice(o.Object, "spec", "provider", "workers")
	for _, entry := range workers {
		w, _ := entry.(map[string]any)
		name, _, _ := unstructured.NestedString(w, "name")
		label, _, _ := unstructured.NestedString(w, "labels", "change")
		m.Pools[name] = fmt.Sprintf("%s up to %v", label, w["maximum"])
	}
	return m
}

// sentTo is the generation that a Shoot says it was sent.
func sentTo(o *unstructured.Unstructured) int64 {
	n, _ := strconv.ParseInt(o.GetAnnotations()[shoot.AnnotationGeneration], 10, 64) // none is 0
	return n
}

// errDisagree is why the fleet is not as it should be.
var errDisagree = errors.New("database and garden do not agree")

// agree is an error unless database and garden agree on all clusters.
func (e *editor) agree(ctx context.Context) (disagree map[*cluster]error, err error) {
	s, err := e.state(ctx)
	if err != nil {
		return nil, err
	}
	s.removed = e.api != nil
	disagree = map[*cluster]error{}
	for _, c := range e.clusters {
		if err := s.agrees(c); err != nil {
			disagree[c] = err
		}
	}
	if len(disagree) > 0 {
		return disagree, fmt.Errorf("%w on %d of %d clusters", errDisagree, len(disagree), len(e.clusters))
	}
	return nil, nil
}

// wantAgreement waits until database and garden agree on all clusters. Whoever
// is on call tries again what failed: the specified time to wait is a minute at
// least.
func (e *editor) wantAgreement() {
	e.Helper()
	e.awaitAgreement(patience, func() { e.retryFailed(e.Context()) })
}

// wantAgreementWithin is wantAgreement without anybody who retries, for some time.
func (e *editor) wantAgreementWithin(most time.Duration) {
	e.Helper()
	e.awaitAgreement(most, func() {})
}

func (e *editor) awaitAgreement(most time.Duration, meanwhile func()) {
	e.Helper()
	var disagree map[*cluster]error
	err := pollFor(e.Context(), most, func() (err error) {
		meanwhile()
		disagree, err = e.agree(e.Context())
		return err
	})
	if err == nil {
		return
	}
	shown := 0
	for c, reason := range disagree {
		e.Errorf("seed %d: cluster %s: %v", e.seed, c.name, reason)
		if shown++; shown <= 2 {
			e.Log(e.history(c.id))
		}
	}
	e.Fatal(err)
}

// retryFailed has all be tried again at once that failed and waits.
func (r *fixture) retryFailed(ctx context.Context) {
	_, _ = r.owner.Exec(ctx, `select tenant.retry_cluster_sync(cluster_id) from tenant.cluster_sync
		where synced is null and sync_error is not null and claim_token is null and due_at > now()`) // the next time does if this one fails
}

// history is all that is known of a cluster.
func (r *fixture) history(id string) string {
	ctx := context.WithoutCancel(r.Context())
	var out strings.Builder
	s, err := r.state(ctx)
	x := s.rows[id]
	fmt.Fprintf(&out, "seed %d, history of cluster %s, Shoot %s:\n%s", r.seed, id, x.ShootName, r.book.history(id, x.ShootName))
	fmt.Fprintf(&out, "its row: %+v (%v)\nits Shoots: %d\n", x, err, len(s.shoots[id]))
	for i := range s.shoots[id] {
		o := &s.shoots[id][i]
		fmt.Fprintf(&out, "  %s %s generation %d: %+v\n", o.GetName(), o.GetUID(), sentTo(o), madeOf(o))
	}
	for _, w := range r.workers {
		for _, p := range w.processes() {
			if text := p.about(id); text != "" {
				fmt.Fprintf(&out, "%s said of it:\n%s", p.name, text)
			}
		}
	}
	return out.String()
}

// noShoot is an error if there is a Shoot of a name.
func (r *fixture) noShoot(name string) error {
	_, err := r.shoots.Get(r.Context(), name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err == nil:
		return fmt.Errorf("Shoot %s is there", name)
	}
	return err
}
