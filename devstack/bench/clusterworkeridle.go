package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetloop/fleetloop/internal/app/clusterworkerapp"
	"github.com/fleetloop/fleetloop/internal/backoff"
)

const (
	idleRows = 1000
	idleTime = time.Minute
)

// workerIdleQueriesBench measures how many statements a complete worker sends to the database while it has no
// work. The worker includes its listener, its poller and the maintenance of connections. Every
// statement counts, also those that are sent together.
func workerIdleQueriesBench() bench {
	const name = "clusterworker.idle_queries_per_second"
	return bench{names: []string{name}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		bed, err := startSyncDatabaseBed(ctx, idleRows)
		if err != nil {
			return nil, err
		}
		perSecond, err := bed.measureIdleStatements(ctx, progress)
		return []line{{kind: "value", name: name, value: perSecond, op: "<=", want: 1}}, errors.Join(err, bed.stopBed())
	}}
}

func (b *syncBed) measureIdleStatements(ctx context.Context, progress io.Writer) (perSecond float64, err error) {
	target, err := url.Parse(b.db.server.DatabaseURL())
	if err != nil {
		return 0, err
	}
	between, err := startStatementCountingProxy(ctx, target.Host)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, between.closeProxy()) }()
	target.Host = between.l.Addr().String()
	env := map[string]string{
		"DATABASE_URL": target.String(), "METRICS_BIND_ADDRESS": "127.0.0.1:0", "HEALTH_PROBE_BIND_ADDRESS": "127.0.0.1:0",
		"GARDENER_MOCK_CREATE_TIME": "0s", "GARDENER_MOCK_UPDATE_TIME": "0s",
	}
	command := clusterworkerapp.NewCommand(io.Discard, io.Discard, func(name string) (string, bool) { //nolint:contextcheck // it is given one below
		value, ok := env[name]
		return value, ok
	})
	command.SetArgs([]string{})
	running, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- command.ExecuteContext(running) }()
	defer func() { cancel(); err = errors.Join(err, <-done) }()

	if err := b.awaitZeroCount(ctx, b.owner.CountUnready); err != nil {
		return 0, err
	}
	if err := backoff.Sleep(ctx, 5*time.Second); err != nil { // a worker polls more often for a while
		return 0, err
	}
	before := between.statements.Load()
	if err := backoff.Sleep(ctx, idleTime); err != nil {
		return 0, err
	}
	n := between.statements.Load() - before
	_, _ = fmt.Fprintf(progress, "%d statements in %s\n", n, idleTime)
	return float64(n) / idleTime.Seconds(), nil
}

// A countingProxy is a proxy between a client and PostgreSQL that counts the statements.
type countingProxy struct {
	l          net.Listener
	target     string
	statements atomic.Int64
	conns      sync.WaitGroup
	ended      chan struct{}
}

// startStatementCountingProxy starts a tap on a free port. It connects to the server without TLS, and clients must do
// the same.
func startStatementCountingProxy(ctx context.Context, target string) (*countingProxy, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &countingProxy{l: l, target: target, ended: make(chan struct{})}
	go func() {
		defer close(t.ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.conns.Go(func() { t.serveConn(ctx, conn) })
		}
	}()
	return t, nil
}

// closeProxy waits until the clients have closed all connections.
func (t *countingProxy) closeProxy() error {
	err := t.l.Close()
	<-t.ended
	t.conns.Wait()
	return err
}

func (t *countingProxy) serveConn(ctx context.Context, client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", t.target)
	if err != nil {
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	})
	_ = t.forwardAndCountStatements(server, client)
	_ = server.Close()
	back.Wait()
}

// The messages by which a client executes a statement: a simple query, or a parsed one.
const (
	messageQuery   = 'Q'
	messageExecute = 'E'
)

// forwardAndCountStatements copies the messages of a client: each has a byte for its type, except for the
// first one, and the length.
func (t *countingProxy) forwardAndCountStatements(server io.Writer, client io.Reader) error {
	for first := true; ; first = false {
		head := make([]byte, 5)
		if first {
			head = head[1:]
		}
		if _, err := io.ReadFull(client, head); err != nil {
			return err
		}
		if !first && (head[0] == messageQuery || head[0] == messageExecute) {
			t.statements.Add(1)
		}
		if _, err := server.Write(head); err != nil {
			return err
		}
		length := int64(binary.BigEndian.Uint32(head[len(head)-4:])) - 4
		if _, err := io.CopyN(server, client, length); err != nil {
			return err
		}
	}
}
