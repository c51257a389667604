package remediation

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// VerificationConfig configures the Job that tests a node. The test passes if the
// container exits with 0.
type VerificationConfig struct {
	Namespace      string
	Image          string
	Command        []string // empty means the command of the image
	ServiceAccount string
	Privileged     bool
	// Resources are required from the node, such as nvidia.com/gpu.
	Resources corev1.ResourceRequirements
	// Timeout limits the duration of the Job. Zero means 5 min.
	Timeout time.Duration
	// TTL is how long the finished Job is kept. Zero means 1 h.
	TTL time.Duration
}

// A JobVerifier tests nodes with Jobs.
type JobVerifier struct {
	cfg    VerificationConfig
	client kubernetes.Interface
}

// NewJobVerifier creates a verifier.
func NewJobVerifier(cfg VerificationConfig, c kubernetes.Interface) (*JobVerifier, error) {
	switch {
	case c == nil:
		return nil, errors.New("create verifier: Kubernetes client missing")
	case cfg.Namespace == "":
		return nil, errors.New("create verifier: namespace of Jobs missing")
	case cfg.Image == "":
		return nil, errors.New("create verifier: image missing")
	}
	const timeout, ttl = 5 * time.Minute, time.Hour
	if cfg.Timeout <= 0 {
		cfg.Timeout = timeout
	}
	if cfg.TTL <= 0 {
		cfg.TTL = ttl
	}
	return &JobVerifier{cfg, c}, nil
}

// Verify creates the Job with a name, if it does not exist, and returns its result.
func (v *JobVerifier) Verify(ctx context.Context, node *corev1.Node, name string) (Verdict, error) {
	jobs := v.client.BatchV1().Jobs(v.cfg.Namespace)
	job, err := jobs.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		job, err = jobs.Create(ctx, v.newVerificationJob(node, name), metav1.CreateOptions{})
	}
	if apierrors.IsInvalid(err) {
		return Verdict{Done: true, Message: err.Error()}, nil
	}
	if isForbiddenInvalidOrNotFound(err) { // a person may correct it before the deadline
		return Verdict{Message: fmt.Sprintf("cannot create Job %s/%s: %v", v.cfg.Namespace, name, err)}, nil
	}
	if err != nil {
		return Verdict{}, fmt.Errorf("create Job %q: %w", name, err)
	}
	where := "Job " + job.Namespace + "/" + job.Name
	for _, c := range job.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		if c.Type == batchv1.JobComplete {
			return Verdict{Done: true, Passed: true, Message: where + " passed"}, nil
		}
		if c.Type == batchv1.JobFailed {
			return Verdict{Done: true, Message: where + " failed: " + c.Message}, nil
		}
	}
	return Verdict{Message: where + " is running"}, nil
}

// newVerificationJob returns the Job. Its pod is bound to the node by name, because the scheduler
// does not use a cordoned node.
func (v *JobVerifier) newVerificationJob(node *corev1.Node, name string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Namespace:   v.cfg.Namespace,
			Labels:      map[string]string{"app.kubernetes.io/managed-by": "fleetloop-node-fault"},
			Annotations: map[string]string{"fleetloop.io/node": node.Name},
		},
		Spec: batchv1.JobSpec{
			BackoffLimit:            new(int32(0)),
			ActiveDeadlineSeconds:   new(int64(v.cfg.Timeout.Seconds())),
			TTLSecondsAfterFinished: new(int32(v.cfg.TTL.Seconds())),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				NodeName:                     node.Name,
				RestartPolicy:                corev1.RestartPolicyNever,
				ServiceAccountName:           v.cfg.ServiceAccount,
				AutomountServiceAccountToken: new(v.cfg.ServiceAccount != ""),
				EnableServiceLinks:           new(false),
				Tolerations:                  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				Containers: []corev1.Container{{
					Name:                     "verify",
					Image:                    v.cfg.Image,
					Command:                  v.cfg.Command,
					Resources:                v.cfg.Resources,
					TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
					SecurityContext:          &corev1.SecurityContext{Privileged: new(v.cfg.Privileged)},
				}},
			}},
		},
	}
}
