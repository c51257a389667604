package action

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// Limits of the collected data.
const (
	maxDiagnosedPods   = 20
	maxDiagnosedEvents = 20
	maxDiagnosedLogs   = 4 // containers
	maxDiagnosedLine   = 256
)

type diagnosticsParameters struct {
	Kind      string `json:"kind" doc:"Kind of the object." required:"true" enum:"Deployment,StatefulSet,DaemonSet,Pod" target:"kind"`
	Name      string `json:"name" doc:"Name of the workload or Pod." required:"true" format:"dns-subdomain" target:"name"`
	Namespace string `json:"namespace" doc:"Namespace of the object." required:"true" format:"dns-label" target:"namespace"`
	Lines     int64  `json:"lines" doc:"Number of log lines for each unhealthy container; 0 for none." default:"10" min:"0" max:"100"`
}

func newCollectDiagnosticsAction() *Action {
	return newAction(entry[diagnosticsParameters]{
		Action: Action{
			Name:    "collect_diagnostics",
			Summary: "Collect diagnostics of a workload or Pod: conditions, Pods, events, and the last log lines of unhealthy containers. Everyone who can read the execution can read them.",
			Kubectl: "kubectl get KIND/NAME -o yaml; kubectl get pods -l …; kubectl get events; kubectl logs POD --tail=10",
			Kinds:   []string{"Deployment", "StatefulSet", kindDaemonSet, "Pod"},
			Scope:   Namespaced,
			Permissions: []Permission{
				{Group: "apps", Resource: "deployments", Verbs: []string{"get"}, Why: "read the conditions and the Pod selector"},
				{Group: "apps", Resource: "statefulsets", Verbs: []string{"get"}, Why: "read the conditions and the Pod selector"},
				{Group: "apps", Resource: "daemonsets", Verbs: []string{"get"}, Why: "read the conditions and the Pod selector"},
				{Resource: "pods", Verbs: []string{"get", "list"}, Why: "read the status of the Pods"},
				{Resource: "pods", Subresource: "log", Verbs: []string{"get"}, Why: "read the last log lines of unhealthy containers"},
				{Resource: "events", Verbs: []string{"list"}, Why: "read their events"},
			},
			Timeout: time.Minute, MaxTimeout: maxTimeout, Retries: 2,
			Risk: RiskLow, Idempotent: true, ReadOnly: true,
		},
		draft: func(_ context.Context, _ Client, _ Subject, p *diagnosticsParameters, live *unstructured.Unstructured) (*draft, error) {
			return &draft{impact: v1alpha1.EstimatedImpact{Description: "no change; " + formatTarget(targetOfObject(live)) + " is inspected"}}, nil
		},
		run: func(ctx context.Context, c Client, pl *v1alpha1.Plan, p *diagnosticsParameters, r Run) Result {
			d := &diagnosis{attempt: newAttempt(c, pl, r), parameters: p}
			return d.attempt.buildResult(d.printDiagnostics(ctx))
		},
	})
}

// A diagnosis is one attempt to collect diagnostics.
type diagnosis struct {
	attempt *attemptState

	parameters *diagnosticsParameters
	logs       int // number of logs read
}

func (d *diagnosis) printDiagnostics(ctx context.Context) error {
	t := planTarget(d.attempt.plan)
	live, err := d.attempt.client.getObjectWithRetry(ctx, t)
	if err != nil {
		return toHalt("read "+formatTarget(t), err)
	}
	d.printTruncatedLine("%s: %s", kubectlName(live.GetAPIVersion(), live.GetKind(), live.GetName()), formatConditions(live))
	pods, err := d.listPods(ctx, live)
	if err != nil {
		return err
	}
	about := []string{live.GetName()}
	for i := range pods {
		about = append(about, pods[i].Name)
	}
	if err = d.printEvents(ctx, about); err != nil {
		return err
	}
	unwell := 0
	for i := range pods {
		well, err := d.printPodWithLogs(ctx, &pods[i])
		if err != nil {
			return err
		}
		if !well {
			unwell++
		}
	}
	d.attempt.note = fmt.Sprintf("%s: %s; %d Pods, %d unhealthy", formatTarget(t), formatConditions(live), len(pods), unwell)
	return nil
}

// printTruncatedLine writes one line of limited length.
func (d *diagnosis) printTruncatedLine(format string, args ...any) {
	d.attempt.report.logLine(TruncateText(fmt.Sprintf(format, args...), maxDiagnosedLine))
}

// listPods returns the Pods of the target, or the target if it is a Pod.
func (d *diagnosis) listPods(ctx context.Context, live *unstructured.Unstructured) ([]partialPod, error) {
	items := []unstructured.Unstructured{*live}
	if live.GetKind() != "Pod" {
		var selector metav1.LabelSelector
		spec, _, _ := unstructured.NestedMap(live.Object, "spec", "selector")
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &selector); err != nil {
			return nil, newHalt(CodeInvalid, "read the selector of %s: %s", live.GetName(), err)
		}
		kind, _ := findKind("v1", "Pod")
		list, err := d.attempt.client.listObjectsWithRetry(
			ctx,
			kind.GroupVersionResource,
			live.GetNamespace(),
			metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(&selector), Limit: maxDiagnosedPods},
		)
		if err != nil {
			return nil, toHalt("list the Pods of "+live.GetName(), err)
		}
		items = list.Items
	}
	pods := make([]partialPod, 0, len(items))
	for i := range items {
		var pod partialPod
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(items[i].Object, &pod); err != nil {
			return nil, newHalt(CodeInvalid, "read Pod %s: %s", items[i].GetName(), err)
		}
		pods = append(pods, pod)
	}
	return pods, nil
}

