// Package job builds the Jobs that run plans and derives their state.
//
// Build creates the Job of an execution. The same execution and plan result in the same Job. No
// text from the execution becomes part of a command.
//
// Observe derives the state from a Job and its Pods. A terminated container decides, because
// the Job's conditions follow a second or more later. If no Pod is left, the Job's conditions
// decide. An unknown result is never reported as a success.
package job

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/runner"
)

const (
	// Container is the name of the only container of a Pod.
	Container = "kubectl-executor"

	// DryRunArgument makes the runner perform a dry run.
	DryRunArgument = "--dry-run=server"

	nodeKind        = "Node"
	accountVolume   = "kube-api-access"
	accountPath     = "/var/run/secrets/kubernetes.io/serviceaccount"
	user            = 65532
	gracePeriod     = 10 // seconds for a stopped runner to report its result
	maxLabel        = 63
	minTokenSeconds = 600  // seconds, the minimum of the API server
	maxTokenSeconds = 3600 // seconds
	defaultTimeout  = 5 * time.Minute
	dryRunTimeout   = 60 * time.Second // the operator has a shorter timeout, which starts with the container
	minTimeout      = 5 * time.Second
)

// Options configure Jobs.
type Options struct {
	// Namespace is the namespace of the executions, their Jobs and the action accounts.
	Namespace string

	Image       string // image of action-runner by digest
	PullPolicy  string // Always, IfNotPresent or Never; empty means the default of the cluster
	PullSecrets []string

	PriorityClassName string
	NodeSelector      map[string]string   // for the Pods
	Tolerations       []corev1.Toleration // for the Pods

	// OnTargetNode lets an action on a node run on that node if no other is available. Otherwise
	// the Pod waits for another node.
	OnTargetNode bool

	// Resources are the resources of the container. Empty means requests of 50m and 64Mi, and
	// limits of 200m and 256Mi.
	Resources corev1.ResourceRequirements
	// ActionResources override Resources by action name. A drain reads all Pods of a node, a
	// scaling only one object.
	ActionResources map[string]corev1.ResourceRequirements
}

// Name returns the name of the n-th Job of an execution for a purpose, starting at 1. It is unique
// even if another execution has the same name.
func Name(uid types.UID, purpose string, number int) string {
	what := "run"
	if purpose == v1alpha1.PurposeDryRun {
		what = "dry"
	}
	sum := sha256.Sum256([]byte(uid))
	return fmt.Sprintf("kx-%s-%s-%d", hex.EncodeToString(sum[:8]), what, number)
}

// Build returns the n-th Job of an execution for a purpose. The Job has no TTL, because its result
// must be stored before it may be deleted.
func Build(ke *v1alpha1.KubernetesExecution, plan *v1alpha1.Plan, purpose string, number int, o Options) (*batchv1.Job, error) {
	name := Name(ke.UID, purpose, number)
	a, known := action.Find(plan.Action)
	switch {
	case !known:
		return nil, fmt.Errorf("build Job %q: unknown action %q", name, plan.Action)
	case o.Image == "":
		return nil, fmt.Errorf("build Job %q: no runner image is configured", name)
	case ke.UID == "":
		return nil, fmt.Errorf("build Job %q: the execution has no UID", name)
	case ke.Namespace != o.Namespace: // an owner in another namespace is invalid: the Job would be garbage collected
		return nil, fmt.Errorf("build Job %q: the execution is in namespace %q, must be in %q", name, ke.Namespace, o.Namespace)
	case purpose != v1alpha1.PurposeExecute && purpose != v1alpha1.PurposeDryRun:
		return nil, fmt.Errorf("build Job %q: invalid purpose %q", name, purpose)
	}
	b := builder{
		Options: o, ke: ke, plan: plan, action: a, dry: purpose == v1alpha1.PurposeDryRun,
		labels: map[string]string{
			v1alpha1.LabelExecution:    toLabelValue(ke.Name),
			v1alpha1.LabelExecutionUID: toLabelValue(string(ke.UID)),
			v1alpha1.LabelAction:       toLabelValue(a.Name),
			v1alpha1.LabelPurpose:      purpose,
			v1alpha1.LabelOwner:        v1alpha1.OwnerValue,
		},
	}
	b.deadlines = nestDeadlines(b.jobTimeout())
	pod, err := b.podSpec()
	if err != nil {
		return nil, fmt.Errorf("build Job %q: %w", name, err)
	}
	return &batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: o.Namespace, Labels: b.labels,
			Annotations:     map[string]string{v1alpha1.AnnotationExecution: ke.Name, v1alpha1.AnnotationPlan: plan.Hash},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(ke, v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))},
		},
		Spec: batchv1.JobSpec{
			Parallelism: new(int32(1)), Completions: new(int32(1)),
			// Only for indexed Jobs does the Job controller annotate a Pod with the number of earlier failures.
			CompletionMode:        new(batchv1.IndexedCompletion),
			BackoffLimit:          new(b.maxRetries()),
			BackoffLimitPerIndex:  new(b.maxRetries()),
			ActiveDeadlineSeconds: new(b.deadlines.job),
			PodReplacementPolicy:  new(batchv1.Failed),
			PodFailurePolicy:      &batchv1.PodFailurePolicy{Rules: b.podFailureRules()},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: b.labels, Annotations: map[string]string{v1alpha1.AnnotationExecution: ke.Name}},
				Spec:       pod,
			},
		},
	}, nil
}

// builder builds one Job.
type builder struct {
	Options
	ke        *v1alpha1.KubernetesExecution
	plan      *v1alpha1.Plan
	action    *action.Action
	dry       bool
	labels    map[string]string
	deadlines deadlines
}

func (b *builder) jobTimeout() time.Duration {
	switch t := b.ke.Spec.Timeout; {
	case b.dry:
		return dryRunTimeout
	case t != nil && t.Duration > 0:
		return t.Duration
	case b.action.Timeout > 0:
		return b.action.Timeout
	}
	return defaultTimeout
}

func (b *builder) maxRetries() int32 {
	switch {
	case b.dry:
		return 0
	case b.ke.Spec.MaxRetries != nil:
		return max(0, *b.ke.Spec.MaxRetries)
	}
	return max(0, b.action.Retries)
}

// deadlines are the nested deadlines of a Job. A Job that exceeds its deadline deletes its Pod, and
// a Pod that exceeds its deadline kills its container. The runner therefore ends first, so that it
// can report its result.
type deadlines struct {
	job, pod int64 // seconds
	runner   time.Duration
}

func nestDeadlines(timeout time.Duration) deadlines {
	seconds := int64((max(timeout, minTimeout) + time.Second - 1) / time.Second)
	margin := max(1, min(5, seconds/6))
	return deadlines{job: seconds, pod: seconds - margin, runner: time.Duration(seconds-2*margin) * time.Second}
}

// podFailureRules select the Pod failures after which another attempt follows. An action that is not
// idempotent is not repeated once its container has started.
func (b *builder) podFailureRules() []batchv1.PodFailurePolicyRule {
	disrupted := []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
	if !b.action.Idempotent {
		return []batchv1.PodFailurePolicyRule{
			{Action: batchv1.PodFailurePolicyActionFailJob, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
				ContainerName: new(Container), Operator: batchv1.PodFailurePolicyOnExitCodesOpNotIn, Values: []int32{int32(action.CodeOK)},
			}},
			{Action: batchv1.PodFailurePolicyActionFailJob, OnPodConditions: disrupted},
		}
	}
	return []batchv1.PodFailurePolicyRule{
		{Action: batchv1.PodFailurePolicyActionIgnore, OnPodConditions: disrupted}, // a disruption is no failure of the action
		{Action: batchv1.PodFailurePolicyActionFailJob, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
			ContainerName: new(Container), Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: nonRetryableExitCodes(),
		}},
	}
}

// nonRetryableExitCodes returns the exit codes after which another attempt would not help.
func nonRetryableExitCodes() []int32 {
	return []int32{
		int32(action.CodeGuard), int32(action.CodeForbidden), int32(action.CodeInvalid), int32(action.CodeDenied),
		int32(action.CodePartial), int32(action.CodeDeadline), int32(action.CodeCancelled),
	}
}

