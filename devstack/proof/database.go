package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/devstack/proof/faults"
	"github.com/fleetloop/fleetloop/internal/postgres/pgserver"
)

// replicationBound is the longest time of a base backup and of a standby's start. The database is small.
const replicationBound = 2 * time.Minute

// A database is a primary and a synchronous standby. Clients use both through proxies, whose addresses
// do not change.
type database struct {
	newDisk  func(name string) (*disk, error)
	env      map[string]string // of both servers
	settings map[string]string // of both servers, in place of ours
	single   bool              // one server, which clients reach without a proxy
	proxies  [2]*faults.Proxy
	log      *slog.Logger

	mu       sync.Mutex
	primary  int // index of the primary
	nodes    [2]*databaseNode
	lives    int // numbers the folders
	password *url.Userinfo
}

// A databaseNode is one life of a server.
type databaseNode struct {
	disk   *disk
	server *pgserver.Server
	cancel context.CancelFunc
	ended  chan struct{}
	err    error // set before ended is closed
}

func (n *databaseNode) addr() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(n.server.LoopbackPort()))
}

// startDatabaseWithStandby starts the primary and attaches a standby. Both have the same clock.
func (t *topology) startDatabaseWithStandby(ctx context.Context) (err error) {
	var env map[string]string
	if t.stepClocks {
		if env, err = t.createDatabaseClock(ctx); err != nil {
			return err
		}
	}
	if t.database, err = startPrimary(ctx, t.newDatabaseDisk, env, nil, t.log); err != nil {
		return err
	}
	return t.database.attachStandbyAndAwaitSync(ctx)
}

// startPrimary starts a database without a standby.
func startPrimary(
	ctx context.Context,
	newDisk func(name string) (*disk, error),
	env, settings map[string]string,
	log *slog.Logger,
) (*database, error) {
	d := &database{newDisk: newDisk, env: env, settings: settings, log: log}
	for i := range d.proxies {
		var err error
		if d.proxies[i], err = faults.NewProxy(ctx, fmt.Sprintf("database-%d", i), &faults.Backend{Addr: "127.0.0.1:1"}); err != nil {
			return nil, err
		}
	}
	home, err := d.newDisk("postgres-0")
	if err != nil {
		return nil, err
	}
	if d.nodes[0], err = d.startNode(ctx, home, nil); err != nil {
		return nil, err
	}
	d.proxies[0].SetBackend(d.nodes[0].addr())
	u, err := url.Parse(d.nodes[0].server.DatabaseURL())
	if err != nil {
		return nil, err
	}
	d.password = u.User
	return d, nil
}

// startNode starts a server on a disk, as the standby of a primary unless that is nil, and supervises it.
func (d *database) startNode(ctx context.Context, home *disk, primary *pgserver.Server) (*databaseNode, error) {
	cfg := pgserver.Config{Dir: home.dir, Environment: d.env, Settings: map[string]string{
		"wal_level": "replica", "hot_standby": "on", "max_wal_senders": "10", "wal_log_hints": "on", "max_connections": "200",
		"max_wal_size": "256MB", // a disk can be small
		// Without it a standby that was cut off keeps commits waiting for a minute.
		"wal_sender_timeout": "10s", "wal_receiver_timeout": "10s",
	}}
	maps.Copy(cfg.Settings, d.settings)
	var server *pgserver.Server
	var err error
	if primary == nil {
		server, err = pgserver.Start(ctx, cfg, d.log)
	} else {
		server, err = pgserver.StartStandby(ctx, cfg, primary, d.log)
	}
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	n := &databaseNode{disk: home, server: server, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(n.ended)
		n.err = server.Run(running)
	}()
	return n, nil
}

// stop stops a server, waits for its end, and removes its disk.
func (n *databaseNode) stop() error {
	n.cancel()
	<-n.ended
	return errors.Join(n.err, n.disk.unmountKeepingCopies("server.log"))
}

// clientURL returns the URL for clients: both servers, of which they use the one that accepts writes.
func (d *database) clientURL() string {
	hosts := d.proxies[0].Addr() + "," + d.proxies[1].Addr()
	if d.single {
		hosts = d.nodes[0].addr()
	}
	u := url.URL{Scheme: "postgres", User: d.password, Host: hosts, Path: "/" + pgserver.DefaultDatabase, RawQuery: "sslmode=disable"}
	return u.String()
}

