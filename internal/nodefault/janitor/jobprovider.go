package janitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// JobConfig configures Jobs in which a node reboots itself.
type JobConfig struct {
	// Namespace is the namespace of the Jobs. It must admit privileged pods.
	Namespace string
	// Image must have a shell, cat, date, sleep and sync, such as busybox.
	Image string
	// Command reboots the host. Empty means a reboot by the kernel with the magic SysRq
	// key: it writes memory to disk, remounts file systems read-only, and boots. Any
	// command runs only in the boot that must end. As in any pod, $ is written as $$.
	Command []string
	// HostPID gives Command access to the processes of the host, and to its files in
	// /proc/1/root.
	HostPID bool

	ServiceAccount    string
	PullSecrets       []string
	PriorityClassName string        // empty means system-node-critical
	Delay             time.Duration // from the start of the pod to the reboot, for the kubelet to report the start; zero means 5 s
}

const (
	containerName  = "reboot"
	defaultClass   = "system-node-critical"
	defaultDelay   = 5 * time.Second
	exitTooLate    = 96
	variableBootID = "BOOT_ID"
	labelAction    = "janitor.fleetloop.io/action"
	annotationNode = "janitor.fleetloop.io/node"
	labelManagedBy = "app.kubernetes.io/managed-by"
	managedBy      = "fleetloop-janitor"
	leastDeadline  = 10  // seconds
	exitSignal     = 128 // with the number of the signal added
)

// guardScript runs its arguments only in the boot that must end, and only before the
// deadline. After the reboot, a kubelet that has lost its state may start the container
// again.
const guardScript = `boot=$(cat /proc/sys/kernel/random/boot_id)
if [ "$boot" != "$BOOT_ID" ]; then echo "this is another boot already"; exit 0; fi
sleep "$DELAY"
if [ "$(date +%s)" -ge "$NOT_AFTER" ]; then echo "it is too late"; exit 96; fi
exec "$@"`

// sysRqScript reboots with the magic SysRq key of the kernel.
const sysRqScript = `sync
echo s > /proc/sysrq-trigger; sleep 2
echo u > /proc/sysrq-trigger; sleep 2
echo b > /proc/sysrq-trigger; sleep 60
exit 1`

// jobProvider is a provider that reboots a node with a Job on the node.
type jobProvider struct {
	cfg    JobConfig
	client kubernetes.Interface
}

func newJobProvider(cfg JobConfig, deps ProviderDeps) (*jobProvider, error) {
	switch {
	case deps.Kubernetes == nil:
		return nil, errors.New("no Kubernetes client")
	case cfg.Namespace == "":
		return nil, errors.New("namespace of Jobs missing")
	case cfg.Image == "":
		return nil, errors.New("image missing")
	}
	if len(cfg.Command) == 0 {
		cfg.Command = []string{"/bin/sh", "-c", sysRqScript}
	}
	cfg.PriorityClassName = cmp.Or(cfg.PriorityClassName, defaultClass)
	cfg.Delay = cmp.Or(cfg.Delay, defaultDelay)
	return &jobProvider{cfg, deps.Kubernetes}, nil
}

// Name returns "job".
func (*jobProvider) Name() string { return string(ProviderJob) }

// Start creates the Job, and waits for its pod to start. A machine cannot terminate itself.
func (j *jobProvider) Start(ctx context.Context, r Request) (reference string, err error) {
	if r.Action == ActionTerminate {
		return "", permanentf("a Job on the node cannot terminate its machine: configure another provider for that")
	}
	jobs := j.client.BatchV1().Jobs(j.cfg.Namespace)
	job, err := jobs.Create(ctx, j.newRebootJob(r), metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		job, err = jobs.Get(ctx, uniqueObjectName(r), metav1.GetOptions{})
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return "", Permanent(fmt.Errorf("create Job: %w", err))
	}
	if err != nil {
		return "", fmt.Errorf("create Job: %w", err)
	}
	reference = job.Namespace + "/" + job.Name
	pods, err := j.listPodsOfJob(ctx, job.Name)
	if err != nil {
		return "", err
	}
	if slices.ContainsFunc(pods, hasStartedContainer) {
		return reference, nil
	}
	if i := slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed }); i >= 0 {
		status := pods[i].Status
		return "", permanentf("node %q did not run the pod of Job %s: %s %s", r.Node.Name, reference, status.Reason, status.Message)
	}
	return "", waitingf("waiting for node %q to start the pod of Job %s", r.Node.Name, reference)
}

