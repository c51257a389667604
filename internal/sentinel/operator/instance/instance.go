// Package instance runs the sentinel of one SentinelConfig.
//
// An Instance is told what is wanted by Apply and Refuse, and works by itself
// from then on. A change takes effect without losing or repeating an event:
// connections whose settings changed are opened anew and must answer before the
// old ones are let go, then the old sentinel is stopped, what it has under way
// is awaited, and the new one goes on from it. What can not be taken leaves in
// force what is. A sentinel that panics, or whose connections end by
// themselves, is started again after a while.
//
// An instance knows nothing of Kubernetes: that the host cluster is away means
// no more to it than that nothing new is wanted.
package instance

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
	"github.com/fleetloop/fleetloop/internal/sentinel/record"
	"github.com/fleetloop/fleetloop/internal/sentinel/sentinelconfig"
)

// Deps are what an instance works with. OpenAPI, OpenBroker and Log are
// needed, NewPart and NewGroup where resources are divided; what else is nil is done without.
type Deps struct {
	// OpenAPI and OpenBroker make a connection and start nothing; an error is
	// of the settings.
	OpenAPI    func(sentinel.API) (API, error)
	OpenBroker func(sentinelconfig.Broker) (Broker, error)

	// NewPart makes one of count parts of the resources, NewGroup what divides
	// them among the replicas that run this configuration.
	NewPart  func(count, index int) (sentinel.Shard, error)
	NewGroup func() (Group, error)

	Log        *slog.Logger
	Registerer prometheus.Registerer

	// LoadErrors count what can not be loaded while no sentinel is in force. Nil
	// makes some of Registerer.
	LoadErrors *sentinel.LoadErrors

	Tracer      trace.Tracer
	OnPublished func(sentinel.Published)

	// OnChange is called when State has changed in more than its counts. It
	// must not block.
	OnChange func()

	// Retry says how long to wait before a sentinel that failed is started
	// again. The zero value is a second at first, a minute at most.
	Retry backoff.Policy
}

// Wanted is what is to run.
type Wanted struct {
	// Generation is that of the spec.
	Generation int64

	// Settings are the spec's, with what lies in Secrets.
	Settings sentinelconfig.Settings

	// Spec is what the settings were made of, for the log.
	Spec v1alpha1.SentinelConfigSpec
}

// An Instance runs one sentinel at a time. Make it with New and call Run once.
type Instance struct {
	deps Deps
	log  *slog.Logger

	// mail has an element while wanted or refused is new.
	mail chan struct{}

	// Of the goroutine of Run alone.
	next    *candidate // waits for its connections to answer
	group   *groupRun
	retry   *time.Timer // runs while a sentinel that failed waits
	crashes int

	mu      sync.Mutex
	wanted  *Wanted
	refused *Refusal
	seen    int64
	watches string   // the collection that was asked for last, empty while unknown
	current *running // nil before the first
	state   State
}

