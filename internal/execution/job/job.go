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
	shortPurpose := "run"
	if purpose == v1alpha1.PurposeDryRun {
		shortPurpose = "dry"
	}
	sum := sha256.Sum256([]byte(uid))
	return fmt.Sprintf("kx-%s-%s-%d", hex.EncodeToString(sum[:8]), shortPurpose, number)
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
	dryRun := purpose == v1alpha1.PurposeDryRun
	b := builder{
		options:   o,
		execution: ke,
		plan:      plan,
		action:    a,
		dryRun:    dryRun,
		labels: map[string]string{
			v1alpha1.LabelExecution:    toLabelValue(ke.Name),
			v1alpha1.LabelExecutionUID: toLabelValue(string(ke.UID)),
			v1alpha1.LabelAction:       toLabelValue(a.Name),
			v1alpha1.LabelPurpose:      purpose,
			v1alpha1.LabelOwner:        v1alpha1.OwnerValue,
		},
		deadlines: nestDeadlines(jobTimeout(ke, a, dryRun)),
	}
	pod, err := b.podSpec()
	if err != nil {
		return nil, fmt.Errorf("build Job %q: %w", name, err)
	}
	owner := metav1.NewControllerRef(ke, v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))
	return &batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{
			Name:            name,
			Namespace:       o.Namespace,
			Labels:          b.labels,
			Annotations:     map[string]string{v1alpha1.AnnotationExecution: ke.Name, v1alpha1.AnnotationPlan: plan.Hash},
			OwnerReferences: []metav1.OwnerReference{*owner},
		},
		Spec: b.jobSpec(pod),
	}, nil
}

// builder builds one Job.
type builder struct {
	options   Options
	execution *v1alpha1.KubernetesExecution
	plan      *v1alpha1.Plan
	action    *action.Action
	dryRun    bool
	labels    map[string]string
	deadlines deadlines
}

func (b *builder) jobSpec(pod corev1.PodSpec) batchv1.JobSpec {
	return batchv1.JobSpec{
		Parallelism: new(int32(1)),
		Completions: new(int32(1)),
		// Only for indexed Jobs does the Job controller annotate a Pod with the number of earlier failures.
		CompletionMode:        new(batchv1.IndexedCompletion),
		BackoffLimit:          new(b.maxRetries()),
		BackoffLimitPerIndex:  new(b.maxRetries()),
		ActiveDeadlineSeconds: new(b.deadlines.job),
		PodReplacementPolicy:  new(batchv1.Failed), // two attempts never run at the same time
		PodFailurePolicy:      &batchv1.PodFailurePolicy{Rules: b.podFailureRules()},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{
				Labels:      b.labels,
				Annotations: map[string]string{v1alpha1.AnnotationExecution: b.execution.Name},
			},
			Spec: pod,
		},
	}
}

// jobTimeout returns the time in which a Job must end: that of the request, or else of the action.
func jobTimeout(ke *v1alpha1.KubernetesExecution, a *action.Action, dryRun bool) time.Duration {
	requested := ke.Spec.Timeout
	switch {
	case dryRun:
		return dryRunTimeout
	case requested != nil && requested.Duration > 0:
		return requested.Duration
	case a.Timeout > 0:
		return a.Timeout
	}
	return defaultTimeout
}

