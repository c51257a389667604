package operator

import (
	"context"
	"log/slog"
	"reflect"
	"time"

	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/sentinel/sentinelconfig"
)

// A supervisor is the goroutine of Instance.Run, which alone replaces the sentinel of the instance.
type supervisor struct {
	instance *Instance
	log      *slog.Logger
	next     *candidate  // waits for its connections to answer
	retry    *time.Timer // runs until a failed sentinel is restarted
	crashes  int
}

// awaitAndRunStep waits for the next step and runs it.
func (v *supervisor) awaitAndRunStep(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-v.instance.mail:
		v.applyWantedConfig(ctx)
	case <-v.next.connectionsReady():
		next := v.next
		v.next = nil
		next.cancelAndWait()
		v.replaceSentinel(ctx, next.parts)
	case err := <-v.instance.current.failureChannel():
		v.stopAndScheduleRestart(ctx, err)
	case err := <-v.instance.group.failureChannel():
		v.stopAndScheduleRestart(ctx, err)
	case <-v.retry.C:
		v.restartFailedSentinel(ctx)
	}
}

// cleanUpAndScheduleRestart cleans up after a panic in a step, and schedules a retry. The running
// sentinel continues.
func (v *supervisor) cleanUpAndScheduleRestart(ctx context.Context, err error) {
	v.dropCandidate()
	if r := v.instance.current; r == nil || r.hasStopped() {
		if r != nil {
			r.broken = true
		}
		v.leaveGroupAndWait() // other replicas serve its share meanwhile
	}
	v.scheduleRestart(ctx, err)
}

// scheduleRestart schedules a call of restartFailedSentinel.
func (v *supervisor) scheduleRestart(ctx context.Context, err error) {
	err = v.instance.redactSecrets(err)
	wait := v.instance.deps.Retry.Delay(v.crashes)
	v.crashes++
	v.retry.Reset(wait)
	v.log.ErrorContext(ctx, "sentinel failed, restarting", "in", wait, "err", err)
	v.instance.updateState(func(s *InstanceState) { s.Failure = err })
}

// applyWantedConfig processes the wanted configuration.
func (v *supervisor) applyWantedConfig(ctx context.Context) {
	v.instance.mu.Lock()
	w, refused, current := v.instance.wanted, v.instance.refused, v.instance.current
	v.instance.mu.Unlock()
	if refused != nil {
		v.dropCandidate()
		v.recordAndLogRefusal(*refused)
		return
	}
	if w == nil {
		return
	}
	if current != nil && reflect.DeepEqual(w.Settings, current.wanted.Settings) {
		v.dropCandidate()
		v.recordNewGeneration(current, w)
		return
	}
	if v.keepWaitingIfSame(w) {
		return
	}
	if err := validateConfig(w.Settings.Sentinel); err != nil {
		v.dropCandidate()
		v.recordAndLogRefusal(Refusal{Generation: w.Generation, Reason: ReasonUnopenable, Err: sentinelconfig.TranslateKeyErrors(err)})
		return
	}
	parts, err := openOrReuseConnections(ctx, &v.instance.deps, w, current)
	v.dropCandidate() // after openOrReuseConnections, which may have taken over a connection
	if err != nil {
		v.recordAndLogRefusal(Refusal{Generation: w.Generation, Reason: ReasonUnopenable, Err: err})
		v.scheduleWantedRetry()
		return
	}
	v.next = parts.startConnectionWaitIfNeeded(ctx, current, func(p PendingConnections) {
		v.instance.updateState(func(s *InstanceState) { s.Pending = &p })
	})
	if v.next == nil {
		v.replaceSentinel(ctx, parts)
		return
	}
	v.instance.updateState(func(s *InstanceState) { s.Refusal = nil }) // refused an earlier generation, which is obsolete
}

