package eviction

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	pods := schema.GroupResource{Resource: "pods"}
	withCause := func(err *apierrors.StatusError, cause metav1.CauseType, message string) error {
		err.ErrStatus.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: cause, Message: message}}}
		return err
	}
	budget := withCause(apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 10), policyv1.DisruptionBudgetCause, "The disruption budget web needs 2 healthy pods and has 2 currently")
	for name, c := range map[string]struct {
		err         error
		want        Result
		reason      string
		terminating bool
	}{
		"no error":              {want: Accepted},
		"not found":             {err: apierrors.NewNotFound(pods, "a"), want: NotFound, reason: `pods "a" not found`},
		"another UID":           {err: apierrors.NewConflict(pods, "a", errors.New("the UID differs")), want: NotFound, reason: `Operation cannot be fulfilled on pods "a": the UID differs`},
		"budget":                {err: budget, want: BlockedByBudget, reason: "The disruption budget web needs 2 healthy pods and has 2 currently"},
		"budget, wrapped":       {err: fmt.Errorf("evict: %w", budget), want: BlockedByBudget, reason: "The disruption budget web needs 2 healthy pods and has 2 currently"},
		"two budgets":           {err: &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusInternalServerError, Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."}}, want: BlockedByBudget, reason: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."},
		"namespace terminating": {err: withCause(apierrors.NewForbidden(pods, "a", errors.New("no")), corev1.NamespaceTerminatingCause, "it is being terminated"), want: Rejected, reason: `pods "a" is forbidden: no`, terminating: true},
		"forbidden":             {err: apierrors.NewForbidden(pods, "a", errors.New("no")), want: Rejected, reason: `pods "a" is forbidden: no`},
		"rate limit":            {err: apierrors.NewTooManyRequests("slow down", 1), want: Failed, reason: "slow down"},
		"unavailable":           {err: apierrors.NewServiceUnavailable("away"), want: Failed, reason: "away"},
		"internal error":        {err: apierrors.NewInternalError(errors.New("etcd")), want: Failed, reason: "Internal error occurred: etcd"},
		"timeout":               {err: apierrors.NewTimeoutError("late", 1), want: Failed, reason: "Timeout: late"},
		"no response":           {err: errors.New("connection refused"), want: Failed, reason: "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := Classify(c.err); got != c.want {
				t.Errorf("classified as %s, want %s", got, c.want)
			}
			if c.err == nil {
				return
			}
			if got := BlockReason(c.err); got != c.reason {
				t.Errorf("reason %q, want %q", got, c.reason)
			}
			if got := IsNamespaceTerminating(c.err); got != c.terminating {
				t.Errorf("namespace terminating: %t, want %t", got, c.terminating)
			}
		})
	}
}

func TestPods(t *testing.T) {
	t.Parallel()
	pod := func(annotations map[string]string, owners ...metav1.OwnerReference) *metav1.ObjectMeta {
		return &metav1.ObjectMeta{Annotations: annotations, OwnerReferences: owners}
	}
	owner := func(kind string, controller bool) metav1.OwnerReference {
		return metav1.OwnerReference{Kind: kind, Name: "x", Controller: new(controller)}
	}
	for name, c := range map[string]struct {
		pod        *metav1.ObjectMeta
		mirror     bool
		controller bool
		daemonSet  string
	}{
		"bare":           {pod: pod(nil)},
		"static":         {pod: pod(map[string]string{corev1.MirrorPodAnnotationKey: "x"}, owner("Node", true)), mirror: true, controller: true},
		"of DaemonSet":   {pod: pod(nil, owner("DaemonSet", true)), controller: true, daemonSet: "x"},
		"of ReplicaSet":  {pod: pod(nil, owner("ReplicaSet", true)), controller: true},
		"owned, no ctrl": {pod: pod(nil, owner("DaemonSet", false))},
	} {
		if IsMirrorPod(c.pod) != c.mirror || HasController(c.pod) != c.controller || DaemonSetOf(c.pod) != c.daemonSet {
			t.Errorf("%s: mirror %t, controller %t, DaemonSet %q", name, IsMirrorPod(c.pod), HasController(c.pod), DaemonSetOf(c.pod))
		}
	}
	for phase, finished := range map[corev1.PodPhase]bool{
		corev1.PodPending: false, corev1.PodRunning: false, corev1.PodUnknown: false, corev1.PodSucceeded: true, corev1.PodFailed: true,
	} {
		if IsFinished(string(phase)) != finished {
			t.Errorf("phase %s: finished %t", phase, !finished)
		}
	}
}
