package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fleetloop/fleetloop/internal/broker/nats"
	"github.com/fleetloop/fleetloop/internal/broker/nats/natsserver"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// natsRawBase separates the ids of the raw side from those of the adapter: a repeated id costs the
// server less.
const natsRawBase = 1 << 40

// natsEvents is the number of events in a turn: each one is a sync of the disk.
const natsEvents = 2000

// A natsBed is an embedded server, an adapter, and a separate client. Both connect over the loopback
// address.
type natsBed struct {
	owner, broker *nats.Broker
	stops         []func()
	conn          *natsgo.Conn
	js            jetstream.JetStream
	from          atomic.Int64
}

// startNATSBed starts the server in a folder, which is not removed, and connects.
func startNATSBed(ctx context.Context, dir string) (*natsBed, error) {
	b := &natsBed{}
	if err := b.startAndConnect(ctx, dir); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

func (b *natsBed) startAndConnect(ctx context.Context, dir string) error {
	log := slog.New(slog.DiscardHandler)
	var err error
	if b.owner, err = natsserver.NewBrokerStartingServerOnRun(natsserver.Config{Dir: dir}, nats.Config{}, log); err != nil {
		return err
	}
	if err := b.startBroker(ctx, b.owner); err != nil {
		return err
	}
	if b.broker, err = nats.New(nats.Config{URL: settings.Secret(b.owner.URL())}, log); err != nil {
		return err
	}
	if err := b.startBroker(ctx, b.broker); err != nil {
		return err
	}
	if b.conn, err = natsgo.Connect(b.owner.URL()); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	b.js, err = jetstream.New(b.conn, jetstream.WithPublishAsyncMaxPending(publishWindow))
	return err
}

func (b *natsBed) startBroker(ctx context.Context, broker *nats.Broker) error {
	stop, err := startRunnerAndAwaitReady(ctx, broker)
	if err != nil {
		return err
	}
	b.stops = append(b.stops, stop)
	return nil
}

// Close stops everything that startNATSBed started.
func (b *natsBed) Close() {
	if b.conn != nil {
		b.conn.Close()
	}
	for i := len(b.stops); i > 0; i-- {
		b.stops[i-1]()
	}
}

// NewAdapterSide returns the side that publishes through the adapter.
func (b *natsBed) NewAdapterSide() publishFunc { return newConcurrentPublishFunc(b.broker) }

// PublishRaw is the tight loop: one goroutine publishes encoded events with the library's asynchronous
// call, and continues as acknowledgements arrive.
func (b *natsBed) PublishRaw(_ context.Context, n, window int) error {
	base := natsRawBase + int(b.from.Add(int64(n))) - n
	bodies := newPublishBodies(base, n)
	futures := make([]jetstream.PubAckFuture, 0, n)
	take := func(f jetstream.PubAckFuture) error {
		select {
		case <-f.Ok():
			return nil
		case err := <-f.Err():
			return errors.Join(errors.New("an event was not acknowledged"), err)
		}
	}
	for i, body := range bodies {
		if i >= window {
			if err := take(futures[i-window]); err != nil {
				return err
			}
		}
		f, err := b.js.PublishAsync(nats.DefaultTopic+".raw", body, jetstream.WithMsgID(newCloudEvent(base+i).ID))
		if err != nil {
			return err
		}
		futures = append(futures, f)
	}
	for _, f := range futures[max(0, n-window):] {
		if err := take(f); err != nil {
			return err
		}
	}
	return nil
}

// PurgeMessages purges the stream.
func (b *natsBed) PurgeMessages(ctx context.Context) error {
	stream, err := b.js.Stream(ctx, nats.DefaultTopic)
	if err != nil {
		return err
	}
	return stream.Purge(ctx)
}

// benchmarkNATSPublish runs the benchmark in a folder and writes one line for each result.
func benchmarkNATSPublish(ctx context.Context, dir string, w io.Writer) ([]publishResult, error) {
	b, err := startNATSBed(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	m := publishComparison{
		Name: "broker.nats_vs_raw", Want: 0.85, Events: natsEvents,
		Ours: b.NewAdapterSide(), Theirs: b.PublishRaw, Between: b.PurgeMessages,
	}
	r, err := m.Run(ctx)
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(w, "%s\n", r)
	return []publishResult{r}, err
}
