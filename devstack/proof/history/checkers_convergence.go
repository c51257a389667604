package history

import (
	"maps"
	"net/http"
)

// The worker group of a Shoot whose cluster has no node pools.
const (
	defaultWorkers  = "default"
	defaultMachines = 3
)

// CheckConvergence checks R5: at the end each cluster has one Shoot of its last generation, with the workers
// of its node pools, and no other Shoot exists. Acknowledged deletions are complete; acknowledged clusters and
// node pools exist unless they were deleted.
func CheckConvergence(_ Config, records []Record) Result {
	res := Result{Promise: "R5 sync converges"}
	clusters, pools, shoots := map[string]*Cluster{}, map[string]*Pool{}, map[string][]*Shoot{}
	workers := map[string]map[string]int{} // by cluster
	for _, r := range records {
		if r.Cluster != nil {
			clusters[r.Cluster.ID] = r.Cluster
		}
		if p := r.Pool; p != nil {
			pools[p.ID] = p
			if workers[p.ClusterID] == nil {
				workers[p.ClusterID] = map[string]int{}
			}
			workers[p.ClusterID][p.Name] = p.Machines
		}
		if r.Shoot != nil {
			shoots[r.Shoot.ClusterID] = append(shoots[r.Shoot.ClusterID], r.Shoot)
		}
	}
	for id, c := range clusters {
		res.Checked++
		list, want := shoots[id], workers[id]
		if len(want) == 0 {
			want = map[string]int{defaultWorkers: defaultMachines}
		}
		switch {
		case c.Deleting:
			res.fail("%s (%s) is still being deleted", c.Name, id)
		case len(list) != 1:
			res.fail("%s (%s) has %d Shoots", c.Name, id, len(list))
		case list[0].Generation != c.SyncGeneration:
			res.fail("%s (%s) has generation %d, its Shoot %s has %d", c.Name, id, c.SyncGeneration, list[0].Name, list[0].Generation)
		case !maps.Equal(list[0].Workers, want):
			res.fail("%s (%s) needs the workers %v, its Shoot %s has %v", c.Name, id, want, list[0].Name, list[0].Workers)
		}
	}
	for id, list := range shoots {
		if clusters[id] == nil {
			res.fail("Shoot %s belongs to cluster %s, which does not exist", list[0].Name, id)
		}
	}
	checkPoolsNotOrphaned(&res, clusters, pools)
	generations := map[string]int64{}
	for id, c := range clusters {
		generations[id] = c.Generation
	}
	for id, p := range pools {
		generations[id] = p.Generation
	}
	checkAcknowledgedChangesKept(&res, generations, records)
	return res
}

func checkPoolsNotOrphaned(res *Result, clusters map[string]*Cluster, pools map[string]*Pool) {
	for id, p := range pools {
		res.Checked++
		switch {
		case p.Deleting:
			res.fail("node pool %s (%s) is still being deleted", p.Name, id)
		case clusters[p.ClusterID] == nil:
			res.fail("node pool %s belongs to cluster %s, which does not exist", p.Name, p.ClusterID)
		}
	}
}

// checkAcknowledgedChangesKept compares the clusters and node pools at the end with what the API acknowledged. A cluster
// is deleted with its node pools.
func checkAcknowledgedChangesKept(res *Result, generations map[string]int64, records []Record) {
	attempted := map[string]bool{}
	for _, r := range records {
		// A client that repeats a deletion whose answer was lost gets 404. If it gets that at once, the cluster was lost before.
		if q := r.Request; q != nil && (q.Op == Delete || q.Op == DeletePool) && (q.Outcome != Failed || q.Status == http.StatusNotFound && q.Sent > 1) {
			attempted[q.resource()] = true
		}
	}
	for _, r := range records {
		q := r.Request
		if !q.acknowledged() {
			continue
		}
		id := q.resource()
		generation, exists := generations[id]
		deletion := q.Op == Delete || q.Op == DeletePool
		switch {
		case deletion && exists:
			res.fail("%s (%s) exists, although its deletion was acknowledged at %s", q.Name, id, stamp(q.End))
		case !deletion && !exists && !attempted[id] && !attempted[q.ClusterID]:
			res.fail("%s (%s) is gone, although no user deleted it; %s acknowledged at %s", q.Name, id, q.Op, stamp(q.End))
		case !deletion && exists && generation < q.Generation:
			res.fail("%s (%s) has generation %d, although %d was acknowledged at %s", q.Name, id, generation, q.Generation, stamp(q.End))
		}
	}
}
