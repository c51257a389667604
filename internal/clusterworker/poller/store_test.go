package poller_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

const installation = "11111111-0000-4000-8000-000000000000"

// history is the id of the database's history.
const history = "0123456789abcdef"

// idOf returns the id of the nth cluster, and nameOf the name of its Shoot.
func idOf(n int) string   { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }
func nameOf(n int) string { return fmt.Sprintf("shoot-%d", n) }

var errDatabase = errors.New("the database is away")

// A database keeps rows as the real one does.
type database struct {
	mu    sync.Mutex
	rows  map[string]*clusterworker.Row
	owner string
	fence int64
	until time.Time

	err      error // of every query
	locked   map[string]bool
	calls    map[string]int
	touched  map[string]int
	requeued []string
	written  []written
	before   func(call string) // is called before each query
	saves    func(clusterworker.StatusChange)
	missing  []string // clusters that have no row
	deaf     bool     // the answer to the next status write is lost
}

// written is a status write.
type written struct {
	fence int64
	clusterworker.StatusChange
}

func newDatabase() *database {
	return &database{rows: map[string]*clusterworker.Row{}, locked: map[string]bool{}, calls: map[string]int{}, touched: map[string]int{}}
}

// change changes the row of the nth cluster, as a writer other than the poller.
func (d *database) change(n int, how func(*clusterworker.Row)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	id := idOf(n)
	if d.rows[id] == nil {
		d.rows[id] = &clusterworker.Row{ClusterID: id, Tenant: "t", Name: fmt.Sprint("cluster-", n), Generation: 1}
	}
	how(d.rows[id])
}

// sync writes the result of a worker that has sent the nth cluster.
func (d *database) sync(n int, a shoot.Applied) {
	d.change(n, func(r *clusterworker.Row) {
		r.Synced, r.SyncedGeneration, r.ClusterGeneration = true, r.Generation, 1
		r.ShootName, r.ShootUID, r.ShootGeneration = nameOf(n), a.UID, a.Generation
		if r.Status == "" {
			r.Status = v1.ShootPending
		}
	})
}

// edit changes the row of the nth cluster, as an owner's change does.
func (d *database) edit(n int) {
	d.change(n, func(r *clusterworker.Row) { r.Generation, r.Synced = r.Generation+1, false })
}

// wantGone changes the row of the nth cluster, as its deletion does.
func (d *database) wantGone(n int) {
	d.change(n, func(r *clusterworker.Row) { r.Generation, r.Synced, r.Deleting = r.Generation+1, false, true })
}

// sendDeletion writes the result of a worker whose deletion Gardener accepted.
func (d *database) sendDeletion(n int) {
	d.change(n, func(r *clusterworker.Row) { r.Synced, r.SyncedGeneration, r.DeletionSent = true, r.Generation, true })
}

func (d *database) drop(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.rows, idOf(n))
}

func (d *database) row(n int) clusterworker.Row {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r := d.rows[idOf(n)]; r != nil {
		return *r
	}
	return clusterworker.Row{}
}

// set changes the settings of the database.
func (d *database) set(how func(*database)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	how(d)
}

// called returns how often a call was made, for "" all calls.
func (d *database) called(call string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if call != "" {
		return d.calls[call]
	}
	all := 0
	for _, n := range d.calls {
		all += n
	}
	return all
}

func (d *database) sentAgain() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.requeued)
}

func (d *database) log() []written {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.written)
}

func (d *database) wantStatus(t *testing.T, reason string, n int, want v1.ShootStatus) {
	t.Helper()
	if got := d.row(n).Status; got != want {
		t.Errorf("%s: cluster %d is %q (%s), want %q", reason, n, got, d.row(n).StatusMessage, want)
	}
}

// A process is the database from the view of one process.
type process struct {
	*database
	freezeAt string        // the query in which it is suspended
	frozen   chan struct{} // closed when it is suspended
	thawed   chan struct{} // closed to resume it
}

// freeze suspends the whole process within a query.
func (p *process) freeze(at string) (frozen <-chan struct{}, thaw func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.freezeAt, p.frozen, p.thawed = at, make(chan struct{}), make(chan struct{})
	return p.frozen, func() { close(p.thawed) }
}

// wait blocks while the process is suspended.
func (p *process) wait(call string) (waited bool) {
	p.mu.Lock()
	if call == p.freezeAt {
		p.freezeAt = ""
		close(p.frozen)
	}
	frozen, thawed := p.frozen, p.thawed
	p.mu.Unlock()
	select {
	case <-frozen:
	default:
		return false // nil, or not yet
	}
	select {
	case <-thawed:
		return false
	default:
	}
	<-thawed
	return true
}

