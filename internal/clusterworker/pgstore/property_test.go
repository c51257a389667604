package pgstore_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
)

// A world is the expected state of the clusters and claims of one run.
type world struct {
	*bed
	ids        []string
	generation map[string]int64
	deleting   map[string]bool
	paused     map[string]bool
	claims     []clusterworker.Claim // all claims so far
	live       map[string]int64      // tokens of valid claims, by cluster
	over       map[string]bool       // those whose lease is over
	token      int64                 // the highest
	made       int
}

// TestWhateverHappens covers, for any actions of users, workers and time: a row that is
// marked as synced was sent as it is; no row has two claims; an overtaken claim changes
// nothing; and no work is forgotten.
func TestWhateverHappens(t *testing.T) {
	b := newBed(t)
	fence := b.lead("me").Fence
	rapid.Check(t, func(rt *rapid.T) {
		b.exec(`delete from tenant.resources`)
		w := &world{bed: b, generation: map[string]int64{}, deleting: map[string]bool{}, paused: map[string]bool{}, live: map[string]int64{}, over: map[string]bool{}}
		rt.Repeat(map[string]func(*rapid.T){
			"": w.check,
			"add": func(*rapid.T) {
				w.made++
				id := w.cluster(fmt.Sprintf("c%d", w.made))
				w.ids, w.generation[id] = append(w.ids, id), 1
			},
			"edit": func(rt *rapid.T) {
				id := w.one(rt)
				w.edit(id)
				w.generation[id]++
			},
			"addPool": func(rt *rapid.T) {
				id := w.one(rt)
				w.made++
				w.pool(id, fmt.Sprintf("p%d", w.made))
				w.generation[id]++
			},
			"softDelete": func(rt *rapid.T) {
				id := w.one(rt)
				if w.deleting[id] {
					rt.Skip("it is to go already")
				}
				w.exec(`update tenant.resources set deleted_time = now() where id = $1`, id)
				w.deleting[id] = true
				w.generation[id]++
			},
			"report":  func(rt *rapid.T) { w.exec(`update tenant.resources set phase = 'Ready' where id = $1`, w.one(rt)) },
			"claim":   w.claimSome,
			"succeed": func(rt *rapid.T) { w.finish(rt, done) },
			"fail": func(rt *rapid.T) {
				w.finish(rt, func(c clusterworker.Claim) clusterworker.Result {
					delay := time.Duration(rapid.SampledFrom([]int64{0, int64(lease)}).Draw(rt, "delay"))
					return failed(c, "no", rapid.Bool().Draw(rt, "spend"), delay)
				})
			},
			"release": func(rt *rapid.T) {
				c := w.oneClaim(rt)
				if err := w.store.ReleaseClaims(w.Context(), []clusterworker.Claim{c}); err != nil {
					rt.Fatal(err)
				}
				if w.live[c.ClusterID] == c.Token {
					w.end(c.ClusterID)
				}
			},
			"timePasses": func(rt *rapid.T) {
				id := w.one(rt)
				w.exec(`update tenant.cluster_sync set due_at = least(due_at, now()) where cluster_id = $1`, id)
				w.over[id] = true
			},
			"retry": func(rt *rapid.T) { w.exec(`select tenant.retry_cluster_sync($1)`, w.one(rt)) },
			"pause": func(rt *rapid.T) {
				id := w.one(rt)
				w.exec(`select tenant.pause_cluster_sync($1)`, id)
				w.paused[id] = true
			},
			"resume": func(rt *rapid.T) {
				id := w.one(rt)
				w.exec(`select tenant.resume_cluster_sync($1)`, id)
				delete(w.paused, id)
			},
			"requeue": func(rt *rapid.T) {
				if _, err := w.store.Observations.RequeueSynced(w.Context(), fence, []string{w.one(rt)}); err != nil {
					rt.Fatal(err)
				}
			},
		})
		w.drain(rt)
	})
}

// one draws a cluster.
func (w *world) one(rt *rapid.T) string {
	if len(w.ids) == 0 {
		rt.Skip("there is none")
	}
	return rapid.SampledFrom(w.ids).Draw(rt, "cluster")
}