// New makes an instance of nothing yet.
func New(deps Deps) *Instance {
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

// Apply has the instance run w, as soon as it can. It does not wait for that.
// The last call counts.
func (i *Instance) Apply(w Wanted) {
	i.postWanted(w.Generation, w.Settings.Sentinel.ResourceType, &w, nil)
}

// Refuse tells the instance that a generation can not be taken, and why. What
// runs goes on.
func (i *Instance) Refuse(r Refusal) { i.postWanted(r.Generation, r.ResourceType, nil, &r) }

func (i *Instance) postWanted(generation int64, resourceType string, w *Wanted, r *Refusal) {
	i.mu.Lock()
	i.seen, i.watches, i.wanted, i.refused = generation, resourceType, w, r
	i.mu.Unlock()
	select {
	case i.mail <- struct{}{}:
	default:
	}
}

// Run does what is wanted until ctx ends, and returns when nothing of the
// instance runs any more: no event is under way then.
func (i *Instance) Run(ctx context.Context) error {
	defer i.shutDown()
	for ctx.Err() == nil {
		i.runStep(ctx)
	}
	return nil
}

// runStep waits for the next thing to do, and does it. A panic in it is a failure
// of this instance, and nothing to any other.
func (i *Instance) runStep(ctx context.Context) {
	defer func() {
		if value := recover(); value != nil {
			i.recovered(ctx, panicError("the instance", value))
		}
	}()
	select {
	case <-ctx.Done():
	case <-i.mail:
		i.takeWanted(ctx)
	case <-i.next.answered():
		next := i.next
		i.next = nil
		next.stopWaiting()
		i.promoteParts(ctx, next.parts)
	case err := <-i.current.failures():
		i.stopFailed(ctx, err)
	case err := <-i.group.failures():
		i.stopFailed(ctx, err)
	case <-i.retry.C:
		i.restartSentinel(ctx)
	}
}

// recovered cleans up after a panic in a step, and has it tried again later.
// What runs goes on.
func (i *Instance) recovered(ctx context.Context, err error) {
	i.dropCandidate()
	if r := i.current; r == nil || r.hasStopped() {
		if r != nil {
			r.broken = true
		}
		i.leaveGroup() // others look after its share until it is back
	}
	i.scheduleRestart(ctx, err)
}

// scheduleRestart has restart called after a while.
func (i *Instance) scheduleRestart(ctx context.Context, err error) {
	err = i.redactSecrets(err)
	wait := i.deps.Retry.Delay(i.crashes)
	i.crashes++
	i.retry.Reset(wait)
	i.log.ErrorContext(ctx, "sentinel failed, restarting", "in", wait, "err", err)
	i.setState(func(s *State) { s.Failure = err })
}

// takeWanted looks at what is wanted now.
func (i *Instance) takeWanted(ctx context.Context) {
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
	if i.isWaitingFor(w) {
		return
	}
	if err := i.tryConfig(w.Settings.Sentinel); err != nil {
		i.dropCandidate()
		i.noteRefusal(Refusal{Generation: w.Generation, Reason: ReasonUnopenable, Err: sentinelconfig.Locate(err)})
		return
	}
	parts, err := i.openConnections(ctx, w, current)
	i.dropCandidate() // after open, which may have taken over a connection
	if err != nil {
		i.noteRefusal(Refusal{Generation: w.Generation, Reason: ReasonUnopenable, Err: err})
		i.retryWanted()
		return
	}
	i.next = parts.awaitConnections(ctx, current, func(p Pending) { i.setState(func(s *State) { s.Pending = &p }) })
	if i.next == nil {
		i.promoteParts(ctx, parts)
		return
	}
	i.setState(func(s *State) { s.Refusal = nil }) // of a generation before, which nobody wants any more
}

// isWaitingFor says whether w is what waits for its connections already. It goes on
// waiting then.
func (i *Instance) isWaitingFor(w *Wanted) bool {
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

// untilReopened is when connections that could not be made are tried again:
// files that they need may be there by then.
const untilReopened = 30 * time.Second

// retryWanted has what is wanted tried again, unless a sentinel that failed is going
// to be started before.
func (i *Instance) retryWanted() {
	if r := i.current; r == nil || !r.broken {
		i.retry.Reset(untilReopened)
	}
}

// dropCandidate forgets a candidate, with the connections that are its alone.
func (i *Instance) dropCandidate() {
	if i.next == nil {
		return
	}
	i.next.stopWaiting()
	i.next.parts.releaseConnections(i.current)
	i.next = nil
	i.setState(func(s *State) { s.Pending = nil })
}

// updateGeneration notes that a generation says what is in force already.
func (i *Instance) updateGeneration(r *running, w *Wanted) {
	i.mu.Lock()
	refused := i.state.Refusal != nil
	i.mu.Unlock()
	if refused || r.wanted.Generation != w.Generation {
		r.sentinel.ConfigReloaded()
		i.log.Info("configuration unchanged", "generation", w.Generation, "previous_generation", r.wanted.Generation)
	}
	i.setState(func(s *State) {
		r.wanted.Generation = w.Generation
		s.InForce, s.Refusal, s.Pending = w.Generation, nil, nil
	})
}

func (i *Instance) noteRefusal(r Refusal) {
	r.Err = i.redactSecrets(r.Err)
	if i.current != nil {
		i.current.sentinel.ConfigRefused()
	}
	i.NotLoaded()
	tell := i.log.Warn
	if before := i.State().Refusal; before != nil && before.Generation == r.Generation && errorText(before.Err) == errorText(r.Err) {
		tell = i.log.Debug // it was only looked at again
	}
	tell("configuration rejected", "generation", r.Generation, "reason", string(r.Reason), "err", r.Err)
	i.setState(func(s *State) { s.Refusal, s.Pending = &r, nil })
}

// redactSecrets takes the secrets of what is wanted, and of what is in force, out of
// an error.
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

// promoteParts puts parts in force. The old sentinel has stopped when the new one
// begins.
func (i *Instance) promoteParts(ctx context.Context, p *parts) {
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
		// It was tried before the old one stopped; whatever it is now, the old
		// one goes on.
		p.releaseConnections(old)
		i.noteRefusal(Refusal{Generation: p.wanted.Generation, Reason: ReasonUnopenable, Err: err})
		p = old.parts
		r, err = i.startSentinel(ctx, p, predecessor)
	}
	if err != nil {
		p.releaseConnections(nil)
		i.leaveGroup() // others look after its share
		i.noteRefusal(Refusal{Generation: p.wanted.Generation, Reason: ReasonUnopenable, Err: err})
		if old == nil {
			i.retryWanted()
			return
		}
		old.broken = true
		i.scheduleRestart(ctx, err)
		return
	}
	if old != nil && p != old.parts {
		old.releaseConnections(r)
	}
	if old != nil && p.wanted.Settings.Sharding.Mode != shardingAuto {
		i.leaveGroup()
	}
	i.setRunning(r, old)
}

// setRunning notes which sentinel is in force.
func (i *Instance) setRunning(r, old *running) {
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
	i.deps.LoadErrors.Clear() // from now on the sentinel counts them
	if refused && !changed {
		r.sentinel.ConfigRefused() // its metrics may be new
	}
	sel, _ := r.wanted.Settings.Sentinel.Selector() // the sentinel has been made of it
	i.setState(func(s *State) {
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

// logChange tells which configuration is in force now, and in what it differs
// from the one before.
func (i *Instance) logChange(r, old *running) {
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

// stopFailed stops a sentinel that can not go on by itself, to start it again later.
func (i *Instance) stopFailed(ctx context.Context, err error) {
	r := i.current
	if r.broken {
		return // it has been stopped, and had more to say
	}
	if time.Since(r.begun) > steady {
		i.crashes = 0
	}
	r.broken = true
	r.stopAndWait()
	i.leaveGroup() // others look after its share until it is back
	i.scheduleRestart(ctx, err)
}

// steady is for how long a sentinel must have run for its next failure not to
// count with those before.
const steady = 10 * time.Minute

// restartSentinel starts a sentinel anew after one that failed, with connections of
// its own: nothing of the other is trusted.
func (i *Instance) restartSentinel(ctx context.Context) {
	r := i.current
	i.mu.Lock()
	wanted := i.wanted
	i.mu.Unlock()
	if r == nil || !r.broken {
		i.setState(func(s *State) { s.Failure = nil })
		if wanted != nil {
			i.takeWanted(ctx)
		}
		return
	}
	// What waits may have connections of the one that failed, which end with
	// it. It is taken again when the new one has had the time to connect.
	i.dropCandidate()
	p, err := i.openConnections(ctx, r.wanted, nil)
	if err != nil {
		i.scheduleRestart(ctx, err)
		return
	}
	i.promoteParts(ctx, p)
	if wanted != nil && wanted != r.wanted && !i.current.broken {
		i.retry.Reset(patience)
	}
}

// shutDown stops everything, and takes the metrics away.
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
	i.setState(func(s *State) { s.InForce, s.Stopped = 0, true })
	i.deps.LoadErrors.Clear()
}

// NotLoaded counts that the configuration could not be loaded, whether or not
// one was before.
func (i *Instance) NotLoaded() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.current != nil {
		i.current.sentinel.ConfigNotLoaded()
		return
	}
	if i.state.Stopped {
		return
	}
	if err := i.deps.LoadErrors.Count(i.watches); err != nil {
		i.log.Error("metrics of a failed configuration load not registered", "err", err)
	}
}

// Decisions are the last decisions of the sentinel in force, and what it
// watches. It is not ok if there is none.
func (i *Instance) Decisions() (watches string, decisions *record.Record, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.current == nil {
		return "", nil, false
	}
	return i.current.sentinel.Watches(), i.current.sentinel.Decisions(), true
}

// errNothing is why an instance without a sentinel is not ready.
var errNothing = errors.New("no configuration is active")

// Ready reports why the instance does not do its work just now.
func (i *Instance) Ready() error {
	i.mu.Lock()
	current, group, failure, refusal := i.current, i.group, i.state.Failure, i.state.Refusal
	i.mu.Unlock()
	switch {
	case current == nil && refusal != nil:
		return refusal.Err
	case current == nil:
		return errNothing
	case failure != nil:
		return failure
	}
	err := current.sentinel.Ready()
	if group != nil {
		err = errors.Join(err, group.Ready()) // it owns nothing until it is a member
	}
	return err
}

// Live reports whether the sentinel in force makes progress.
func (i *Instance) Live() error {
	i.mu.Lock()
	current := i.current
	i.mu.Unlock()
	if current == nil {
		return nil
	}
	return current.sentinel.Live()
}
