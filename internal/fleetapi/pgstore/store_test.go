package pgstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func newStore(t *testing.T) *pgstore.Store {
	t.Helper()
	return pgstore.New(pgtest.New(t))
}

func tenant(name string) fleetapi.Scope { return fleetapi.Scope{Tenant: name} }

func all() fleetapi.Scope { return fleetapi.Scope{All: true} }

// newRecord returns a row with all columns set.
func newRecord(tenantName, kind, name string) *fleetapi.Record {
	now := time.Date(2026, 3, 1, 12, 0, 0, 123000, time.UTC)
	return &fleetapi.Record{
		Key: fleetapi.Key{Kind: kind, ID: uuid.Must(uuid.NewV7()).String()},
		Content: fleetapi.Content{
			Name:        name,
			DisplayName: "The " + name,
			Labels:      json.RawMessage(`{"region": "eu"}`),
			Annotations: json.RawMessage(`{"note": "n\"1\""}`),
			Spec:        json.RawMessage(`{"b":1.00,  "a":"\u0000", "a":2}`), // jsonb would not keep this
		},
		Tenant:      tenantName,
		Generation:  1,
		CreatedTime: now,
		UpdatedTime: now,
		CreatedBy:   "ann",
		UpdatedBy:   "bob",
		Status: fleetapi.Status{
			Phase:              v1.PhasePending,
			LastUpdatedTime:    now,
			LastTransitionTime: now,
			Conditions:         json.RawMessage(`[]`),
		},
	}
}