// oneClaim draws a claim, possibly an old one.
func (w *world) oneClaim(rt *rapid.T) clusterworker.Claim {
	if len(w.claims) == 0 {
		rt.Skip("there is none")
	}
	return rapid.SampledFrom(w.claims).Draw(rt, "claim")
}

// end removes a claim.
func (w *world) end(id string) {
	delete(w.live, id)
	delete(w.over, id)
}

func (w *world) claimSome(rt *rapid.T) {
	claims, err := w.store.ClaimRows(w.Context(), "test", room(rapid.IntRange(1, 4).Draw(rt, "slots")), lease)
	if err != nil {
		rt.Fatal(err)
	}
	highest := w.token
	for _, c := range claims {
		if _, claimed := w.live[c.ClusterID]; claimed && !w.over[c.ClusterID] {
			rt.Errorf("%s was claimed twice", c.ClusterID)
		}
		if c.Token <= w.token {
			rt.Errorf("token %d after %d", c.Token, w.token)
		}
		if w.paused[c.ClusterID] {
			rt.Errorf("%s was claimed although it is paused", c.ClusterID)
		}
		if c.Generation != w.generation[c.ClusterID] || c.Deleting != w.deleting[c.ClusterID] {
			rt.Errorf("claimed generation %d, deleting %v; it is %d, %v", c.Generation, c.Deleting, w.generation[c.ClusterID], w.deleting[c.ClusterID])
		}
		highest = max(highest, c.Token)
		w.end(c.ClusterID)
		w.live[c.ClusterID] = c.Token
		w.claims = append(w.claims, c)
	}
	w.token = highest
}

// finish completes one or two claims, some possibly overtaken.
func (w *world) finish(rt *rapid.T, result func(clusterworker.Claim) clusterworker.Result) {
	claims := []clusterworker.Claim{w.oneClaim(rt), w.oneClaim(rt)}
	if claims[0].Token == claims[1].Token {
		claims = claims[:1]
	}
	var results []clusterworker.Result
	var wantLost []string
	for _, c := range claims {
		results = append(results, result(c))
		if w.live[c.ClusterID] == c.Token {
			w.end(c.ClusterID)
			continue
		}
		wantLost = append(wantLost, c.ClusterID)
	}
	lost, err := w.store.WriteResults(w.Context(), results)
	if err != nil {
		rt.Fatal(err)
	}
	slices.Sort(lost)
	slices.Sort(wantLost)
	if !slices.Equal(lost, wantLost) {
		rt.Errorf("lost %v, want %v", lost, wantLost)
	}
}

// check compares the rows with their expected state.
func (w *world) check(rt *rapid.T) {
	rows, err := w.store.Observations.ListRowsOfClusters(w.Context(), w.ids)
	if err != nil {
		rt.Fatal(err)
	}
	if len(rows) != len(w.ids) {
		rt.Errorf("%d rows of %d clusters", len(rows), len(w.ids))
	}
	for _, r := range rows {
		if r.Generation != w.generation[r.ClusterID] {
			rt.Errorf("generation %d, want %d", r.Generation, w.generation[r.ClusterID])
		}
		if r.Synced && r.SyncedGeneration != r.Generation {
			rt.Errorf("synced at generation %d of %d", r.SyncedGeneration, r.Generation)
		}
	}
	if odd := ask[int](w.bed, `select count(*)::int from tenant.cluster_sync
		where (synced is null) <> (unsynced_since is not null) or synced is not null and claim_token is not null or (claim_token is null) <> (claimed_by is null)`); odd != 0 {
		rt.Errorf("%d rows contradict themselves", odd)
	}
}

// drain lets time pass and ends pauses: then all work is done.
func (w *world) drain(rt *rapid.T) {
	w.exec(`update tenant.cluster_sync set due_at = least(due_at, now()), paused_at = null`)
	for _, c := range w.claim(len(w.ids)) {
		w.complete(done(c))
	}
	rows, err := w.store.Observations.ListRowsOfClusters(w.Context(), w.ids)
	if err != nil {
		rt.Fatal(err)
	}
	for _, r := range rows {
		if !r.Synced || r.SyncedGeneration != w.generation[r.ClusterID] {
			rt.Errorf("in the end, synced is %v at generation %d of %d", r.Synced, r.SyncedGeneration, w.generation[r.ClusterID])
		}
	}
}