func (b *builder) maxRetries() int32 {
	requested := b.execution.Spec.MaxRetries
	switch {
	case b.dryRun:
		return 0
	case requested != nil:
		return max(0, *requested)
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

// nestDeadlines returns deadlines with a margin between each and the next: a sixth of the timeout, at most
// five seconds.
func nestDeadlines(timeout time.Duration) deadlines {
	seconds := int64((max(timeout, minTimeout) + time.Second - 1) / time.Second) // rounded up
	margin := max(1, min(5, seconds/6))
	return deadlines{
		job:    seconds,
		pod:    seconds - margin,
		runner: time.Duration(seconds-2*margin) * time.Second,
	}
}

// podFailureRules select the Pod failures after which another attempt follows. An action that is not
// idempotent is not repeated once its container has started.
func (b *builder) podFailureRules() []batchv1.PodFailurePolicyRule {
	disrupted := []batchv1.PodFailurePolicyOnPodConditionsPattern{
		{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue},
	}
	if !b.action.Idempotent {
		anyFailure := &batchv1.PodFailurePolicyOnExitCodesRequirement{
			ContainerName: new(Container),
			Operator:      batchv1.PodFailurePolicyOnExitCodesOpNotIn,
			Values:        []int32{int32(action.CodeOK)},
		}
		return []batchv1.PodFailurePolicyRule{
			{Action: batchv1.PodFailurePolicyActionFailJob, OnExitCodes: anyFailure},
			{Action: batchv1.PodFailurePolicyActionFailJob, OnPodConditions: disrupted},
		}
	}
	permanentFailure := &batchv1.PodFailurePolicyOnExitCodesRequirement{
		ContainerName: new(Container),
		Operator:      batchv1.PodFailurePolicyOnExitCodesOpIn,
		Values:        nonRetryableExitCodes(),
	}
	return []batchv1.PodFailurePolicyRule{
		{Action: batchv1.PodFailurePolicyActionIgnore, OnPodConditions: disrupted}, // a disruption is no failure of the action
		{Action: batchv1.PodFailurePolicyActionFailJob, OnExitCodes: permanentFailure},
	}
}

// nonRetryableExitCodes returns the exit codes after which another attempt would not help.
func nonRetryableExitCodes() []int32 {
	return []int32{
		int32(action.CodeGuard),
		int32(action.CodeForbidden),
		int32(action.CodeInvalid),
		int32(action.CodeDenied),
		int32(action.CodePartial),
		int32(action.CodeDeadline),
		int32(action.CodeCancelled),
	}
}

func (b *builder) podSpec() (corev1.PodSpec, error) {
	container, err := b.newContainer()
	if err != nil {
		return corev1.PodSpec{}, err
	}
	pullSecrets := make([]corev1.LocalObjectReference, 0, len(b.options.PullSecrets))
	for _, name := range b.options.PullSecrets {
		pullSecrets = append(pullSecrets, corev1.LocalObjectReference{Name: name})
	}
	return corev1.PodSpec{
		Containers:                    []corev1.Container{container},
		RestartPolicy:                 corev1.RestartPolicyNever,
		ServiceAccountName:            b.action.ServiceAccount(),
		AutomountServiceAccountToken:  new(false),
		EnableServiceLinks:            new(false),
		ActiveDeadlineSeconds:         new(b.deadlines.pod),
		TerminationGracePeriodSeconds: new(int64(gracePeriod)),
		PriorityClassName:             b.options.PriorityClassName,
		NodeSelector:                  b.options.NodeSelector,
		Tolerations:                   b.options.Tolerations,
		Affinity:                      b.affinityOffTargetNode(),
		ImagePullSecrets:              pullSecrets,
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot:   new(true),
			RunAsUser:      new(int64(user)),
			RunAsGroup:     new(int64(user)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Volumes: []corev1.Volume{{
			Name:         accountVolume,
			VolumeSource: corev1.VolumeSource{Projected: b.serviceAccountVolumeSource()},
		}},
	}, nil
}

func (b *builder) newContainer() (corev1.Container, error) {
	input := runner.Input{
		Plan:    b.plan,
		Subject: action.Subject{UID: b.execution.UID, Created: b.execution.CreationTimestamp.Time},
		Within:  b.deadlines.runner,
	}
	variables, err := input.Environment()
	if err != nil {
		return corev1.Container{}, err
	}
	container := corev1.Container{
		Name:                     Container,
		Image:                    b.options.Image,
		ImagePullPolicy:          corev1.PullPolicy(b.options.PullPolicy),
		Resources:                b.containerResources(),
		TerminationMessagePath:   corev1.TerminationMessagePathDefault,
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError, // the log shows why a runner crashed
		VolumeMounts:             []corev1.VolumeMount{{Name: accountVolume, MountPath: accountPath, ReadOnly: true}},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false),
			ReadOnlyRootFilesystem:   new(true),
			RunAsNonRoot:             new(true),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
	if b.dryRun {
		container.Args = []string{DryRunArgument}
	}
	for _, variable := range variables {
		container.Env = append(container.Env, corev1.EnvVar{Name: variable.Name, Value: variable.Value})
	}
	container.Env = append(container.Env,
		corev1.EnvVar{Name: runner.EnvTerminationLog, Value: container.TerminationMessagePath},
		annotationVariable(runner.EnvFailures, batchv1.JobIndexFailureCountAnnotation),
		annotationVariable(runner.EnvDisruptions, batchv1.JobIndexIgnoredFailureCountAnnotation),
	)
	return container, nil
}

// annotationVariable returns a variable whose value is an annotation of the Pod.
func annotationVariable(name, annotation string) corev1.EnvVar {
	field := &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.annotations['" + annotation + "']"}
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: field}}
}

func (b *builder) containerResources() corev1.ResourceRequirements {
	configured, ofAction := b.options.ActionResources[b.action.Name]
	if !ofAction {
		configured = b.options.Resources
	}
	if len(configured.Limits) > 0 || len(configured.Requests) > 0 {
		return configured
	}
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("50m"),
			corev1.ResourceMemory: resource.MustParse("64Mi"),
		},
		Limits: corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("200m"),
			corev1.ResourceMemory: resource.MustParse("256Mi"),
		},
	}
}

// serviceAccountVolumeSource returns the files that in-cluster clients expect. The token is valid for
// little longer than the Job.
func (b *builder) serviceAccountVolumeSource() *corev1.ProjectedVolumeSource {
	token := &corev1.ServiceAccountTokenProjection{
		Path:              corev1.ServiceAccountTokenKey,
		ExpirationSeconds: new(min(max(b.deadlines.job, minTokenSeconds), maxTokenSeconds)),
	}
	rootCA := &corev1.ConfigMapProjection{
		LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
		Items:                []corev1.KeyToPath{{Key: corev1.ServiceAccountRootCAKey, Path: corev1.ServiceAccountRootCAKey}},
	}
	namespace := &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
		Path:     corev1.ServiceAccountNamespaceKey,
		FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
	}}}
	return &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: token},
		{ConfigMap: rootCA},
		{DownwardAPI: namespace},
	}}
}

// affinityOffTargetNode keeps the Pod of an action on a node away from that node, because it would drain
// itself. Nil means that the Pod may run on any node.
func (b *builder) affinityOffTargetNode() *corev1.Affinity {
	if b.plan.Target.Kind != nodeKind {
		return nil
	}
	otherNodes := corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{
		Key:      metav1.ObjectNameField,
		Operator: corev1.NodeSelectorOpNotIn,
		Values:   []string{b.plan.Target.Name},
	}}}
	var affinity corev1.NodeAffinity
	if b.options.OnTargetNode {
		const maxWeight = 100
		affinity.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.PreferredSchedulingTerm{
			{Weight: maxWeight, Preference: otherNodes},
		}
	} else {
		affinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{otherNodes},
		}
	}
	return &corev1.Affinity{NodeAffinity: &affinity}
}

// toLabelValue converts a text to a valid label value and truncates it if it is too long.
func toLabelValue(text string) string {
	text = regexp.MustCompile(`[^A-Za-z0-9_.-]+`).ReplaceAllString(text, "-")
	return strings.Trim(text[:min(len(text), maxLabel)], "-_.")
}
