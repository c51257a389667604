package clusterworker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// A cluster is one as its owner wants it. Each change has a number, which gets
// into the Shoot.
type cluster struct {
	id, name, tenant string
	change           int // of its spec
	pools            map[string]*pool
	deleted          bool
}

// A pool is a node pool as its owner wants it.
type pool struct {
	id     string
	change int
}

// An editor changes clusters as their owners do. It is used by one goroutine.
type editor struct {
	*fixture
	clusters []*cluster
	changes  int
	// api carries out the changes, nil for SQL.
	api *apiWriter
	// firstEvents has, by the id of a cluster, which of two events came first: that it
	// was deleted, or that the creation of its Shoot is late.
	firstEvents sync.Map
}

// The events of which a cluster has one at most.
const (
	clusterDeleted = "cluster deleted"
	creationLate   = "creation late"
)

// isFirst reports whether a cluster has had no other event than this one. The network
// can keep the request to create a Shoot until the cluster and its row are gone. No
// worker knows that Shoot, so a cluster has either a late creation or a deletion.
func (e *editor) isFirst(clusterID, event string) bool {
	first, _ := e.firstEvents.LoadOrStore(clusterID, event)
	return first == event
}

// A fleetWriter carries out the changes of an editor. It makes each again until it is
// known to be made. Once or twice makes no difference to what the cluster is.
type fleetWriter interface {
	// createCluster creates a cluster with its node pools. It may give them other ids.
	createCluster(ctx context.Context, c *cluster) error
	createPool(ctx context.Context, c *cluster, name string) error
	// update and delete write to a node pool of a cluster, or to the cluster if p is nil.
	update(ctx context.Context, c *cluster, p *pool) error
	delete(ctx context.Context, c *cluster, p *pool) error
}

// writer is what carries out the changes.
func (e *editor) writer() fleetWriter {
	if e.api != nil {
		return e.api
	}
	return sqlWriter{e.fixture}
}

// A sqlWriter writes to the tables of the fleet API.
type sqlWriter struct{ *fixture }

// write runs statements in one transaction.
func (w sqlWriter) write(ctx context.Context, fill func(*pgx.Batch)) error {
	return retrying(ctx, func(ctx context.Context) error {
		b := &pgx.Batch{}
		fill(b)
		return w.owner.SendBatch(ctx, b).Close()
	})
}

func (w sqlWriter) createCluster(ctx context.Context, c *cluster) error {
	return w.write(ctx, func(b *pgx.Batch) {
		b.Queue(insertResource, c.id, "Cluster", c.tenant, c.name, nil, c.spec())
		for _, name := range c.poolNames() {
			b.Queue(insertResource, c.pools[name].id, "NodePool", c.tenant, name, c.id, c.pools[name].spec())
		}
	})
}

func (w sqlWriter) createPool(ctx context.Context, c *cluster, name string) error {
	return w.write(ctx, func(b *pgx.Batch) {
		b.Queue(insertResource, c.pools[name].id, "NodePool", c.tenant, name, c.id, c.pools[name].spec())
	})
}

func (w sqlWriter) update(ctx context.Context, c *cluster, p *pool) error {
	id, spec := c.id, c.spec()
	if p != nil {
		id, spec = p.id, p.spec()
	}
	return w.write(ctx, func(b *pgx.Batch) { b.Queue(updateResource, id, spec) })
}

func (w sqlWriter) delete(ctx context.Context, c *cluster, p *pool) error {
	id := c.id
	if p != nil {
		id = p.id
	}
	return w.write(ctx, func(b *pgx.Batch) { b.Queue(deleteResource, id) })
}

const insertResource = `
	insert into tenant.resources (id, kind, tenant, name, owner_id, owner_kind, spec, generation,
		created_time, updated_time, phase, last_updated_time, last_transition_time)
	values ($1, $2, $3, $4, $5, case when $5::uuid is not null then 'Cluster' end, $6, 1, now(), now(), 'Pending', now(), now())
	on conflict do nothing`

func (c *cluster) spec() string {
	return fmt.Sprintf(`{"region": "local", "kubernetes": {"version": "1.34.1"}, "provider": {"controlPlaneConfig": `+
		`{"apiVersion": "local.provider.extensions.gardener.cloud/v1alpha1", "kind": "ControlPlaneConfig", "change": %d}}}`, c.change)
}

func (p *pool) spec() string {
	return fmt.Sprintf(`{"minimum": 1, "maximum": %d, "labels": {"change": "%d"}}`, p.maximum(), p.change)
}

// poolNames are the names of the cluster's pools, in order.
func (c *cluster) poolNames() []string { return slices.Sorted(maps.Keys(c.pools)) }

func (p *pool) maximum() int { return 2 + p.change%7 }

// next is the number of a change.
func (e *editor) next() int {
	e.changes++
	return e.changes
}

