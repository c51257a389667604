package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// StandbyConfig is the configuration of reads from a standby.
type StandbyConfig struct {
	// URL may lead to several standbys, because each read checks the one that it uses.
	URL settings.Secret `key:"url" env:"DATABASE_READ_URL" file:"url_file" secret:"true" doc:"PostgreSQL URL of a streaming standby for lists and other reads (default: the primary answers them)"`

	// MaxLag bounds the age of what a standby answers. Clients forget their read tokens some time after the maximum.
	MaxLag time.Duration `key:"max_lag" env:"DATABASE_READ_MAX_LAG" flag:"database-read-max-lag" default:"10s" validate:"min=1s,max=1m" doc:"maximum lag of a standby behind the primary; a standby with a greater lag is not used"`
}

// DefaultMaxLag is the default of StandbyConfig.MaxLag.
const DefaultMaxLag = 10 * time.Second

const (
	// measureEvery is the maximum interval between two measurements, and measuresPerLag the minimum number of
	// measurements in the maximum lag.
	measureEvery   = time.Second
	measuresPerLag = 10
	renewBatch     = 100_000
)

var (
	errNotChecked      = errors.New("the standby was not checked yet")
	errStandbyLost     = errors.New("the standby can no longer be used")
	errPrimaryPosition = errors.New("the position of the primary is unknown")
)

// A Standby runs reads on a streaming standby of a primary.
//
// Run records which positions in the write-ahead log the primary had flushed at which times. A read uses the standby only
// if it has replayed the oldest recorded position that is younger than the maximum lag, which also bounds the lag
// on an idle primary. Each read checks this on its own connection before it takes its snapshot. A standby that lags,
// was promoted or follows another server is so found by the first read that meets it.
type Standby struct {
	primary *Pool
	pool    *Pool // nil if no standby is configured
	maxLag  time.Duration
	log     *slog.Logger
	metrics *standbyMetrics

	mu        sync.Mutex
	history   walHistory
	positions []walMeasurement // ascending, not older than the maximum lag
	unusable  error            // why the standby is not used, nil while it is
	reads     map[*standbyRead]context.CancelCauseFunc
}

// A walMeasurement is a position that the primary had flushed at a time.
type walMeasurement struct {
	at  time.Time
	lsn uint64
}

// NewStandby returns a standby of a primary. Without a URL, all reads use the primary. It does not connect yet. The
// caller must call Run, or Close.
func NewStandby(cfg StandbyConfig, connections Config, primary *Pool, log *slog.Logger, r prometheus.Registerer) (*Standby, error) {
	s := &Standby{
		primary: primary, maxLag: cmp.Or(cfg.MaxLag, DefaultMaxLag), log: log,
		unusable: errNotChecked, reads: map[*standbyRead]context.CancelCauseFunc{},
	}
	if cfg.URL == "" {
		return s, nil
	}
	var err error
	if s.metrics, err = newStandbyMetrics(r); err != nil {
		return nil, err
	}
	connections.URL = cfg.URL
	pc, err := connections.withDefaults().newPoolConfig()
	if err != nil {
		return nil, fmt.Errorf("standby: %w", err)
	}
	pc.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsStandby
	pool, err := pgxpool.NewWithConfig(context.Background(), pc) // the context is for idle connections, of which there are none
	if err != nil {
		return nil, fmt.Errorf("create the connection pool of the standby: %w", err)
	}
	s.pool = &Pool{pool: pool, log: log}
	return s, nil
}

// Close closes the connections to the standby.
func (s *Standby) Close() {
	if s.pool != nil {
		s.pool.Close()
	}
}

// Run measures the primary and the standby until ctx ends, then closes the connections to the standby.
func (s *Standby) Run(ctx context.Context) error {
	defer s.Close()
	if s.pool == nil {
		<-ctx.Done()
		return nil
	}
	var conn *pgx.Conn
	defer func() { closeConn(ctx, conn) }()
	for {
		// If the primary is unavailable, the positions from before still bound the lag.
		primaryErr := s.recordPrimaryWALAndRenewFeed(ctx)
		var err error
		if conn, err = s.checkStandby(ctx, conn); err != nil {
			err = errors.Join(err, primaryErr)
		}
		if ctx.Err() != nil {
			return nil
		}
		s.storeAndLogState(ctx, err)
		if backoff.Sleep(ctx, min(measureEvery, s.maxLag/measuresPerLag)) != nil {
			return nil
		}
	}
}

// recordPrimaryWALAndRenewFeed records the position of the primary. After a failover it begins the new epoch first, because the standby
// proves with it that it follows the new primary.
func (s *Standby) recordPrimaryWALAndRenewFeed(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, min(probeTimeout, s.maxLag/2))
	defer cancel()
	now := time.Now()
	position, err := readWALPosition(ctx, s.primary)
	if err == nil && !position.renewed {
		err = s.primary.RunBatch(ctx, Scope{}, func(b *pgx.Batch) { b.Queue("select tenant.renew_change_feed($1)", renewBatch) })
		if err == nil {
			err = errors.New("the change feed begins a new epoch")
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errPrimaryPosition, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.history != position.walHistory {
		s.history, s.positions = position.walHistory, nil
	}
	s.positions = append(s.positions, walMeasurement{at: now, lsn: position.flushed})
	return nil
}

// checkStandby checks the standby on a connection of its own, because a pool whose connections are all busy must not look like a dead
// server. It closes the connection if the check fails, and returns it otherwise.
func (s *Standby) checkStandby(ctx context.Context, conn *pgx.Conn) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, min(probeTimeout, s.maxLag), errors.New("the standby did not answer in time"))
	defer cancel()
	read, err := s.newRead(readToken{}, time.Now())
	if err == nil && conn == nil {
		conn, err = pgx.ConnectConfig(ctx, s.pool.pool.Config().ConnConfig.Copy())
	}
	var replayed uint64
	if err == nil {
		replayed, err = read.requireReplay(ctx, conn)
	}
	if err != nil {
		closeConn(ctx, conn)
		return nil, fmt.Errorf("check the standby: %w", redactConnError(err))
	}
	s.metrics.lag.Set(s.lagOf(replayed, time.Now()).Seconds())
	return conn, nil
}

// lagOf returns the time since the primary had a position that the standby has replayed.
func (s *Standby) lagOf(replayed uint64, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, position := range slices.Backward(s.positions) {
		switch {
		case position.lsn > replayed:
		case i == len(s.positions)-1:
			return 0
		default:
			return now.Sub(position.at)
		}
	}
	return s.maxLag
}

// storeAndLogState stores whether the standby is used, and logs changes. The reads on a lost standby end, and its connections are
// closed, because they may lead to a server that was promoted.
func (s *Standby) storeAndLogState(ctx context.Context, err error) {
	s.mu.Lock()
	before := s.unusable
	s.unusable = err
	if err != nil {
		for _, cancel := range s.reads {
			cancel(errStandbyLost)
		}
	}
	s.mu.Unlock()
	switch {
	case err == nil && before != nil:
		s.metrics.usable.Set(1)
		s.log.InfoContext(ctx, "reads use the standby")
	case err != nil:
		s.metrics.usable.Set(0)
		s.pool.pool.Reset()
		if before == nil || errors.Is(before, errNotChecked) {
			s.log.WarnContext(ctx, "standby not usable, reads use the primary", "err", err)
		}
	}
}
