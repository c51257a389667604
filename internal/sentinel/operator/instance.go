package operator

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
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
// Apply and Refuse set the wanted configuration, and the Instance then works independently. A
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

	// Used only by the goroutine of Run.
	next    *candidate // waits for its connections to answer
	group   *groupRun
	retry   *time.Timer // runs until a failed sentinel is restarted
	crashes int

	mu      sync.Mutex
	wanted  *WantedConfig
	refused *Refusal
	seen    int64
	watches string           // the last requested collection, empty while unknown
	current *runningSentinel // nil before the first sentinel
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
	retry := time.NewTimer(time.Hour)
	retry.Stop()
	return &Instance{deps: deps, log: deps.Log, mail: make(chan struct{}, 1), retry: retry}
}

// Apply requests that the instance run w as soon as possible. It does not wait. The last call wins.
func (i *Instance) Apply(w WantedConfig) {
	i.postWanted(w.Generation, w.Settings.Sentinel.ResourceType, &w, nil)
}

// Refuse reports that a generation was refused, and why. The running sentinel continues.
func (i *Instance) Refuse(r Refusal) { i.postWanted(r.Generation, r.ResourceType, nil, &r) }

func (i *Instance) postWanted(generation int64, resourceType string, wanted *WantedConfig, refused *Refusal) {
	i.mu.Lock()
	i.seen, i.watches, i.wanted, i.refused = generation, resourceType, wanted, refused
	i.mu.Unlock()
	select {
	case i.mail <- struct{}{}:
	default:
	}
}

// Run runs the wanted configuration until ctx ends, and returns when everything of the instance has
// stopped. No event is in flight then.
func (i *Instance) Run(ctx context.Context) error {
	defer i.shutDown()
	for ctx.Err() == nil {
		i.runStep(ctx)
	}
	return nil
}

// runStep waits for the next step and runs it. A panic in it is a failure of this instance alone.
func (i *Instance) runStep(ctx context.Context) {
	defer func() {
		if value := recover(); value != nil {
			i.handlePanic(ctx, panicError("the instance", value))
		}
	}()
	select {
	case <-ctx.Done():
	case <-i.mail:
		i.processWanted(ctx)
	case <-i.next.answered():
		next := i.next
		i.next = nil
		next.stopWaiting()
		i.promoteParts(ctx, next.parts)
	case err := <-i.current.failures():
		i.stopAndScheduleRestart(ctx, err)
	case err := <-i.group.failures():
		i.stopAndScheduleRestart(ctx, err)
	case <-i.retry.C:
		i.restartSentinel(ctx)
	}
}

// handlePanic cleans up after a panic in a step, and schedules a retry. The running sentinel
// continues.
func (i *Instance) handlePanic(ctx context.Context, err error) {
	i.dropCandidate()
	if r := i.current; r == nil || r.hasStopped() {
		if r != nil {
			r.broken = true
		}
		i.leaveGroup() // other replicas serve its share meanwhile
	}
	i.scheduleRestart(ctx, err)
}

// scheduleRestart schedules a call of restartSentinel.
func (i *Instance) scheduleRestart(ctx context.Context, err error) {
	err = i.redactSecrets(err)
	wait := i.deps.Retry.Delay(i.crashes)
	i.crashes++
	i.retry.Reset(wait)
	i.log.ErrorContext(ctx, "sentinel failed, restarting", "in", wait, "err", err)
	i.setState(func(s *InstanceState) { s.Failure = err })
}

// processWanted processes the wanted configuration.
func (i *Instance) processWanted(ctx context.Context) {
	i.mu.Lock()
	w, refused, current := i.wanted, i.refused, i.current
	i.mu.Unlock()
	if refused != nil {
		i.dropCandidate()
		i.noteRefusal(*refused)
		return
	}
	if w == nil {
		return
	}
	if current != nil && reflect.DeepEqual(w.Settings, current.wanted.Settings) {
		i.dropCandidate()
		i.updateGeneration(current, w)
		return
	}
	if i.continueWaitingFor(w) {
		return
	}
	if err := i.tryConfig(w.Settings.Sentinel); err != nil {
		i.dropCandidate()
		i.noteRefusal(Refusal{Generation: w.Generation, Reason: ReasonUnopenable, Err: sentinelconfig.Locate(err)})
		return
	}
	parts, err := i.openConnections(ctx, w, current)
	i.dropCandidate() // after openConnections, which may have taken over a connection
	if err != nil {
		i.noteRefusal(Refusal{Generation: w.Generation, Reason: ReasonUnopenable, Err: err})
		i.retryWanted()
		return
	}
	i.next = parts.startCandidate(ctx, current, func(p PendingConnections) { i.setState(func(s *InstanceState) { s.Pending = &p }) })
	if i.next == nil {
		i.promoteParts(ctx, parts)
		return
	}
	i.setState(func(s *InstanceState) { s.Refusal = nil }) // refused an earlier generation, which is obsolete
}

