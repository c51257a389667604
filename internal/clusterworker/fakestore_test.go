package clusterworker

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"
)

// A fakeRow is a row of cluster_sync with its cluster.
type fakeRow struct {
	id, spec            string
	deleting            bool
	generation          int64
	synced              bool
	syncedGeneration    int64
	shootGeneration     int64
	dueAt               time.Time
	token               int64 // 0 is none
	owner               string
	attempts            int
	err                 string
	class               ErrorClass
	shootName, shootUID string
	reportedShootUID    string
	deletionSent        bool
	gone                bool
	unsyncedSince       time.Time
	pausedUntil         time.Time // zero: not paused
	locked              bool      // gets no name
}

// A fakeStore keeps rows in memory, under the rules of the database: leases, fences,
// generations, unique names.
type fakeStore struct {
	mu    sync.Mutex
	rows  map[string]*fakeRow
	token int64

	// fault is called before each request, and wrote after it was carried out; the
	// request returns the error of either.
	fault, wrote func(context.Context, requestKind) error
	// notify is called for each change; it may be nil.
	notify func()

	claimed    []int // rows of each claim
	claimTimes []time.Time
	asked      map[requestKind]int
	batches    []int
	released   []string
	creations  []Change          // of RecordCreation
	outages    map[string]Outage // by worker
	lost       int
}

func newFakeStore() *fakeStore {
	return &fakeStore{rows: map[string]*fakeRow{}, asked: map[requestKind]int{}, outages: map[string]Outage{}}
}

