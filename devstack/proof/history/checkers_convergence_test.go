package history

import (
	"net/http"
	"testing"
)

// TestPlantedPools plants violations about node pools.
func TestPlantedPools(t *testing.T) {
	t.Parallel()
	add := func(more ...Record) []Record { return append(newHistory(), more...) }
	for name, test := range map[string]plantedViolation{
		"LostPoolUpdate": {
			"the sink was not told of the last update", CheckChangeEventsNotLost,
			without(newHistory(), func(r Record) bool { return r.Change != nil && r.Change.Time.Equal(at(17)) }), "received no shoot-updated",
		},
		"PoolWithoutEvent": {
			"a node pool needs an event, too", CheckWakeUps,
			without(newHistory(), func(r Record) bool { return r.Event != nil && r.Event.ClusterID == "p" }), "create-pool of blue-1-w (p): generation 1",
		},
		"StalePoolReport": {
			"an adapter never saw the last generation", CheckWakeUps,
			add(Record{Pool: &Pool{ID: "r", Name: "blue-3-w", Generation: 3, Reported: map[string]int64{"dns": 2, "gardener": 3}}}),
			"adapter dns reported generation 2, the last is 3",
		},
		"OtherWorkers": {
			"the edit of a node pool never arrived", CheckConvergence,
			add(Record{Pool: &Pool{ID: "p", Name: "blue-1-w", ClusterID: "a", Generation: 2, Machines: 4}}), "needs the workers map[blue-1-w:4]",
		},
		"WorkersOfADeletedPool": {
			"the deletion of a node pool never arrived", CheckConvergence,
			without(newHistory(), func(r Record) bool { return r.Pool != nil }), "needs the workers map[default:3]",
		},
		"LostPool": {
			"the database lost an acknowledged creation", CheckConvergence,
			without(newHistory(), func(r Record) bool { return r.Pool != nil }), "blue-1-w (p) is gone, although no user deleted it",
		},
		"StuckPool": {
			"a deletion ends", CheckConvergence,
			add(Record{Pool: &Pool{ID: "s", Name: "blue-1-x", ClusterID: "a", Deleting: true}}), "node pool blue-1-x (s) is still being deleted",
		},
		"PoolOfADeletedCluster": {
			"the deletion of a cluster deletes its node pools", CheckConvergence,
			add(Record{Pool: &Pool{ID: "q", Name: "green-2-w", ClusterID: "b"}}), "belongs to cluster b, which does not exist",
		},
		"LostPoolDeletion": {
			"the database lost an acknowledged deletion", CheckConvergence,
			add(Record{Request: &Request{Op: DeletePool, Name: "blue-1-w", Outcome: OK, ClusterID: "a", PoolID: "p", Generation: 2}}), "blue-1-w (p) exists, although its deletion",
		},
		"GapOfPools": {
			"no sentinel watches a node pool", CheckShardsCoverAll,
			without(newHistory(), func(r Record) bool {
				return r.Sentinel != nil && r.Sentinel.Collection == "nodepools" && r.Sentinel.Owned == 1
			}), "watch 0 nodepools in total, the API has 1",
		},
		"ForeignPoolWrite": {
			"a tenant changes a node pool of another's cluster", CheckTenants,
			add(Record{Request: &Request{Op: Trespass, Tenant: "green", Name: "blue-1-w", PoolID: "p", Outcome: OK}}), "tenant green changed blue-1-w",
		},
		"ForeignPoolRead": {
			"a tenant sees a node pool of another's cluster", CheckTenants,
			add(Record{Read: &Read{Tenant: "green", Names: []string{"blue-1-w"}}}), "tenant green read blue-1-w",
		},
	} {
		t.Run(name, test.run)
	}
}

// TestRepeatedDeletion holds that a deletion whose answer was lost counts, although its repetition was
// refused. A deletion that was sent once and finds nothing shows that the cluster was lost.
func TestRepeatedDeletion(t *testing.T) {
	t.Parallel()
	created := Record{Request: &Request{Op: Create, Name: "blue-9", Outcome: OK, ClusterID: "z", Generation: 1}}
	for _, test := range []struct{ sent, status, want int }{{2, http.StatusNotFound, 0}, {1, http.StatusNotFound, 1}, {2, http.StatusForbidden, 1}} {
		deleted := Record{Request: &Request{Op: Delete, Name: "blue-9", Outcome: Failed, Status: test.status, ClusterID: "z", Sent: test.sent}}
		if got := CheckConvergence(Config{}, append(newHistory(), created, deleted)).Violations; len(got) != test.want {
			t.Errorf("%+v: the violations are %q", test, got)
		}
	}
}
