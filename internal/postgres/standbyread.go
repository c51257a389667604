package postgres

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
)

var (
	errMalformedToken = errors.New("not a read token")
	errOtherTimeline  = errors.New("the read token is of another timeline than the primary")
)

const (
	// replayPatience is how long a read waits for a standby to replay what the read requires.
	replayPatience = 100 * time.Millisecond
	// tokenTimeout limits the time in which a written response waits for its token.
	tokenTimeout = time.Second
)

// A walHistory identifies the sequence of positions of one primary.
type walHistory struct {
	epoch    string // of the change feed
	timeline uint32
}

// A walPosition is the position of a primary in its write-ahead log.
type walPosition struct {
	walHistory

	renewed           bool // the epoch is of this history
	flushed, inserted uint64
}

func readWALPosition(ctx context.Context, primary *Pool) (position walPosition, err error) {
	err = primary.RunBatch(ctx, Scope{}, func(b *pgx.Batch) {
		b.Queue("select epoch::text, renewed, timeline, (flushed - '0/0')::bigint, (inserted - '0/0')::bigint from tenant.wal_position()").
			QueryRow(func(row pgx.Row) error {
				return row.Scan(&position.epoch, &position.renewed, &position.timeline, &position.flushed, &position.inserted)
			})
	})
	return position, err
}

// A readToken is a position that contains the writes of a client. The zero value is before all writes.
//
// Its text has a fixed length, so the later of two tokens is the greater text. No part of it belongs to a process.
type readToken struct {
	timeline uint32
	lsn      uint64
}

const readTokenLen = 4 + 8

// unknownToken is the token of writes whose position is unknown. It is of no timeline, so reads after it use the primary.
var unknownToken = strings.Repeat("F", 2*readTokenLen) //nolint:gochecknoglobals // a constant

func (t readToken) String() string { return fmt.Sprintf("%08X%016X", t.timeline, t.lsn) }

// parseReadToken parses the output of String. The empty text is the zero value.
func parseReadToken(text string) (readToken, error) {
	if text == "" {
		return readToken{}, nil
	}
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != readTokenLen || text != strings.ToUpper(text) {
		return readToken{}, errMalformedToken
	}
	return readToken{timeline: binary.BigEndian.Uint32(b), lsn: binary.BigEndian.Uint64(b[4:])}, nil
}

// ReadToken returns the token with which a read finds everything that was committed before the call. It returns "" if
// no standby is configured.
func (s *Standby) ReadToken(ctx context.Context) (primaryPosition string) {
	if s.pool == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tokenTimeout)
	defer cancel()
	position, err := readWALPosition(ctx, s.primary)
	if err != nil {
		s.log.DebugContext(ctx, "read token not read", "err", err)
		return unknownToken
	}
	// Not the flushed position: a commit with synchronous_commit=off is not flushed yet.
	return readToken{position.timeline, position.inserted}.String()
}

// RunRead calls read with a context whose batches run on the standby, if that is usable and has replayed the position of
// a token. If it is not, or if read fails, RunRead calls read with ctx itself. A read that failed must have had no effect.
// A malformed token is an error, without a call.
func (s *Standby) RunRead(ctx context.Context, after string, readStandbyOrPrimary func(context.Context) error) error {
	token, err := parseReadToken(after)
	if err != nil {
		return err
	}
	if s.pool == nil {
		return readStandbyOrPrimary(ctx)
	}
	if err = s.runOnStandby(ctx, token, readStandbyOrPrimary); err == nil || ctx.Err() != nil {
		s.metrics.onStandby.Inc()
		return err
	}
	s.metrics.onPrimary.Inc()
	s.log.DebugContext(ctx, "read uses the primary", "err", err)
	return readStandbyOrPrimary(ctx)
}

func (s *Standby) runOnStandby(ctx context.Context, token readToken, read func(context.Context) error) error {
	of, err := s.newRead(token, time.Now())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := s.registerRead(of, cancel); err != nil {
		return err
	}
	defer s.unregisterRead(of)
	return read(context.WithValue(ctx, standbyReadKey{}, of))
}

// newRead returns a read that requires the position of a token, and one that is not older than the maximum lag.
func (s *Standby) newRead(token readToken, now time.Time) (*standbyRead, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.positions) > 0 && now.Sub(s.positions[0].at) > s.maxLag {
		s.positions = s.positions[1:]
	}
	switch {
	case len(s.positions) == 0:
		return nil, errPrimaryPosition
	case token != readToken{} && token.timeline != s.history.timeline:
		return nil, errOtherTimeline
	}
	return &standbyRead{pool: s.pool, walHistory: s.history, lsn: max(s.positions[0].lsn, token.lsn)}, nil
}

// registerRead registers a read, which ends when the standby is lost.
func (s *Standby) registerRead(read *standbyRead, cancel context.CancelCauseFunc) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unusable != nil {
		return s.unusable
	}
	s.reads[read] = cancel
	return nil
}

func (s *Standby) unregisterRead(read *standbyRead) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.reads, read)
}

// A standbyRead is a read on a standby that must have replayed a position.
type standbyRead struct {
	pool *Pool
	walHistory

	lsn uint64
}

type standbyReadKey struct{}

// WithoutStandby returns a context whose batches run on the primary.
func WithoutStandby(ctx context.Context) context.Context {
	return context.WithValue(ctx, standbyReadKey{}, (*standbyRead)(nil))
}

// standbyReadOf returns the read on a standby to which the batches of ctx belong, nil for none.
func standbyReadOf(ctx context.Context) *standbyRead {
	read, _ := ctx.Value(standbyReadKey{}).(*standbyRead)
	return read
}

// A rowQuerier is a connection, of a pool or not.
type rowQuerier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// requireReplay waits until the standby of a connection has replayed the position, and returns the replayed position. Statements that
// follow on the connection see it.
func (r *standbyRead) requireReplay(ctx context.Context, conn rowQuerier) (replayed uint64, err error) {
	err = conn.QueryRow(ctx, "select (tenant.require_replay($1, $2, '0/0'::pg_lsn + $3::bigint, $4) - '0/0')::bigint",
		r.epoch, r.timeline, r.lsn, replayPatience).Scan(&replayed)
	return replayed, err
}

type standbyMetrics struct {
	usable, lag          prometheus.Gauge
	onStandby, onPrimary prometheus.Counter
}

// RegisterStandbyMetrics registers the metrics of a standby, for the metrics reference.
func RegisterStandbyMetrics(r prometheus.Registerer) error {
	_, err := newStandbyMetrics(r)
	return err
}

func newStandbyMetrics(r prometheus.Registerer) (*standbyMetrics, error) {
	reads := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fleetloop_api_standby_reads_total",
		Help: "Total number of read requests that the fleet API could answer from the standby, by the server that answered: standby, or primary if the standby was not usable, was behind the client's writes or failed.",
	}, []string{"server"})
	m := &standbyMetrics{
		usable: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fleetloop_api_standby_usable",
			Help: "1 if reads of the fleet API use the standby, and 0 if they use the primary because the standby is unreachable, lags, was promoted or follows another primary.",
		}),
		lag: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fleetloop_api_standby_lag_seconds",
			Help: "Upper bound of the lag of the standby behind the primary in seconds, measured every second while the standby is usable.",
		}),
		onStandby: reads.WithLabelValues("standby"), onPrimary: reads.WithLabelValues("primary"),
	}
	for _, c := range []prometheus.Collector{reads, m.usable, m.lag} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}
