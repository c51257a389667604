package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/devstack/proof/history"
)

// nameOf returns the name of a cluster.
func (w *workload) nameOf(cluster int) string {
	return fmt.Sprintf("%s-%d", w.tenants[cluster], cluster)
}

// reloadIDs replaces the ids that users know by those that the API lists. It returns the clusters that are gone, although
// their creation was acknowledged.
func (w *workload) reloadIDs(ctx context.Context, viewer *fleetclient.Client) (lostClusters []int, err error) {
	w.mu.Lock()
	clusters, pools := slices.Clone(w.ids), slices.Clone(w.pools)
	w.mu.Unlock()
	byName := map[string]string{}
	for _, collection := range collections() {
		for r, err := range viewer.Collection(collection).List(ctx, fleetclient.ListOptions{}) {
			if err != nil {
				return nil, err
			}
			byName[r.Name] = r.ID
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range clusters {
		name := w.nameOf(i)
		// A change since the list is newer.
		if w.ids[i] == clusters[i] {
			w.ids[i] = byName[name]
			if clusters[i] != "" && w.ids[i] == "" && !w.deleted[i] {
				lostClusters = append(lostClusters, i)
			}
		}
		if w.pools[i] == pools[i] {
			w.pools[i] = byName[name+"-w"]
		}
	}
	return lostClusters, nil
}

// deleteAgain deletes those of some clusters that users had deleted before a restore.
func (w *workload) deleteAgain(ctx context.Context, ids []string) {
	w.sendAll(ctx, history.Delete, w.findDeleted(ids))
}

// createAgain creates every second one of some lost clusters again.
func (w *workload) createAgain(ctx context.Context, lost []int) {
	w.sendAll(ctx, history.Create, slices.DeleteFunc(slices.Clone(lost), func(cluster int) bool { return cluster%2 == 0 }))
}

// findDeleted returns those of some clusters that users have deleted.
func (w *workload) findDeleted(ids []string) (clusters []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, id := range w.ids {
		if w.deleted[i] && slices.Contains(ids, id) {
			clusters = append(clusters, i)
		}
	}
	return clusters
}

// sendAll sends one operation on each of some clusters.
func (w *workload) sendAll(ctx context.Context, op string, clusters []int) {
	var requests sync.WaitGroup
	defer requests.Wait()
	for _, i := range clusters {
		requests.Go(func() { w.sendAndRecord(ctx, operation{op: op, cluster: i}, time.Now()) })
	}
}
