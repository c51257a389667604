// Package pubsub publishes and receives cloud events through Google Cloud Pub/Sub.
//
// Publish returns nil only after the service has answered with the message's id. Events that are
// published at the same time share a request. Requests are not retried here, because only the
// caller knows how long an event is worth publishing; every error shows whether the event may have
// been stored.
//
// An unreachable service is not an error: the broker retries until it is stopped. Meanwhile Ready
// returns why it cannot publish, and publishes fail at once. A topic without subscriptions counts
// as not ready, because it confirms events and drops them; without the right to list subscriptions,
// this cannot be detected.
package pubsub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/broker"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
)

// Delays between attempts to connect.
const (
	firstReconnect = 100 * time.Millisecond
	lastReconnect  = 5 * time.Second
)

func reconnectBackoff() backoff.Policy {
	return backoff.Policy{Initial: firstReconnect, Max: lastReconnect}
}

// A Broker publishes to one topic.
type Broker struct {
	cfg Config
	log *slog.Logger

	status        broker.Status
	window        broker.PublishWindow
	subscriptions broker.Subscriptions
	session       atomic.Pointer[session] // nil without a client
	bodies        sync.Pool               // of *[]byte
}

// New returns a broker after checking the configuration. It starts nothing.
func New(cfg Config, log *slog.Logger) (*Broker, error) {
	cfg, err := cfg.withDefaultsValidated()
	if err != nil {
		return nil, err
	}
	return &Broker{
		cfg:    cfg,
		log:    log,
		bodies: sync.Pool{New: func() any { return new([]byte) }},
	}, nil
}

// Run connects, monitors the topic, and stops when ctx ends: it waits up to StopTimeout for
// publishes in progress, then cancels them. It is called once.
func (b *Broker) Run(ctx context.Context) error {
	defer b.status.SetNotReadyReason(errors.New("not connected: stopped"))
	policy := reconnectBackoff()
	lastLogged := "" // repeated attempts that fail for the same reason are logged once
	for attempt := 0; ctx.Err() == nil; attempt++ {
		s := newSession(b)
		client, err := b.newClient(ctx, option.WithGRPCDialOption(grpc.WithStatsHandler(s)))
		if err != nil {
			err = fmt.Errorf("not connected: %w", err)
			b.status.SetNotReadyReason(err)
			if lastLogged != err.Error() {
				lastLogged = err.Error()
				b.log.WarnContext(ctx, "broker not ready", "broker", "pubsub", "err", err)
			}
			_ = backoff.Sleep(ctx, policy.Delay(attempt)) // the loop checks ctx
			continue
		}
		attempt, lastLogged = 0, ""
		s.serveUntilLost(ctx, client)
		if err := client.Close(); err != nil {
			b.log.DebugContext(ctx, "close client failed", "err", err)
		}
	}
	// No publish is in progress without a session; this refuses new ones.
	return b.window.CloseAndWaitEmpty(context.WithoutCancel(ctx))
}

// newClient returns a client, which connects at its first use.
func (b *Broker) newClient(ctx context.Context, opts ...option.ClientOption) (*pubsub.Client, error) {
	opts = append(opts,
		option.WithGRPCDialOption(grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: grpcbackoff.Config{
				BaseDelay:  firstReconnect,
				Multiplier: backoff.DefaultFactor,
				Jitter:     backoff.DefaultJitter,
				MaxDelay:   lastReconnect, // gRPC's default of two minutes would prolong an outage
			},
			MinConnectTimeout: b.cfg.ConnectTimeout,
		})),
		option.WithTelemetryDisabled(),
	)
	if b.cfg.EmulatorHost != "" {
		opts = append(opts,
			option.WithEndpoint(b.cfg.EmulatorHost),
			option.WithoutAuthentication(),
			option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
		)
	}
	if b.cfg.CredentialsJSON != "" && b.cfg.EmulatorHost == "" {
		key := []byte(b.cfg.CredentialsJSON.Reveal())
		opts = append(opts, option.WithAuthCredentialsJSON(option.ServiceAccount, key))
	}
	client, err := pubsub.NewClientWithConfig(ctx, b.cfg.ProjectID, nil, opts...)
	usesEnvironment := b.cfg.EmulatorHost == "" && b.cfg.CredentialsJSON == ""
	switch {
	case err != nil && usesEnvironment:
		return nil, fmt.Errorf("create Pub/Sub client: no credentials: "+
			"set GOOGLE_APPLICATION_CREDENTIALS to a service account key file, or run with a Google Cloud identity: %w", err)
	case err != nil:
		return nil, fmt.Errorf("create Pub/Sub client: %w", err)
	}
	// The client's own retries last a minute and hide errors.
	client.TopicAdminClient.CallOptions.Publish = nil
	client.TopicAdminClient.CallOptions.GetTopic = nil
	client.TopicAdminClient.CallOptions.ListTopicSubscriptions = nil
	return client, nil
}

// Ready returns why events cannot be published at present, or nil.
func (b *Broker) Ready() error { return b.status.NotReadyReason() }

// SubscriptionReady returns why a subscription of Consume receives no events at present, or nil.
func (b *Broker) SubscriptionReady(subscription string) error {
	return b.subscriptions.NotReadyReason(subscription)
}

// InFlight returns the number of publishes that wait for their confirm.
func (b *Broker) InFlight() int { return b.window.Len() }

// Publish sends e and waits until the service has stored it. Many goroutines may call it; their
// number limits the unconfirmed events.
func (b *Broker) Publish(ctx context.Context, e *cloudevent.Event) error {
	err := b.validateEvent(e)
	if err == nil {
		err = b.publishOnce(ctx, e)
	}
	if err != nil {
		return fmt.Errorf("publish cloud event %q: %w", e.ID, err)
	}
	return nil
}

// validateEvent refuses an event that no attempt can publish.
func (b *Broker) validateEvent(e *cloudevent.Event) error {
	if err := e.Validate(); err != nil {
		return backoff.Permanent(err)
	}
	for name, value := range e.Attributes {
		if len(value) > longestAttribute {
			return backoff.Permanent(fmt.Errorf("%s has %d bytes; Pub/Sub allows %d in an attribute",
				name, len(value), longestAttribute))
		}
	}
	return nil
}

// publishOnce passes an event to the current session and waits for its outcome.
func (b *Broker) publishOnce(ctx context.Context, e *cloudevent.Event) error {
	if !b.window.BeginPublish() {
		return fmt.Errorf("%w: stopped", broker.ErrNotReady)
	}
	defer b.window.EndPublish()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s := b.session.Load()
	if err := b.status.NotReadyReason(); err != nil || s == nil {
		return broker.NewNotReadyError(err)
	}
	p := b.encodePublication(e)
	if p.size > mostBytes {
		return backoff.Permanent(fmt.Errorf("event has %d bytes, more than the Pub/Sub request limit", p.size))
	}
	select {
	case s.queue <- p:
	case <-s.ended:
		return broker.ErrNotReady
	case <-ctx.Done():
		return fmt.Errorf("not sent: %w", context.Cause(ctx))
	}
	return p.AwaitOutcomeOrAbandon(ctx, s.ended)
}
