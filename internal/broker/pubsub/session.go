package pubsub

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/iterator"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/fleetloop/fleetloop/internal/broker"
)

const (
	// queueLength lets the callers run ahead of the goroutine that makes
	// batches.
	queueLength = 1024
	// requestsAtOnce is how many requests are under way at most.
	requestsAtOnce = 8
	// lookInterval is how often a topic that is well is looked at.
	lookInterval = 30 * time.Second
	// deadLooks is after how many looks without an answer the connection is
	// given up: a peer that is gone without a word is noticed by nothing else.
	deadLooks = 3
)

// A session is one client and the events sent with it.
type session struct {
	broker *Broker
	client *pubsub.Client
	topic  string

	queue   chan *publication
	ended   chan struct{} // closed when every event of the session has its outcome
	trouble chan struct{} // has an element when a request found the service ill
	slots   chan struct{} // one for each request under way
	work    sync.WaitGroup
}

func newSession(b *Broker) *session {
	return &session{
		broker:  b,
		topic:   b.cfg.topicName(),
		queue:   make(chan *publication, queueLength),
		ended:   make(chan struct{}),
		trouble: make(chan struct{}, 1),
		slots:   make(chan struct{}, requestsAtOnce),
	}
}

// runSession works until ctx ends or the connection has to be given up. Then what is
// under way is awaited or broken off.
func (s *session) runSession(ctx context.Context, client *pubsub.Client) {
	s.client = client
	b := s.broker
	requests, breakOff := context.WithCancelCause(context.WithoutCancel(ctx))
	defer breakOff(nil)
	stop := make(chan struct{})
	s.work.Go(func() { s.collectBatches(requests, stop) })
	b.session.Store(s)
	lost := s.watchTopic(ctx)
	if lost == nil { // we are to stop
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.cfg.StopTimeout)
		defer cancel()
		if err := b.window.Drain(drain); err != nil {
			b.log.WarnContext(ctx, "stopped before all events were confirmed", "err", err)
		}
		lost = errors.New("not connected: stopped")
	}
	b.status.Set(lost)
	b.session.Store(nil)
	close(stop)
	breakOff(errors.New("stopped"))
	s.work.Wait()
	close(s.ended)
}

// watchTopic keeps the status up to date until ctx ends, which it answers with nil,
// or the connection has to be given up, which it answers with the reason.
func (s *session) watchTopic(ctx context.Context) error {
	b := s.broker
	policy := reconnects()
	said := ""
	silent := 0
	for attempt := 0; ; attempt++ {
		err := s.checkTopic(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // told to stop
		}
		b.status.Set(err)
		wait := policy.Delay(attempt)
		switch {
		case err == nil:
			attempt, silent, wait = -1, 0, lookInterval
			if said != "ready" {
				said = "ready"
				b.log.InfoContext(ctx, "broker ready", "broker", "pubsub", "topic", s.topic)
			}
		case said != err.Error():
			said = err.Error()
			b.log.WarnContext(ctx, "broker not ready", "broker", "pubsub", "err", err)
		}
		if status.Code(err) == codes.DeadlineExceeded {
			if silent++; silent == deadLooks {
				return err
			}
		}
		again := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-s.trouble:
		case <-again.C:
		}
		again.Stop()
	}
}

// checkTopic reports why the topic cannot be published to. Where we may publish but
// not look, the answer itself shows that the service is there.
func (s *session) checkTopic(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.broker.cfg.ConnectTimeout)
	defer cancel()
	topics := s.client.TopicAdminClient
	topic, err := topics.GetTopic(ctx, &pubsubpb.GetTopicRequest{Topic: s.topic})
	if status.Code(err) == codes.NotFound && s.broker.cfg.EmulatorHost != "" {
		made, failed := topics.CreateTopic(ctx, &pubsubpb.Topic{Name: s.topic})
		if failed == nil || status.Code(failed) == codes.AlreadyExists { // one of us was faster
			topic, err = made, nil
		}
	}
	switch code := status.Code(err); {
	case code == codes.PermissionDenied:
		return nil
	case code == codes.NotFound:
		return fmt.Errorf("topic %q does not exist: create it, or set topic and project_id to an existing one", s.topic)
	case code == codes.Unauthenticated:
		return fmt.Errorf("not connected: credentials rejected: %w", err)
	case err != nil:
		return fmt.Errorf("not connected: %w", err)
	}
	_, err = topics.ListTopicSubscriptions(ctx, &pubsubpb.ListTopicSubscriptionsRequest{Topic: s.topic, PageSize: 1}).Next()
	if errors.Is(err, iterator.Done) && topic.GetMessageRetentionDuration() == nil {
		return fmt.Errorf("topic %q has no subscription, so published events would be lost: create a subscription, or start a consumer", s.topic)
	}
	return nil
}

