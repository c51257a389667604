package janitor

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/janitor/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

func metaTime(t time.Time) *metav1.Time { return &metav1.Time{Time: t.Truncate(time.Second)} }

// setCondition sets a condition in the status.
func (t *turn) setCondition(name string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&t.status.Conditions, metav1.Condition{
		Type: name, Status: status, Reason: reason, Message: message,
		ObservedGeneration: t.object.GetGeneration(), LastTransitionTime: *metaTime(t.now),
	})
}

// setWaiting sets the message about what the action waits for.
func (t *turn) setWaiting(message string) {
	t.status.Message = nodefault.TruncateText(message, maxMessage)
}

// endAction ends an action permanently.
func (t *turn) endAction(k kind, reason, message string) {
	t.setWaiting(message)
	t.status.CompletionTime = metaTime(t.now)
	status := metav1.ConditionFalse
	if reason == v1alpha1.ReasonSucceeded {
		status = metav1.ConditionTrue
	}
	t.setCondition(k.final, status, reason, t.status.Message)
	if c := meta.FindStatusCondition(t.status.Conditions, v1alpha1.ConditionSignalSent); c == nil || c.Status != metav1.ConditionTrue {
		t.setCondition(v1alpha1.ConditionSignalSent, metav1.ConditionFalse, reason, t.status.Message)
	}
}

// statusAndReason returns the status and the reason of a condition as one string.
func statusAndReason(s *v1alpha1.NodeActionStatus, name string) string {
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
