package action

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
)

func TestJudgePod(t *testing.T) {
	t.Parallel()
	owned := func(kind string) []metav1.OwnerReference {
		yes := true
		return []metav1.OwnerReference{{Kind: kind, Name: "owner", Controller: &yes}}
	}
	emptyDir := partialPod{}.Spec
	emptyDir.Volumes = []partialVolume{{Name: "scratch", EmptyDir: &struct{}{}}}
	usual := drainParameters{IgnoreDaemonSets: true}
	for name, tc := range map[string]struct {
		reason string
		pod    partialPod
		p      drainParameters
		gone   []string

		leave, refuse string // parts of them
	}{
		"Owned":           {reason: "something replaces it", pod: partialPod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owned("ReplicaSet")}}, p: usual},
		"Alone":           {reason: "nothing replaces it", p: usual, refuse: "no controller"},
		"AloneForced":     {reason: "and that is accepted", p: drainParameters{Force: true}},
		"Data":            {reason: "it would be lost", pod: partialPod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owned("ReplicaSet")}, Spec: emptyDir}, p: usual, refuse: `emptyDir volume "scratch"`},
		"DataGivenUp":     {reason: "and that is accepted", pod: partialPod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owned("ReplicaSet")}, Spec: emptyDir}, p: drainParameters{DeleteLocalData: true}},
		"DaemonSet":       {reason: "it would be back at once", pod: partialPod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", OwnerReferences: owned("DaemonSet")}}, p: usual, leave: "DaemonSet owner"},
		"DaemonSetInWay":  {reason: "ignoreDaemonSets is not set", pod: partialPod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", OwnerReferences: owned("DaemonSet")}}, refuse: "ignoreDaemonSets"},
		"DaemonSetGone":   {reason: "nothing brings it back", pod: partialPod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", OwnerReferences: owned("DaemonSet")}}, p: usual, gone: []string{"a/owner"}, refuse: "which does not exist"},
		"DaemonSetForced": {reason: "and that is accepted", pod: partialPod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", OwnerReferences: owned("DaemonSet")}}, p: drainParameters{Force: true, IgnoreDaemonSets: true}, gone: []string{"a/owner"}},
		"Mirror":          {reason: "only the kubelet can end it", pod: partialPod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"kubernetes.io/config.mirror": "x"}}}, p: usual, leave: "static Pod of the Node"},
		"Finished":        {reason: "there is nothing left to lose", pod: partialPod{Spec: emptyDir, Status: partialPodStatus{Phase: podSucceeded}}, p: usual},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			leave, refuse := classifyPod(&tc.pod, &tc.p, tc.gone)
			if (leave == "") != (tc.leave == "") || !strings.Contains(leave, strings.TrimPrefix(tc.leave, "Node ")) || (refuse == "") != (tc.refuse == "") || !strings.Contains(refuse, tc.refuse) {
				t.Errorf("%s: leave %q, refuse %q, want %q and %q", tc.reason, leave, refuse, tc.leave, tc.refuse)
			}
		})
	}
}

// podOn is a Pod on the stage's Node, of a controller if there is one.
func (s *stage) podOn(name string, owner *unstructured.Unstructured) *unstructured.Unstructured {
	s.Helper()
	metadata := map[string]any{"name": name, "labels": map[string]any{"app": "web"}}
	if owner != nil {
		metadata["ownerReferences"] = []any{map[string]any{
			"apiVersion": owner.GetAPIVersion(), "kind": owner.GetKind(), "name": owner.GetName(), "uid": string(owner.GetUID()), "controller": true,
		}}
	}
	return s.create(map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": map[string]any{
		"nodeName": s.namespace, "containers": []any{map[string]any{"name": "main", "image": "example.com/web:1"}},
	}})
}

// ready has a Pod run, as a kubelet would say it.
func (s *stage) ready(pods ...*unstructured.Unstructured) {
	s.Helper()
	for _, pod := range pods {
		s.patch(pod, `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`, "status")
	}
}

// drained is a Node with two Pods of a workload and one of a DaemonSet.
func (s *stage) drained() (node *unstructured.Unstructured) {
	s.Helper()
	node = s.node(nil)
	web := s.create(workload("StatefulSet", "web", 2))
	s.ready(s.podOn("web-0", web), s.podOn("web-1", web))
	s.podOn("agent-x", s.create(workload("DaemonSet", "agent", 0)))
	return node
}

