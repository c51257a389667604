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
	// queueLength is the capacity of the queue between the callers and the goroutine that builds
	// batches.
	queueLength = 1024
	// maxRequests is the maximum number of concurrent requests.
	maxRequests = 8
	// checkInterval is the interval of checks of a healthy topic.
	checkInterval = 30 * time.Second
	// maxUnanswered is the number of unanswered checks after which the connection is given up: nothing
	// else detects a peer that disappeared silently.
	maxUnanswered = 3
)

// A session is one client and the events sent with it.
type session struct {
	broker *Broker
	client *pubsub.Client
	topic  string

	queue   chan *publication
	ended   chan struct{} // closed when every event of the session has its outcome
	trouble chan struct{} // has an element when a request found the service unhealthy
	slots   chan struct{} // one for each concurrent request
	work    sync.WaitGroup
}

func newSession(b *Broker) *session {
	return &session{
		broker:  b,
		topic:   b.cfg.fullTopicName(),
		queue:   make(chan *publication, queueLength),
		ended:   make(chan struct{}),
		trouble: make(chan struct{}, 1),
		slots:   make(chan struct{}, maxRequests),
	}
}

// serveUntilLost runs until ctx ends or the connection must be given up. It then waits for the requests
// in progress or cancels them.
func (s *session) serveUntilLost(ctx context.Context, client *pubsub.Client) {
	s.client = client
	b := s.broker
	// Requests in progress outlive ctx, so that they can still be confirmed.
	requestCtx, cancelRequests := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancelRequests(nil)
	stop := make(chan struct{})
	s.work.Go(func() { s.sendQueuedInBatches(requestCtx, stop) })
	b.session.Store(s)
	lost := s.checkTopicUntilLost(ctx)
	if lost == nil { // ctx has ended
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.cfg.StopTimeout)
		defer cancel()
		if err := b.window.CloseAndWaitEmpty(drain); err != nil {
			b.log.WarnContext(ctx, "stopped before all events were confirmed", "err", err)
		}
		lost = errors.New("not connected: stopped")
	}

	// Refuse new publishes, and end those that have no outcome.
	b.status.SetNotReadyReason(lost)
	b.session.Store(nil)
	close(stop)
	cancelRequests(errors.New("stopped"))
	s.work.Wait()
	close(s.ended)
}

