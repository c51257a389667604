package operator

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
)

// Reasons of conditions, in addition to those of refusals.
const (
	reasonInForce    = "Applied"
	reasonUnanswered = "NewConnectionFailed"
	reasonStarting   = "Starting"
	reasonAnswers    = "Reachable"
	reasonFails      = "Unreachable"
	reasonNothing    = "NoConfiguration"
	reasonFailed     = "SentinelFailed"
	reasonStuck      = "PollLoopStalled"
	reasonUngrouped  = "ReplicaFenced"
	reasonRuns       = "Running"
)

// settling is how long after its start a failing connection is not reported.
const settling = 3 * time.Second

// buildStatus returns the status for the state of an instance. previous has the conditions,
// whose transition times stay if nothing has changed.
func buildStatus(previous *v1alpha1.SentinelConfigStatus, s InstanceState, now time.Time) v1alpha1.SentinelConfigStatus {
	status := v1alpha1.SentinelConfigStatus{
		ObservedGeneration: s.InForce,
		Selector:           s.Selector,
		ResourcesWatched:   int64(s.Stats.Resources),
		EventsPublished:    int64(s.Stats.Published), //nolint:gosec // it never counts so far
		LastPollTime:       previous.LastPollTime,
	}
	if !s.Stats.LastRound.IsZero() {
		status.LastPollTime = &metav1.Time{Time: s.Stats.LastRound.Truncate(time.Second)}
	}
	status.Conditions = append(status.Conditions, previous.Conditions...)
	set := func(conditionType string, generation int64, content conditionContent) {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type:               conditionType,
			Status:             content.status,
			Reason:             content.reason,
			Message:            truncateText(content.message),
			ObservedGeneration: generation,
			LastTransitionTime: metav1.Time{Time: now.Truncate(time.Second)},
		})
	}
	api, broker := buildOrKeepReachableConditions(previous, s, now)
	set(v1alpha1.ConditionReady, s.InForce, buildReadyCondition(s, api, broker))
	set(v1alpha1.ConditionConfigValid, s.Seen, buildConfigValidCondition(s))
	set(v1alpha1.ConditionAPIReachable, s.InForce, api)
	set(v1alpha1.ConditionBrokerReachable, s.InForce, broker)
	return status
}

// A conditionContent is the content of a condition.
type conditionContent struct {
	status          metav1.ConditionStatus
	reason, message string
}

func contentTrue(reason, message string) conditionContent {
	return conditionContent{metav1.ConditionTrue, reason, message}
}

func contentFalse(reason, message string) conditionContent {
	return conditionContent{metav1.ConditionFalse, reason, message}
}

func contentUnknown(reason, message string) conditionContent {
	return conditionContent{metav1.ConditionUnknown, reason, message}
}

// buildConfigValidCondition returns whether the latest generation is in force, and if not, why.
func buildConfigValidCondition(s InstanceState) conditionContent {
	consequence := "no sentinel is running"
	if s.InForce != 0 {
		consequence = fmt.Sprintf("generation %d stays active", s.InForce)
	}
	switch {
	case s.Refusal != nil:
		return contentFalse(string(s.Refusal.Reason), fmt.Sprintf("%v; %s", s.Refusal.Err, consequence))
	case s.Pending != nil && s.Pending.Broker != nil:
		return contentFalse(reasonUnanswered,
			fmt.Sprintf("spec.broker: cannot connect to the new broker: %v; %s", s.Pending.Broker, consequence))
	case s.Pending != nil && s.Pending.API != nil:
		return contentFalse(reasonUnanswered,
			fmt.Sprintf("spec.hyperfleetAPI: cannot reach the new API: %v; %s", s.Pending.API, consequence))
	case s.InForce == s.Seen:
		return contentTrue(reasonInForce, fmt.Sprintf("generation %d is active", s.InForce))
	}
	return contentUnknown(reasonStarting, fmt.Sprintf("generation %d is being applied", s.Seen))
}

// buildOrKeepReachableConditions returns whether API and broker respond.
func buildOrKeepReachableConditions(
	previous *v1alpha1.SentinelConfigStatus, s InstanceState, now time.Time,
) (api, broker conditionContent) {
	if s.InForce == 0 {
		nothing := contentUnknown(reasonNothing, "no configuration is active")
		return nothing, nothing
	}
	judge := func(conditionType, dependency string, err error) conditionContent {
		if err == nil {
			return contentTrue(reasonAnswers, dependency+" is reachable")
		}
		if now.Sub(s.Begun) >= settling {
			return contentFalse(reasonFails, err.Error())
		}
		// Just after the start the previous condition is more likely true than the error.
		old := meta.FindStatusCondition(previous.Conditions, conditionType)
		if old != nil && old.Reason != reasonNothing {
			return conditionContent{old.Status, old.Reason, old.Message}
		}
		return contentUnknown(reasonStarting, "no request sent yet")
	}
	api = judge(v1alpha1.ConditionAPIReachable, "the fleet API", s.Stats.APIErr)
	broker = judge(v1alpha1.ConditionBrokerReachable, "the broker", s.Stats.BrokerErr)
	return api, broker
}

// buildReadyCondition returns whether the sentinel watches and publishes.
func buildReadyCondition(s InstanceState, api, broker conditionContent) conditionContent {
	switch {
	case s.Failure != nil:
		return contentFalse(reasonFailed,
			fmt.Sprintf("the sentinel failed, and the process restarts it: %v", firstLineOf(s.Failure)))
	case s.InForce == 0 && s.Refusal != nil:
		return contentFalse(string(s.Refusal.Reason), s.Refusal.Err.Error())
	case s.InForce == 0:
		return contentFalse(reasonNothing, "no configuration is active")
	case s.Live != nil:
		return contentFalse(reasonStuck, s.Live.Error())
	case api.status == metav1.ConditionFalse:
		return contentFalse("API"+reasonFails, api.message)
	case broker.status == metav1.ConditionFalse:
		return contentFalse("Broker"+reasonFails, broker.message)
	case s.Grouped && s.Group != nil:
		return contentFalse(reasonUngrouped, s.Group.Error())
	case api.status == metav1.ConditionTrue && broker.status == metav1.ConditionTrue:
		return contentTrue(reasonRuns,
			fmt.Sprintf("the sentinel watches resources and publishes events with generation %d of the spec", s.InForce))
	}
	return contentFalse(reasonStarting, "connecting")
}

// buildReplicaStatus returns the status entry of one of several replicas.
func buildReplicaStatus(identity string, s InstanceState) v1alpha1.ReplicaStatus {
	r := v1alpha1.ReplicaStatus{
		Name: identity, ResourcesOwned: int64(s.Stats.Resources),
		EventsPublished: int64(s.Stats.Published), //nolint:gosec // it never counts so far
	}
	if !s.Stats.LastRound.IsZero() {
		r.LastPollTime = &metav1.Time{Time: s.Stats.LastRound.Truncate(time.Second)}
	}
	return r
}
