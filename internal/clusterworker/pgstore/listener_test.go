package pgstore_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore"
	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/postgres/pgserver"
	"github.com/fleetloop/fleetloop/internal/settings"
)

func listener(t *testing.T, databaseURL string) *pgstore.Listener {
	t.Helper()
	cfg := postgres.Config{URL: settings.Secret(databaseURL), Role: postgres.RoleClusterWorker, ApplicationName: "ear"}
	l := pgstore.NewListener(cfg, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if l.Ready() == nil {
		t.Error("ready before it runs")
	}
	return l
}

// newListener runs a listener until the test ends.
func newListener(t *testing.T, databaseURL string) *pgstore.Listener {
	t.Helper()
	l := listener(t, databaseURL)
	runListener(t, l)
	return l
}

func runListener(t *testing.T, l *pgstore.Listener) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if l.Ready() == nil {
			t.Error("ready after its end")
		}
	})
}

// wantWake waits for a wake.
func (b *bed) wantWake(l *pgstore.Listener, why string) {
	b.Helper()
	b.await("a wake: "+why, func() bool {
		select {
		case <-l.NotificationChannel():
			return true
		default:
			return false
		}
	})
}

func TestAListenerIsWoken(t *testing.T) {
	b := newBed(t)
	l := newListener(t, b.url)
	b.await("it listens", func() bool { return l.Ready() == nil })
	if l.LastPingTime().IsZero() {
		t.Error("it did not hear itself")
	}
	b.wantWake(l, "it has begun to listen")
	for i := range 3 {
		b.unthrottle()
		b.cluster(string(rune('a' + i)))
		b.wantWake(l, "there is a cluster")
	}
	// Several unread notifications are one wake.
	before := l.CountNotifications()
	for i := range 3 {
		b.unthrottle()
		b.cluster(string(rune('k' + i)))
	}
	b.await("all are heard", func() bool { return l.CountNotifications() == before+3 })
	b.wantWake(l, "there are clusters")
	select {
	case <-l.NotificationChannel():
		t.Error("another wake")
	default:
	}
}

// TestAListenerSurvivesTheLossOfItsConnection: a commit without a listener is found
// when listening starts again.
func TestAListenerSurvivesTheLossOfItsConnection(t *testing.T) {
	b := newBed(t)
	l := newListener(t, b.url)
	b.await("it listens", func() bool { return l.Ready() == nil })
	b.wantWake(l, "it has begun to listen")
	for range 3 {
		ping := l.LastPingTime()
		b.exec(`select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'ear'`)
		b.await("it listens again", func() bool { return l.LastPingTime().After(ping) && l.Ready() == nil })
		b.wantWake(l, "something may have been missed")
		b.unthrottle()
		id := b.cluster("one")
		b.wantWake(l, "there is a cluster")
		b.exec(`delete from tenant.resources where id = $1`, id)
	}
}

func TestAListenerSaysWhyItDoesNotListen(t *testing.T) {
	b := newBed(t)
	l := newListener(t, strings.Replace(b.url, "/clone", "/no_such_clone", 1))
	b.await("it says why", func() bool { return strings.Contains(l.Ready().Error(), "does not exist") })
	if !l.LastPingTime().IsZero() {
		t.Error("it heard itself")
	}
}

// A proxy forwards to a database, until it drops the answers of the database.
type proxy struct {
	net.Listener
	lost atomic.Pointer[chan struct{}] // closed when the existing connections deliver no more data
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: ln}
	p.heal()
	var all sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	all.Go(func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := (&net.Dialer{}).DialContext(context.WithoutCancel(t.Context()), "tcp", to)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			conns = append(conns, client, server)
			mu.Unlock()
			lost := *p.lost.Load()
			all.Go(func() { _, _ = io.Copy(server, client) })
			all.Go(func() {
				buf := make([]byte, 4096)
				for {
					n, err := server.Read(buf)
					if err != nil {
						return
					}
					select {
					case <-lost: // dropped
					default:
						if _, err := client.Write(buf[:n]); err != nil {
							return
						}
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return p
}

// heal forwards answers on new connections again.
func (p *proxy) heal() {
	lost := make(chan struct{})
	p.lost.Store(&lost)
}

// TestAListenerNoticesSilence: a connection that seems alive and delivers nothing is
// replaced.
func TestAListenerNoticesSilence(t *testing.T) {
	b := newBed(t)
	u, err := url.Parse(b.url)
	if err != nil {
		t.Fatal(err)
	}
	p := newProxy(t, u.Host)
	u.Host = p.Addr().String()
	l := listener(t, u.String())
	l.PingEvery(50 * time.Millisecond)
	runListener(t, l)
	b.await("it listens", func() bool { return l.Ready() == nil })
	b.wantWake(l, "it has begun to listen")

	lost := *p.lost.Load()
	p.heal()
	close(lost)
	b.await("it notices", func() bool { return l.Ready() != nil })
	if err := l.Ready(); !strings.Contains(err.Error(), "test notification not received") {
		t.Errorf("it says %v", err)
	}
	b.await("it listens again", func() bool { return l.Ready() == nil })
	b.wantWake(l, "something may have been missed")
}

func startServer(t *testing.T, dir string, port int) *pgserver.Server {
	t.Helper()
	s, err := pgserver.Start(t.Context(), pgserver.Config{Dir: dir, Port: port, Settings: map[string]string{"fsync": "off"}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := postgres.MigrateSchema(t.Context(), postgres.Config{URL: settings.Secret(s.DatabaseURL())}, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestNoWorkIsLostByARestart(t *testing.T) {
	dir, err := os.MkdirTemp("", "cluster-sync-restart-") //nolint:usetesting // t.TempDir is closed to the user that a root's server runs as
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	server := startServer(t, dir, 0)
	b := &bed{T: t, url: server.DatabaseURL(), owner: connect(t, server.DatabaseURL())}
	b.store = pgstore.New(openAs(t, b.url, postgres.RoleClusterWorker))
	l := newListener(t, b.url)
	b.await("it listens", func() bool { return l.Ready() == nil })
	b.wantWake(l, "it has begun to listen")
	b.cluster("claimed")
	b.wantWake(l, "there is a cluster")
	c := b.claimOne()
	b.cluster("waiting")
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	b.await("it hears nothing", func() bool { return l.Ready() != nil })
	// The notification of the second cluster may or may not have arrived.
	select {
	case <-l.NotificationChannel():
	default:
	}
	if _, err := b.store.WriteResults(t.Context(), []clusterworker.Result{done(c)}); err == nil {
		t.Error("completed without a database")
	}
	startServer(t, dir, server.LoopbackPort())
	b.wantWake(l, "something may have been missed")
	b.owner = connect(t, b.url)
	b.complete(done(c)) // the claim is still valid
	again := b.claimOne()
	if again.Name != "waiting" || again.Token <= c.Token {
		t.Errorf("claimed %q with token %d after %d", again.Name, again.Token, c.Token)
	}
	b.await("it listens again", func() bool { return l.Ready() == nil })
}
