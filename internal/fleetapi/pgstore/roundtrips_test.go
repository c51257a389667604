package pgstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

// A relay passes connections on to a server and counts round trips.
type relay struct {
	server string

	mu         sync.Mutex
	lastSender string
	roundTrips int
}

// startRelay returns a relay to the server of a database, and the URL of the database behind it.
func startRelay(t *testing.T, databaseURL string) (r *relay, relayedURL string) {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r = &relay{server: u.Host}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { r.serve(t, client) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	u.Host = l.Addr().String()
	return r, u.String()
}

func (r *relay) serve(t *testing.T, client net.Conn) {
	t.Helper()
	defer func() { _ = client.Close() }()
	server, err := (&net.Dialer{}).DialContext(context.WithoutCancel(t.Context()), "tcp", r.server)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = server.Close() }()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		r.pass("server", server, client)
		_ = client.Close()
	}()
	r.pass("client", client, server)
	_ = server.Close()
	<-answered
}

func (r *relay) pass(sender string, from, to net.Conn) {
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			r.count(sender)
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (r *relay) count(sender string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if sender == "client" && r.lastSender != sender {
		r.roundTrips++
	}
	r.lastSender = sender
}

func (r *relay) takeRoundTrips() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, r.roundTrips = r.roundTrips, 0
	return n
}

// TestAChangeTakesTwoRoundTrips checks the round trips of a transaction that locks a row and saves it. The row lock
// and the change feed wait for them.
func TestAChangeTakesTwoRoundTrips(t *testing.T) {
	relayed, databaseURL := startRelay(t, pgtest.NewMigratedDatabaseURL(t))
	s := pgstore.New(pgtest.Open(t, databaseURL))
	cluster, nodePool := newRecord("a", v1.KindCluster, "one"), newRecord("a", v1.KindNodePool, "one")
	nodePool.ParentID = cluster.ID
	insert(t, s, cluster, nodePool)
	changeSpec := func(l *fleetapi.Locked) *v1.AdapterStatus {
		l.Record.Generation++
		l.Record.Spec = append(append(json.RawMessage(`{"was":`), l.Record.Spec...), '}')
		return nil
	}
	report := func(l *fleetapi.Locked) *v1.AdapterStatus {
		return &v1.AdapterStatus{Adapter: "dns", CreatedTime: l.Now, LastReportTime: l.Now, ObservedGeneration: 1}
	}
	cases := map[string]struct {
		row  *fleetapi.Record
		with func(*fleetapi.Locked) *v1.AdapterStatus
		want int
	}{
		"Spec":           {row: cluster, with: changeSpec, want: 2},
		"Report":         {row: cluster, with: report, want: 2},
		"NodePoolSpec":   {row: nodePool, with: changeSpec, want: 3}, // the event needs the name of the cluster
		"NodePoolReport": {row: nodePool, with: report, want: 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			run := func() {
				err := s.RunInTx(t.Context(), tenant("a"), func(ctx context.Context, tx fleetapi.Tx) error {
					tx.(fleetapi.SchemaReader).QueueSpecSchemaRead(tc.row.Kind, 0) //nolint:errcheck // it is one
					l, err := tx.LockAndReadResource(ctx, tc.row.Key)
					if err != nil {
						return err
					}
					if _, _, err := tx.(fleetapi.SchemaReader).ReadSpecSchemaIfChanged(ctx, tc.row.Kind, 0); err != nil { //nolint:errcheck // as above
						return err
					}
					return tx.SaveLockedResource(ctx, &l.Record, tc.with(l))
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			run() // the statements are prepared
			relayed.takeRoundTrips()
			run()
			if n := relayed.takeRoundTrips(); n != tc.want {
				t.Errorf("took %d round trips, want %d", n, tc.want)
			}
		})
	}
}

// TestARolledBackChangeRunsInFull checks that a transaction that ends with ErrRollback shows the result of its writes,
// but leaves nothing.
func TestARolledBackChangeRunsInFull(t *testing.T) {
	s := newStore(t)
	r := newRecord("a", v1.KindCluster, "one")
	insert(t, s, r)
	before := mustGet(t, s, r.Key)
	var saved *fleetapi.Record
	save := func(change func(*fleetapi.Record)) error {
		return s.RunInTx(t.Context(), tenant("a"), func(ctx context.Context, tx fleetapi.Tx) error {
			l, err := tx.LockAndReadResource(ctx, r.Key)
			if err != nil {
				return err
			}
			saved = &l.Record
			change(saved)
			if err := tx.SaveLockedResource(ctx, saved, nil); err != nil {
				return err
			}
			return fleetapi.ErrRollback
		})
	}
	if err := save(func(r *fleetapi.Record) { r.DisplayName = "Another" }); !errors.Is(err, fleetapi.ErrRollback) {
		t.Fatalf("got %v", err)
	}
	if saved.Revision <= before.Revision {
		t.Errorf("revision %d after %d: the row was not saved", saved.Revision, before.Revision)
	}
	if after := mustGet(t, s, r.Key); after.Revision != before.Revision || after.DisplayName != before.DisplayName {
		t.Errorf("the change stayed: %+v", after)
	}
	if err := save(func(r *fleetapi.Record) { r.Labels = json.RawMessage(`broken`) }); err == nil || errors.Is(err, fleetapi.ErrRollback) {
		t.Errorf("labels that the database refuses: got %v", err)
	}
}

// TestASaveOfNoRowFails checks the save of a node pool that is gone. Its cluster, which is not locked, is read for the
// change event.
func TestASaveOfNoRowFails(t *testing.T) {
	s := newStore(t)
	cluster, nodePool := newRecord("a", v1.KindCluster, "one"), newRecord("a", v1.KindNodePool, "one")
	nodePool.ParentID = cluster.ID
	insert(t, s, cluster, nodePool)
	err := s.RunInTx(t.Context(), tenant("a"), func(ctx context.Context, tx fleetapi.Tx) error {
		l, err := tx.LockAndReadResource(ctx, nodePool.Key)
		if err != nil {
			return err
		}
		if err := tx.DeleteAndRecordResource(ctx, nodePool.Key); err != nil {
			return err
		}
		l.Record.Generation++
		return tx.SaveLockedResource(ctx, &l.Record, nil)
	})
	if err == nil || errors.Is(err, pgx.ErrNoRows) {
		t.Errorf("got %v", err)
	}
}