// keepWaitingIfSame reports whether w is already waiting for its connections. The wait then continues.
func (v *supervisor) keepWaitingIfSame(w *WantedConfig) (alreadyWaiting bool) {
	if v.next == nil || v.instance.current != nil && v.instance.current.broken {
		return false
	}
	already := v.next.parts.wanted
	if already.Generation != w.Generation || !reflect.DeepEqual(already.Settings, w.Settings) {
		return false
	}
	v.instance.mu.Lock()
	defer v.instance.mu.Unlock()
	if v.instance.wanted == w {
		v.instance.wanted = already
	}
	return true
}

// reopenAfter is the delay before connections that could not be created are tried again: required
// files may exist by then.
const reopenAfter = 30 * time.Second

// scheduleWantedRetry schedules a retry of the wanted configuration, unless a failed sentinel will be
// restarted earlier.
func (v *supervisor) scheduleWantedRetry() {
	if r := v.instance.current; r == nil || !r.broken {
		v.retry.Reset(reopenAfter)
	}
}

// dropCandidate drops the candidate, and closes the connections that only it uses.
func (v *supervisor) dropCandidate() {
	if v.next == nil {
		return
	}
	v.next.cancelAndWait()
	v.next.parts.closeConnectionsExcept(v.instance.current)
	v.next = nil
	v.instance.updateState(func(s *InstanceState) { s.Pending = nil })
}

// recordNewGeneration records a generation that does not change the configuration in force.
func (v *supervisor) recordNewGeneration(r *runningSentinel, w *WantedConfig) {
	v.instance.mu.Lock()
	refused := v.instance.state.Refusal != nil
	v.instance.mu.Unlock()
	if refused || r.wanted.Generation != w.Generation {
		r.sentinel.RecordConfigReload()
		v.log.Info("configuration unchanged", "generation", w.Generation, "previous_generation", r.wanted.Generation)
	}
	v.instance.updateState(func(s *InstanceState) {
		r.wanted.Generation = w.Generation
		s.InForce, s.Refusal, s.Pending = w.Generation, nil, nil
	})
}

func (v *supervisor) recordAndLogRefusal(r Refusal) {
	r.Err = v.instance.redactSecrets(r.Err)
	if v.instance.current != nil {
		v.instance.current.sentinel.RecordConfigRefused()
	}
	v.instance.CountLoadFailure()
	tell := v.log.Warn
	before := v.instance.CurrentState().Refusal
	if before != nil && before.Generation == r.Generation && errorTextOrEmpty(before.Err) == errorTextOrEmpty(r.Err) {
		tell = v.log.Debug // it was only reconciled again
	}
	tell("configuration rejected", "generation", r.Generation, "reason", string(r.Reason), "err", r.Err)
	v.instance.updateState(func(s *InstanceState) { s.Refusal, s.Pending = &r, nil })
}

// replaceSentinel puts parts in force. The old sentinel stops before the new one starts.
func (v *supervisor) replaceSentinel(ctx context.Context, p *instanceParts) {
	old := v.instance.current
	var predecessor *sentinel.Sentinel
	if old != nil {
		old.stopAndWait()
		predecessor = old.sentinel
		if old.broken {
			old.sentinel.Close()
			predecessor = nil
		}
	}
	v.retry.Stop()
	r, err := v.startSentinel(ctx, p, predecessor)
	if err != nil && old != nil && !old.broken {
		// validateConfig accepted the configuration before the old sentinel stopped. Whatever is wrong
		// now, the old one continues.
		p.closeConnectionsExcept(old)
		v.recordAndLogRefusal(Refusal{Generation: p.wanted.Generation, Reason: ReasonUnopenable, Err: err})
		p = old.instanceParts
		r, err = v.startSentinel(ctx, p, predecessor)
	}
	if err != nil {
		p.closeConnectionsExcept(nil)
		v.leaveGroupAndWait() // other replicas serve its share
		v.recordAndLogRefusal(Refusal{Generation: p.wanted.Generation, Reason: ReasonUnopenable, Err: err})
		if old == nil {
			v.scheduleWantedRetry()
			return
		}
		old.broken = true
		v.scheduleRestart(ctx, err)
		return
	}
	if old != nil && p != old.instanceParts {
		old.closeConnectionsExcept(r)
	}
	if old != nil && p.wanted.Settings.Sharding.Mode != shardingAuto {
		v.leaveGroupAndWait()
	}
	v.recordRunning(r, old)
}

