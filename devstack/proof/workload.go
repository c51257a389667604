package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http/httptrace"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/devstack/proof/history"
)

const (
	// Of the duration, the creations take createShare; edits and deletions go on to the end.
	createShare = 0.5
	// editsPerCluster and deletedShare are the amounts of the other operations.
	editsPerCluster = 2
	deletedShare    = 0.1
	greenShare      = 0.2
	trespasses      = 20 // half of them on node pools
	// Of the clusters, poolShare have a node pool, which is edited, and deletedPoolShare of them is deleted.
	poolShare        = 0.5
	editsPerPool     = 2
	deletedPoolShare = 0.2
	maxMachines      = 5

	readEvery = 2 * time.Second
	// requestBound is the patience of a user, including all retries.
	requestBound = time.Minute
)

// An operation is one entry of the schedule.
type operation struct {
	at      time.Duration // since the start
	op      string
	cluster int
	number  int  // of the edit
	pool    bool // on the node pool of the cluster
}

// newSchedule returns the operations of a seed, in the order of their times.
func newSchedule(p plan) []operation {
	dice := rand.New(rand.NewPCG(p.seed, 1)) //nolint:gosec // a schedule, not a secret
	var list []operation
	created := make([]time.Duration, p.clusters)
	after := func(i int) time.Duration {
		return created[i] + time.Duration(dice.Int64N(int64(p.duration-created[i])))
	}
	for i := range created {
		created[i] = time.Duration(float64(p.duration) * createShare * dice.Float64())
		list = append(list, operation{at: created[i], op: history.Create, cluster: i})
		if dice.Float64() < deletedShare {
			list = append(list, operation{at: after(i), op: history.Delete, cluster: i})
		}
	}
	for n := range editsPerCluster * p.clusters {
		i := dice.IntN(p.clusters)
		list = append(list, operation{at: after(i), op: history.Edit, cluster: i, number: n})
	}
	for n := range trespasses {
		i := dice.IntN(p.clusters)
		list = append(list, operation{at: after(i), op: history.Trespass, cluster: i, pool: n%2 == 0})
	}
	for i := range created {
		if dice.Float64() >= poolShare {
			continue
		}
		begin := after(i)
		later := func() time.Duration { return begin + time.Duration(dice.Int64N(int64(p.duration-begin))) }
		list = append(list, operation{at: begin, op: history.CreatePool, cluster: i, number: i, pool: true})
		for range editsPerPool {
			list = append(list, operation{at: later(), op: history.EditPool, cluster: i, number: dice.IntN(maxMachines), pool: true})
		}
		if dice.Float64() < deletedPoolShare {
			list = append(list, operation{at: later(), op: history.DeletePool, cluster: i, pool: true})
		}
	}
	slices.SortStableFunc(list, func(a, b operation) int { return int(a.at - b.at) })
	return list
}

// A workload sends the operations of a schedule at their times, whether or not earlier ones have ended.
type workload struct {
	file    *history.File
	clients map[string]*fleetclient.Client // by tenant
	tenants []string                       // of the clusters

	mu    sync.Mutex
	ids   []string // of the clusters; empty if not acknowledged
	pools []string // of their node pools; empty if not acknowledged

	deleted map[int]bool // clusters whose deletion was acknowledged or may have had an effect

	sent, failed, unknown, pending, skipped atomic.Int64
}

func (t *topology) newWorkload(p plan) (*workload, error) {
	w := &workload{
		file:    t.file,
		clients: map[string]*fleetclient.Client{},
		ids:     make([]string, p.clusters),
		pools:   make([]string, p.clusters),
		deleted: map[int]bool{},
	}
	dice := rand.New(rand.NewPCG(p.seed, 2)) //nolint:gosec // a schedule, not a secret
	for range p.clusters {
		tenant := tenantBlue
		if dice.Float64() < greenShare {
			tenant = tenantGreen
		}
		w.tenants = append(w.tenants, tenant)
	}
	for _, tenant := range []string{tenantBlue, tenantGreen} {
		c, err := t.newClient(tenant)
		if err != nil {
			return nil, err
		}
		w.clients[tenant] = c
	}
	return w, nil
}

// run sends the operations, and returns when all have ended. Requests end at their own bound, also after
// the end of ctx.
func (w *workload) run(ctx context.Context, schedule []operation) {
	var requests sync.WaitGroup
	defer requests.Wait()
	began := time.Now()
	for _, o := range schedule {
		intended := began.Add(o.at)
		if !pauseFor(ctx, time.Until(intended)) {
			return
		}
		w.pending.Add(1)
		requests.Go(func() {
			defer w.pending.Add(-1)
			w.sendAndRecord(context.WithoutCancel(ctx), o, intended)
		})
	}
}

