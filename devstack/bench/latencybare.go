package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/fleetloop/fleetloop/internal/backoff"
)

const (
	bareChannel = "bench_changed"
	// bareChange changes a spec as the fleet API does, with the same triggers, and notifies. It does not write the
	// columns that the fleet API repeats or derives, such as the labels and the conditions.
	bareChange = `with changed as (
		update tenant.resources set spec = $2, generation = generation + 1, updated_time = now()
		where kind = 'Cluster' and id = $1 returning id
	) select pg_notify('` + bareChannel + `', id::text) from changed`
)

// measureBareDelays changes the same specs on the same schedule by SQL. Each commit notifies a listener, which
// publishes an event. It returns the delays from the scheduled times to the broker's confirmations.
func measureBareDelays(
	ctx context.Context,
	databaseURL string,
	broker *rabbitMQBed,
	fleet databaseFleet,
) (took []time.Duration, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := runVacuumAndCheckpoint(ctx, databaseURL); err != nil {
		return nil, err
	}
	publisher, err := startBarePublisher(ctx, databaseURL, broker)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.New(ctx, databaseURL)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	changer := changer{fleet: fleet}
	begin := time.Now().Add(changeEvery)
	errs := make([]error, warmUp+changes)
	var sent sync.WaitGroup
	for i := range errs {
		if err := backoff.Sleep(ctx, time.Until(begin.Add(time.Duration(i)*changeEvery))); err != nil {
			return nil, err
		}
		sent.Go(func() { _, errs[i] = pool.Exec(ctx, bareChange, changer.resourceID(i), newChangedSpec(i)) })
	}
	sent.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for i := warmUp; i < len(errs); i++ {
		at, err := publisher.awaitConfirm(ctx, changer.resourceID(i))
		if err != nil {
			return nil, err
		}
		took = append(took, at.Sub(begin.Add(time.Duration(i)*changeEvery)))
	}
	return took, nil
}

// markAllSynced makes the fleet one whose clusters are all synced. The fleet API counts the others over and over.
func markAllSynced(ctx context.Context, databaseURL string) error {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `update tenant.cluster_sync set synced = now(), synced_generation = generation,
		cluster_generation = 1, unsynced_since = null`)
	return errors.Join(err, conn.Close(ctx))
}

// awaitFleetCounted waits until the fleet API has counted the fleet, which was loaded without it. The bare loop runs
// before.
func awaitFleetCounted(ctx context.Context, databaseURL string) error {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	for counted := false; !counted && err == nil; {
		err = conn.QueryRow(ctx, "select as_of is not null from tenant.rollup").Scan(&counted)
		if err == nil && !counted {
			err = backoff.Sleep(ctx, 100*time.Millisecond)
		}
	}
	return errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
}

// runVacuumAndCheckpoint does the upkeep of what was loaded or changed, so that it does not fall into one side of the
// comparison alone.
func runVacuumAndCheckpoint(ctx context.Context, databaseURL string) error {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	for _, statement := range []string{"vacuum (analyze)", "checkpoint"} {
		if err == nil {
			_, err = conn.Exec(ctx, statement)
		}
	}
	return errors.Join(err, conn.Close(ctx))
}

// A barePublisher publishes an event for each notification.
type barePublisher struct {
	listener  *pgx.Conn
	channel   *amqp091.Channel
	confirmed confirmedEvents
	failed    chan error
}

func startBarePublisher(ctx context.Context, databaseURL string, broker *rabbitMQBed) (*barePublisher, error) {
	channel, err := broker.conn.Channel()
	if err != nil {
		return nil, err
	}
	if err := channel.Confirm(false); err != nil {
		return nil, err
	}
	listener, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return nil, err
	}
	if _, err := listener.Exec(ctx, "listen "+bareChannel); err != nil {
		return nil, errors.Join(err, listener.Close(ctx))
	}
	p := &barePublisher{
		listener: listener, channel: channel,
		confirmed: confirmedEvents{at: map[string]time.Time{}},
		failed:    make(chan error, 1),
	}
	go func() {
		err := p.publishNotifications(ctx)
		p.failed <- errors.Join(err, listener.Close(context.WithoutCancel(ctx)), channel.Close())
	}()
	return p, nil
}

func (p *barePublisher) publishNotifications(ctx context.Context) error {
	const mandatory, immediate = true, false
	messages := newAMQPMessages(warmUp + changes)
	for n := 0; ; n++ {
		changed, err := p.listener.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		m := messages[n]
		confirmation, err := p.channel.PublishWithDeferredConfirmWithContext(ctx, exchange, m.Type, mandatory, immediate, m)
		if err != nil {
			return err
		}
		go func() {
			if acked, err := confirmation.WaitContext(ctx); err == nil && acked {
				p.confirmed.recordChangeConfirmTime(childEvent{ResourceID: changed.Payload, Generation: 2, At: time.Now()})
			}
		}()
	}
}

func (p *barePublisher) awaitConfirm(ctx context.Context, id string) (time.Time, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, eventPatience, fmt.Errorf("no event about %s within %s", id, eventPatience))
	defer cancel()
	for {
		if at, ok := p.confirmed.findConfirmTime(id); ok {
			return at, nil
		}
		select {
		case err := <-p.failed:
			return time.Time{}, err
		default:
		}
		if backoff.Sleep(ctx, time.Millisecond) != nil {
			return time.Time{}, context.Cause(ctx)
		}
	}
}

// reportDelayRatio prints the delays of both sides, and returns the ratio of their 99th percentiles.
func reportDelayRatio(progress io.Writer, took delays) float64 {
	reportDelays(progress, "the API's answer", took.answer)
	p99 := reportDelays(progress, "the broker's confirm", took.event)
	bare := reportDelays(progress, "the broker's confirm, by a bare loop", took.bare)
	return float64(p99) / float64(bare)
}