// recordRunning records the sentinel in force.
func (v *supervisor) recordRunning(r, old *runningSentinel) {
	changed := old == nil || old.wanted != r.wanted
	if changed && old != nil {
		r.sentinel.RecordConfigReload()
		v.crashes = 0
	}
	if changed {
		logConfigChange(v.log, r, old)
	}
	v.instance.mu.Lock()
	v.instance.current = r
	latest := v.instance.wanted == r.wanted
	refused := v.instance.state.Refusal != nil && !latest
	v.instance.mu.Unlock()
	v.instance.deps.LoadErrors.UnregisterSeries() // from now on the sentinel counts them
	if refused && !changed {
		r.sentinel.RecordConfigRefused() // its metrics may be new
	}
	sel, _ := r.wanted.Settings.Sentinel.BuildLabelSelector() // valid, because a sentinel runs with it
	v.instance.updateState(func(s *InstanceState) {
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

// logConfigChange logs the configuration in force, and its differences from the previous one.
func logConfigChange(log *slog.Logger, r, old *runningSentinel) {
	if old == nil {
		log.Info("configuration applied", "generation", r.wanted.Generation)
		return
	}
	changes, err := sentinelconfig.DiffSpecs(&old.wanted.Spec, &r.wanted.Spec)
	if err != nil {
		log.Error("configuration diff failed", "generation", r.wanted.Generation, "err", err)
	}
	log.Info("configuration changed", "generation", r.wanted.Generation, "previous_generation", old.wanted.Generation, "changes", changes)
}

// stopAndScheduleRestart stops a sentinel that cannot continue, to restart it later.
func (v *supervisor) stopAndScheduleRestart(ctx context.Context, err error) {
	r := v.instance.current
	if r.broken {
		return // it has been stopped, and this is a later error of it
	}
	if time.Since(r.begun) > steadyAfter {
		v.crashes = 0
	}
	r.broken = true
	r.stopAndWait()
	v.leaveGroupAndWait() // other replicas serve its share meanwhile
	v.scheduleRestart(ctx, err)
}

// steadyAfter is how long a sentinel must have run before its next failure starts a new count.
const steadyAfter = 10 * time.Minute

// restartFailedSentinel restarts a failed sentinel with new connections. It reuses nothing of the
// failed one.
func (v *supervisor) restartFailedSentinel(ctx context.Context) {
	r := v.instance.current
	v.instance.mu.Lock()
	wanted := v.instance.wanted
	v.instance.mu.Unlock()
	if r == nil || !r.broken {
		v.instance.updateState(func(s *InstanceState) { s.Failure = nil })
		if wanted != nil {
			v.applyWantedConfig(ctx)
		}
		return
	}
	// The candidate may share connections with the failed sentinel, which end with it. Its
	// configuration is applied again when the new sentinel has had time to connect.
	v.dropCandidate()
	p, err := openOrReuseConnections(ctx, &v.instance.deps, r.wanted, nil)
	if err != nil {
		v.scheduleRestart(ctx, err)
		return
	}
	v.replaceSentinel(ctx, p)
	if wanted != nil && wanted != r.wanted && !v.instance.current.broken {
		v.retry.Reset(connectPatience)
	}
}

// stopAndUnregister stops everything, and unregisters the metrics.
func (v *supervisor) stopAndUnregister() {
	v.retry.Stop()
	v.dropCandidate()
	if r := v.instance.current; r != nil {
		r.stopAndWait()
		r.closeConnectionsExcept(nil)
		r.sentinel.Close()
	}
	v.leaveGroupAndWait()
	v.instance.mu.Lock()
	v.instance.current = nil
	v.instance.mu.Unlock()
	v.instance.updateState(func(s *InstanceState) { s.InForce, s.Stopped = 0, true })
	v.instance.deps.LoadErrors.UnregisterSeries()
}