// continueWaitingFor reports whether w is already waiting for its connections. The wait then continues.
func (i *Instance) continueWaitingFor(w *WantedConfig) bool {
	if i.next == nil || i.current != nil && i.current.broken {
		return false
	}
	already := i.next.parts.wanted
	if already.Generation != w.Generation || !reflect.DeepEqual(already.Settings, w.Settings) {
		return false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.wanted == w {
		i.wanted = already
	}
	return true
}

// reopenAfter is the delay before connections that could not be created are tried again: required
// files may exist by then.
const reopenAfter = 30 * time.Second

// retryWanted schedules a retry of the wanted configuration, unless a failed sentinel will be
// restarted earlier.
func (i *Instance) retryWanted() {
	if r := i.current; r == nil || !r.broken {
		i.retry.Reset(reopenAfter)
	}
}

// dropCandidate drops the candidate, and closes the connections that only it uses.
func (i *Instance) dropCandidate() {
	if i.next == nil {
		return
	}
	i.next.stopWaiting()
	i.next.parts.releaseConnections(i.current)
	i.next = nil
	i.setState(func(s *InstanceState) { s.Pending = nil })
}

// updateGeneration records a generation that does not change the configuration in force.
func (i *Instance) updateGeneration(r *runningSentinel, w *WantedConfig) {
	i.mu.Lock()
	refused := i.state.Refusal != nil
	i.mu.Unlock()
	if refused || r.wanted.Generation != w.Generation {
		r.sentinel.ConfigReloaded()
		i.log.Info("configuration unchanged", "generation", w.Generation, "previous_generation", r.wanted.Generation)
	}
	i.setState(func(s *InstanceState) {
		r.wanted.Generation = w.Generation
		s.InForce, s.Refusal, s.Pending = w.Generation, nil, nil
	})
}

func (i *Instance) noteRefusal(r Refusal) {
	r.Err = i.redactSecrets(r.Err)
	if i.current != nil {
		i.current.sentinel.ConfigRefused()
	}
	i.CountNotLoaded()
	tell := i.log.Warn
	if before := i.State().Refusal; before != nil && before.Generation == r.Generation && errorText(before.Err) == errorText(r.Err) {
		tell = i.log.Debug // it was only reconciled again
	}
	tell("configuration rejected", "generation", r.Generation, "reason", string(r.Reason), "err", r.Err)
	i.setState(func(s *InstanceState) { s.Refusal, s.Pending = &r, nil })
}

// redactSecrets removes the secrets of the wanted configuration, and of the one in force, from an
// error.
func (i *Instance) redactSecrets(err error) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.wanted != nil {
		err = redactSecrets(err, secretsOf(&i.wanted.Settings))
	}
	if i.current != nil {
		err = redactSecrets(err, secretsOf(&i.current.wanted.Settings))
	}
	return err
}

// promoteParts puts parts in force. The old sentinel stops before the new one starts.
func (i *Instance) promoteParts(ctx context.Context, p *instanceParts) {
	old := i.current
	var predecessor *sentinel.Sentinel
	if old != nil {
		old.stopAndWait()
		predecessor = old.sentinel
		if old.broken {
			old.sentinel.Close()
			predecessor = nil
		}
	}
	i.retry.Stop()
	r, err := i.startSentinel(ctx, p, predecessor)
	if err != nil && old != nil && !old.broken {
		// tryConfig accepted the configuration before the old sentinel stopped. Whatever is wrong
		// now, the old one continues.
		p.releaseConnections(old)
		i.noteRefusal(Refusal{Generation: p.wanted.Generation, Reason: ReasonUnopenable, Err: err})
		p = old.instanceParts
		r, err = i.startSentinel(ctx, p, predecessor)
	}
	if err != nil {
		p.releaseConnections(nil)
		i.leaveGroup() // other replicas serve its share
		i.noteRefusal(Refusal{Generation: p.wanted.Generation, Reason: ReasonUnopenable, Err: err})
		if old == nil {
			i.retryWanted()
			return
		}
		old.broken = true
		i.scheduleRestart(ctx, err)
		return
	}
	if old != nil && p != old.instanceParts {
		old.releaseConnections(r)
	}
	if old != nil && p.wanted.Settings.Sharding.Mode != shardingAuto {
		i.leaveGroup()
	}
	i.setRunning(r, old)
}

