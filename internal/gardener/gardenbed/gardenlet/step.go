package gardenlet

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A Fault is what goes wrong with a Shoot.
type Fault string

// The faults. Each lasts until it is taken back.
const (
	// None is a Shoot that all goes well with.
	None Fault = ""
	// Error is an operation that does not get on: Gardener tries again and
	// again. When the fault is taken back it goes on.
	Error Fault = "Error"
	// Failed is an operation that Gardener has given up, until the spec changes
	// or somebody asks for a retry.
	Failed Fault = "Failed"
	// Stuck is an operation that goes no further, and says nothing about it.
	Stuck Fault = "Stuck"
	// Unhealthy is a cluster whose operation succeeds and whose nodes are not
	// ready.
	Unhealthy Fault = "Unhealthy"
)

const (
	finalizer = "gardener"

	stateError, stateFailed, statePending, stateProcessing, stateSucceeded = "Error", "Failed", "Pending", "Processing", "Succeeded"
	typeCreate, typeReconcile, typeDelete                                  = "Create", "Reconcile", "Delete"

	faultAt = 50 // percent
	stride  = 25 // percent, of a step
	done    = 100
)

// A part of a Shoot is written by a request of its own.
type part int

const (
	nothing part = iota
	metadata
	status
)

// step gives a Shoot as it is to be next, and which part of it has changed.
func step(s *unstructured.Unstructured, f Fault, now time.Time) (*unstructured.Unstructured, part) {
	s = s.DeepCopy()
	deleting, held := s.GetDeletionTimestamp() != nil, slices.Contains(s.GetFinalizers(), finalizer)
	op := operationOf(s)
	switch {
	case deleting && !held:
		return s, nothing
	case deleting && op.kind == typeDelete && op.state == stateSucceeded:
		s.SetFinalizers(slices.DeleteFunc(s.GetFinalizers(), func(f string) bool { return f == finalizer }))
		return s, metadata
	case !held:
		s.SetFinalizers(append(s.GetFinalizers(), finalizer))
		return s, metadata
	case op.state == "" || op.generation != s.GetGeneration() || deleting != (op.kind == typeDelete):
		begin(s, op.after(deleting), now)
		return s, status
	}
	return proceed(s, op, f, now)
}

// An operation is what the status says of it.
type operation struct {
	kind, state string
	progress    int64
	generation  int64 // that it is for
}

func operationOf(s *unstructured.Unstructured) operation {
	var op operation // stays zero where the status has nothing
	op.kind, _, _ = unstructured.NestedString(s.Object, "status", "lastOperation", "type")
	op.state, _, _ = unstructured.NestedString(s.Object, "status", "lastOperation", "state")
	op.progress, _, _ = unstructured.NestedInt64(s.Object, "status", "lastOperation", "progress")
	op.generation, _, _ = unstructured.NestedInt64(s.Object, "status", "observedGeneration")
	return op
}

// after is the type of the operation that follows.
func (op operation) after(deleting bool) string {
	switch {
	case deleting:
		return typeDelete
	case op.kind == "" || op.kind == typeCreate && op.state != stateSucceeded:
		return typeCreate
	}
	return typeReconcile
}

// in is the operation in another state.
func (op operation) in(state string, progress int64) operation {
	op.state, op.progress = state, progress
	return op
}

// begin begins an operation.
func begin(s *unstructured.Unstructured, kind string, now time.Time) {
	set(s, s.GetGeneration(), "observedGeneration")
	set(s, "shoot--"+s.GetNamespace()+"--"+s.GetName(), "technicalID")
	set(s, string(s.GetUID()), "uid")
	set(s, map[string]any{"id": "gardenbed", "name": "gardenlet", "version": "v1.0.0"}, "gardener")
	if kind == typeCreate {
		set(s, conditions("Progressing", now), "conditions")
	}
	say(s, operation{kind: kind, state: statePending}, "It waits for its turn.", now)
}

// proceed takes an operation on.
func proceed(s *unstructured.Unstructured, op operation, f Fault, now time.Time) (*unstructured.Unstructured, part) {
	at := op.progress >= faultAt
	switch {
	case op.state == stateFailed, op.state == stateError && f == Error, op.state == stateProcessing && at && f == Stuck:
		return s, nothing
	case op.state == stateProcessing && at && f == Error:
		set(s, lastErrors("The quota of the cloud account is used up.", "ERR_INFRA_QUOTA_EXCEEDED", now), "lastErrors")
		say(s, op.in(stateError, op.progress), "It will be tried again.", now)
	case op.state == stateProcessing && at && f == Failed:
		set(s, lastErrors("The configuration can not be used.", "ERR_CONFIGURATION_PROBLEM", now), "lastErrors")
		say(s, op.in(stateFailed, op.progress), "It was tried for too long.", now)
	case op.state == stateSucceeded:
		if healthOf(s) == health(f) {
			return s, nothing
		}
		set(s, conditions(health(f), now), "conditions")
	case op.state == stateProcessing && op.progress+stride >= done:
		unstructured.RemoveNestedField(s.Object, "status", "lastErrors")
		set(s, conditions(health(f), now), "conditions")
		say(s, op.in(stateSucceeded, done), "It is done.", now)
	case op.state == stateProcessing:
		say(s, op.in(stateProcessing, op.progress+stride), fmt.Sprintf("%d of 4 tasks are done.", (op.progress+stride)/stride), now)
	default: // it waited, or failed and is tried again
		say(s, op.in(stateProcessing, op.progress), "It has begun.", now)
	}
	return s, status
}

// say writes the last operation.
func say(s *unstructured.Unstructured, op operation, text string, now time.Time) {
	set(s, map[string]any{"type": op.kind, "state": op.state, "progress": op.progress, "description": text, "lastUpdateTime": stamp(now)}, "lastOperation")
}

// set sets a field of the status, which the API always gives as an object.
func set(s *unstructured.Unstructured, value any, field string) {
	_ = unstructured.SetNestedField(s.Object, value, "status", field)
}

func lastErrors(text, code string, now time.Time) []any {
	return []any{map[string]any{"description": text, "codes": []any{code}, "lastUpdateTime": stamp(now)}}
}

const nodesReady = "EveryNodeReady"

// conditions are those of a cluster whose nodes are as said; all else is well.
func conditions(nodes string, now time.Time) []any {
	var list []any
	for _, kind := range []string{"APIServerAvailable", "ControlPlaneHealthy", "ObservabilityComponentsHealthy", nodesReady, "SystemComponentsHealthy"} {
		is := "True"
		if kind == nodesReady || nodes == "Progressing" {
			is = nodes
		}
		list = append(list, map[string]any{
			"type": kind, "status": is, "reason": kind + is, "message": "gardenbed says so.",
			"lastTransitionTime": stamp(now), "lastUpdateTime": stamp(now),
		})
	}
	return list
}

// health is the status of the condition of the nodes.
func health(f Fault) string {
	if f == Unhealthy {
		return "False"
	}
	return "True"
}

// healthOf is the health that a status says.
func healthOf(s *unstructured.Unstructured) string {
	list, _, _ := unstructured.NestedSlice(s.Object, "status", "conditions")
	for _, c := range list {
		if condition, ok := c.(map[string]any); ok && condition["type"] == nodesReady {
			return fmt.Sprint(condition["status"])
		}
	}
	return ""
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