// attachStandbyAndAwaitSync copies the primary to the other node, starts that as a standby, and makes replication
// synchronous when the standby streams.
func (d *database) attachStandbyAndAwaitSync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, replicationBound)
	defer cancel()
	other := 1 - d.primary
	d.lives++
	home, err := d.newDisk(fmt.Sprintf("postgres-%d", d.lives))
	if err != nil {
		return err
	}
	node, err := d.startNode(ctx, home, d.nodes[d.primary].server)
	if err != nil {
		return fmt.Errorf("start the standby: %w", err)
	}
	d.nodes[other] = node
	d.proxies[other].SetBackend(node.addr())
	if err := d.setSynchronousStandbys(ctx, "*"); err != nil {
		return err
	}
	return poll(ctx, replicationBound, func(ctx context.Context) error {
		var count int
		err := d.onPrimary(ctx, func(conn *pgx.Conn) error {
			return conn.QueryRow(ctx, "select count(*) from pg_stat_replication where sync_state = 'sync'").Scan(&count)
		})
		if err == nil && count == 0 {
			err = errors.New("the standby does not stream synchronously")
		}
		return err
	})
}

// setSynchronousStandbys names the standbys that a commit waits for; empty means none.
func (d *database) setSynchronousStandbys(ctx context.Context, names string) error {
	return d.onPrimary(ctx, func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, "alter system set synchronous_standby_names = '"+names+"'"); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, "select pg_reload_conf()")
		return err
	})
}

// onPrimary calls f with a connection to the primary.
func (d *database) onPrimary(ctx context.Context, f func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, d.nodes[d.primary].server.DatabaseURL())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // nothing is lost
	return f(conn)
}

// countPendingChangeEvents returns the number of change events in the outbox of the cluster-workers. After
// a failover, an event is sent after its lease of two minutes if the answer to its claim was lost.
func (d *database) countPendingChangeEvents(ctx context.Context) (count int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	err = d.onPrimary(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "select count(*) from tenant.cluster_change_events").Scan(&count)
	})
	return count, err
}

// readWantedSyncGenerations returns the generation of the sync of each cluster, which rises with each change of the
// cluster and its node pools.
func (d *database) readWantedSyncGenerations(ctx context.Context) (generations map[string]int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	generations = map[string]int64{}
	err = d.onPrimary(ctx, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, "select cluster_id::text, generation from tenant.cluster_sync")
		if err != nil {
			return err
		}
		var id string
		var generation int64
		_, err = pgx.ForEachRow(rows, []any{&id, &generation}, func() error {
			generations[id] = generation
			return nil
		})
		return err
	})
	return generations, err
}

// failOver kills the primary, promotes the standby, and attaches a new standby in the place of the old
// primary. Replication was synchronous, so no acknowledged transaction is lost.
func (d *database) failOver(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.killPrimaryAndFailOverLocked(ctx)
}

func (d *database) killPrimaryAndFailOverLocked(ctx context.Context) error {
	if !d.hasStandby() { // a failover before was interrupted
		if err := d.attachStandbyAndAwaitSync(ctx); err != nil {
			return err
		}
	}
	old := d.primary
	d.proxies[old].SetBackend("127.0.0.1:1") // fenced: it never serves a client again
	d.proxies[old].SetCut(true)
	d.proxies[old].SetCut(false)
	// First the kill, because the end of the context stops the server gracefully.
	if pid := d.nodes[old].server.PostmasterPID(); pid > 0 { // without a disk it may have ended
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("kill the primary: %w", err)
		}
	}
	_ = d.nodes[old].stop() // it was killed
	d.primary = 1 - old
	err := d.onPrimary(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "select pg_promote(wait => true, wait_seconds => 60)")
		return err
	})
	if err != nil {
		return fmt.Errorf("promote the standby: %w", err)
	}
	// As Patroni does while there is no standby.
	if err := d.setSynchronousStandbys(ctx, ""); err != nil {
		return fmt.Errorf("commit without a standby: %w", err)
	}
	return d.attachStandbyAndAwaitSync(ctx)
}

func (d *database) hasStandby() bool {
	if d.nodes[1-d.primary] == nil {
		return false
	}
	select {
	case <-d.nodes[1-d.primary].ended:
		return false
	default:
		return true
	}
}

// close stops both servers.
func (d *database) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, n := range d.nodes {
		if n != nil {
			errs = append(errs, n.stop())
		}
	}
	for _, p := range d.proxies {
		p.Close()
	}
	return errors.Join(errs...)
}