// newID is an id by the dice, so that a seed gives the same names of Shoots.
func (e *editor) newID() string {
	var b uuid.UUID
	for i := range b {
		b[i] = byte(e.dice.Uint32())
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return b.String()
}

// add makes a cluster with some pools.
func (e *editor) add(ctx context.Context, pools int) (*cluster, error) {
	e.serial++
	c := &cluster{
		id: e.newID(), name: fmt.Sprintf("c-%d", e.serial), tenant: string(rune('a' + e.serial%3)),
		change: e.next(), pools: map[string]*pool{},
	}
	for i := range pools {
		c.pools[fmt.Sprintf("pool-%d", i)] = &pool{id: e.newID(), change: e.next()}
	}
	e.clusters = append(e.clusters, c)
	err := e.writer().createCluster(ctx, c)
	return c, e.noteEdit(c, err, "made by change %d with %d pools", c.change, pools)
}

// noteEdit notes a change that was carried out with err.
func (e *editor) noteEdit(c *cluster, err error, format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	e.book.note(c.id, "edit: %s", what)
	if err != nil {
		return fmt.Errorf("%s of %s: %w", what, c.name, err)
	}
	return nil
}

const updateResource = `update tenant.resources set spec = $2, generation = generation + 1, updated_time = now() where id = $1`

// edit changes the cluster itself.
func (e *editor) edit(ctx context.Context, c *cluster) error {
	c.change = e.next()
	return e.noteEdit(c, e.writer().update(ctx, c, nil), "change %d", c.change)
}

// editPool changes one of the cluster's pools, if it has any.
func (e *editor) editPool(ctx context.Context, c *cluster) error {
	names := c.poolNames()
	if len(names) == 0 {
		return e.edit(ctx, c)
	}
	name := names[e.dice.IntN(len(names))]
	p := c.pools[name]
	p.change = e.next()
	return e.noteEdit(c, e.writer().update(ctx, c, p), "change %d of pool %s", p.change, name)
}

// addPool gives the cluster one more pool.
func (e *editor) addPool(ctx context.Context, c *cluster) error {
	p := &pool{id: e.newID(), change: e.next()}
	name := fmt.Sprintf("more-%d", p.change)
	c.pools[name] = p
	return e.noteEdit(c, e.writer().createPool(ctx, c, name), "new pool %s", name)
}

const deleteResource = `update tenant.resources set deleted_time = coalesce(deleted_time, now()), generation = generation + 1 where id = $1`

// removePool takes one of the cluster's pools away, unless it is the last.
func (e *editor) removePool(ctx context.Context, c *cluster) error {
	names := c.poolNames()
	if len(names) < 2 {
		return e.addPool(ctx, c)
	}
	name := names[e.dice.IntN(len(names))]
	p := c.pools[name]
	delete(c.pools, name)
	return e.noteEdit(c, e.writer().delete(ctx, c, p), "no pool %s", name)
}

// remove deletes the cluster, as far as its owner can.
func (e *editor) remove(ctx context.Context, c *cluster) error {
	c.deleted = true
	return e.noteEdit(c, e.writer().delete(ctx, c, nil), "deleted")
}

// random makes one change.
func (e *editor) random(ctx context.Context, most int) error {
	var alive []*cluster
	for _, c := range e.clusters {
		if !c.deleted {
			alive = append(alive, c)
		}
	}
	n := e.dice.IntN(100)
	if len(alive) < 5 || n < 25 && len(e.clusters) < most {
		_, err := e.add(ctx, e.dice.IntN(4))
		return err
	}
	c := alive[e.dice.IntN(len(alive))]
	switch {
	case n < 60:
		return e.edit(ctx, c)
	case n < 80:
		return e.editPool(ctx, c)
	case n < 88:
		return e.addPool(ctx, c)
	case n < 95 || !e.isFirst(c.id, clusterDeleted):
		return e.removePool(ctx, c)
	}
	return e.remove(ctx, c)
}

// A row is what the database knows of a cluster's sync, and of the cluster.
type row struct {
	ID, Name               string
	Deleting, Synced       bool
	Generation, SyncedTill int64
	Attempts               int
	Error, Class           string
	Claimed                bool
	ShootName, ShootStatus string
}

const readRows = `
	select s.cluster_id::text as id, c.name, c.deleted_time is not null as deleting, s.synced is not null as synced,
		s.generation, s.synced_generation as synced_till, s.sync_attempts as attempts, coalesce(s.sync_error, '') as error,
		coalesce(s.error_class, '') as class, s.claim_token is not null as claimed, coalesce(s.shoot_name, '') as shoot_name,
		coalesce(s.shoot_status, '') as shoot_status
	from tenant.cluster_sync s join tenant.clusters c on c.id = s.cluster_id`

// rows are those of all clusters.
func (r *fixture) rows(ctx context.Context) (map[string]row, error) {
	found, err := r.owner.Query(ctx, readRows)
	if err != nil {
		return nil, err
	}
	list, err := pgx.CollectRows(found, pgx.RowToStructByName[row])
	if err != nil {
		return nil, err
	}
	all := map[string]row{}
	for _, x := range list {
		all[x.ID] = x
	}
	return all, nil
}

// row is that of one cluster.
func (r *fixture) row(c *cluster) row {
	r.Helper()
	all, err := r.rows(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	return all[c.id]
}

// errUnknown is about a cluster that the database does not know.
var errUnknown = errors.New("the database has no row")

// settled is an error unless the row says that there is nothing left to do.
func (x row) settled() error {
	switch {
	case x.ID == "":
		return errUnknown
	case !x.Synced:
		return fmt.Errorf("it is not synced: %d attempts, %s %s", x.Attempts, x.Class, x.Error)
	case x.SyncedTill != x.Generation:
		return fmt.Errorf("generation %d is synced, want %d", x.SyncedTill, x.Generation)
	case x.Error != "" || x.Attempts != 0 || x.Claimed:
		return fmt.Errorf("it is synced, and has %d attempts, an error %q, claimed %t", x.Attempts, x.Error, x.Claimed)
	}
	return nil
}
