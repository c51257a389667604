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
		v.applyWantedOrRecordRefusal(ctx)
	case <-v.next.connectionsReady():
		next := v.next
		v.next = nil
		next.cancelAndWait()
		v.replaceSentinelOrRestartOld(ctx, next.parts)
	case err := <-v.instance.current.failureChannel():
		v.stopAndScheduleRestart(ctx, err)
	case err := <-v.instance.group.failureChannel():
		v.stopAndScheduleRestart(ctx, err)
	case <-v.retry.C:
		v.restartFailedOrApplyWanted(ctx)
	}
}

// cleanUpAndScheduleRestart cleans up after a panic in a step, and schedules a retry. The running
// sentinel continues.
func (v *supervisor) cleanUpAndScheduleRestart(ctx context.Context, err error) {
	v.dropCandidate()
	current := v.instance.current
	if current == nil || current.hasStopped() {
		if current != nil {
			current.broken = true
		}
		v.leaveGroupAndWait() // other replicas serve its share meanwhile
	}
	v.scheduleRestart(ctx, err)
}

// scheduleRestart schedules a call of restartFailedOrApplyWanted.
func (v *supervisor) scheduleRestart(ctx context.Context, err error) {
	err = v.instance.redactSecrets(err)
	wait := v.instance.deps.Retry.Delay(v.crashes)
	v.crashes++
	v.retry.Reset(wait)
	v.log.ErrorContext(ctx, "sentinel failed, restarting", "in", wait, "err", err)
	v.instance.updateState(func(s *InstanceState) { s.Failure = err })
}

// applyWantedOrRecordRefusal processes the wanted configuration: it records a refusal or an unchanged
// configuration at once. A changed configuration replaces the sentinel when its connections respond.
func (v *supervisor) applyWantedOrRecordRefusal(ctx context.Context) {
	v.instance.mu.Lock()
	wanted, refused, current := v.instance.wanted, v.instance.refused, v.instance.current
	v.instance.mu.Unlock()
	if refused != nil {
		v.dropCandidate()
		v.recordAndLogRefusal(*refused)
		return
	}
	if wanted == nil {
		return
	}
	if current != nil && reflect.DeepEqual(wanted.Settings, current.wanted.Settings) {
		v.dropCandidate()
		v.recordNewGeneration(current, wanted)
		return
	}
	if v.keepWaitingIfSame(wanted) {
		return
	}

	if err := validateConfig(wanted.Settings.Sentinel); err != nil {
		v.dropCandidate()
		err = sentinelconfig.TranslateKeyErrors(err)
		v.recordAndLogRefusal(Refusal{Generation: wanted.Generation, Reason: ReasonUnopenable, Err: err})
		return
	}
	parts, err := openOrReuseConnections(ctx, &v.instance.deps, wanted, current)
	v.dropCandidate() // after openOrReuseConnections, which may have taken over a connection
	if err != nil {
		v.recordAndLogRefusal(Refusal{Generation: wanted.Generation, Reason: ReasonUnopenable, Err: err})
		v.scheduleWantedRetry()
		return
	}
	v.next = parts.startConnectionWaitIfNeeded(ctx, current, func(p PendingConnections) {
		v.instance.updateState(func(s *InstanceState) { s.Pending = &p })
	})
	if v.next == nil {
		v.replaceSentinelOrRestartOld(ctx, parts)
		return
	}
	// An earlier generation was refused, which is obsolete now.
	v.instance.updateState(func(s *InstanceState) { s.Refusal = nil })
}

// keepWaitingIfSame reports whether the wanted configuration is already waiting for its connections.
// The wait then continues.
func (v *supervisor) keepWaitingIfSame(wanted *WantedConfig) (alreadyWaiting bool) {
	if v.next == nil || v.instance.current != nil && v.instance.current.broken {
		return false
	}
	waiting := v.next.parts.wanted
	if waiting.Generation != wanted.Generation || !reflect.DeepEqual(waiting.Settings, wanted.Settings) {
		return false
	}
	v.instance.mu.Lock()
	defer v.instance.mu.Unlock()
	if v.instance.wanted == wanted {
		v.instance.wanted = waiting // recordRunning compares the pointers
	}
	return true
}

// reopenAfter is the delay before connections that could not be created are tried again: required
// files may exist by then.
const reopenAfter = 30 * time.Second

// scheduleWantedRetry schedules a retry of the wanted configuration, unless a failed sentinel will be
// restarted earlier.
func (v *supervisor) scheduleWantedRetry() {
	current := v.instance.current
	if current == nil || !current.broken {
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
		v.log.Info("configuration unchanged",
			"generation", w.Generation, "previous_generation", r.wanted.Generation)
	}
	v.instance.updateState(func(s *InstanceState) {
		r.wanted.Generation = w.Generation
		s.InForce, s.Refusal, s.Pending = w.Generation, nil, nil
	})
}

