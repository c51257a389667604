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

// RunnerConfig says where actions run.
type RunnerConfig struct {
	Image         string            `key:"image" env:"RUNNER_IMAGE" flag:"runner-image" doc:"Image of action-runner, by its digest."`
	PullPolicy    string            `key:"pull_policy" env:"RUNNER_PULL_POLICY" flag:"runner-pull-policy" default:"IfNotPresent" validate:"oneof=Always IfNotPresent Never" doc:"When the image is pulled."`
	PriorityClass string            `key:"priority_class" env:"RUNNER_PRIORITY_CLASS" doc:"PriorityClass of the Pods."`
	PullSecrets   []string          `key:"pull_secrets" env:"RUNNER_PULL_SECRETS" doc:"Secrets with credentials of the image's registry."`
	NodeSelector  map[string]string `key:"node_selector" env:"RUNNER_NODE_SELECTOR" doc:"Labels of the nodes that the Pods run on."`
	Tolerations   []Toleration      `key:"tolerations" validate:"dive" doc:"Taints of nodes that the Pods bear, as in a Pod. In the file alone."`
	OnTargetNode  bool              `key:"on_target_node" env:"RUNNER_ON_TARGET_NODE" flag:"runner-on-target-node" doc:"Let an action on a node run on that node if there is no other, as in a cluster of one."`

	Resources       Resources            `key:"resources"`
	ActionResources map[string]Resources `key:"action_resources" doc:"Requests and limits of single actions by their names, all of them in the place of those in resources, such as {drain_node: {requests: {memory: 128Mi}, limits: {memory: 512Mi}}}. In the file alone."`

	DefaultMode string   `key:"default_mode" env:"EXECUTION_MODE" flag:"execution-mode" default:"Job" validate:"oneof=Job Inline" doc:"Where actions run that name no mode: Job, or Inline, in the controller by a short-lived token of the action's account, for those that inline_actions allows."`
	Inline      []string `key:"inline_actions" env:"INLINE_ACTIONS" flag:"inline-actions" doc:"Actions that may run inline."`
}

// A Toleration is one of a Pod, under the names that it has there, too.
type Toleration struct {
	Key      string `key:"key" doc:"Key of the taint; empty is any, with the operator Exists."`
	Operator string `key:"operator" default:"Equal" validate:"oneof=Equal Exists" doc:"How the taint's value is compared: Equal, or Exists, not at all."`
	Value    string `key:"value" doc:"Value of the taint."`
	Effect   string `key:"effect" validate:"omitempty,oneof=NoSchedule PreferNoSchedule NoExecute" doc:"Effect of the taint: NoSchedule, PreferNoSchedule or NoExecute; empty is any."`
	Seconds  *int64 `key:"toleration_seconds" alias:"tolerationSeconds" doc:"How long a taint with the effect NoExecute is borne; without it, forever."`
}

// Resources are what a container asks for, and may use.
type Resources struct {
	Requests map[string]Quantity `key:"requests" doc:"What the container of a Job asks for. Where there are neither requests nor limits it is {cpu: 50m, memory: 64Mi}. In the file alone."`
	Limits   map[string]Quantity `key:"limits" doc:"What it may use at most. Where there are neither requests nor limits it is {cpu: 200m, memory: 256Mi}. In the file alone."`
}

// A Quantity is one as Kubernetes writes it, such as 200m or 256Mi.
type Quantity struct{ resource.Quantity }

// UnmarshalText takes a quantity that is not below zero.
func (q *Quantity) UnmarshalText(text []byte) error {
	v, err := resource.ParseQuantity(strings.TrimSpace(string(text)))
	if err != nil {
		return errors.New("write a quantity such as 200m or 256Mi")
	}
	if v.Sign() < 0 {
		return errors.New("it is below zero")
	}
	q.Quantity = v
	return nil
}

// MarshalText writes it as it is read.
func (q Quantity) MarshalText() ([]byte, error) { return []byte(q.String()), nil }

func (c Part) job() job.Options {
	o := job.Options{
		Namespace: c.Namespace, Image: c.Runner.Image, PullPolicy: c.Runner.PullPolicy, PullSecrets: c.Runner.PullSecrets,
		PriorityClassName: c.Runner.PriorityClass, NodeSelector: c.Runner.NodeSelector, OnTargetNode: c.Runner.OnTargetNode,
		Resources: c.Runner.Resources.kube(),
	}
	for _, t := range c.Runner.Tolerations {
		o.Tolerations = append(o.Tolerations, corev1.Toleration{
			Key: t.Key, Operator: corev1.TolerationOperator(t.Operator), Value: t.Value, Effect: corev1.TaintEffect(t.Effect), TolerationSeconds: t.Seconds,
		})
	}
	if len(c.Runner.ActionResources) > 0 {
		o.ActionResources = make(map[string]corev1.ResourceRequirements)
	}
	for name, r := range c.Runner.ActionResources {
		o.ActionResources[name] = r.kube()
	}
	return o
}

