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
	generations := map[string]int64{} // of clusters and node pools
	for _, r := range records {
		switch {
		case r.Cluster != nil:
			clusters[r.Cluster.ID] = r.Cluster
			generations[r.Cluster.ID] = r.Cluster.Generation
		case r.Pool != nil:
			pools[r.Pool.ID] = r.Pool
			generations[r.Pool.ID] = r.Pool.Generation
		case r.Shoot != nil:
			shoots[r.Shoot.ClusterID] = append(shoots[r.Shoot.ClusterID], r.Shoot)
		}
	}
	workers := workersByCluster(pools)
	for id, c := range clusters {
		res.Checked++
		checkShootOfCluster(&res, c, shoots[id], workers[id])
	}
	restore := findRestore(records)
	for id, list := range shoots {
		if clusters[id] == nil && !restore.isOrphan(list[0]) {
			res.fail("Shoot %s belongs to cluster %s, which does not exist", list[0].Name, id)
		}
	}
	checkNoPoolLeftBehind(&res, clusters, pools)
	checkAcknowledgedChangesKept(&res, generations, records)
	return res
}

// workersByCluster returns the numbers of machines by the names of the node pools.
func workersByCluster(pools map[string]*Pool) map[string]map[string]int {
	workers := map[string]map[string]int{}
	for _, p := range pools {
		if workers[p.ClusterID] == nil {
			workers[p.ClusterID] = map[string]int{}
		}
		workers[p.ClusterID][p.Name] = p.Machines
	}
	return workers
}

func checkShootOfCluster(res *Result, c *Cluster, shoots []*Shoot, workers map[string]int) {
	if len(workers) == 0 {
		workers = map[string]int{defaultWorkers: defaultMachines}
	}
	switch {
	case c.Deleting:
		res.fail("%s (%s) is still being deleted", c.Name, c.ID)
	case len(shoots) != 1:
		res.fail("%s (%s) has %d Shoots", c.Name, c.ID, len(shoots))
	case shoots[0].Generation != c.SyncGeneration:
		res.fail("%s (%s) has generation %d, its Shoot %s has %d", c.Name, c.ID, c.SyncGeneration, shoots[0].Name, shoots[0].Generation)
	case !maps.Equal(shoots[0].Workers, workers):
		res.fail("%s (%s) needs the workers %v, its Shoot %s has %v", c.Name, c.ID, workers, shoots[0].Name, shoots[0].Workers)
	}
}

func checkNoPoolLeftBehind(res *Result, clusters map[string]*Cluster, pools map[string]*Pool) {
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
	restore := findRestore(records)
	attempted := map[string]bool{}
	for _, r := range records {
		q := r.Request
		if !q.isDeletion() || restore.hasUndone(q) {
			continue
		}
		// A client that repeats a deletion whose answer was lost gets 404. If it gets that at once, the cluster was lost before.
		repeatsSuccess := q.Status == http.StatusNotFound && q.Sent > 1
		if q.Outcome != Failed || repeatsSuccess {
			attempted[q.resource()] = true
		}
	}
	for _, r := range records {
		q := r.Request
		if !q.acknowledged() || restore.hasLost(q) {
			continue
		}
		id := q.resource()
		generation, exists := generations[id]
		mayBeGone := attempted[id] || attempted[q.ClusterID]
		switch {
		case q.isDeletion() && exists:
			res.fail("%s (%s) exists, although its deletion was acknowledged at %s", q.Name, id, stamp(q.End))
		case q.isDeletion():
			// It is gone, as it should be.
		case !exists && !mayBeGone:
			res.fail("%s (%s) is gone, although no user deleted it; %s acknowledged at %s", q.Name, id, q.Op, stamp(q.End))
		case exists && generation < q.Generation:
			res.fail("%s (%s) has generation %d, although %d was acknowledged at %s", q.Name, id, generation, q.Generation, stamp(q.End))
		}
	}
}