func (b *builder) podSpec() (corev1.PodSpec, error) {
	container, err := b.newContainer()
	if err != nil {
		return corev1.PodSpec{}, err
	}
	secrets := make([]corev1.LocalObjectReference, 0, len(b.PullSecrets))
	for _, s := range b.PullSecrets {
		secrets = append(secrets, corev1.LocalObjectReference{Name: s})
	}
	return corev1.PodSpec{
		Containers:                    []corev1.Container{container},
		RestartPolicy:                 corev1.RestartPolicyNever,
		ServiceAccountName:            b.action.ServiceAccount(),
		AutomountServiceAccountToken:  new(false),
		EnableServiceLinks:            new(false),
		ActiveDeadlineSeconds:         new(b.deadlines.pod),
		TerminationGracePeriodSeconds: new(int64(gracePeriod)),
		PriorityClassName:             b.PriorityClassName,
		NodeSelector:                  b.NodeSelector,
		Tolerations:                   b.Tolerations,
		Affinity:                      b.affinityOffTargetNode(),
		ImagePullSecrets:              secrets,
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(user)), RunAsGroup: new(int64(user)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Volumes: []corev1.Volume{{Name: accountVolume, VolumeSource: corev1.VolumeSource{Projected: b.serviceAccountVolumeSource()}}},
	}, nil
}

func (b *builder) newContainer() (corev1.Container, error) {
	in := runner.Input{
		Plan:    b.plan,
		Subject: action.Subject{UID: b.ke.UID, Created: b.ke.CreationTimestamp.Time},
		Within:  b.deadlines.runner,
	}
	variables, err := in.Environment()
	if err != nil {
		return corev1.Container{}, err
	}
	c := corev1.Container{
		Name: Container, Image: b.Image, ImagePullPolicy: corev1.PullPolicy(b.PullPolicy),
		Resources:                b.containerResources(),
		TerminationMessagePath:   corev1.TerminationMessagePathDefault,
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError, // the log shows why a runner crashed
		VolumeMounts:             []corev1.VolumeMount{{Name: accountVolume, MountPath: accountPath, ReadOnly: true}},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true), RunAsNonRoot: new(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
	if b.dry {
		c.Args = []string{DryRunArgument}
	}
	for _, v := range variables {
		c.Env = append(c.Env, corev1.EnvVar{Name: v.Name, Value: v.Value})
	}
	c.Env = append(c.Env, corev1.EnvVar{Name: runner.EnvTerminationLog, Value: c.TerminationMessagePath},
		annotationVariable(runner.EnvFailures, batchv1.JobIndexFailureCountAnnotation), annotationVariable(runner.EnvDisruptions, batchv1.JobIndexIgnoredFailureCountAnnotation))
	return c, nil
}

// annotationVariable returns a variable whose value is an annotation of the Pod.
func annotationVariable(name, annotation string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
		APIVersion: "v1", FieldPath: "metadata.annotations['" + annotation + "']",
	}}}
}

func (b *builder) containerResources() corev1.ResourceRequirements {
	r, own := b.ActionResources[b.action.Name]
	if !own {
		r = b.Resources
	}
	if len(r.Limits) > 0 || len(r.Requests) > 0 {
		return r
	}
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
		Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m"), corev1.ResourceMemory: resource.MustParse("256Mi")},
	}
}

// serviceAccountVolumeSource returns the files that in-cluster clients expect. The token is valid for
// little longer than the Job.
func (b *builder) serviceAccountVolumeSource() *corev1.ProjectedVolumeSource {
	return &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
			Path: corev1.ServiceAccountTokenKey, ExpirationSeconds: new(min(max(b.deadlines.job, minTokenSeconds), maxTokenSeconds)),
		}},
		{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
			Items:                []corev1.KeyToPath{{Key: corev1.ServiceAccountRootCAKey, Path: corev1.ServiceAccountRootCAKey}},
		}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
			Path: corev1.ServiceAccountNamespaceKey, FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
		}}}},
	}}
}

// affinityOffTargetNode keeps the Pod of an action on a node away from that node, because it would drain
// itself.
func (b *builder) affinityOffTargetNode() *corev1.Affinity {
	if b.plan.Target.Kind != nodeKind {
		return nil
	}
	elsewhere := corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{
		Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpNotIn, Values: []string{b.plan.Target.Name},
	}}}
	if b.OnTargetNode {
		const most = 100
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: most, Preference: elsewhere}},
		}}
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{elsewhere}},
	}}
}

// toLabelValue converts a text to a valid label value and truncates it if it is too long.
func toLabelValue(text string) string {
	text = regexp.MustCompile(`[^A-Za-z0-9_.-]+`).ReplaceAllString(text, "-")
	return strings.Trim(text[:min(len(text), maxLabel)], "-_.")
}