func (p *process) enter(ctx context.Context, call string) error {
	waited := p.wait(call)
	p.mu.Lock()
	before := p.before
	p.mu.Unlock()
	if before != nil {
		before(call)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[call]++
	if ctx.Err() != nil && !waited { // otherwise it was sent before
		return context.Cause(ctx)
	}
	return p.err
}

func (p *process) AcquireOrExtendTerm(ctx context.Context, owner string, ttl time.Duration) (clusterworker.Term, error) {
	until := time.Now().Add(ttl)
	if err := p.enter(ctx, "Lead"); err != nil {
		return clusterworker.Term{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	switch alive := p.until.After(now); {
	case alive && p.owner != owner:
		return clusterworker.Term{}, nil
	case !alive || p.owner != owner:
		p.fence++
	}
	p.owner, p.until = owner, now.Add(ttl)
	return clusterworker.Term{Held: true, Fence: p.fence, Until: until}, nil
}

func (p *process) ReleaseTerm(ctx context.Context, fence int64) error {
	if err := p.enter(ctx, "Resign"); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fence == fence {
		p.until = time.Now()
	}
	return nil
}

func (p *process) GetInstallationID(ctx context.Context) (string, error) {
	return installation, p.enter(ctx, "Installation")
}

func (p *process) GetHistoryID(ctx context.Context) (string, error) {
	return history, p.enter(ctx, "History")
}

func (p *process) AddMissingRows(ctx context.Context, limit int) ([]string, error) {
	if err := p.enter(ctx, "AddMissing"); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := min(limit, len(p.missing))
	made := p.missing[:n]
	p.missing = p.missing[n:]
	return made, nil
}

// read returns matching rows in the order of ids.
func (p *process) read(which func(*clusterworker.Row) bool) []clusterworker.Row {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []clusterworker.Row
	for _, r := range p.rows {
		if which(r) {
			list = append(list, *r)
		}
	}
	slices.SortFunc(list, func(a, b clusterworker.Row) int { return cmp.Compare(a.ClusterID, b.ClusterID) })
	return list
}

func (p *process) ListRows(ctx context.Context, afterClusterID string, limit int) ([]clusterworker.Row, error) {
	if err := p.enter(ctx, "Rows"); err != nil {
		return nil, err
	}
	list := p.read(func(r *clusterworker.Row) bool { return r.ClusterID > afterClusterID && r.Status != v1.ShootDeleted })
	return list[:min(limit, len(list))], nil
}

func (p *process) ListRowsOfClusters(ctx context.Context, ids []string) ([]clusterworker.Row, error) {
	if err := p.enter(ctx, "RowsOf"); err != nil {
		return nil, err
	}
	for _, id := range ids {
		if uuid.Validate(id) != nil {
			return nil, fmt.Errorf("invalid input syntax for type uuid: %q", id)
		}
	}
	return p.read(func(r *clusterworker.Row) bool { return slices.Contains(ids, r.ClusterID) }), nil
}

func (p *process) ListStalestRows(ctx context.Context, limit int) ([]clusterworker.Row, error) {
	if err := p.enter(ctx, "StalestRows"); err != nil {
		return nil, err
	}
	list := p.read(func(r *clusterworker.Row) bool { return r.ShootName != "" && r.Status != v1.ShootDeleted })
	slices.SortStableFunc(list, func(a, b clusterworker.Row) int {
		var x, y time.Time
		if a.StatusUpdated != nil {
			x = *a.StatusUpdated
		}
		if b.StatusUpdated != nil {
			y = *b.StatusUpdated
		}
		return x.Compare(y)
	})
	return list[:min(limit, len(list))], nil
}

// hold locks the database if the term is not over.
func (p *process) hold(ctx context.Context, call string, fence int64) error {
	if err := p.enter(ctx, call); err != nil {
		return err
	}
	p.mu.Lock()
	if p.fence != fence || !p.until.After(time.Now()) {
		p.mu.Unlock()
		return clusterworker.ErrFenced
	}
	return nil
}

func (p *process) SaveStatus(ctx context.Context, fence int64, changes []clusterworker.StatusChange) (saved []string, err error) {
	if err := p.hold(ctx, "SaveStatus", fence); err != nil {
		return nil, err
	}
	defer p.mu.Unlock()
	now := time.Now()
	for _, c := range changes {
		r := p.rows[c.ClusterID]
		if r == nil || p.locked[c.ClusterID] || r.Status != c.WasStatus || r.Deleting != c.WasDeleting {
			continue
		}
		r.Status, r.StatusMessage, r.StatusUpdated = c.Status, c.Message, &now
		r.ShootUID = cmp.Or(c.ShootUID, r.ShootUID)
		r.ReadyOnce = r.ReadyOnce || c.Status == v1.ShootReady
		r.StatusGeneration = c.Generation
		r.ReportVersion++
		p.written = append(p.written, written{fence, c})
		if p.saves != nil {
			p.saves(c)
		}
		saved = append(saved, c.ClusterID)
	}
	if p.deaf {
		p.deaf = false
		return nil, errDatabase
	}
	return saved, nil
}

func (p *process) RecordUnchanged(ctx context.Context, fence int64, observed []clusterworker.UnchangedStatus) (recorded []string, err error) {
	if err := p.hold(ctx, "Touch", fence); err != nil {
		return nil, err
	}
	defer p.mu.Unlock()
	now := time.Now()
	for _, u := range observed {
		r := p.rows[u.ClusterID]
		if r == nil || p.locked[u.ClusterID] || r.ShootUID != u.ShootUID {
			continue
		}
		if r.IsStatusOutdated() && u.Generation >= r.ShootGeneration {
			r.ReportVersion++
		}
		r.StatusUpdated, r.StatusGeneration = &now, u.Generation
		p.touched[u.ClusterID]++
		recorded = append(recorded, u.ClusterID)
	}
	return recorded, nil
}

func (p *process) RequeueSynced(ctx context.Context, fence int64, ids []string) (requeued []string, err error) {
	if err := p.hold(ctx, "Requeue", fence); err != nil {
		return nil, err
	}
	defer p.mu.Unlock()
	for _, id := range ids {
		if r := p.rows[id]; r != nil && r.Synced && !p.locked[id] {
			r.Synced = false
			requeued = append(requeued, id)
		}
	}
	p.requeued = append(p.requeued, requeued...)
	return requeued, nil
}
