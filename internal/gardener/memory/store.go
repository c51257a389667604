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
	shoots   map[string]*item
	schedule schedule       // the shoots with an operation in progress
	breaks   map[string]int // set by Break before the Shoot existed
	changes  changeLog
}

// advanceTo runs the steps since the last call.
func (s *store) advanceTo(now time.Time) {
	for {
		next := s.schedule.nextTime()
		if next.IsZero() || next.After(now) {
			return
		}
		// One step of one Shoot at a time keeps the changes of all in order.
		s.runDueSteps(s.schedule.items[0], next)
	}
}

// createItem creates a new Shoot.
func (s *store) createItem(m shoot.Manifest, now time.Time) *item {
	it := &item{
		name: m.Metadata.Name, uid: uuid.NewString(), created: now,
		labels: maps.Clone(m.Metadata.Labels), annotations: maps.Clone(m.Metadata.Annotations), spec: cloneSpec(m.Spec),
		ours: cloneManifest(m), generation: 1, at: -1,
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

// changeItem updates a Shoot to match a manifest, and reports whether it differed. The
// annotation of the sent generation does not count as a change.
func (s *store) changeItem(it *item, m shoot.Manifest, now time.Time) (changed bool) {
	labels := replaceOwned(it.labels, it.ours.Metadata.Labels, m.Metadata.Labels)
	annotations := replaceOwned(it.annotations, it.ours.Metadata.Annotations, m.Metadata.Annotations)
	spec := wantedWithLiveDefaults(m.Spec, it.ours.Spec, it.spec)
	rest := !maps.Equal(labels, it.labels) || !equalExceptGeneration(annotations, it.annotations)
	noted := !maps.Equal(annotations, it.annotations)

	it.labels, it.annotations, it.ours = labels, annotations, cloneManifest(m)
	switch {
	case !reflect.DeepEqual(spec, it.spec):
		it.spec = spec
		it.generation++
		s.startOperation(it, it.op.nextOperationType(), now)
	case rest:
		s.changes.record(it, false)
	default:
		if noted {
			s.changes.record(it, false)
		}
		return false
	}
	return true
}

// startDeletion begins the deletion of a Shoot.
func (s *store) startDeletion(it *item, now time.Time) {
	it.deleting = true
	it.generation++
	it.annotations = replaceOwned(it.annotations, nil, map[string]string{shoot.AnnotationConfirmDeletion: "true"})
	s.startOperation(it, opDelete, now)
}

// startOperation begins an operation, in place of one in progress.
func (s *store) startOperation(it *item, kind string, now time.Time) {
	total := map[string]time.Duration{opCreate: s.o.CreateTime, opReconcile: s.o.UpdateTime, opDelete: s.o.DeleteTime}[kind]
	it.op = operation{
		kind: kind, state: statePending, took: total / (steps + 1), updated: now, errors: it.op.errors,
		healthy: it.op.healthy, ready: it.op.ready,
	}
	it.op.due = now.Add(it.op.took)
	if it.op.took > 0 {
		s.changes.record(it, false)
		s.schedule.putItem(it)
		return
	}
	s.runDueSteps(it, now)
}

// runDueSteps runs all steps that are due, and publishes a version after each step that
// takes time.
func (s *store) runDueSteps(it *item, now time.Time) {
	for !it.op.due.IsZero() && !it.op.due.After(now) {
		at := it.op.due
		if gone := s.runStep(it, at); gone {
			return
		}
		if it.op.took > 0 || it.op.due.IsZero() || it.op.due.After(now) {
			s.changes.record(it, false)
		}
	}
	s.schedule.putItem(it)
}

// runStep runs one step at the given time, and reports whether it removed the Shoot.
func (s *store) runStep(it *item, at time.Time) (gone bool) {
	o := &it.op
	o.updated, o.due = at, at.Add(o.took)
	switch {
	case o.state == stateSucceeded: // the conditions turn healthy later
		o.healthy, o.due = true, time.Time{}
	case o.state == statePending, o.state == stateError:
		o.state, it.observedGeneration = stateProcessing, it.generation
	case o.step == steps/2 && it.breaks != 0:
		s.failOperation(it, at)
	case o.step < steps:
		o.step++
	case o.kind == opDelete:
		return s.removeUnlessLingering(it)
	default:
		o.state, o.errors = stateSucceeded, nil
		if o.healthy || o.took == 0 {
			o.healthy, o.due = true, time.Time{}
		}
		o.ready = true
	}
	return false
}

// failOperation makes the operation fail.
func (s *store) failOperation(it *item, at time.Time) {
	o := &it.op
	o.errors = []shoot.LastError{{
		Description: fmt.Sprintf("could not create the machines of Shoot %q: injected fault", it.name),
		Codes:       []string{"ERR_INFRA_RESOURCES_DEPLETED"},
	}}
	if it.breaks < 0 {
		o.state, o.due = stateFailed, time.Time{}
		return
	}
	it.breaks--
	o.state, o.due = stateError, at.Add(s.o.RetryTime)
}

// removeUnlessLingering removes a Shoot, unless a finalizer is left.
func (s *store) removeUnlessLingering(it *item) (removed bool) {
	if it.lingers {
		it.op.due = time.Time{}
		return false
	}
	s.schedule.dropItem(it)
	delete(s.shoots, it.name)
	s.changes.record(it, true)
	return true
}
