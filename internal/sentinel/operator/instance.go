package operator

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/sentinel/sentinelconfig"
	"github.com/fleetloop/fleetloop/internal/sentinel/state"
)

// InstanceDeps holds the dependencies of an instance. OpenAPI, OpenBroker and Log are required, and
// NewPart and NewGroup if resources are divided; all others may be nil.
type InstanceDeps struct {
	// OpenAPI and OpenBroker create a connection and start nothing. An error means that the
	// settings are wrong.
	OpenAPI    func(sentinel.API) (FleetAPI, error)
	OpenBroker func(sentinelconfig.Broker) (Broker, error)

	// NewPart returns one of count parts of the resources. NewGroup returns a group that divides
	// them among the replicas with this configuration.
	NewPart  func(count, index int) (sentinel.Shard, error)
	NewGroup func() (ReplicaGroup, error)

	Log        *slog.Logger
	Registerer prometheus.Registerer

	// LoadErrors counts failed loads while no sentinel is in force. Nil creates one from
	// Registerer.
	LoadErrors *sentinel.LoadErrors

	Tracer      trace.Tracer
	OnPublished func(sentinel.Published)

	// OnChange is called after changes of InstanceState other than its counts. It must not block.
	OnChange func()

	// Retry is the delay before a failed sentinel is restarted. The zero value starts at one second
	// and grows to one minute.
	Retry backoff.Policy
}

// WantedConfig is the wanted configuration.
type WantedConfig struct {
	// Generation is the generation of the spec.
	Generation int64

	// Settings are the settings of the spec, with the data of its Secrets.
	Settings sentinelconfig.Settings

	// Spec is the source of the settings, for the log.
	Spec v1alpha1.SentinelConfigSpec
}

// An Instance runs the sentinel of one SentinelConfig. Create it with NewInstance and call Run
// once.
//
// Apply and RefuseGeneration set the wanted configuration, and the Instance then works independently. A
// change takes effect without losing or repeating an event: connections with changed settings are
// opened anew and must respond before the old ones are closed. Then the old sentinel is stopped,
// its outstanding work is awaited, and the new one continues from it. A refused change leaves the
// previous configuration in force. A sentinel that panics, or whose connections stop unexpectedly,
// is restarted after a while.
//
// An Instance knows nothing about Kubernetes: while the host cluster is down, it simply gets no new
// configuration.
type Instance struct {
	deps InstanceDeps
	log  *slog.Logger

	// mail contains an element while wanted or refused is new.
	mail chan struct{}

	mu      sync.Mutex
	wanted  *WantedConfig    // nil if the last configuration was refused
	refused *Refusal         // nil unless the last configuration was refused
	seen    int64            // generation of the last configuration
	watches string           // the last requested collection, empty while unknown
	current *runningSentinel // nil before the first sentinel
	group   *groupRun        // nil if the resources are not divided
	state   InstanceState
}

// NewInstance returns an instance without a configuration.
func NewInstance(deps InstanceDeps) *Instance {
	if deps.OnChange == nil {
		deps.OnChange = func() {}
	}
	if deps.Retry.Initial == 0 {
		deps.Retry = backoff.Policy{Initial: time.Second, Max: time.Minute}
	}
	if deps.LoadErrors == nil {
		deps.LoadErrors = sentinel.NewLoadErrors(deps.Registerer)
	}
	return &Instance{deps: deps, log: deps.Log, mail: make(chan struct{}, 1)}
}

// Apply requests that the instance run w as soon as possible. It does not wait. The last call wins.
func (i *Instance) Apply(w WantedConfig) {
	i.setWantedAndNotify(w.Generation, w.Settings.Sentinel.ResourceType, &w, nil)
}

// RefuseGeneration reports that a generation was refused, and why. The running sentinel continues.
func (i *Instance) RefuseGeneration(r Refusal) {
	i.setWantedAndNotify(r.Generation, r.ResourceType, nil, &r)
}

func (i *Instance) setWantedAndNotify(generation int64, resourceType string, wanted *WantedConfig, refused *Refusal) {
	i.mu.Lock()
	i.seen, i.watches = generation, resourceType
	i.wanted, i.refused = wanted, refused
	i.mu.Unlock()
	select {
	case i.mail <- struct{}{}:
	default: // an earlier notice is still there
	}
}

// Run runs the wanted configuration until ctx ends, and returns when everything of the instance has
// stopped. No event is in flight then.
func (i *Instance) Run(ctx context.Context) error {
	v := &supervisor{instance: i, log: i.log, retry: time.NewTimer(time.Hour)}
	v.retry.Stop()
	defer v.stopAndUnregister()
	for ctx.Err() == nil {
		// A panic in a step is a failure of this instance alone.
		err := callRecoveringPanic("the instance", func() error {
			v.awaitAndRunStep(ctx)
			return nil
		})
		if err != nil {
			v.cleanUpAndScheduleRestart(ctx, err)
		}
	}
	return nil
}

// redactSecrets removes the secrets of the wanted configuration, and of the one in force, from an
// error.
func (i *Instance) redactSecrets(err error) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.wanted != nil {
		err = redactSecrets(err, listSecretValues(&i.wanted.Settings))
	}
	if i.current != nil {
		err = redactSecrets(err, listSecretValues(&i.current.wanted.Settings))
	}
	return err
}

// CountLoadFailure counts that the configuration could not be loaded, whether or not an earlier one
// was.
func (i *Instance) CountLoadFailure() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.current != nil {
		i.current.sentinel.CountConfigNotLoaded()
		return
	}
	if i.state.Stopped {
		return
	}
	if err := i.deps.LoadErrors.CountLoadFailure(i.watches); err != nil {
		i.log.Error("metrics of a failed configuration load not registered", "err", err)
	}
}

// Decisions returns what the sentinel in force watches, and its latest decisions. ok is false if
// there is no sentinel.
func (i *Instance) Decisions() (watchDescription string, decisions *state.DecisionRecord, running bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.current == nil {
		return "", nil, false
	}
	return i.current.sentinel.DescribeWatch(), i.current.sentinel.Decisions(), true
}

// errNoConfig is the readiness error of an instance without a sentinel.
var errNoConfig = errors.New("no configuration is active")

// Ready returns why the instance cannot work now.
func (i *Instance) Ready() error {
	i.mu.Lock()
	current, group, failure, refusal := i.current, i.group, i.state.Failure, i.state.Refusal
	i.mu.Unlock()
	switch {
	case current == nil && refusal != nil:
		return refusal.Err
	case current == nil:
		return errNoConfig
	case failure != nil:
		return failure
	}
	err := current.sentinel.Ready()
	if group != nil {
		err = errors.Join(err, group.Ready()) // it owns nothing until it is a member
	}
	return err
}

// Live returns an error if the sentinel in force makes no progress.
func (i *Instance) Live() error {
	i.mu.Lock()
	current := i.current
	i.mu.Unlock()
	if current == nil {
		return nil
	}
	return current.sentinel.Live()
}
