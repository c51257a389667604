package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A stream is the stream of the events, on a connection.
type stream struct {
	cfg    Config
	log    *slog.Logger
	server Server // nil for an external server
}

// createIfMissingAndCheck creates the stream if it is missing, and checks that it stores the
// events it acknowledges.
func (s stream) createIfMissingAndCheck(ctx context.Context, conn *nats.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ConnectTimeout)
	defer cancel()
	js, err := jetstream.New(conn)
	if err != nil {
		return fmt.Errorf("stream %q: %w", s.cfg.Stream, err)
	}
	found, err := js.Stream(ctx, s.cfg.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if s.server != nil && s.server.HasData(s.cfg.Stream) {
			return fmt.Errorf("stream %q: data in %q is corrupt: move the directory away, or restore a backup",
				s.cfg.Stream, s.server.Dir())
		}
		// Not ctx: if an embedded server is stopped while it creates the stream, it abandons the
		// stream and goes on writing to the folder.
		createCtx, cancelCreate := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.ConnectTimeout)
		defer cancelCreate()
		found, err = js.CreateStream(createCtx, s.cfg.newStreamConfig())
	}
	if err != nil {
		return fmt.Errorf("stream %q: %w", s.cfg.Stream, err)
	}
	return s.checkExistingConfig(ctx, js, found.CachedInfo().Config)
}

// newStreamConfig returns the configuration of a new stream. A full stream refuses new events.
func (c Config) newStreamConfig() jetstream.StreamConfig {
	const unlimited = -1
	return jetstream.StreamConfig{
		Name:        c.Stream,
		Description: "Fleetloop cloud events",
		Subjects:    c.newStreamSubjects(),
		Storage:     jetstream.FileStorage,
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardNew,
		Replicas:    c.Replicas,
		MaxAge:      c.MaxAge,
		MaxBytes:    cmp.Or(c.MaxBytes, unlimited),
		MaxMsgs:     cmp.Or(c.MaxMessages, unlimited),
		Duplicates:  c.DuplicateWindow,
	}
}

// checkExistingConfig refuses a stream whose acknowledgement does not mean that it stored the event. It
// warns about a stream that can lose the event later.
func (s stream) checkExistingConfig(
	ctx context.Context, js jetstream.JetStream, existing jetstream.StreamConfig,
) error {
	sample := s.cfg.subjectFor("com.redhat.hyperfleet.cluster.reconcile")
	owner, err := js.StreamNameBySubject(ctx, sample)
	switch {
	case err != nil && !errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Errorf("stream %q: find stream of subject %q: %w", s.cfg.Stream, sample, err)
	case owner != s.cfg.Stream:
		return fmt.Errorf("stream %q does not have the subject %q (it has %s): add the subject, or set another stream or topic",
			s.cfg.Stream, sample, strings.Join(existing.Subjects, ", "))
	case existing.NoAck:
		return fmt.Errorf("stream %q does not acknowledge events: turn no_ack off", s.cfg.Stream)
	case existing.Retention == jetstream.InterestPolicy:
		return fmt.Errorf("stream %q acknowledges events that it does not store (retention %q): use retention limits",
			s.cfg.Stream, "interest")
	}
	if existing.Discard == jetstream.DiscardOld && (existing.MaxMsgs > 0 || existing.MaxBytes > 0) {
		s.log.WarnContext(ctx, "stream discards its oldest events when it is full", "stream", s.cfg.Stream)
	}
	if existing.Storage != jetstream.FileStorage {
		s.log.WarnContext(ctx, "stream is stored in memory only and is lost with its server", "stream", s.cfg.Stream)
	}
	return nil
}