// checkTopicUntilLost keeps the status up to date. It returns nil when ctx ends, or the reason why the
// connection must be given up.
func (s *session) checkTopicUntilLost(ctx context.Context) (reason error) {
	policy := reconnectBackoff()
	lastLogged := ""
	failures := 0   // since the topic was healthy
	unanswered := 0 // since the topic was healthy
	for {
		err := s.checkTopicAndSubscription(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // told to stop
		}
		s.broker.status.SetNotReadyReason(err)
		lastLogged = s.logStatusChange(ctx, err, lastLogged)

		wait := checkInterval
		if err == nil {
			failures, unanswered = 0, 0
		} else {
			wait = policy.Delay(failures)
			failures++
		}
		if status.Code(err) == codes.DeadlineExceeded {
			unanswered++
			if unanswered == maxUnanswered {
				return err
			}
		}

		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-s.trouble:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// logStatusChange logs a change of the status once.
func (s *session) logStatusChange(ctx context.Context, err error, lastLogged string) (logged string) {
	text := "ready"
	if err != nil {
		text = err.Error()
	}
	if text == lastLogged {
		return text
	}
	if err == nil {
		s.broker.log.InfoContext(ctx, "broker ready", "broker", "pubsub", "topic", s.topic)
	} else {
		s.broker.log.WarnContext(ctx, "broker not ready", "broker", "pubsub", "err", err)
	}
	return text
}

// checkTopicAndSubscription returns why the topic cannot be published to. If the client may
// publish but not read the topic, the answer itself shows that the service is available.
func (s *session) checkTopicAndSubscription(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.broker.cfg.ConnectTimeout)
	defer cancel()
	topics := s.client.TopicAdminClient
	topic, err := topics.GetTopic(ctx, &pubsubpb.GetTopicRequest{Topic: s.topic})
	if status.Code(err) == codes.NotFound && s.broker.cfg.EmulatorHost != "" {
		created, createErr := topics.CreateTopic(ctx, &pubsubpb.Topic{Name: s.topic})
		if createErr == nil || status.Code(createErr) == codes.AlreadyExists { // another process created it first
			topic, err = created, nil
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
	first := &pubsubpb.ListTopicSubscriptionsRequest{Topic: s.topic, PageSize: 1}
	_, err = topics.ListTopicSubscriptions(ctx, first).Next()
	hasNone := errors.Is(err, iterator.Done) // other errors show nothing about the subscriptions
	if hasNone && topic.GetMessageRetentionDuration() == nil {
		return fmt.Errorf("topic %q has no subscription, so published events would be lost: "+
			"create a subscription, or start a consumer", s.topic)
	}
	return nil
}

// sendQueuedInBatches builds batches from the queue and sends them.
func (s *session) sendQueuedInBatches(ctx context.Context, stop <-chan struct{}) {
	for {
		select {
		case s.slots <- struct{}{}: // first, so that a batch grows while it waits
		case <-stop:
			return
		}
		var batch []*publication
		select {
		case p := <-s.queue:
			batch = s.collectBatch(p)
		case <-stop:
			return
		}
		s.work.Go(func() {
			defer func() { <-s.slots }()
			s.sendBatchAndReport(ctx, batch)
		})
	}
}

// collectBatch returns the batch that begins with first.
func (s *session) collectBatch(first *publication) []*publication {
	cfg := s.broker.cfg
	batch, size := []*publication{first}, first.size
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

// sendBatchAndReport publishes a batch in one request, and reports the outcome to each caller.
func (s *session) sendBatchAndReport(ctx context.Context, batch []*publication) {
	messages := make([]*pubsubpb.PubsubMessage, 0, len(batch))
	begun := batch[:0]
	for _, p := range batch {
		if p.BeginUnlessAbandoned() {
			messages = append(messages, p.message)
			begun = append(begun, p)
		}
	}
	if len(begun) == 0 {
		return
	}
	err := s.publishMessages(ctx, messages)
	if status.Code(err) == codes.InvalidArgument && len(begun) > 1 {
		// Send each event separately, so that only the invalid one fails, and not the others.
		for _, p := range begun {
			err := s.publishMessages(ctx, []*pubsubpb.PubsubMessage{p.message})
			s.reportOutcomes(err, p)
		}
		return
	}
	s.reportOutcomes(err, begun...)
}

// publishMessages sends one request.
func (s *session) publishMessages(ctx context.Context, messages []*pubsubpb.PubsubMessage) error {
	ctx, cancel := context.WithTimeout(ctx, s.broker.cfg.PublishTimeout)
	defer cancel()
	request := &pubsubpb.PublishRequest{Topic: s.topic, Messages: messages}
	response, err := s.client.TopicAdminClient.Publish(ctx, request)
	if err != nil {
		return err
	}
	if confirmed := len(response.GetMessageIds()); confirmed != len(messages) {
		return fmt.Errorf("broker confirmed %d of %d events", confirmed, len(messages))
	}
	return nil
}

// reportOutcomes reports the outcome of a request to the callers.
func (s *session) reportOutcomes(err error, publications ...*publication) {
	outcome := s.toOutcomeAndRequestTopicCheck(err)
	for _, p := range publications {
		if !errors.Is(outcome, broker.ErrUnknownOutcome) {
			s.broker.bodies.Put(p.body) // otherwise the transport may still read it
		}
		p.ReportOutcome(outcome)
	}
}

// toOutcomeAndRequestTopicCheck returns the outcome of the events of a request, and triggers a check of the topic
// if the error does not concern the events.
func (s *session) toOutcomeAndRequestTopicCheck(err error) error {
	switch status.Code(err) {
	case codes.OK:
		return nil
	case codes.InvalidArgument,
		codes.FailedPrecondition,
		codes.ResourceExhausted,
		codes.OutOfRange,
		codes.Unimplemented:
		return fmt.Errorf("%w: %w", broker.ErrRefused, err)
	case codes.NotFound, codes.PermissionDenied, codes.Unauthenticated:
		s.requestTopicCheck()
		return fmt.Errorf("%w: topic %q: %w", broker.ErrRefused, s.topic, err)
	case codes.Canceled,
		codes.Unknown,
		codes.DeadlineExceeded,
		codes.AlreadyExists,
		codes.Aborted,
		codes.Internal,
		codes.Unavailable,
		codes.DataLoss:
		// The service may have stored the events.
	}
	s.requestTopicCheck()
	return fmt.Errorf("%w: %w", broker.ErrUnknownOutcome, err)
}

// requestTopicCheck triggers a check of the topic.
func (s *session) requestTopicCheck() {
	select {
	case s.trouble <- struct{}{}:
	default: // it is triggered already
	}
}

// The following methods implement stats.Handler. Only the end of a connection matters: nothing else
// detects it while there are no publishes.

// HandleConn triggers a check at the end of a connection.
func (s *session) HandleConn(_ context.Context, what stats.ConnStats) {
	if _, ok := what.(*stats.ConnEnd); ok {
		s.requestTopicCheck()
	}
}

// TagConn adds nothing.
func (s *session) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleRPC does nothing.
func (s *session) HandleRPC(context.Context, stats.RPCStats) {}

// TagRPC adds nothing.
func (s *session) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }
