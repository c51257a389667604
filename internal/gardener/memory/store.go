package memory

import (
	"fmt"
	"maps"
	"reflect"
	"time"

	"github.com/google/uuid"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// A store holds the Shoots of a garden and advances their operations.
type store struct {
	o        Options
	shoots   map[string]*storedShoot
	schedule schedule       // the shoots with an operation in progress
	breaks   map[string]int // set by Break before the Shoot existed
	changes  changeLog
}

// runAllStepsUntil runs the steps since the last call.
func (s *store) runAllStepsUntil(now time.Time) {
	for {
		next := s.schedule.nextStepTime()
		if next.IsZero() || next.After(now) {
			return
		}
		// One step of one Shoot at a time keeps the changes of all in order.
		s.runDueStepsOfShoot(s.schedule.items[0], next)
	}
}

// createShootAndStartOperation creates a new Shoot.
func (s *store) createShootAndStartOperation(manifest shoot.Manifest, now time.Time) *storedShoot {
	it := &storedShoot{
		name: manifest.Metadata.Name, uid: uuid.NewString(), created: now,
		labels: maps.Clone(manifest.Metadata.Labels), annotations: maps.Clone(manifest.Metadata.Annotations), spec: cloneSpec(manifest.Spec),
		ours: cloneManifest(manifest), generation: 1, at: -1,
	}
	if it.spec.Kubernetes.Version == "" {
		it.spec.Kubernetes.Version = newestVersion(s.o.Versions)
	}
	if n, ok := s.breaks[it.name]; ok {
		it.breaks = n
		delete(s.breaks, it.name)
	} else if s.o.Breaks != nil {
		it.breaks = s.o.Breaks(it.name)
	}
	s.shoots[it.name] = it
	s.startOperation(it, opCreate, now)
	return it
}

// updateShootAndStartOperation updates a Shoot to match a manifest, and reports whether it
// differed. The annotation of the sent generation does not count as a change.
func (s *store) updateShootAndStartOperation(
	stored *storedShoot, manifest shoot.Manifest, now time.Time,
) (changed bool) {
	labels := replaceOwnedKeys(stored.labels, stored.ours.Metadata.Labels, manifest.Metadata.Labels)
	annotations := replaceOwnedKeys(stored.annotations, stored.ours.Metadata.Annotations, manifest.Metadata.Annotations)
	spec := fillUnsetFromLive(manifest.Spec, stored.ours.Spec, stored.spec)
	rest := !maps.Equal(labels, stored.labels) || !equalAnnotationsExceptGeneration(annotations, stored.annotations)
	noted := !maps.Equal(annotations, stored.annotations)

	stored.labels, stored.annotations, stored.ours = labels, annotations, cloneManifest(manifest)
	switch {
	case !reflect.DeepEqual(spec, stored.spec):
		stored.spec = spec
		stored.generation++
		s.startOperation(stored, stored.op.nextType(), now)
	case rest:
		s.changes.appendChange(stored, false)
	default:
		if noted {
			s.changes.appendChange(stored, false)
		}
		return false
	}
	return true
}

// startDeletion begins the deletion of a Shoot.
func (s *store) startDeletion(stored *storedShoot, now time.Time) {
	stored.deleting = true
	stored.generation++
	stored.annotations = replaceOwnedKeys(stored.annotations, nil, map[string]string{shoot.AnnotationConfirmDeletion: "true"})
	s.startOperation(stored, opDelete, now)
}

// startOperation begins an operation, in place of one in progress.
func (s *store) startOperation(stored *storedShoot, operationType string, now time.Time) {
	total := map[string]time.Duration{opCreate: s.o.CreateTime, opReconcile: s.o.UpdateTime, opDelete: s.o.DeleteTime}[operationType]
	stored.op = operation{
		kind: operationType, state: statePending, took: total / (steps + 1), updated: now, errors: stored.op.errors,
		healthy: stored.op.healthy, ready: stored.op.ready,
	}
	stored.op.due = now.Add(stored.op.took)
	if stored.op.took > 0 {
		s.changes.appendChange(stored, false)
		s.schedule.putIfDueOrRemove(stored)
		return
	}
	s.runDueStepsOfShoot(stored, now)
}

// runDueStepsOfShoot runs all steps that are due, and publishes a version after each step that
// takes time.
func (s *store) runDueStepsOfShoot(stored *storedShoot, now time.Time) {
	for !stored.op.due.IsZero() && !stored.op.due.After(now) {
		at := stored.op.due
		if gone := s.runOperationStep(stored, at); gone {
			return
		}
		if stored.op.took > 0 || stored.op.due.IsZero() || stored.op.due.After(now) {
			s.changes.appendChange(stored, false)
		}
	}
	s.schedule.putIfDueOrRemove(stored)
}

// runOperationStep runs one step at the given time, and reports whether it removed the Shoot.
func (s *store) runOperationStep(stored *storedShoot, at time.Time) (removed bool) {
	o := &stored.op
	o.updated, o.due = at, at.Add(o.took)
	switch {
	case o.state == stateSucceeded: // the conditions turn healthy later
		o.healthy, o.due = true, time.Time{}
	case o.state == statePending, o.state == stateError:
		o.state, stored.observedGeneration = stateProcessing, stored.generation
	case o.step == steps/2 && stored.breaks != 0:
		s.failOperationWithFault(stored, at)
	case o.step < steps:
		o.step++
	case o.kind == opDelete:
		return s.removeUnlessDeletionBlocked(stored)
	default:
		o.state, o.errors = stateSucceeded, nil
		if o.healthy || o.took == 0 {
			o.healthy, o.due = true, time.Time{}
		}
		o.ready = true
	}
	return false
}

// failOperationWithFault makes the operation fail.
func (s *store) failOperationWithFault(stored *storedShoot, at time.Time) {
	o := &stored.op
	o.errors = []shoot.LastError{{
		Description: fmt.Sprintf("could not create the machines of Shoot %q: injected fault", stored.name),
		Codes:       []string{"ERR_INFRA_RESOURCES_DEPLETED"},
	}}
	if stored.breaks < 0 {
		o.state, o.due = stateFailed, time.Time{}
		return
	}
	stored.breaks--
	o.state, o.due = stateError, at.Add(s.o.RetryTime)
}

// removeUnlessDeletionBlocked removes a Shoot, unless a finalizer is left.
func (s *store) removeUnlessDeletionBlocked(stored *storedShoot) (removed bool) {
	if stored.lingers {
		stored.op.due = time.Time{}
		return false
	}
	s.schedule.removeShoot(stored)
	delete(s.shoots, stored.name)
	s.changes.appendChange(stored, true)
	return true
}
