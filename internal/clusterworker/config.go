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
	PollInterval time.Duration `key:"poll_interval" env:"POLL_INTERVAL" flag:"poll-interval" default:"30s" validate:"gt=0" doc:"How often to look for due clusters while the database tells of changes: the bound for what no notification tells."`

	Slots       int           `key:"slots" env:"CLUSTER_WORKER_SLOTS" flag:"slots" default:"32" validate:"gte=1,lte=1000" doc:"How many clusters are brought to Gardener at the same time. A call that takes longer than a quarter of a second frees its slot, for up to four times as many calls. Clusters whose last try timed out hold a quarter of the slots at most."`
	Lease       time.Duration `key:"lease" env:"CLUSTER_WORKER_LEASE" flag:"lease" default:"60s" validate:"gt=0" doc:"For how long a cluster is this worker's. It is renewed while a call runs. A cluster of a worker that died is taken over when its lease ends."`
	CallTimeout time.Duration `key:"call_timeout" env:"CLUSTER_WORKER_CALL_TIMEOUT" flag:"call-timeout" default:"60s" validate:"gt=0" doc:"Bound of one request of a sync to Gardener, and of a probe. A sync makes several requests and may take four times as long in all."`

	Listen            Listen        `key:"listen" env:"CLUSTER_WORKER_LISTEN" flag:"listen" default:"on" validate:"oneof=on off" doc:"Whether the database tells of changes: on (a connection is kept for its notifications) or off (it is asked often, for connection poolers that know no LISTEN)."`
	BlindPollInterval time.Duration `key:"blind_poll_interval" env:"CLUSTER_WORKER_BLIND_POLL_INTERVAL" default:"250ms" validate:"gt=0" doc:"How often to look for due clusters while the database does not tell of changes; up to a fifth sooner or later."`

	CompleteDelay time.Duration `key:"complete_delay" env:"CLUSTER_WORKER_COMPLETE_DELAY" default:"5ms" validate:"gt=0" doc:"How long a result may wait for others, to be written together with them."`

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
		errs = append(errs, errors.New("times and slots must not be negative"))
	}
	if c.Listen != ListenOn && c.Listen != ListenOff {
		errs = append(errs, fmt.Errorf("listen is %q; it can be %s or %s", c.Listen, ListenOn, ListenOff))
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

// reserve is the part of the time to stop that is left for writing.
func (c Config) reserve() time.Duration { return min(5*time.Second, c.StopTimeout/4) }