// recordListsUntilDone lists the clusters and node pools of each tenant until ctx ends.
func (w *workload) recordListsUntilDone(ctx context.Context) {
	for pauseFor(ctx, readEvery) {
		for tenant, c := range w.clients {
			for _, collection := range collections() {
				read := &history.Read{Tenant: tenant}
				for r, err := range c.Collection(collection).List(ctx, fleetclient.ListOptions{}) {
					if err != nil {
						break
					}
					read.Names = append(read.Names, r.Name)
				}
				w.file.Add(history.Record{Read: read})
			}
		}
	}
}

// newRequest returns the request of an operation. known is false if its user does not know an id that it
// needs, because the creation was not yet acknowledged.
func (w *workload) newRequest(o operation) (q *history.Request, idsKnown bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	tenant := w.tenants[o.cluster]
	q = &history.Request{Op: o.op, Tenant: tenant, Name: w.nameOf(o.cluster), ClusterID: w.ids[o.cluster]}
	idsKnown = o.op == history.Create || q.ClusterID != ""
	if o.pool {
		q.Name += "-w"
		q.PoolID = w.pools[o.cluster]
		idsKnown = idsKnown && (o.op == history.CreatePool || q.PoolID != "")
	}
	if o.op == history.Trespass {
		q.Tenant = tenantGreen
		if tenant == tenantGreen {
			q.Tenant = tenantBlue
		}
	}
	return q, idsKnown
}

// storeIDsAndGeneration keeps the id of what a request created, or the generation that it changed.
func (w *workload) storeIDsAndGeneration(o operation, q *history.Request, r v1.Resource) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q.Generation = r.Generation
	if o.pool {
		q.PoolID, w.pools[o.cluster] = r.ID, r.ID
		return
	}
	q.ClusterID, w.ids[o.cluster] = r.ID, r.ID
}

// sendAndRecord sends one operation and records it. An operation on something whose creation was not yet
// acknowledged is skipped.
func (w *workload) sendAndRecord(ctx context.Context, o operation, intended time.Time) {
	ctx, cancel := context.WithTimeout(ctx, requestBound)
	defer cancel()
	q, known := w.newRequest(o)
	if !known {
		w.skipped.Add(1)
		return
	}
	q.Intended, q.Start = intended, time.Now()
	var sent atomic.Int64 // also by the transport, which repeats a request if the connection was closed
	r, err := w.call(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Add(1) }}), o, q)
	q.End, q.Sent = time.Now(), int(sent.Load())
	q.Outcome, q.Status = classify(err)
	w.sent.Add(1)
	if o.op == history.Delete && q.Outcome != history.Failed {
		w.mu.Lock()
		w.deleted[o.cluster] = true
		w.mu.Unlock()
	}
	switch {
	case err == nil:
		w.storeIDsAndGeneration(o, q, r)
	case q.Outcome == history.Failed:
		w.failed.Add(1)
		q.Error = err.Error()
	default:
		w.unknown.Add(1)
		q.Error = err.Error()
	}
	w.file.Add(history.Record{At: q.End, Request: q})
}

func (w *workload) call(ctx context.Context, o operation, q *history.Request) (v1.Resource, error) {
	c := w.clients[q.Tenant]
	switch o.op {
	case history.Create:
		return c.Clusters().
			Create(ctx, v1.CreateRequest{Name: q.Name, Labels: map[string]string{"region": "local"}, Spec: json.RawMessage(`{"version": "1.34.1"}`)})
	case history.CreatePool:
		pools := c.Collection(fleetclient.Nested(v1.CollectionClusters, q.ClusterID, v1.CollectionNodePools))
		return pools.Create(ctx, v1.CreateRequest{Name: q.Name, Spec: poolSpec(o)})
	case history.Delete:
		return c.Clusters().Delete(ctx, q.ClusterID)
	case history.DeletePool:
		return c.NodePools().Delete(ctx, q.PoolID)
	}
	if o.pool {
		return c.NodePools().Patch(ctx, q.PoolID, v1.PatchRequest{Spec: poolSpec(o)})
	}
	return c.Clusters().
		Patch(ctx, q.ClusterID, v1.PatchRequest{Spec: fmt.Appendf(nil, `{"version": "1.34.%d", "edit": %d}`, 2+o.number%2, o.number)})
}

func poolSpec(o operation) json.RawMessage {
	return fmt.Appendf(nil, `{"replicas": %d}`, 1+o.number%maxMachines)
}

// classify returns the outcome of a request. After an error of the server or without an answer it may
// have had an effect.
func classify(err error) (outcome string, status int) {
	if err == nil {
		return history.OK, 200
	}
	e, ok := errors.AsType[*fleetclient.Error](err)
	switch {
	case !ok:
		return history.Unknown, 0
	case e.Status >= 400 && e.Status < 500:
		return history.Failed, e.Status
	}
	return history.Unknown, e.Status
}