// printEvents writes the latest events about the given names.
func (d *diagnosis) printEvents(ctx context.Context, about []string) error {
	kind, _ := findKind("v1", "Event")
	list, err := d.attempt.client.listObjectsWithRetry(ctx, kind.GroupVersionResource, d.parameters.Namespace, metav1.ListOptions{Limit: 500})
	if err != nil {
		return toHalt("list events", err)
	}
	var events []partialEvent
	for i := range list.Items {
		var e partialEvent
		if runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &e) == nil && slices.Contains(about, e.InvolvedObject.Name) {
			events = append(events, e)
		}
	}
	slices.SortStableFunc(events, func(a, b partialEvent) int { return eventTime(&a).Compare(eventTime(&b)) })
	for _, e := range events[max(0, len(events)-maxDiagnosedEvents):] {
		d.printTruncatedLine(
			"event %s %s/%s %s: %s",
			e.Type,
			strings.ToLower(e.InvolvedObject.Kind),
			e.InvolvedObject.Name,
			e.Reason,
			firstLine(e.Message),
		)
	}
	return nil
}

func eventTime(e *partialEvent) time.Time {
	for _, t := range []time.Time{e.LastTimestamp.Time, e.EventTime.Time} {
		if !t.IsZero() {
			return t
		}
	}
	return e.CreationTimestamp.Time
}

// printPodWithLogs writes the state of a Pod, and the end of the logs of its unhealthy containers.
func (d *diagnosis) printPodWithLogs(ctx context.Context, pod *partialPod) (healthy bool, err error) {
	healthy = pod.Status.Phase == podRunning || pod.Status.Phase == podSucceeded
	reason := pod.Status.Reason
	if reason != "" {
		reason = " (" + reason + ")"
	}
	d.printTruncatedLine("pod/%s on %s: %s%s", pod.Name, nodeOrNone(pod.Spec.NodeName), pod.Status.Phase, reason)
	for _, c := range append(slices.Clone(pod.Status.InitContainerStatuses), pod.Status.ContainerStatuses...) {
		state, fine := containerState(&c)
		d.printTruncatedLine("  %s: %s, %d restarts", c.Name, state, c.RestartCount)
		if fine {
			continue
		}
		healthy = false
		if err = d.printLogTail(ctx, pod, c.Name); err != nil {
			return healthy, err
		}
	}
	return healthy, nil
}

// printLogTail writes the end of a container log. A missing log is not an error.
func (d *diagnosis) printLogTail(ctx context.Context, pod *partialPod, container string) error {
	if d.parameters.Lines == 0 || d.attempt.client.Logs == nil || d.logs == maxDiagnosedLogs {
		return haltIfContextEnded(ctx)
	}
	d.logs++
	var text string
	err := requestIgnoringCancel(ctx, requestTimeout, func(ctx context.Context) error {
		var err error
		text, err = d.attempt.client.Logs(ctx, pod.Namespace, pod.Name, container, d.parameters.Lines)
		return err
	})
	if err != nil {
		if apierrors.IsForbidden(err) {
			return newHalt(
				CodeForbidden,
				"read the log of Pod %s: forbidden",
				namespacedPodName(pod),
			) // the server's message is not available for logs
		}
		d.printTruncatedLine("  | no log: %s", firstLine(err.Error()))
		return haltIfContextEnded(ctx)
	}
	for line := range strings.Lines(text) {
		d.printTruncatedLine("  | %s", strings.TrimRight(line, "\r\n"))
	}
	return haltIfContextEnded(ctx)
}

// containerState returns the state of a container and whether it is healthy.
func containerState(c *partialContainerStatus) (state string, healthy bool) {
	switch {
	case c.State.Running != nil && c.Ready:
		return "running", true
	case c.State.Running != nil:
		return "running, not ready", false
	case c.State.Waiting != nil:
		return "waiting: " + c.State.Waiting.Reason + " " + firstLine(c.State.Waiting.Message), false
	case c.State.Terminated != nil:
		return fmt.Sprintf("exited with code %d: %s", c.State.Terminated.ExitCode, c.State.Terminated.Reason), c.State.Terminated.ExitCode == 0
	}
	return "unknown", false
}

// formatConditions formats the conditions of an object in one line.
func formatConditions(live *unstructured.Unstructured) string {
	list, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions")
	parts := make([]string, 0, len(list))
	for _, item := range list {
		c, _ := item.(map[string]any)
		part := fmt.Sprintf("%v=%v", c["type"], c["status"])
		if reason, _ := c["reason"].(string); reason != "" {
			part += " (" + reason + ")"
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return "no conditions"
	}
	return TruncateText(strings.Join(parts, ", "), maxDiagnosedLine)
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

func nodeOrNone(node string) string {
	if node == "" {
		return "no Node"
	}
	return node
}
