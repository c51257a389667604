package clusterworker

import (
	"errors"
	"fmt"
	"time"
)

// DefaultStopTimeout is how long Run may take to end if the configuration does
// not say: a bit less than the specified time for the process.
const DefaultStopTimeout = 25 * time.Second

// Config is what an operator settles about the sync. Fields that are zero mean
// their default.
type Config struct {
	PollInterval time.Duration `key:"poll_interval" env:"POLL_INTERVAL" flag:"poll-interval" default:"30s" validate:"gt=0" doc:"Poll interval for due clusters while LISTEN works: the longest delay of a change whose notification is lost."`

	Slots       int           `key:"max_concurrent_syncs" env:"CLUSTER_WORKER_MAX_CONCURRENT_SYNCS" flag:"max-concurrent-syncs" default:"32" validate:"gte=1,lte=1000" doc:"Maximum number of clusters synced concurrently. A call that takes longer than 250ms frees its slot, up to four times as many calls. Clusters whose last attempt timed out use a quarter of the slots at most."`
	Lease       time.Duration `key:"lease_duration" env:"CLUSTER_WORKER_LEASE_DURATION" flag:"lease-duration" default:"60s" validate:"gt=0" doc:"Duration of the lease on a claimed cluster, renewed while a call runs. When a worker dies, others take over its clusters after this time."`
	CallTimeout time.Duration `key:"call_timeout" env:"CLUSTER_WORKER_CALL_TIMEOUT" flag:"call-timeout" default:"60s" validate:"gt=0" doc:"Timeout of one request to Gardener. A sync sends several requests and times out after four times this value."`

	Listen            Listen        `key:"listen" env:"CLUSTER_WORKER_LISTEN" flag:"listen" default:"on" validate:"oneof=on off" doc:"Whether to use PostgreSQL LISTEN/NOTIFY: on (one connection is kept for notifications) or off (the database is polled, for connection poolers without LISTEN support)."`
	BlindPollInterval time.Duration `key:"poll_interval_without_listen" env:"CLUSTER_WORKER_POLL_INTERVAL_WITHOUT_LISTEN" default:"250ms" validate:"gt=0" doc:"Poll interval for due clusters while LISTEN is off or down, with 20% jitter."`

	CompleteDelay time.Duration `key:"result_batch_delay" env:"CLUSTER_WORKER_RESULT_BATCH_DELAY" default:"5ms" validate:"gt=0" doc:"Maximum time a result waits so that several are written in one batch."`

	// StopTimeout is how long Run may take to end: calls may go on for most of
	// it, and what became of them is written in the rest. It follows from the
	// time that the whole process has. Zero means DefaultStopTimeout.
	StopTimeout time.Duration
}

// Listen says whether the database tells of changes.
type Listen string

// The ways to learn of changes.
const (
	ListenOn  Listen = "on"
	ListenOff Listen = "off"
)

func (c Config) withDefaults() (Config, error) {
	orDefault(&c.PollInterval, 30*time.Second)
	orDefault(&c.Slots, 32)
	orDefault(&c.Lease, time.Minute)
	orDefault(&c.CallTimeout, time.Minute)
	orDefault(&c.Listen, ListenOn)
	orDefault(&c.BlindPollInterval, 250*time.Millisecond)
	orDefault(&c.CompleteDelay, 5*time.Millisecond)
	orDefault(&c.StopTimeout, DefaultStopTimeout)

	var errs []error
	if min(c.PollInterval, c.Lease, c.CallTimeout, c.BlindPollInterval, c.CompleteDelay, c.StopTimeout) < 0 || c.Slots < 0 {
		errs = append(errs, errors.New("durations and max_concurrent_syncs must not be negative"))
	}
	if c.Listen != ListenOn && c.Listen != ListenOff {
		errs = append(errs, fmt.Errorf("invalid listen %q: must be %s or %s", c.Listen, ListenOn, ListenOff))
	}
	return c, errors.Join(errs...)
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// requestsPerCall is how many requests of CallTimeout each a whole call may take. An
// apply needs up to four: it finds that the Shoot exists, reads it, writes it, and
// removes node pools. A deletion needs three.
const requestsPerCall = 4

// callBound is the bound of a whole call, all of its requests together.
func (c Config) callBound() time.Duration { return requestsPerCall * c.CallTimeout }

// writeReserve is the part of the time to stop that is left for writing.
func (c Config) writeReserve() time.Duration { return min(5*time.Second, c.StopTimeout/4) }
