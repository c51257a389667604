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
func advanceState(shoot *unstructured.Unstructured, f Fault, now time.Time) (*unstructured.Unstructured, part) {
	shoot = shoot.DeepCopy()
	deleting, held := shoot.GetDeletionTimestamp() != nil, slices.Contains(shoot.GetFinalizers(), finalizer)
	op := readOperation(shoot)
	switch {
	case deleting && !held:
		return shoot, nothing
	case deleting && op.kind == typeDelete && op.state == stateSucceeded:
		shoot.SetFinalizers(slices.DeleteFunc(shoot.GetFinalizers(), func(f string) bool { return f == finalizer }))
		return shoot, metadata
	case !held:
		shoot.SetFinalizers(append(shoot.GetFinalizers(), finalizer))
		return shoot, metadata
	case !op.isForSpecOf(shoot):
		initOperationStatus(shoot, op.nextType(deleting), now)
		return shoot, status
	}
	return advanceOperationInPlace(shoot, op, f, now)
}

// An operation is an operation in the status of a Shoot.
type operation struct {
	kind, state string
	progress    int64
	generation  int64 // generation of the operation
}

func readOperation(shoot *unstructured.Unstructured) operation {
	var op operation // stays zero for missing fields
	op.kind, _, _ = unstructured.NestedString(shoot.Object, "status", "lastOperation", "type")
	op.state, _, _ = unstructured.NestedString(shoot.Object, "status", "lastOperation", "state")
	op.progress, _, _ = unstructured.NestedInt64(shoot.Object, "status", "lastOperation", "progress")
	op.generation, _, _ = unstructured.NestedInt64(shoot.Object, "status", "observedGeneration")
	return op
}

// isForSpecOf reports whether the operation is for the current spec of a Shoot.
func (op operation) isForSpecOf(shoot *unstructured.Unstructured) bool {
	isDeleting := shoot.GetDeletionTimestamp() != nil
	return op.state != "" && op.generation == shoot.GetGeneration() && isDeleting == (op.kind == typeDelete)
}

// progressForSpecOf returns the progress of the operation for the current spec of a Shoot in percent, or -1 if it has not
// begun.
func (op operation) progressForSpecOf(shoot *unstructured.Unstructured) int64 {
	if !op.isForSpecOf(shoot) {
		return -1
	}
	return op.progress
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

// initOperationStatus begins an operation.
func initOperationStatus(shoot *unstructured.Unstructured, kind string, now time.Time) {
	setStatusField(shoot, shoot.GetGeneration(), "observedGeneration")
	setStatusField(shoot, "shoot--"+shoot.GetNamespace()+"--"+shoot.GetName(), "technicalID")
	setStatusField(shoot, string(shoot.GetUID()), "uid")
	setStatusField(shoot, map[string]any{"id": "gardenbed", "name": "gardenlet", "version": "v1.0.0"}, "gardener")
	if kind == typeCreate {
		setStatusField(shoot, newConditions("Progressing", now), "conditions")
	}
	setLastOperation(shoot, operation{kind: kind, state: statePending}, "It waits for its turn.", now)
}

// advanceOperationInPlace advances an operation by one step.
func advanceOperationInPlace(shoot *unstructured.Unstructured, op operation, f Fault, now time.Time) (*unstructured.Unstructured, part) {
	at := op.progress >= faultAt
	switch {
	case op.state == stateFailed, op.state == stateError && f == Error, op.state == stateProcessing && at && f == Stuck:
		return shoot, nothing
	case op.state == stateProcessing && at && f == Error:
		setStatusField(shoot, newLastErrors("The quota of the cloud account is used up.", "ERR_INFRA_QUOTA_EXCEEDED", now), "lastErrors")
		setLastOperation(shoot, op.withState(stateError, op.progress), "It will be tried again.", now)
	case op.state == stateProcessing && at && f == Failed:
		setStatusField(shoot, newLastErrors("The configuration can not be used.", "ERR_CONFIGURATION_PROBLEM", now), "lastErrors")
		setLastOperation(shoot, op.withState(stateFailed, op.progress), "It was tried for too long.", now)
	case op.state == stateSucceeded:
		if findNodesStatus(shoot) == nodesStatusForFault(f) {
			return shoot, nothing
		}
		setStatusField(shoot, newConditions(nodesStatusForFault(f), now), "conditions")
	case op.state == stateProcessing && op.progress+stride >= done:
		unstructured.RemoveNestedField(shoot.Object, "status", "lastErrors")
		setStatusField(shoot, newConditions(nodesStatusForFault(f), now), "conditions")
		setLastOperation(shoot, op.withState(stateSucceeded, done), "It is done.", now)
	case op.state == stateProcessing:
		setLastOperation(
			shoot,
			op.withState(stateProcessing, op.progress+stride),
			fmt.Sprintf("%d of 4 tasks are done.", (op.progress+stride)/stride),
			now,
		)
	default: // it was pending, or failed and is retried
		setLastOperation(shoot, op.withState(stateProcessing, op.progress), "It has begun.", now)
	}
	return shoot, status
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
func findNodesStatus(shoot *unstructured.Unstructured) string {
	list, _, _ := unstructured.NestedSlice(shoot.Object, "status", "conditions")
	for _, c := range list {
		if condition, ok := c.(map[string]any); ok && condition["type"] == nodesReady {
			return fmt.Sprint(condition["status"])
		}
	}
	return ""
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }
