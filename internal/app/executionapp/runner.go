package executionapp

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/job"
)

// RunnerConfig configures the Jobs that run actions.
type RunnerConfig struct {
	Image         string            `key:"image" env:"RUNNER_IMAGE" flag:"runner-image" doc:"Image of action-runner, with its digest."`
	PullPolicy    string            `key:"pull_policy" env:"RUNNER_PULL_POLICY" flag:"runner-pull-policy" default:"IfNotPresent" validate:"oneof=Always IfNotPresent Never" doc:"Image pull policy of the Pods."`
	PriorityClass string            `key:"priority_class" env:"RUNNER_PRIORITY_CLASS" doc:"PriorityClass of the Pods."`
	PullSecrets   []string          `key:"pull_secrets" env:"RUNNER_PULL_SECRETS" doc:"Image pull secrets of the Pods."`
	NodeSelector  map[string]string `key:"node_selector" env:"RUNNER_NODE_SELECTOR" doc:"Node selector of the Pods."`
	Tolerations   []Toleration      `key:"tolerations" validate:"dive" doc:"Tolerations of the Pods. Only in the configuration file."`
	OnTargetNode  bool              `key:"on_target_node" env:"RUNNER_ON_TARGET_NODE" flag:"runner-on-target-node" doc:"Allow the Pod of a node action to run on that node if there is no other node."`

	Resources       Resources            `key:"resources"`
	ActionResources map[string]Resources `key:"action_resources" doc:"Requests and limits per action, which replace those in resources, for example {drain_node: {requests: {memory: 128Mi}, limits: {memory: 512Mi}}}. Only in the configuration file."`

	DefaultMode string   `key:"default_mode" env:"EXECUTION_MODE" flag:"execution-mode" default:"Job" validate:"oneof=Job Inline" doc:"Default of spec.executionMode: Job, or Inline (in the controller, with a short-lived token of the action's service account) for actions in inline_actions."`
	Inline      []string `key:"inline_actions" env:"INLINE_ACTIONS" flag:"inline-actions" doc:"Actions that are allowed to run inline."`
}

// Toleration is a toleration of a Pod. It also accepts the field names of Kubernetes.
type Toleration struct {
	Key      string `key:"key" doc:"Key of the taint; empty matches all keys with the operator Exists."`
	Operator string `key:"operator" default:"Equal" validate:"oneof=Equal Exists" doc:"Operator: Equal, or Exists, which ignores the value."`
	Value    string `key:"value" doc:"Value of the taint."`
	Effect   string `key:"effect" validate:"omitempty,oneof=NoSchedule PreferNoSchedule NoExecute" doc:"Effect of the taint: NoSchedule, PreferNoSchedule or NoExecute; empty matches all."`
	Seconds  *int64 `key:"toleration_seconds" alias:"tolerationSeconds" doc:"Time to tolerate a taint with the effect NoExecute; forever if unset."`
}

// Resources holds the requests and limits of a container.
type Resources struct {
	Requests map[string]Quantity `key:"requests" doc:"Resource requests of the container of a Job. Without requests and limits the default is {cpu: 50m, memory: 64Mi}. Only in the configuration file."`
	Limits   map[string]Quantity `key:"limits" doc:"Resource limits of the container of a Job. Without requests and limits the default is {cpu: 200m, memory: 256Mi}. Only in the configuration file."`
}

// Quantity is a Kubernetes quantity, such as 200m or 256Mi.
type Quantity struct{ resource.Quantity }

// UnmarshalText reads a quantity that is not negative.
func (q *Quantity) UnmarshalText(text []byte) error {
	v, err := resource.ParseQuantity(strings.TrimSpace(string(text)))
	if err != nil {
		return errors.New("want a quantity such as 200m or 256Mi")
	}
	if v.Sign() < 0 {
		return errors.New("must not be negative")
	}
	q.Quantity = v
	return nil
}

// MarshalText writes the quantity in the form that UnmarshalText reads.
func (q Quantity) MarshalText() ([]byte, error) { return []byte(q.String()), nil }

func (c Part) toJobOptions() job.Options {
	o := job.Options{
		Namespace:         c.Namespace,
		Image:             c.Runner.Image,
		PullPolicy:        c.Runner.PullPolicy,
		PullSecrets:       c.Runner.PullSecrets,
		PriorityClassName: c.Runner.PriorityClass,
		NodeSelector:      c.Runner.NodeSelector,
		OnTargetNode:      c.Runner.OnTargetNode,
		Resources:         c.Runner.Resources.toResourceRequirements(),
	}
	for _, t := range c.Runner.Tolerations {
		o.Tolerations = append(o.Tolerations, corev1.Toleration{
			Key:               t.Key,
			Operator:          corev1.TolerationOperator(t.Operator),
			Value:             t.Value,
			Effect:            corev1.TaintEffect(t.Effect),
			TolerationSeconds: t.Seconds,
		})
	}
	if len(c.Runner.ActionResources) > 0 {
		o.ActionResources = make(map[string]corev1.ResourceRequirements)
	}
	for name, r := range c.Runner.ActionResources {
		o.ActionResources[name] = r.toResourceRequirements()
	}
	return o
}

func (r Resources) toResourceRequirements() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: toResourceList(r.Requests),
		Limits:   toResourceList(r.Limits),
	}
}

func toResourceList(quantities map[string]Quantity) corev1.ResourceList {
	if len(quantities) == 0 {
		return nil
	}
	list := make(corev1.ResourceList, len(quantities))
	for name, quantity := range quantities {
		list[corev1.ResourceName(name)] = quantity.DeepCopy()
	}
	return list
}

// validateSettings reports settings that the API server would reject in every Job.
func (c RunnerConfig) validateSettings() error {
	var errs []error
	for _, key := range sortedKeys(c.NodeSelector) {
		value := c.NodeSelector[key]
		for _, problem := range slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)) {
			errs = append(errs, fmt.Errorf("runner.node_selector: %q=%q is not a valid label: %s", key, value, problem))
		}
	}
	for i, toleration := range c.Tolerations {
		for _, problem := range toleration.listProblems() {
			errs = append(errs, fmt.Errorf("runner.tolerations[%d]: %s", i, problem))
		}
	}
	for _, problem := range c.Resources.listProblems() {
		errs = append(errs, fmt.Errorf("runner.resources: %s", problem))
	}
	for _, name := range sortedKeys(c.ActionResources) {
		for _, problem := range listActionResourcesProblems(name, c.ActionResources[name]) {
			errs = append(errs, fmt.Errorf("runner.action_resources[%s]: %s", name, problem))
		}
	}
	return errors.Join(errs...)
}

// listActionResourcesProblems returns why the resources of the named action are invalid.
func listActionResourcesProblems(name string, r Resources) []string {
	var list []string
	a, known := action.Find(name)
	switch {
	case !known:
		list = append(list, fmt.Sprintf("unknown action %q: 'fleetloop exec actions' lists the available actions", name))
	case a.Name != name:
		list = append(list, fmt.Sprintf("action %q is an alias: use %q", name, a.Name))
	case a.NoJob:
		list = append(list, fmt.Sprintf("action %q has no Job", name))
	case len(r.Requests)+len(r.Limits) == 0:
		list = append(list, "set requests or limits, or omit it to use those of runner.resources")
	}
	return append(list, r.listProblems()...)
}

func (t Toleration) listProblems() []string {
	var list []string
	exists := t.Operator == string(corev1.TolerationOpExists)
	switch {
	case t.Key == "" && !exists:
		list = append(list, "key is required unless the operator is Exists")
	case t.Key != "":
		for _, problem := range validation.IsQualifiedName(t.Key) {
			list = append(list, fmt.Sprintf("invalid key %q: %s", t.Key, problem))
		}
	}
	if exists && t.Value != "" {
		list = append(list, fmt.Sprintf("value %q is not allowed with the operator Exists", t.Value))
	}
	for _, problem := range validation.IsValidLabelValue(t.Value) {
		list = append(list, fmt.Sprintf("invalid value %q: %s", t.Value, problem))
	}
	if t.Seconds != nil && t.Effect != string(corev1.TaintEffectNoExecute) {
		list = append(list, "toleration_seconds is allowed only with the effect NoExecute")
	}
	return list
}

func (r Resources) listProblems() []string {
	list := slices.Concat(
		listQuantityProblems("requests", r.Requests),
		listQuantityProblems("limits", r.Limits),
	)
	for _, name := range sortedKeys(r.Requests) {
		request := r.Requests[name]
		limit, limited := r.Limits[name]
		extended := strings.Contains(name, "/") // a resource with a domain, such as example.com/gpu
		switch {
		case limited && request.Cmp(limit.Quantity) > 0:
			list = append(list, fmt.Sprintf("requests[%s] is %s, more than the limit %s", name, request.String(), limit.String()))
		case extended && (!limited || request.Cmp(limit.Quantity) != 0):
			list = append(
				list,
				fmt.Sprintf("requests[%s] must equal the limit of an extended resource: omit the request or set it to the limit", name),
			)
		}
	}
	return list
}

// listQuantityProblems returns why quantities are invalid, each with its key below field.
func listQuantityProblems(field string, quantities map[string]Quantity) []string {
	var list []string
	for _, name := range sortedKeys(quantities) {
		problem := describeQuantityProblem(corev1.ResourceName(name), quantities[name].Quantity)
		if problem != "" {
			list = append(list, field+"["+name+"]: "+problem)
		}
	}
	return list
}

// describeQuantityProblem returns why a quantity of a resource is invalid. It is empty for a valid one.
func describeQuantityProblem(name corev1.ResourceName, q resource.Quantity) string {
	if name == corev1.ResourceCPU {
		return ""
	}
	if problems := validation.IsQualifiedName(string(name)); len(problems) > 0 {
		return "invalid resource name: " + problems[0]
	}
	usual := name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage
	switch {
	case !usual && !strings.Contains(string(name), "/"):
		return "unknown resource: want cpu, memory, ephemeral-storage, or a name with a domain such as example.com/gpu"
	case resource.NewQuantity(q.Value(), q.Format).Cmp(q) != 0: // 256m of memory is a quarter of a byte
		return fmt.Sprintf("%s is not a whole number: m means a thousandth, Mi a mebibyte", q.String())
	}
	return ""
}