func (r Resources) kube() corev1.ResourceRequirements {
	list := func(m map[string]Quantity) corev1.ResourceList {
		if len(m) == 0 {
			return nil
		}
		l := make(corev1.ResourceList, len(m))
		for name, q := range m {
			l[corev1.ResourceName(name)] = q.DeepCopy()
		}
		return l
	}
	return corev1.ResourceRequirements{Requests: list(r.Requests), Limits: list(r.Limits)}
}

// check says which settings the API server would refuse, Job after Job.
func (c RunnerConfig) check() error {
	var errs []error
	bad := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("runner.%s: %s", key, fmt.Sprintf(format, args...)))
	}
	for _, key := range keys(c.NodeSelector) {
		for _, problem := range slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(c.NodeSelector[key])) {
			bad("node_selector", "%q=%q is no label: %s", key, c.NodeSelector[key], problem)
		}
	}
	for i, t := range c.Tolerations {
		for _, problem := range t.problems() {
			bad(fmt.Sprintf("tolerations[%d]", i), "%s", problem)
		}
	}
	for _, problem := range c.Resources.problems() {
		bad("resources", "%s", problem)
	}
	for _, name := range keys(c.ActionResources) {
		key, r := "action_resources["+name+"]", c.ActionResources[name]
		a, known := action.Find(name)
		switch {
		case !known:
			bad(key, "there is no action %q: 'fleetloop exec actions' lists them", name)
		case a.Name != name:
			bad(key, "action %q is called %q here", name, a.Name)
		case a.NoJob:
			bad(key, "action %q has no Job", name)
		case len(r.Requests)+len(r.Limits) == 0:
			bad(key, "it says nothing: give requests or limits, or leave it out to have those of resources")
		}
		for _, problem := range r.problems() {
			bad(key, "%s", problem)
		}
	}
	return errors.Join(errs...)
}

func (t Toleration) problems() []string {
	var list []string
	exists := t.Operator == string(corev1.TolerationOpExists)
	switch {
	case t.Key == "" && !exists:
		list = append(list, "it has no key: give one, or the operator Exists, which bears all taints")
	case t.Key != "":
		for _, problem := range validation.IsQualifiedName(t.Key) {
			list = append(list, fmt.Sprintf("%q is no key of a taint: %s", t.Key, problem))
		}
	}
	if exists && t.Value != "" {
		list = append(list, fmt.Sprintf("it has the value %q, which the operator Exists does not look at: leave one of them out", t.Value))
	}
	for _, problem := range validation.IsValidLabelValue(t.Value) {
		list = append(list, fmt.Sprintf("%q is no value of a taint: %s", t.Value, problem))
	}
	if t.Seconds != nil && t.Effect != string(corev1.TaintEffectNoExecute) {
		list = append(list, "toleration_seconds are for the effect NoExecute: set that, or leave them out")
	}
	return list
}

func (r Resources) problems() []string {
	var list []string
	for _, part := range []struct {
		name   string
		values map[string]Quantity
	}{{"requests", r.Requests}, {"limits", r.Limits}} {
		for _, name := range keys(part.values) {
			if problem := unfit(corev1.ResourceName(name), part.values[name].Quantity); problem != "" {
				list = append(list, part.name+"["+name+"]: "+problem)
			}
		}
	}
	for _, name := range keys(r.Requests) {
		request, limit := r.Requests[name], r.Limits[name]
		_, limited := r.Limits[name]
		switch {
		case limited && request.Cmp(limit.Quantity) > 0:
			list = append(list, fmt.Sprintf("requests[%s] is %s, which is more than the limit of %s", name, request.String(), limit.String()))
		case strings.Contains(name, "/") && (!limited || request.Cmp(limit.Quantity) != 0):
			list = append(list, fmt.Sprintf("requests[%s] must be the limit as well: leave the request out, or make them the same", name))
		}
	}
	return list
}

// unfit is why there can be no such amount of a resource.
func unfit(name corev1.ResourceName, q resource.Quantity) string {
	if name == corev1.ResourceCPU {
		return ""
	}
	if problems := validation.IsQualifiedName(string(name)); len(problems) > 0 {
		return "that is no name of a resource: " + problems[0]
	}
	usual := name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage
	switch {
	case !usual && !strings.Contains(string(name), "/"):
		return "there is no such resource: there are cpu, memory, ephemeral-storage, and those with a domain, such as example.com/gpu"
	case resource.NewQuantity(q.Value(), q.Format).Cmp(q) != 0: // 256m of memory is a quarter of a byte
		return fmt.Sprintf("%s is no whole number: m is a thousandth, Mi a mebibyte", q.String())
	}
	return ""
}