// budget has at least some Pods of the workload stay, and waits until its
// controller has counted them.
func (s *stage) budget(least, allowed int64) *unstructured.Unstructured {
	s.Helper()
	o := s.create(map[string]any{"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": map[string]any{"name": "keep"}, "spec": map[string]any{
		"minAvailable": least, "selector": map[string]any{"matchLabels": map[string]any{"app": "web"}},
	}})
	kubebedtest.Eventually(s.T, func(context.Context) error {
		live := s.read(o) //nolint:contextcheck // it has the test's
		healthy, _, _ := unstructured.NestedInt64(live.Object, "status", "currentHealthy")
		n, found, _ := unstructured.NestedInt64(live.Object, "status", "disruptionsAllowed")
		if !found || n != allowed || healthy != 2 {
			return fmt.Errorf("budget %v", live.Object["status"])
		}
		return nil
	})
	return o
}

func (s *stage) drain(more map[string]any) (c Client, p *v1alpha1.Plan) {
	s.Helper()
	parameters := map[string]any{"node": s.namespace, "gracePeriodSeconds": 0}
	maps.Copy(parameters, more)
	r := s.onNode("drain_node", parameters)
	c = s.as(r.Action, nil)
	return c, s.plan(c, r, newSubject("uid"))
}

func TestDrain(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	node := s.drained()
	c, p := s.drain(nil)
	if p.Impact.ResourcesAffected != 3 || !strings.Contains(p.Diff, "- pod "+s.namespace+"/web-0\n") || !strings.Contains(p.Diff, "  pod "+s.namespace+"/agent-x") {
		t.Errorf("impact %+v, diff\n%s", p.Impact, p.Diff)
	}
	dry := DryRun(t.Context(), c, p, Run{Subject: newSubject("uid")})
	wantCode(t, dry, CodeOK)
	if got := s.read(node); got.GetResourceVersion() != node.GetResourceVersion() && unschedulableField(got)["unschedulable"] == true {
		t.Error("the dry run closed the Node")
	}
	var out bytes.Buffer
	result := Execute(t.Context(), c, p, Run{Subject: newSubject("uid"), Output: &out})
	wantCode(t, result, CodeOK)
	want := []string{"node/" + s.namespace + " cordoned", "pod/web-0 evicted", "pod/web-1 evicted", "not evicted: " + s.namespace + "/agent-x (of DaemonSet agent)", "node/" + s.namespace + " drained"}
	if diff := cmp.Diff(want, strings.Split(strings.TrimSpace(out.String()), "\n")); diff != "" {
		t.Errorf("output -want +got\n%s", diff)
	}
	if result.Count != 3 || unschedulableField(s.read(node))["unschedulable"] != true {
		t.Errorf("result %+v", result)
	}
	again := Execute(t.Context(), c, p, Run{Subject: newSubject("uid"), Attempt: 2})
	wantCode(t, again, CodeOK)
	if again.Changed {
		t.Errorf("the second attempt changed %+v", again.Resources)
	}
	s.wantBack(s.onNode("drain_node", map[string]any{"node": s.namespace}), p, node, "uncordon_node")
}