func insert(t *testing.T, s *pgstore.Store, records ...*fleetapi.Record) {
	t.Helper()
	err := s.RunInTx(t.Context(), all(), func(ctx context.Context, tx fleetapi.Tx) error {
		for _, r := range records {
			if err := tx.InsertAndRecordResource(ctx, r); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// change locks one row and saves the changed row.
func change(t *testing.T, s *pgstore.Store, scope fleetapi.Scope, key fleetapi.Key, with func(*fleetapi.Locked) *v1.AdapterStatus) error {
	t.Helper()
	return s.RunInTx(t.Context(), scope, func(ctx context.Context, tx fleetapi.Tx) error {
		l, err := tx.LockAndReadResource(ctx, key)
		if err != nil {
			return err
		}
		return tx.SaveLockedResource(ctx, &l.Record, with(l))
	})
}

func mustGet(t *testing.T, s *pgstore.Store, key fleetapi.Key) fleetapi.Record {
	t.Helper()
	r, err := s.Get(t.Context(), all(), key)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// clone copies the data that a visit may not keep.
func clone(r *fleetapi.Record) fleetapi.Record {
	c := *r
	c.Annotations = slices.Clone(r.Annotations)
	c.Labels, c.Spec, c.Status.Conditions = slices.Clone(r.Labels), slices.Clone(r.Spec), slices.Clone(r.Status.Conditions)
	return c
}

func list(t *testing.T, s *pgstore.Store, scope fleetapi.Scope, q fleetapi.Query) []fleetapi.Record {
	t.Helper()
	var got []fleetapi.Record
	if q.Limit == 0 {
		q.Limit = 1000
	}
	_, err := s.List(t.Context(), scope, q, func(r *fleetapi.Record) error {
		got = append(got, clone(r))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestARecordComesBackAsItWentIn(t *testing.T) {
	s := newStore(t)
	parent := newRecord("a", v1.KindCluster, "one")
	child := newRecord("a", v1.KindNodePool, "pool")
	child.ParentID = parent.ID
	child.DeletedTime = child.CreatedTime.Add(time.Hour)
	child.DeletedBy = "cleo"
	child.Status.ObservedGeneration = 7
	child.Status.Conditions = json.RawMessage(`[{"type": "Reconciled", "status": "True"}]`)
	insert(t, s, parent, child)

	for _, want := range []*fleetapi.Record{parent, child} {
		if diff := cmp.Diff(*want, mustGet(t, s, want.Key)); diff != "" {
			t.Errorf("get %s (-want +got):\n%s", want.Kind, diff)
		}
		if diff := cmp.Diff([]fleetapi.Record{*want}, list(t, s, tenant("a"), fleetapi.Query{Kind: want.Kind})); diff != "" {
			t.Errorf("list %s (-want +got):\n%s", want.Kind, diff)
		}
	}
}

func TestNoSuchRow(t *testing.T) {
	s := newStore(t)
	r := newRecord("a", v1.KindCluster, "one")
	insert(t, s, r)
	cases := map[string]struct {
		reason string
		key    fleetapi.Key
	}{
		"Unknown":   {reason: "no row has the id", key: fleetapi.Key{Kind: v1.KindCluster, ID: uuid.NewString()}},
		"OtherKind": {reason: "the id is that of another kind", key: fleetapi.Key{Kind: v1.KindNodePool, ID: r.ID}},
		"NoUUID":    {reason: "what is not a UUID is nobody's id", key: fleetapi.Key{Kind: v1.KindCluster, ID: "one"}},
		"OddUUID":   {reason: "only the usual form is an id", key: fleetapi.Key{Kind: v1.KindCluster, ID: "{" + r.ID + "}"}},
		"NoKind":    {reason: "no such kind is kept", key: fleetapi.Key{Kind: "Nothing", ID: r.ID}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := s.Get(t.Context(), all(), tc.key); !errors.Is(err, fleetapi.ErrNotFound) {
				t.Errorf("get: %v: %s", err, tc.reason)
			}
			if _, err := s.ListReports(t.Context(), all(), tc.key); !errors.Is(err, fleetapi.ErrNotFound) {
				t.Errorf("reports: %v: %s", err, tc.reason)
			}
			err := change(t, s, all(), tc.key, func(*fleetapi.Locked) *v1.AdapterStatus { return nil })
			if !errors.Is(err, fleetapi.ErrNotFound) {
				t.Errorf("lock: %v: %s", err, tc.reason)
			}
		})
	}
}

func TestNamesAreTakenUntilDeletionIsAskedFor(t *testing.T) {
	s := newStore(t)
	parent, other := newRecord("a", v1.KindCluster, "one"), newRecord("a", v1.KindCluster, "two")
	pool := newRecord("a", v1.KindNodePool, "pool")
	pool.ParentID = parent.ID
	gone := newRecord("a", v1.KindCluster, "deleting")
	gone.DeletedTime = gone.CreatedTime
	insert(t, s, parent, other, pool, gone)

	under := func(r *fleetapi.Record, parent *fleetapi.Record) *fleetapi.Record {
		r.ParentID = parent.ID
		return r
	}
	cases := map[string]struct {
		reason string
		r      *fleetapi.Record
		want   error
	}{
		"Same":        {reason: "tenant, kind and name are the same", r: newRecord("a", v1.KindCluster, "one"), want: fleetapi.ErrNameTaken},
		"Deleting":    {reason: "the deletion of the other was asked for", r: newRecord("a", v1.KindCluster, "deleting")},
		"SameParent":  {reason: "the parent has such a child", r: under(newRecord("a", v1.KindNodePool, "pool"), parent), want: fleetapi.ErrNameTaken},
		"OtherParent": {reason: "names are the parent's", r: under(newRecord("a", v1.KindNodePool, "pool"), other)},
		"OtherTenant": {reason: "names are the tenant's", r: newRecord("b", v1.KindCluster, "one")},
		"OtherKind":   {reason: "names are the kind's", r: newRecord("a", v1.KindWorkload, "one")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := s.RunInTx(t.Context(), all(), func(ctx context.Context, tx fleetapi.Tx) error {
				return tx.InsertAndRecordResource(ctx, tc.r)
			})
			if !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v: %s", err, tc.want, tc.reason)
			}
		})
	}
}

func TestAChangeIsAllOrNothing(t *testing.T) {
	s := newStore(t)
	r := newRecord("a", v1.KindCluster, "one")
	insert(t, s, r)
	boom := errors.New("boom")
	err := s.RunInTx(t.Context(), all(), func(ctx context.Context, tx fleetapi.Tx) error {
		l, err := tx.LockAndReadResource(ctx, r.Key)
		if err != nil {
			return err
		}
		l.Record.Generation = 9
		return errors.Join(tx.SaveLockedResource(ctx, &l.Record, nil), boom)
	})
	if !errors.Is(err, boom) {
		t.Fatal(err)
	}
	if got := mustGet(t, s, r.Key).Generation; got != 1 {
		t.Errorf("generation is %d after a change that failed", got)
	}
}

func TestSaveWritesTheRowAndTheReport(t *testing.T) {
	s := newStore(t)
	r := newRecord("a", v1.KindCluster, "one")
	insert(t, s, r)
	later := r.CreatedTime.Add(time.Minute)
	want := *r
	want.Annotations = json.RawMessage(`{"other": ""}`)
	want.DisplayName, want.Labels, want.Spec = "Other", json.RawMessage(`{"a": "b"}`), json.RawMessage(`{"n": 2}`)
	want.Generation, want.UpdatedTime, want.UpdatedBy = 2, later, "dan"
	want.DeletedTime, want.DeletedBy = later, "eve"
	want.Status = fleetapi.Status{
		Phase: v1.PhaseFailed, ObservedGeneration: 2, LastUpdatedTime: later, LastTransitionTime: later,
		Conditions: json.RawMessage(`[{"type": "Reconciled"}]`),
	}
	status := v1.AdapterStatus{
		Adapter: "dns", ObservedGeneration: 2, Data: json.RawMessage(`{"zone":  "z"}`), Metadata: json.RawMessage(`{"job":1}`),
		Conditions: []v1.AdapterCondition{{
			ReportCondition:    v1.ReportCondition{Type: "Available", Status: v1.ConditionTrue, Reason: "Yes"},
			LastTransitionTime: later,
		}},
		CreatedTime: later, LastReportTime: later,
	}
	if err := change(t, s, tenant("a"), r.Key, func(l *fleetapi.Locked) *v1.AdapterStatus {
		l.Record = want
		return &status
	}); err != nil {
		t.Fatal(err)
	}
	saved := mustGet(t, s, r.Key)
	if saved.Revision <= r.Revision {
		t.Errorf("revision %d after %d", saved.Revision, r.Revision)
	}
	want.Revision = saved.Revision
	if diff := cmp.Diff(want, saved); diff != "" {
		t.Errorf("the row (-want +got):\n%s", diff)
	}
	got, err := s.ListReports(t.Context(), tenant("a"), r.Key)
	if diff := cmp.Diff([]v1.AdapterStatus{status}, got); diff != "" || err != nil {
		t.Errorf("the report, %v (-want +got):\n%s", err, diff)
	}

	// A second report of the same adapter replaces the first; a save without a new spec keeps the
	// spec.
	status.ObservedGeneration, status.Data = 3, nil
	if err := change(t, s, tenant("a"), r.Key, func(l *fleetapi.Locked) *v1.AdapterStatus {
		without := status
		without.Data, without.Metadata = nil, nil
		wantReports := []v1.AdapterStatus{{
			Adapter: "dns", ObservedGeneration: 2, Conditions: status.Conditions, CreatedTime: later, LastReportTime: later,
		}}
		if diff := cmp.Diff(wantReports, l.Reports); diff != "" {
			t.Errorf("reports under the lock (-want +got):\n%s", diff)
		}
		return &status
	}); err != nil {
		t.Fatal(err)
	}
	if got := mustGet(t, s, r.Key).Spec; string(got) != `{"n": 2}` {
		t.Errorf("the spec is now %s", got)
	}
	got, err = s.ListReports(t.Context(), tenant("a"), r.Key)
	if diff := cmp.Diff([]v1.AdapterStatus{status}, got); diff != "" || err != nil {
		t.Errorf("the second report, %v (-want +got):\n%s", err, diff)
	}
}

func TestSaveWantsTheLock(t *testing.T) {
	s := newStore(t)
	r := newRecord("a", v1.KindCluster, "one")
	insert(t, s, r)
	err := s.RunInTx(t.Context(), all(), func(ctx context.Context, tx fleetapi.Tx) error {
		return tx.SaveLockedResource(ctx, r, nil)
	})
	if err == nil {
		t.Error("a row was saved that nobody had locked")
	}
}

func TestRemoveTakesTheReportsAlong(t *testing.T) {
	s := newStore(t)
	r := newRecord("a", v1.KindCluster, "one")
	insert(t, s, r)
	if err := change(t, s, all(), r.Key, func(*fleetapi.Locked) *v1.AdapterStatus {
		return &v1.AdapterStatus{Adapter: "dns", CreatedTime: r.CreatedTime, LastReportTime: r.CreatedTime}
	}); err != nil {
		t.Fatal(err)
	}
	remove := func() error {
		return s.RunInTx(t.Context(), all(), func(ctx context.Context, tx fleetapi.Tx) error {
			return tx.DeleteAndRecordResource(ctx, r.Key)
		})
	}
	if err := remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), all(), r.Key); !errors.Is(err, fleetapi.ErrNotFound) {
		t.Errorf("get: %v", err)
	}
	if err := remove(); err == nil {
		t.Error("a row was removed twice")
	}
	// The name and the id are free again, and the old reports do not return.
	insert(t, s, r)
	if got, err := s.ListReports(t.Context(), all(), r.Key); err != nil || len(got) != 0 {
		t.Errorf("reports: %v, %v", got, err)
	}
}

func TestChildrenAreCountedAndLocked(t *testing.T) {
	s := newStore(t)
	parent := newRecord("a", v1.KindCluster, "one")
	pool, manifest, grandchild := newRecord("a", v1.KindNodePool, "p"), newRecord("a", v1.KindManifest, "m"), newRecord("a", v1.KindWorkload, "w")
	pool.ParentID, manifest.ParentID, grandchild.ParentID = parent.ID, parent.ID, pool.ID
	pool.DeletedTime = pool.CreatedTime
	insert(t, s, parent, pool, manifest, grandchild)
	if err := change(t, s, all(), manifest.Key, func(*fleetapi.Locked) *v1.AdapterStatus {
		return &v1.AdapterStatus{Adapter: "dns", ObservedGeneration: 4, CreatedTime: parent.CreatedTime, LastReportTime: parent.CreatedTime}
	}); err != nil {
		t.Fatal(err)
	}
	err := s.RunInTx(t.Context(), tenant("a"), func(ctx context.Context, tx fleetapi.Tx) error {
		now, err := tx.ReadBeginTime(ctx)
		if err != nil {
			return err
		}
		l, err := tx.LockAndReadResource(ctx, parent.Key)
		if err != nil {
			return err
		}
		if l.Children != 2 {
			t.Errorf("%d children, want 2: one that is being deleted is still there", l.Children)
		}
		if l.Now.Before(now) {
			t.Errorf("the clock under the lock, %s, is before the transaction's, %s", l.Now, now)
		}
		children, err := tx.LockAndReadChildren(ctx, parent.Key)
		if err != nil {
			return err
		}
		type child struct {
			Key      fleetapi.Key
			Children int
			Reports  int
		}
		var got []child
		for _, c := range children {
			got = append(got, child{c.Record.Key, c.Children, len(c.Reports)})
			if err := tx.SaveLockedResource(ctx, &c.Record, nil); err != nil {
				t.Errorf("save a child: %v", err)
			}
		}
		want := []child{{pool.Key, 1, 0}, {manifest.Key, 0, 1}} // by id, which is by age
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("children (-want +got):\n%s", diff)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAChildNeedsAParentInScope(t *testing.T) {
	s := newStore(t)
	foreign := newRecord("b", v1.KindCluster, "one")
	insert(t, s, foreign)
	child := newRecord("a", v1.KindNodePool, "pool")
	child.ParentID = foreign.ID
	err := s.RunInTx(t.Context(), tenant("a"), func(ctx context.Context, tx fleetapi.Tx) error {
		return tx.InsertAndRecordResource(ctx, child)
	})
	if err == nil {
		t.Error("a row was put under a parent of another tenant")
	}
}
