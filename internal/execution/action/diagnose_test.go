package action

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestRollout(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		kind   string
		object string

		says         string
		done, failed bool
	}{
		"Unseen":      {"the status is of what was before", "Deployment", `{"metadata":{"generation":2},"status":{"observedGeneration":1}}`, "observes its latest change", false, false},
		"Updating":    {"", "Deployment", `{"spec":{"replicas":3},"status":{"updatedReplicas":1}}`, "1 of 3 replicas are updated", false, false},
		"OldOnes":     {"they answer requests", "Deployment", `{"spec":{"replicas":3},"status":{"replicas":4,"updatedReplicas":3,"availableReplicas":3}}`, "1 old replicas", false, false},
		"Starting":    {"", "Deployment", `{"spec":{"replicas":3},"status":{"replicas":3,"updatedReplicas":3,"availableReplicas":2}}`, "2 of 3 updated replicas are available", false, false},
		"Done":        {"", "Deployment", `{"spec":{"replicas":3},"status":{"replicas":3,"updatedReplicas":3,"availableReplicas":3}}`, "successfully rolled out", true, false},
		"None":        {"as many as are wanted", "Deployment", `{"spec":{"replicas":0}}`, "successfully rolled out", true, false},
		"TooLong":     {"it says so itself", "Deployment", `{"status":{"conditions":[{"type":"Progressing","reason":"ProgressDeadlineExceeded"}]}}`, "progress deadline", false, true},
		"Set":         {"", "StatefulSet", `{"spec":{"replicas":2},"status":{"updatedReplicas":2,"readyReplicas":1}}`, "1 of 2 updated", false, false},
		"SetPart":     {"the others keep their revision on purpose", "StatefulSet", `{"spec":{"replicas":3,"updateStrategy":{"rollingUpdate":{"partition":2}}},"status":{"updatedReplicas":1,"readyReplicas":3}}`, "successfully rolled out", true, false},
		"SetOnDelete": {"nothing would ever happen", "StatefulSet", `{"spec":{"updateStrategy":{"type":"OnDelete"}}}`, "OnDelete", false, true},
		"Daemons":     {"", "DaemonSet", `{"status":{"desiredNumberScheduled":2,"updatedNumberScheduled":2,"numberAvailable":2}}`, "successfully rolled out", true, false},
		"DaemonsLeft": {"", "DaemonSet", `{"status":{"desiredNumberScheduled":2,"updatedNumberScheduled":1,"numberAvailable":2}}`, "1 of 2 replicas are updated", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := &unstructured.Unstructured{}
			text := strings.Replace(tc.object, "{", `{"apiVersion":"apps/v1","kind":"`+tc.kind+`",`, 1)
			if err := o.UnmarshalJSON([]byte(text)); err != nil {
				t.Fatal(err)
			}
			state, done, failed := rolloutState(o)
			if done != tc.done || failed != tc.failed || !strings.Contains(state, tc.says) {
				t.Errorf("%s: %q, done %t, failed %t", tc.reason, state, done, failed)
			}
		})
	}
}

// TestRolloutStatus: it waits until the deadline, or until it is done.
func TestRolloutStatus(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	o := s.create(deployment("web", 1))
	r := s.request("verify", map[string]any{"kind": "Deployment", "name": "web"})
	c := s.as(r.Action, nil)
	p := s.plan(c, r, newSubject("uid"))
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	late := Execute(ctx, c, p, Run{Subject: newSubject("uid"), Output: cancelAt{"waiting", func() { cancel(errDeadline) }}})
	wantCode(t, late, CodeDeadline)
	if !strings.Contains(late.Message, "waiting until the controller") {
		t.Errorf("message %q, want what was waited for", late.Message)
	}
	lines := make(chan string, 16)
	done := make(chan Result, 1)
	go func() {
		done <- Execute(t.Context(), c, p, Run{Subject: newSubject("uid"), Output: writer(lines), Deadline: time.Now().Add(time.Minute)})
	}()
	<-lines
	s.patch(o, `{"status":{"observedGeneration":1,"replicas":1,"updatedReplicas":1,"readyReplicas":1,"availableReplicas":1}}`, "status")
	result := <-done
	wantCode(t, result, CodeOK)
	if result.Changed || !strings.Contains(result.Message, "successfully rolled out") {
		t.Errorf("result %+v", result)
	}
	if dry := DryRun(t.Context(), c, p, Run{Subject: newSubject("uid")}); dry.DryRun.Performed {
		t.Error("a dry run of what changes nothing")
	}
}

func TestCollectDiagnostics(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	web := s.create(deployment("web", 1))
	s.patch(web, `{"status":{"conditions":[{"type":"Available","status":"False","reason":"MinimumReplicasUnavailable"}]}}`, "status")
	o := s.create(pod("web-1"))
	o = s.patch(o, `{"metadata":{"labels":{"app":"web"}}}`)
	s.patch(o, `{"status":{"phase":"Running","containerStatuses":[{"name":"app","image":"a","imageID":"","ready":false,"restartCount":3,"state":{"waiting":{"reason":"CrashLoopBackOff","message":"back-off"}}}]}}`, "status")
	for name, about := range map[string]string{"of-it": "web-1", "of-another": "other-1"} {
		s.create(map[string]any{
			"apiVersion": "v1", "kind": "Event", "metadata": map[string]any{"name": name}, "type": "Warning", "reason": "BackOff",
			"message":        "back-off restarting " + about,
			"involvedObject": map[string]any{"kind": "Pod", "name": about, "namespace": s.namespace},
		})
	}
	r := s.request("collect_diagnostics", map[string]any{"kind": "Deployment", "name": "web"})
	c := s.as(r.Action, nil)
	c.Logs = func(_ context.Context, namespace, pod, container string, lines int64) (string, error) {
		if namespace != s.namespace || pod != "web-1" || container != "app" || lines != 10 {
			t.Errorf("asked for %d lines of %s/%s %s", lines, namespace, pod, container)
		}
		return "first\nsecond\n", nil
	}
	p := s.plan(c, r, newSubject("uid"))
	var out bytes.Buffer
	result := Execute(t.Context(), c, p, Run{Subject: newSubject("uid"), Output: &out})
	wantCode(t, result, CodeOK)
	for _, want := range []string{
		"deployment.apps/web: Available=False (MinimumReplicasUnavailable)", "event Warning pod/web-1 BackOff: back-off restarting web-1",
		"pod/web-1 on no Node: Running", "app: waiting: CrashLoopBackOff back-off, 3 restarts", "  | first", "  | second",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("output lacks %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "other-1") || !strings.Contains(result.Message, "1 Pods, 1 unhealthy") {
		t.Errorf("message %q, output\n%s", result.Message, out.String())
	}
	if n := len(EncodeBounded(result)); n > MaxResult {
		t.Errorf("the result has %d bytes", n)
	}
}

func TestNotifyOnly(t *testing.T) {
	t.Parallel()
	r := (&stage{T: t}).request("notify_only", map[string]any{"message": "look here"})
	p, err := r.Plan(t.Context(), Client{}, newSubject("uid"))
	if err != nil {
		t.Fatal(err)
	}
	result := Execute(t.Context(), Client{}, p, Run{Subject: newSubject("uid")})
	wantCode(t, result, CodeOK)
	if result.Message != "look here" || result.Changed || len(r.Rights()) != 0 {
		t.Errorf("result %+v, rights %v", result, r.Rights())
	}
}