// recordAndLogRefusal records a refused configuration. The previous one stays in force.
func (v *supervisor) recordAndLogRefusal(r Refusal) {
	r.Err = v.instance.redactSecrets(r.Err)
	if v.instance.current != nil {
		v.instance.current.sentinel.RecordConfigRefused()
	}
	v.instance.CountLoadFailure()
	logLine := v.log.Warn
	before := v.instance.CurrentState().Refusal
	isRepeated := before != nil && before.Generation == r.Generation &&
		errorTextOrEmpty(before.Err) == errorTextOrEmpty(r.Err)
	if isRepeated {
		logLine = v.log.Debug // it was only reconciled again
	}
	logLine("configuration rejected", "generation", r.Generation, "reason", string(r.Reason), "err", r.Err)
	v.instance.updateState(func(s *InstanceState) { s.Refusal, s.Pending = &r, nil })
}

// replaceSentinelOrRestartOld puts parts in force. The old sentinel stops before the new one starts. If the new
// one does not start, the old one continues.
func (v *supervisor) replaceSentinelOrRestartOld(ctx context.Context, parts *instanceParts) {
	old := v.instance.current
	predecessor := v.stopAndGetPredecessor()
	v.retry.Stop()
	started, err := v.startSentinel(ctx, parts, predecessor)
	if err != nil && old != nil && !old.broken {
		// validateConfig accepted the configuration before the old sentinel stopped. Whatever is wrong
		// now, the old one continues.
		parts.closeConnectionsExcept(old)
		v.recordAndLogRefusal(Refusal{Generation: parts.wanted.Generation, Reason: ReasonUnopenable, Err: err})
		parts = old.instanceParts
		started, err = v.startSentinel(ctx, parts, predecessor)
	}
	if err != nil {
		v.cleanUpAndRetryFailedStart(ctx, parts, err)
		return
	}

	// Close what only the old sentinel used.
	if old != nil && parts != old.instanceParts {
		old.closeConnectionsExcept(started)
	}
	if old != nil && parts.wanted.Settings.Sharding.Mode != shardingAuto {
		v.leaveGroupAndWait()
	}
	v.recordRunning(started, old)
}

// stopAndGetPredecessor stops the sentinel in force, if there is one. It returns the sentinel that the
// next one continues. A broken sentinel is not continued.
func (v *supervisor) stopAndGetPredecessor() *sentinel.Sentinel {
	old := v.instance.current
	if old == nil {
		return nil
	}
	old.stopAndWait()
	if old.broken {
		old.sentinel.Close()
		return nil
	}
	return old.sentinel
}

// cleanUpAndRetryFailedStart records that no sentinel runs, because one with parts did not start. It schedules
// a retry.
func (v *supervisor) cleanUpAndRetryFailedStart(ctx context.Context, parts *instanceParts, err error) {
	parts.closeConnectionsExcept(nil)
	v.leaveGroupAndWait() // other replicas serve its share
	v.recordAndLogRefusal(Refusal{Generation: parts.wanted.Generation, Reason: ReasonUnopenable, Err: err})
	old := v.instance.current
	if old == nil {
		v.scheduleWantedRetry()
		return
	}
	old.broken = true
	v.scheduleRestart(ctx, err)
}

// recordRunning records the sentinel in force. old is the one before, which may have the same
// configuration; nil means none.
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
	isLatest := v.instance.wanted == r.wanted
	isLatestRefused := v.instance.state.Refusal != nil && !isLatest
	v.instance.mu.Unlock()
	v.instance.deps.LoadErrors.UnregisterSeries() // from now on the sentinel counts them
	if isLatestRefused && !changed {
		r.sentinel.RecordConfigRefused() // its metrics may be new
	}
	sel, _ := r.wanted.Settings.Sentinel.BuildLabelSelector() // valid, because a sentinel runs with it
	v.instance.updateState(func(s *InstanceState) {
		s.InForce = r.wanted.Generation
		s.Begun = r.begun
		s.Selector = sel.String()
		s.Pending, s.Failure = nil, nil
		if isLatest {
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
	log.Info("configuration changed",
		"generation", r.wanted.Generation, "previous_generation", old.wanted.Generation, "changes", changes)
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

// restartFailedOrApplyWanted restarts a failed sentinel with new connections. It reuses nothing of the
// failed one.
func (v *supervisor) restartFailedOrApplyWanted(ctx context.Context) {
	r := v.instance.current
	v.instance.mu.Lock()
	wanted := v.instance.wanted
	v.instance.mu.Unlock()
	if r == nil || !r.broken {
		v.instance.updateState(func(s *InstanceState) { s.Failure = nil })
		if wanted != nil {
			v.applyWantedOrRecordRefusal(ctx)
		}
		return
	}
	// The candidate may share connections with the failed sentinel, which end with it. Its
	// configuration is applied again when the new sentinel has had time to connect.
	v.dropCandidate()
	p, err := openOrReuseConnections(ctx, &v.instance.deps, r.wanted, nil)
	if err != nil {
		v.scheduleRestart(ctx, err)
	} else {
		v.replaceSentinelOrRestartOld(ctx, p)
	}
	switch {
	case wanted == nil || wanted == r.wanted:
	case !v.instance.current.broken:
		v.retry.Reset(connectPatience)
	case !reflect.DeepEqual(wanted.Settings, r.wanted.Settings):
		v.applyWantedOrRecordRefusal(ctx) // it may start although the failed one does not
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