// collectBatches makes batches of what is in the queue and sends them.
func (s *session) collectBatches(ctx context.Context, stop <-chan struct{}) {
	for {
		select {
		case s.slots <- struct{}{}: // first, so that a batch grows while it has to wait
		case <-stop:
			return
		}
		var batch []*publication
		select {
		case p := <-s.queue:
			batch = s.fillBatch(p)
		case <-stop:
			return
		}
		s.work.Go(func() {
			defer func() { <-s.slots }()
			s.sendBatch(ctx, batch)
		})
	}
}

// fillBatch gives the batch that begins with p.
func (s *session) fillBatch(p *publication) []*publication {
	cfg := s.broker.cfg
	batch, size := []*publication{p}, p.size
	due := time.NewTimer(cfg.BatchDelay)
	defer due.Stop()
	for len(batch) < cfg.BatchCount && size < cfg.BatchBytes {
		select {
		case p := <-s.queue:
			batch, size = append(batch, p), size+p.size
		case <-due.C:
			return batch
		}
	}
	return batch
}

// sendBatch publishes a batch in one request, and tells each caller its outcome.
func (s *session) sendBatch(ctx context.Context, batch []*publication) {
	messages := make([]*pubsubpb.PubsubMessage, 0, len(batch))
	begun := batch[:0]
	for _, p := range batch {
		if p.Begin() {
			messages = append(messages, p.message)
			begun = append(begun, p)
		}
	}
	if len(begun) == 0 {
		return
	}
	err := s.sendRequest(ctx, messages)
	if status.Code(err) == codes.InvalidArgument && len(begun) > 1 {
		for _, p := range begun { // one of them is at fault, and not the others
			s.finishPublications(s.sendRequest(ctx, []*pubsubpb.PubsubMessage{p.message}), p)
		}
		return
	}
	s.finishPublications(err, begun...)
}

func (s *session) sendRequest(ctx context.Context, messages []*pubsubpb.PubsubMessage) error {
	ctx, cancel := context.WithTimeout(ctx, s.broker.cfg.PublishTimeout)
	defer cancel()
	got, err := s.client.TopicAdminClient.Publish(ctx, &pubsubpb.PublishRequest{Topic: s.topic, Messages: messages})
	if err == nil && len(got.GetMessageIds()) != len(messages) {
		return fmt.Errorf("broker confirmed %d of %d events", len(got.GetMessageIds()), len(messages))
	}
	return err
}

// finishPublications tells the callers what the answer to their request means.
func (s *session) finishPublications(err error, of ...*publication) {
	outcome := s.requestOutcome(err)
	for _, p := range of {
		if !errors.Is(outcome, broker.ErrUnknownOutcome) {
			s.broker.bodies.Put(p.body) // else the transport may still read it
		}
		p.Finish(outcome)
	}
}

func (s *session) requestOutcome(err error) error {
	switch status.Code(err) {
	case codes.OK:
		return nil
	case codes.InvalidArgument, codes.FailedPrecondition, codes.ResourceExhausted, codes.OutOfRange, codes.Unimplemented:
		return fmt.Errorf("%w: %w", broker.ErrRefused, err)
	case codes.NotFound, codes.PermissionDenied, codes.Unauthenticated:
		s.requestCheck()
		return fmt.Errorf("%w: topic %q: %w", broker.ErrRefused, s.topic, err)
	case codes.Canceled, codes.Unknown, codes.DeadlineExceeded, codes.AlreadyExists, codes.Aborted, codes.Internal, codes.Unavailable, codes.DataLoss:
	}
	s.requestCheck()
	return fmt.Errorf("%w: %w", broker.ErrUnknownOutcome, err)
}

// requestCheck has the topic looked at now.
func (s *session) requestCheck() {
	select {
	case s.trouble <- struct{}{}:
	default:
	}
}

// The rest is what stats.Handler wants. Of all that gRPC tells, the end of a
// connection is what matters: nothing else notices it while nobody publishes.

// HandleConn notes the end of a connection.
func (s *session) HandleConn(_ context.Context, what stats.ConnStats) {
	if _, ok := what.(*stats.ConnEnd); ok {
		s.requestCheck()
	}
}

// TagConn adds nothing.
func (s *session) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleRPC does nothing.
func (s *session) HandleRPC(context.Context, stats.RPCStats) {}

// TagRPC adds nothing.
func (s *session) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }
