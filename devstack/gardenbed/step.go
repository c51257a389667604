package gardenbed

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A Fault is an injected fault of a Shoot.
type Fault string

// Faults of a Shoot. Each lasts until it is withdrawn.
const (
	// None means no fault.
	None Fault = ""
	// Error is an operation that makes no progress while Gardener keeps retrying. It
	// continues when the fault is withdrawn.
	Error Fault = "Error"
	// Failed is an operation that Gardener has given up, until the spec changes or a
	// retry is requested.
	Failed Fault = "Failed"
	// Stuck is an operation that stops silently.
	Stuck Fault = "Stuck"
	// Unhealthy is a cluster whose operation succeeds and whose nodes are not ready.
	Unhealthy Fault = "Unhealthy"
)

const (
	finalizer = "gardener"

	stateError, stateFailed, statePending, stateProcessing, stateSucceeded = "Error", "Failed", "Pending", "Processing", "Succeeded"
	typeCreate, typeReconcile, typeDelete                                  = "Create", "Reconcile", "Delete"

	faultAt = 50 // percent
	stride  = 25 // percent per step
	done    = 100
)

// A part is a part of a Shoot that is written by a separate request.
type part int

const (
	nothing part = iota
	metadata
	status
)

// advanceState returns the next state of a Shoot, and the part that has changed.
func advanceState(s *unstructured.Unstructured, f Fault, now time.Time) (*unstructured.Unstructured, part) {
	s = s.DeepCopy()
	deleting, held := s.GetDeletionTimestamp() != nil, slices.Contains(s.GetFinalizers(), finalizer)
	op := readOperation(s)
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
		startOperation(s, op.nextType(deleting), now)
		return s, status
	}
	return advanceOperation(s, op, f, now)
}

// An operation is an operation in the status of a Shoot.
type operation struct {
	kind, state string
	progress    int64
	generation  int64 // generation of the operation
}

func readOperation(s *unstructured.Unstructured) operation {
	var op operation // stays zero for missing fields
	op.kind, _, _ = unstructured.NestedString(s.Object, "status", "lastOperation", "type")
	op.state, _, _ = unstructured.NestedString(s.Object, "status", "lastOperation", "state")
	op.progress, _, _ = unstructured.NestedInt64(s.Object, "status", "lastOperation", "progress")
	op.generation, _, _ = unstructured.NestedInt64(s.Object, "status", "observedGeneration")
	return op
}

// nextType returns the type of the operation that follows.
func (op operation) nextType(deleting bool) string {
	switch {
	case deleting:
		return typeDelete
	case op.kind == "" || op.kind == typeCreate && op.state != stateSucceeded:
		return typeCreate
	}
	return typeReconcile
}

// withState returns the operation in another state.
func (op operation) withState(state string, progress int64) operation {
	op.state, op.progress = state, progress
	return op
}

// startOperation begins an operation.
func startOperation(s *unstructured.Unstructured, kind string, now time.Time) {
	setStatusField(s, s.GetGeneration(), "observedGeneration")
	setStatusField(s, "shoot--"+s.GetNamespace()+"--"+s.GetName(), "technicalID")
	setStatusField(s, string(s.GetUID()), "uid")
	setStatusField(s, map[string]any{"id": "gardenbed", "name": "gardenlet", "version": "v1.0.0"}, "gardener")
	if kind == typeCreate {
		setStatusField(s, newConditions("Progressing", now), "conditions")
	}
	setLastOperation(s, operation{kind: kind, state: statePending}, "It waits for its turn.", now)
}

// advanceOperation advances an operation by one step.
func advanceOperation(s *unstructured.Unstructured, op operation, f Fault, now time.Time) (*unstructured.Unstructured, part) {
	at := op.progress >= faultAt
	switch {
	case op.state == stateFailed, op.state == stateError && f == Error, op.state == stateProcessing && at && f == Stuck:
		return s, nothing
	case op.state == stateProcessing && at && f == Error:
		setStatusField(s, newLastErrors("The quota of the cloud account is used up.", "ERR_INFRA_QUOTA_EXCEEDED", now), "lastErrors")
		setLastOperation(s, op.withState(stateError, op.progress), "It will be tried again.", now)
	case op.state == stateProcessing && at && f == Failed:
		setStatusField(s, newLastErrors("The configuration can not be used.", "ERR_CONFIGURATION_PROBLEM", now), "lastErrors")
		setLastOperation(s, op.withState(stateFailed, op.progress), "It was tried for too long.", now)
	case op.state == stateSucceeded:
		if findNodesStatus(s) == nodesStatusForFault(f) {
			return s, nothing
		}
		setStatusField(s, newConditions(nodesStatusForFault(f), now), "conditions")
	case op.state == stateProcessing && op.progress+stride >= done:
		unstructured.RemoveNestedField(s.Object, "status", "lastErrors")
		setStatusField(s, newConditions(nodesStatusForFault(f), now), "conditions")
		setLastOperation(s, op.withState(stateSucceeded, done), "It is done.", now)
	case op.state == stateProcessing:
		setLastOperation(s, op.withState(stateProcessing, op.progress+stride), fmt.Sprintf("%d of 4 tasks are done.", (op.progress+stride)/stride), now)
	default: // it was pending, or failed and is retried
		setLastOperation(s, op.withState(stateProcessing, op.progress), "It has begun.", now)
	}
	return s, status
}

// setLastOperation writes the last operation.
func setLastOperation(s *unstructured.Unstructured, op operation, text string, now time.Time) {
	setStatusField(s, map[string]any{"type": op.kind, "state": op.state, "progress": op.progress, "description": text, "lastUpdateTime": formatTime(now)}, "lastOperation")
}

// setStatusField sets a field of the status, which is always an object.
func setStatusField(s *unstructured.Unstructured, value any, field string) {
	_ = unstructured.SetNestedField(s.Object, value, "status", field)
}

func newLastErrors(text, code string, now time.Time) []any {
	return []any{map[string]any{"description": text, "codes": []any{code}, "lastUpdateTime": formatTime(now)}}
}

const nodesReady = "EveryNodeReady"

// newConditions returns the conditions of a cluster with the given condition of the nodes;
// all others are true.
func newConditions(nodesStatus string, now time.Time) []any {
	var list []any
	for _, kind := range []string{"APIServerAvailable", "ControlPlaneHealthy", "ObservabilityComponentsHealthy", nodesReady, "SystemComponentsHealthy"} {
		is := "True"
		if kind == nodesReady || nodesStatus == "Progressing" {
			is = nodesStatus
		}
		list = append(list, map[string]any{
			"type": kind, "status": is, "reason": kind + is, "message": "gardenbed says so.",
			"lastTransitionTime": formatTime(now), "lastUpdateTime": formatTime(now),
		})
	}
	return list
}

// nodesStatusForFault returns the status of the condition of the nodes.
func nodesStatusForFault(f Fault) string {
	if f == Unhealthy {
		return "False"
	}
	return "True"
}

// findNodesStatus returns the status of the nodes' condition in a Shoot.
func findNodesStatus(s *unstructured.Unstructured) string {
	list, _, _ := unstructured.NestedSlice(s.Object, "status", "conditions")
	for _, c := range list {
		if condition, ok := c.(map[string]any); ok && condition["type"] == nodesReady {
			return fmt.Sprint(condition["status"])
		}
	}
	return ""
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }
