package pgstore_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
)

func TestAClaimSaysWhatToDo(t *testing.T) {
	b := newBed(t)
	id := b.cluster("one")
	two, one := b.pool(id, "two"), b.pool(id, "one")
	gone := b.pool(id, "gone")
	b.exec(`update tenant.resources set deleted_time = now() where id = $1`, gone)

	begin := time.Now()
	got := b.claimOne()
	want := clusterworker.Claim{
		ClusterID: id, Generation: 5, ClusterGeneration: 1, Tenant: "a", Name: "one", Spec: json.RawMessage(`{"v": 1}`),
		Pools: []clusterworker.Pool{
			{ID: one, Name: "one", Spec: json.RawMessage(`{"replicas": 1}`)},
			{ID: two, Name: "two", Spec: json.RawMessage(`{"replicas": 1}`)},
		},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(clusterworker.Claim{}, "Token", "Until", "UnsyncedSince")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got.Token == 0 || got.UnsyncedSince.IsZero() || got.Until.Before(begin.Add(lease)) || got.Until.After(time.Now().Add(lease)) {
		t.Errorf("token %d, unsynced since %s, until %s", got.Token, got.UnsyncedSince, got.Until)
	}
	b.wantNothingDue("it is claimed")
	b.complete(done(got))
	b.wantNothingDue("it is synced")
}