func (s *fakeStore) before(ctx context.Context, r requestKind) error {
	s.mu.Lock()
	s.asked[r]++
	fault := s.fault
	s.mu.Unlock()
	if fault != nil {
		if err := fault(ctx, r); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

func (s *fakeStore) after(ctx context.Context, r requestKind) error {
	s.mu.Lock()
	wrote := s.wrote
	s.mu.Unlock()
	if wrote == nil {
		return nil
	}
	return wrote(ctx, r)
}

func (s *fakeStore) setFault(fault func(context.Context, requestKind) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

func (s *fakeStore) ClaimRows(ctx context.Context, owner string, limits ClaimLimits, lease time.Duration) (claims []Claim, err error) {
	began := time.Now()
	if err := s.before(ctx, toClaim); err != nil {
		return nil, err
	}
	list := s.claim(owner, limits, lease, began)
	return list, s.after(ctx, toClaim)
}

func (s *fakeStore) claim(owner string, room ClaimLimits, lease time.Duration, began time.Time) []Claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var due []*fakeRow
	for _, r := range s.rows {
		if !r.synced && !r.dueAt.After(now) && !r.pausedUntil.After(now) {
			due = append(due, r)
		}
	}
	slices.SortFunc(due, func(a, b *fakeRow) int {
		if c := a.dueAt.Compare(b.dueAt); c != 0 {
			return c
		}
		return strings.Compare(a.id, b.id)
	})
	timedOut := 0
	due = slices.DeleteFunc(due, func(r *fakeRow) bool {
		if r.class == ClassTimeout {
			timedOut++
		}
		return r.class == ClassTimeout && timedOut > room.TimedOut
	})
	due = due[:min(len(due), room.Slots)]
	list := make([]Claim, 0, len(due))
	for _, r := range due {
		s.token++
		r.token, r.owner, r.dueAt = s.token, owner, now.Add(lease)
		list = append(list, Claim{
			ClusterID: r.id, Token: r.token, Until: began.Add(lease), Generation: r.generation, ClusterGeneration: r.generation,
			Attempts: r.attempts, LastClass: r.class, UnsyncedSince: r.unsyncedSince, Tenant: "acme", Name: r.id, Spec: json.RawMessage(r.spec),
			Deleting: r.deleting, ShootName: r.shootName, ShootUID: r.shootUID, ReportedShootUID: r.reportedShootUID, SyncedGeneration: r.syncedGeneration, ShootGeneration: r.shootGeneration,
		})
	}
	s.claimed = append(s.claimed, len(list))
	s.claimTimes = append(s.claimTimes, began)
	return list
}

func (s *fakeStore) StoreNames(ctx context.Context, names []ProposedName) (taken, skipped []ProposedName, err error) {
	if err := s.before(ctx, toName); err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	used := map[string]string{}
	for _, r := range s.rows {
		used[r.shootName] = r.id
	}
	for _, n := range names {
		r := s.rows[n.ClusterID]
		if r == nil || r.token != n.Token || r.locked {
			skipped = append(skipped, n)
			continue
		}
		if other, ok := used[n.ShootName]; ok && other != n.ClusterID {
			taken = append(taken, n)
			continue
		}
		r.shootName = n.ShootName
		used[n.ShootName] = n.ClusterID
	}
	s.mu.Unlock()
	return taken, skipped, s.after(ctx, toName)
}

func (s *fakeStore) WriteResults(ctx context.Context, results []Result) ([]string, error) {
	if err := s.before(ctx, toComplete); err != nil {
		return nil, err
	}
	s.mu.Lock()
	var lost []string
	for _, res := range results {
		r := s.rows[res.ClusterID]
		if r == nil || r.token != res.Token {
			lost = append(lost, res.ClusterID)
			s.lost++
			continue
		}
		r.complete(res)
	}
	s.batches = append(s.batches, len(results))
	s.mu.Unlock()
	return lost, s.after(ctx, toComplete)
}

func (r *fakeRow) complete(res Result) {
	now := time.Now()
	same := r.generation == res.Generation
	r.token, r.owner, r.dueAt = 0, "", now
	if res.Err != nil {
		r.err, r.class = res.Err.Error(), res.Class
		if same {
			r.dueAt = now.Add(res.Delay)
			if res.CountsAttempt {
				r.attempts++
			}
		}
		return
	}
	r.err, r.class, r.attempts = "", "", 0
	r.syncedGeneration = res.Generation
	if same {
		r.synced, r.unsyncedSince = true, time.Time{}
	}
	if res.Applied.UID != "" {
		r.shootUID, r.reportedShootUID = res.Applied.UID, res.Applied.UID
	}
	if res.Deleting {
		r.deletionSent, r.gone = true, res.Absent
	} else {
		r.shootGeneration = res.Applied.Generation
	}
}

func (s *fakeStore) RecordCreation(ctx context.Context, claim Claim, change Change) (bool, error) {
	if err := s.before(ctx, toRecordCreation); err != nil {
		return false, err
	}
	s.mu.Lock()
	r := s.rows[claim.ClusterID]
	stands := r != nil && r.token == claim.Token
	if stands && r.reportedShootUID != claim.ReportedShootUID {
		r.shootUID, r.reportedShootUID = claim.ReportedShootUID, claim.ReportedShootUID
		s.creations = append(s.creations, change)
	}
	s.mu.Unlock()
	return stands, s.after(ctx, toRecordCreation)
}

func (s *fakeStore) ReleaseClaims(ctx context.Context, claims []Claim) error {
	if err := s.before(ctx, toRelease); err != nil {
		return err
	}
	s.mu.Lock()
	for _, c := range claims {
		if r := s.rows[c.ClusterID]; r != nil && r.token == c.Token {
			r.token, r.owner, r.dueAt = 0, "", time.Now()
		}
		s.released = append(s.released, c.ClusterID)
	}
	s.mu.Unlock()
	return s.after(ctx, toRelease)
}

func (s *fakeStore) RenewLeases(ctx context.Context, claims []Claim, lease time.Duration) ([]string, error) {
	if err := s.before(ctx, toRenew); err != nil {
		return nil, err
	}
	s.mu.Lock()
	var renewed []string
	for _, c := range claims {
		if r := s.rows[c.ClusterID]; r != nil && r.token == c.Token {
			r.dueAt = time.Now().Add(lease)
			renewed = append(renewed, c.ClusterID)
		}
	}
	s.mu.Unlock()
	return renewed, s.after(ctx, toRenew)
}

func (s *fakeStore) FindNextLeaseEndOfOthers(ctx context.Context, owner string) (untilEnd time.Duration, found bool, err error) {
	if err := s.before(ctx, toFindLease); err != nil {
		return 0, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, r := range s.rows {
		if d := r.dueAt.Sub(now); !r.synced && r.token != 0 && r.owner != owner && d > 0 && (!found || d < untilEnd) {
			untilEnd, found = d, true
		}
		if d := r.pausedUntil.Sub(now); d > 0 && (!found || d < untilEnd) {
			untilEnd, found = d, true
		}
	}
	return untilEnd, found, nil
}

func (s *fakeStore) RecordOrClearOutage(ctx context.Context, owner string, outage Outage, _ time.Duration) error {
	if err := s.before(ctx, toNoteOutage); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if outage.Since.IsZero() {
		delete(s.outages, owner)
	} else {
		s.outages[owner] = outage
	}
	return nil
}

// edit changes a cluster, or creates it.
func (s *fakeStore) edit(id string, change func(*fakeRow)) {
	s.mu.Lock()
	now := time.Now()
	r := s.rows[id]
	if r == nil {
		r = &fakeRow{id: id, spec: "{}"}
		s.rows[id] = r
	}
	if change != nil {
		change(r)
	}
	r.generation++
	r.attempts, r.synced = 0, false
	if r.unsyncedSince.IsZero() {
		r.unsyncedSince = now
	}
	if r.token == 0 || !r.dueAt.After(now) {
		r.dueAt = now
	}
	notify := s.notify
	s.mu.Unlock()
	if notify != nil {
		notify()
	}
}

func (s *fakeStore) delete(id string) { s.edit(id, func(r *fakeRow) { r.deleting = true }) }

func (s *fakeStore) row(id string) fakeRow {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.rows[id]
}

// unsynced returns the ids of rows that are not synced.
func (s *fakeStore) unsynced() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for id, r := range s.rows {
		if !r.synced {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (s *fakeStore) count(r requestKind) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[r]
}
