package clusterworker

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// DefaultStopTimeout is the default of Config.StopTimeout: a little less than the
// specified shutdown time of the process.
const DefaultStopTimeout = 25 * time.Second

// Config is the operator's configuration of the sync. Zero fields mean their default.
type Config struct {
	PollInterval time.Duration `key:"poll_interval" env:"POLL_INTERVAL" flag:"poll-interval" default:"30s" validate:"gt=0" doc:"Poll interval for due clusters while LISTEN works: the longest delay of a change whose notification is lost."`

	Slots       int           `key:"max_concurrent_syncs" env:"CLUSTER_WORKER_MAX_CONCURRENT_SYNCS" flag:"max-concurrent-syncs" default:"32" validate:"gte=1,lte=1000" doc:"Maximum number of clusters synced concurrently. A call that takes longer than 250ms frees its slot, up to four times as many calls. Clusters whose last attempt timed out use a quarter of the slots at most."`
	Lease       time.Duration `key:"lease_duration" env:"CLUSTER_WORKER_LEASE_DURATION" flag:"lease-duration" default:"60s" validate:"gt=0" doc:"Duration of the lease on a claimed cluster, renewed while a call runs. When a worker dies, others take over its clusters after this time."`
	CallTimeout time.Duration `key:"call_timeout" env:"CLUSTER_WORKER_CALL_TIMEOUT" flag:"call-timeout" default:"60s" validate:"gt=0" doc:"Timeout of one request to Gardener. A sync sends several requests and times out after four times this value."`

	Listen            Listen        `key:"listen" env:"CLUSTER_WORKER_LISTEN" flag:"listen" default:"on" validate:"oneof=on off" doc:"Whether to use PostgreSQL LISTEN/NOTIFY: on (one connection is kept for notifications) or off (the database is polled, for connection poolers without LISTEN support)."`
	BlindPollInterval time.Duration `key:"poll_interval_without_listen" env:"CLUSTER_WORKER_POLL_INTERVAL_WITHOUT_LISTEN" default:"250ms" validate:"gt=0" doc:"Poll interval for due clusters while LISTEN is off or down, with 20% jitter."`

	CompleteDelay time.Duration `key:"result_batch_delay" env:"CLUSTER_WORKER_RESULT_BATCH_DELAY" default:"5ms" validate:"gt=0" doc:"Maximum time a result waits so that several are written in one batch."`

	// StopTimeout limits how long Run takes to end. Calls may continue for most of it,
	// and their outcomes are written in the rest. It is derived from the shutdown time
	// of the whole process. Zero means DefaultStopTimeout.
	StopTimeout time.Duration
}

// Listen is whether the worker listens for notifications of the database.
type Listen string

// Values of Listen.
const (
	ListenOn  Listen = "on"
	ListenOff Listen = "off"
)

func (c Config) withDefaultsValidated() (Config, error) {
	c.PollInterval = cmp.Or(c.PollInterval, 30*time.Second)
	c.Slots = cmp.Or(c.Slots, 32)
	c.Lease = cmp.Or(c.Lease, time.Minute)
	c.CallTimeout = cmp.Or(c.CallTimeout, time.Minute)
	c.Listen = cmp.Or(c.Listen, ListenOn)
	c.BlindPollInterval = cmp.Or(c.BlindPollInterval, 250*time.Millisecond)
	c.CompleteDelay = cmp.Or(c.CompleteDelay, 5*time.Millisecond)
	c.StopTimeout = cmp.Or(c.StopTimeout, DefaultStopTimeout)

	var errs []error
	if min(c.PollInterval, c.Lease, c.CallTimeout, c.BlindPollInterval, c.CompleteDelay, c.StopTimeout) < 0 || c.Slots < 0 {
		errs = append(errs, errors.New("durations and max_concurrent_syncs must not be negative"))
	}
	if c.Listen != ListenOn && c.Listen != ListenOff {
		errs = append(errs, fmt.Errorf("invalid listen %q: must be %s or %s", c.Listen, ListenOn, ListenOff))
	}
	return c, errors.Join(errs...)
}

// requestsPerCall is the number of requests, of CallTimeout each, that a whole call may
// take. An apply needs up to four: it finds that the Shoot exists, reads it, writes it,
// and removes node pools. A deletion needs three.
const requestsPerCall = 4

// totalCallTimeout returns the timeout of a whole call with all of its requests.
func (c Config) totalCallTimeout() time.Duration { return requestsPerCall * c.CallTimeout }

// minLeaseToStartCall returns how much of a lease must remain for a call to begin.
func (c Config) minLeaseToStartCall() time.Duration { return c.Lease / 4 }

// stopTimeReservedForWrites returns the part of the stop timeout that is reserved for writing.
func (c Config) stopTimeReservedForWrites() time.Duration { return min(5*time.Second, c.StopTimeout/4) }