// setRunning records the sentinel in force.
func (i *Instance) setRunning(r, old *runningSentinel) {
	changed := old == nil || old.wanted != r.wanted
	if changed && old != nil {
		r.sentinel.ConfigReloaded()
		i.crashes = 0
	}
	if changed {
		i.logChange(r, old)
	}
	i.mu.Lock()
	i.current = r
	latest := i.wanted == r.wanted
	refused := i.state.Refusal != nil && !latest
	i.mu.Unlock()
	i.deps.LoadErrors.Unregister() // from now on the sentinel counts them
	if refused && !changed {
		r.sentinel.ConfigRefused() // its metrics may be new
	}
	sel, _ := r.wanted.Settings.Sentinel.Selector() // the sentinel was created from it, so there is no error
	i.setState(func(s *InstanceState) {
		s.InForce, s.Pending, s.Failure, s.Begun = r.wanted.Generation, nil, nil, r.begun
		s.Selector = sel.String()
		if latest {
			s.Refusal = nil
		}
		if changed {
			s.Changes++
		}
	})
}

// logChange logs the configuration in force, and its differences from the previous one.
func (i *Instance) logChange(r, old *runningSentinel) {
	if old == nil {
		i.log.Info("configuration applied", "generation", r.wanted.Generation)
		return
	}
	changes, err := sentinelconfig.Changes(&old.wanted.Spec, &r.wanted.Spec)
	if err != nil {
		i.log.Error("configuration diff failed", "generation", r.wanted.Generation, "err", err)
	}
	i.log.Info("configuration changed", "generation", r.wanted.Generation, "previous_generation", old.wanted.Generation, "changes", changes)
}

// stopAndScheduleRestart stops a sentinel that cannot continue, to restart it later.
func (i *Instance) stopAndScheduleRestart(ctx context.Context, err error) {
	r := i.current
	if r.broken {
		return // it has been stopped, and this is a later error of it
	}
	if time.Since(r.begun) > steadyAfter {
		i.crashes = 0
	}
	r.broken = true
	r.stopAndWait()
	i.leaveGroup() // other replicas serve its share meanwhile
	i.scheduleRestart(ctx, err)
}

// steadyAfter is how long a sentinel must have run before its next failure starts a new count.
const steadyAfter = 10 * time.Minute

// restartSentinel restarts a failed sentinel with new connections. It reuses nothing of the failed
// one.
func (i *Instance) restartSentinel(ctx context.Context) {
	r := i.current
	i.mu.Lock()
	wanted := i.wanted
	i.mu.Unlock()
	if r == nil || !r.broken {
		i.setState(func(s *InstanceState) { s.Failure = nil })
		if wanted != nil {
			i.processWanted(ctx)
		}
		return
	}
	// The candidate may share connections with the failed sentinel, which end with it. Its
	// configuration is applied again when the new sentinel has had time to connect.
	i.dropCandidate()
	p, err := i.openConnections(ctx, r.wanted, nil)
	if err != nil {
		i.scheduleRestart(ctx, err)
		return
	}
	i.promoteParts(ctx, p)
	if wanted != nil && wanted != r.wanted && !i.current.broken {
		i.retry.Reset(connectPatience)
	}
}

// shutDown stops everything, and unregisters the metrics.
func (i *Instance) shutDown() {
	i.retry.Stop()
	i.dropCandidate()
	if r := i.current; r != nil {
		r.stopAndWait()
		r.releaseConnections(nil)
		r.sentinel.Close()
	}
	i.leaveGroup()
	i.mu.Lock()
	i.current = nil
	i.mu.Unlock()
	i.setState(func(s *InstanceState) { s.InForce, s.Stopped = 0, true })
	i.deps.LoadErrors.Unregister()
}

// CountNotLoaded counts that the configuration could not be loaded, whether or not an earlier one was.
func (i *Instance) CountNotLoaded() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.current != nil {
		i.current.sentinel.ConfigNotLoaded()
		return
	}
	if i.state.Stopped {
		return
	}
	if err := i.deps.LoadErrors.CountFailure(i.watches); err != nil {
		i.log.Error("metrics of a failed configuration load not registered", "err", err)
	}
}

// Decisions returns what the sentinel in force watches, and its latest decisions. ok is false if
// there is no sentinel.
func (i *Instance) Decisions() (watches string, decisions *state.DecisionRecord, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.current == nil {
		return "", nil, false
	}
	return i.current.sentinel.Watches(), i.current.sentinel.Decisions(), true
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
