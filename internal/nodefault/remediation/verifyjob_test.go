package remediation

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
)

// TestJobVerifier verifies that one Job is created on the node, and that its result is
// the verdict.
func TestJobVerifier(t *testing.T) {
	t.Parallel()
	c, err := kubernetes.NewForConfig(kubebedtest.Bed(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	ns := kubebedtest.Namespace(t)
	v, err := NewJobVerifier(VerificationConfig{Namespace: ns, Image: "checks", Privileged: true}, c)
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "verified"}}
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	condition := func(kind batchv1.JobConditionType, message string) batchv1.JobCondition {
		return batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, Message: message, LastTransitionTime: now, LastProbeTime: now}
	}
	for name, tc := range map[string]struct {
		reason string
		status batchv1.JobStatus
		want   Verdict
	}{
		"runs": {"it has not ended", batchv1.JobStatus{StartTime: &now}, Verdict{}},
		"passes": {"its container has exited with 0", batchv1.JobStatus{
			StartTime: &now, CompletionTime: &now, Succeeded: 1,
			Conditions: []batchv1.JobCondition{condition(batchv1.JobSuccessCriteriaMet, ""), condition(batchv1.JobComplete, "")},
		}, Verdict{Done: true, Passed: true}},
		"fails": {"it has not", batchv1.JobStatus{
			StartTime: &now, Failed: 1,
			Conditions: []batchv1.JobCondition{condition(batchv1.JobFailureTarget, ""), condition(batchv1.JobFailed, "no GPU")},
		}, Verdict{Done: true, Message: "no GPU"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 2 {
				if got, err := v.Verify(t.Context(), node, name); err != nil || got.Done {
					t.Fatalf("it has just begun: %+v, %v", got, err)
				}
			}
			job, err := c.BatchV1().Jobs(ns).Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if job.Spec.Template.Spec.NodeName != node.Name {
				t.Errorf("it runs on %q", job.Spec.Template.Spec.NodeName)
			}
			job.Status = tc.status
			if _, err := c.BatchV1().Jobs(ns).UpdateStatus(t.Context(), job, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			got, err := v.Verify(t.Context(), node, name)
			if err != nil || got.Done != tc.want.Done || got.Passed != tc.want.Passed || !strings.Contains(got.Message, tc.want.Message) {
				t.Errorf("%s: %+v, %v", tc.reason, got, err)
			}
		})
	}
}

// TestNoNamespaceForJobs verifies that a missing namespace is reported and not retried at
// once.
func TestNoNamespaceForJobs(t *testing.T) {
	t.Parallel()
	c, err := kubernetes.NewForConfig(kubebedtest.Bed(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	v, err := NewJobVerifier(VerificationConfig{Namespace: "not-there", Image: "checks"}, c)
	if err != nil {
		t.Fatal(err)
	}
	got, err := v.Verify(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, "a")
	if err != nil || got.Done || !strings.Contains(got.Message, "not-there") {
		t.Errorf("%+v, %v", got, err)
	}
}
