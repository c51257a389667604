package janitor

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/janitor/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

func toMetaTimeSeconds(t time.Time) *metav1.Time { return &metav1.Time{Time: t.Truncate(time.Second)} }

// setCondition sets a condition in the status.
func (s *reconcileState) setCondition(name string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&s.status.Conditions, metav1.Condition{
		Type:               name,
		Status:             status,
		Reason:             reason,
		Message:            message,
		ObservedGeneration: s.object.GetGeneration(),
		LastTransitionTime: *toMetaTimeSeconds(s.now),
	})
}

// setStatusMessage sets the message about what the action waits for.
func (s *reconcileState) setStatusMessage(message string) {
	s.status.Message = nodefault.TruncateText(message, maxMessage)
}

// endActionInStatus ends an action permanently.
func (s *reconcileState) endActionInStatus(k actionKind, reason, message string) {
	s.setStatusMessage(message)
	s.status.CompletionTime = toMetaTimeSeconds(s.now)
	status := metav1.ConditionFalse
	if reason == v1alpha1.ReasonSucceeded {
		status = metav1.ConditionTrue
	}
	s.setCondition(k.final, status, reason, s.status.Message)
	if !meta.IsStatusConditionTrue(s.status.Conditions, v1alpha1.ConditionSignalSent) {
		s.setCondition(v1alpha1.ConditionSignalSent, metav1.ConditionFalse, reason, s.status.Message)
	}
}

// conditionStatusAndReason returns the status and the reason of a condition as one string.
func conditionStatusAndReason(s *v1alpha1.NodeActionStatus, name string) string {
	c := meta.FindStatusCondition(s.Conditions, name)
	if c == nil {
		return ""
	}
	return string(c.Status) + "/" + c.Reason
}

// resultLabel returns the result of an action for metrics and logs.
func resultLabel(s *v1alpha1.NodeActionStatus, final string) string {
	c := meta.FindStatusCondition(s.Conditions, final)
	switch {
	case c == nil:
		return "failed"
	case c.Status == metav1.ConditionTrue:
		return "succeeded"
	case c.Reason == v1alpha1.ReasonTimeout:
		return "timeout"
	}
	return "failed"
}