// CheckProgress returns the progress of the Job. A pod that ended without an exit code of its
// command is the effect of a reboot, not a failure.
func (j *jobProvider) CheckProgress(ctx context.Context, r Request, reference string) (Progress, error) {
	pods, err := j.listPodsOfJob(ctx, uniqueObjectName(r))
	if err != nil {
		return Progress{}, err
	}
	for i := range pods {
		end := firstTerminatedState(&pods[i])
		if end == nil {
			continue
		}
		ownFailure := end.ExitCode < exitSignal && end.Reason != "ContainerStatusUnknown"
		switch {
		case end.ExitCode == 0:
			return Progress{State: StateDone, Message: "Job " + reference + " completed"}, nil
		case end.ExitCode == exitTooLate:
			return Progress{State: StateFailed, Message: "Job " + reference + " started after the deadline"}, nil
		case ownFailure:
			message := fmt.Sprintf("Job %s failed with exit code %d: %s", reference, end.ExitCode, end.Message)
			return Progress{State: StateFailed, Message: message}, nil
		}
	}
	return Progress{State: StateRunning, Message: "Job " + reference + " is rebooting the node"}, nil
}

// Withdraw deletes the Job and its pod.
func (j *jobProvider) Withdraw(ctx context.Context, r Request) error {
	background := metav1.DeletePropagationBackground
	err := j.client.BatchV1().Jobs(j.cfg.Namespace).Delete(ctx, uniqueObjectName(r), metav1.DeleteOptions{PropagationPolicy: &background})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Job: %w", err)
	}
	return nil
}

func (j *jobProvider) listPodsOfJob(ctx context.Context, jobName string) ([]corev1.Pod, error) {
	pods, err := j.client.CoreV1().Pods(j.cfg.Namespace).List(ctx, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + jobName})
	if err != nil {
		return nil, fmt.Errorf("list pods of Job %q: %w", jobName, err)
	}
	return pods.Items, nil
}

func hasStartedContainer(pod corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.State.Running != nil || c.State.Terminated != nil || c.LastTerminationState.Terminated != nil
	})
}

func firstTerminatedState(p *corev1.Pod) *corev1.ContainerStateTerminated {
	for i := range p.Status.ContainerStatuses {
		if t := p.Status.ContainerStatuses[i].State.Terminated; t != nil {
			return t
		}
	}
	return nil
}

// newRebootJob returns the Job. It has one pod and no retries. The pod is bound to the node by
// name, because the scheduler does not use a cordoned node.
func (j *jobProvider) newRebootJob(r Request) *batchv1.Job {
	labels := map[string]string{labelAction: string(r.Action), labelManagedBy: managedBy}
	annotations := map[string]string{annotationNode: r.Node.Name}
	secrets := make([]corev1.LocalObjectReference, 0, len(j.cfg.PullSecrets))
	for _, s := range j.cfg.PullSecrets {
		secrets = append(secrets, corev1.LocalObjectReference{Name: s})
	}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: uniqueObjectName(r), Namespace: j.cfg.Namespace, Labels: labels, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{ownerReferenceToRequester(r)},
		},
		Spec: batchv1.JobSpec{
			Parallelism: new(int32(1)), Completions: new(int32(1)), BackoffLimit: new(int32(0)),
			PodReplacementPolicy:  new(batchv1.Failed),
			ActiveDeadlineSeconds: new(max(leastDeadline, int64(time.Until(r.Deadline).Seconds()))),
			// Without this rule, a pod that is evicted or loses its node is replaced.
			PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
				Action:          batchv1.PodFailurePolicyActionFailJob,
				OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}},
			}}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations},
				Spec: corev1.PodSpec{
					NodeName: r.Node.Name, RestartPolicy: corev1.RestartPolicyNever, HostPID: j.cfg.HostPID,
					ServiceAccountName: j.cfg.ServiceAccount, AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
					PriorityClassName: j.cfg.PriorityClassName, ImagePullSecrets: secrets,
					Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
					TerminationGracePeriodSeconds: new(int64(0)),
					Containers:                    []corev1.Container{j.rebootContainer(r)},
				},
			},
		},
	}
}

func (j *jobProvider) rebootContainer(r Request) corev1.Container {
	return corev1.Container{
		Name: containerName, Image: j.cfg.Image, ImagePullPolicy: corev1.PullIfNotPresent,
		Command: append([]string{"/bin/sh", "-c", guardScript, containerName}, j.cfg.Command...),
		Env: []corev1.EnvVar{
			{Name: variableBootID, Value: r.BootID},
			{Name: "NOT_AFTER", Value: strconv.FormatInt(r.Deadline.Unix(), 10)},
			{Name: "DELAY", Value: strconv.FormatFloat(j.cfg.Delay.Seconds(), 'f', -1, 64)},
		},
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		SecurityContext:          &corev1.SecurityContext{Privileged: new(true), RunAsUser: new(int64(0))},
	}
}

// ownerReferenceToRequester makes the object of the request the owner, so that both are deleted
// together.
func ownerReferenceToRequester(r Request) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: r.By.APIVersion, Kind: r.By.Kind, Name: r.By.Name, UID: r.Key, Controller: new(true)}
}