// TestDrainBlocked verifies a drain in which a disruption budget keeps Pods until the deadline. The
// budget is named, the permitted Pod is gone, and the work done is reported.
func TestDrainBlocked(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.drained()
	s.budget(1, 1)
	c, p := s.drain(nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	result := Execute(ctx, c, p, Run{Subject: newSubject("uid"), Output: cancelAt{"cannot be evicted yet", func() { cancel(errDeadline) }}})
	wantCode(t, result, CodePartial)
	for _, word := range []string{"deadline", "1 Pods were evicted", "remaining Pods", "keep needs 1 healthy pods"} {
		if !strings.Contains(result.Message, word) {
			t.Errorf("message %q, want %q in it", result.Message, word)
		}
	}
	if result.Count != 2 || !result.Changed {
		t.Errorf("result %+v, want the Node and one Pod", result)
	}
}

// TestDrainWaits: when the budget lets it, the drain goes on.
func TestDrainWaits(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.drained()
	budget := s.budget(2, 0)
	c, p := s.drain(nil)
	dry := DryRun(t.Context(), c, p, Run{Subject: newSubject("uid")})
	wantCode(t, dry, CodeOK)
	if w := dry.DryRun.Warnings; len(w) != 2 || !strings.Contains(w[0], "keep needs 2 healthy pods") {
		t.Errorf("warnings %q, want one for each Pod that the budget keeps", w)
	}
	lines := make(chan string, 16)
	done := make(chan Result, 1)
	go func() {
		done <- Execute(t.Context(), c, p, Run{Subject: newSubject("uid"), Output: writer(lines), Deadline: time.Now().Add(time.Minute)})
	}()
	for line := range lines {
		if strings.Contains(line, "cannot be evicted yet") {
			break
		}
	}
	s.remove(budget)
	wantCode(t, <-done, CodeOK)
}

// writer hands lines on.
type writer chan string

func (w writer) Write(line []byte) (int, error) {
	w <- string(line)
	return len(line), nil
}

// TestDrainCancelled verifies that a drain stops between two evictions and reports the work done.
func TestDrainCancelled(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.drained()
	c, p := s.drain(nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := Execute(ctx, c, p, Run{Subject: newSubject("uid"), Output: cancelAt{"pod/web-0 evicted", cancel}})
	wantCode(t, result, CodeCancelled)
	if !strings.Contains(result.Message, "1 Pods were evicted; remaining Pods: "+s.namespace+"/web-1") || result.Count != 2 {
		t.Errorf("result %+v", result)
	}
}

// cancelAt cancels when a line is written.
type cancelAt struct {
	line   string
	cancel context.CancelFunc
}

func (c cancelAt) Write(line []byte) (int, error) {
	if strings.Contains(string(line), c.line) {
		c.cancel()
	}
	return len(line), nil
}

// TestDrainWithoutLeave: Pods that would be lost stand in the way, in the plan
// and when they come later.
func TestDrainWithoutLeave(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.drained()
	c, p := s.drain(nil)
	s.podOn("alone", nil)
	_, err := s.onNode("drain_node", map[string]any{"node": s.namespace}).Plan(t.Context(), c, newSubject("uid"))
	wantRefused(t, err, v1alpha1.DetailInvalidTargetState, s.namespace+"/alone has no controller")
	result := Execute(t.Context(), c, p, Run{Subject: newSubject("uid")})
	wantCode(t, result, CodePartial) // the Node is closed
	if result.Count != 1 || !strings.Contains(result.Message, "alone") {
		t.Errorf("result %+v", result)
	}
	c, p = s.drain(map[string]any{"force": true})
	wantCode(t, Execute(t.Context(), c, p, Run{Subject: newSubject("uid2")}), CodeOK)
}

// TestDrainClosedBefore verifies that the rollback does not uncordon a Node that was cordoned
// before.
func TestDrainClosedBefore(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	node := s.drained()
	s.patch(node, `{"spec":{"unschedulable":true}}`)
	c, p := s.drain(nil)
	if p.Rollback.Available || !strings.Contains(p.Rollback.Reason, "already cordoned") {
		t.Errorf("rollback %+v, want none", p.Rollback)
	}
	result := Execute(t.Context(), c, p, Run{Subject: newSubject("uid")})
	wantCode(t, result, CodeOK)
	if result.Count != 2 {
		t.Errorf("result %+v, want two Pods", result)
	}
	_, p = s.drain(nil)
	if len(p.Steps) != 0 {
		t.Errorf("steps %+v, want none: there is nothing left to do", p.Steps)
	}
}

// TestDrainOpenedBetween verifies that a retry respects a Node uncordoned by another client since
// the first attempt, and evicts none of its Pods.
func TestDrainOpenedBetween(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	node := s.drained()
	c, p := s.drain(nil)
	s.patch(node, `{"metadata":{"annotations":{"`+v1alpha1.AnnotationLastExecution+`":"uid"}},"spec":{"unschedulable":true}}`) // and then the attempt died
	s.patch(node, `{"spec":{"unschedulable":null}}`)
	result := Execute(t.Context(), c, p, Run{Subject: newSubject("uid"), Attempt: 2})
	wantCode(t, result, CodeGuard)
	if result.Changed || result.Count != 0 || unschedulableField(s.read(node))["unschedulable"] == true {
		t.Errorf("result %+v", result)
	}
}

// TestDrainLeavesWhatIsProtected: no action touches it, so neither does a drain.
func TestDrainLeavesWhatIsProtected(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		namespace bool
		evicted   int32
	}{
		"ByItsLabel":     {false, 1},
		"ByItsNamespace": {true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			node := s.drained()
			kept := &unstructured.Unstructured{Object: pod("web-0")}
			kept.SetNamespace(s.namespace)
			kept = s.patch(kept, `{"metadata":{"labels":{"`+v1alpha1.LabelProtected+`":"true"}}}`)
			r := s.onNode("drain_node", map[string]any{"node": s.namespace, "gracePeriodSeconds": 0})
			c := s.as(r.Action, nil)
			subject := newSubject("uid")
			if tc.namespace {
				subject.Protected = []string{"elsewhere", s.namespace}
			}
			p := s.plan(c, r, subject)
			if p.Impact.ResourcesAffected != 1+tc.evicted {
				t.Errorf("impact %+v", p.Impact)
			}
			result := Execute(t.Context(), c, p, Run{Subject: newSubject("uid")}) // the runner knows of it by the plan alone
			wantCode(t, result, CodeOK)
			if result.Count != 1+tc.evicted || unschedulableField(s.read(node))["unschedulable"] != true {
				t.Errorf("result %+v", result)
			}
			s.read(kept)
		})
	}
}
