package action

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

func TestQuarantine(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	o := s.create(pod("web-1"))
	o = s.patch(o, `{"metadata":{"labels":{"app":"web","pod-template-hash":"abc"}}}`)
	labels := o.GetLabels()
	s.create(networkPolicy("all", map[string]any{"podSelector": map[string]any{}, "egress": []any{map[string]any{}}}))
	s.create(networkPolicy("deny", map[string]any{"podSelector": map[string]any{}}))
	s.create(networkPolicy("others", map[string]any{"podSelector": map[string]any{"matchLabels": map[string]any{"app": "web"}}, "ingress": []any{map[string]any{}}}))
	r := s.request("quarantine_pod", map[string]any{"pod": "web-1"})
	c := s.as(r.Action, nil)
	p := s.plan(c, r, newSubject("uid"))
	if !strings.HasSuffix(p.Impact.Description, "allowed by NetworkPolicy all") {
		t.Errorf("impact %q, want the policy that lets traffic through, and no other", p.Impact.Description)
	}
	wantCode(t, DryRun(t.Context(), c, p, Run{Subject: newSubject("uid")}), CodeOK)
	result := Execute(t.Context(), c, p, Run{Subject: newSubject("uid")})
	wantCode(t, result, CodeOK)
	if result.Count != 2 {
		t.Errorf("affected %+v, want the Pod and its policy", result.Resources)
	}
	live := s.read(o)
	if diff := cmp.Diff(map[string]string{LabelQuarantine: quarantineID(o.GetUID())}, live.GetLabels()); diff != "" {
		t.Errorf("labels -want +got\n%s", diff)
	}
	policy := &unstructured.Unstructured{Object: networkPolicy(quarantinePolicyName(o.GetUID()), nil)}
	policy.SetNamespace(s.namespace)
	if owners := s.read(policy).GetOwnerReferences(); len(owners) != 1 || owners[0].UID != o.GetUID() {
		t.Errorf("owners of the policy %+v, want the Pod", owners)
	}
	wantCode(t, Execute(t.Context(), c, p, Run{Subject: newSubject("uid"), Attempt: 2}), CodeOK)
	if again := s.plan(c, r, newSubject("uid2")); len(again.Steps) != 0 {
		t.Errorf("steps %+v for a Pod that is in quarantine", again.Steps)
	}
	s.wantBack(r, p, o, "release_pod")
	if diff := cmp.Diff(labels, s.read(o).GetLabels()); diff != "" {
		t.Errorf("labels after the way back -want +got\n%s", diff)
	}
	if _, err := s.admin.getObjectOnce(t.Context(), targetOfObject(policy)); !apierrors.IsNotFound(err) {
		t.Errorf("the policy is there: %v", err)
	}
}

func TestQuarantineRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		change func(o map[string]any)
		action string
		more   map[string]any
		says   string
	}{
		"Host":   {"no policy holds there", func(o map[string]any) { ensureMap(o, "spec")["hostNetwork"] = true }, "quarantine_pod", nil, "uses the host network"},
		"Mirror": {"its kubelet has it as it was", func(o map[string]any) { ensureMap(ensureMap(o, "metadata"), "annotations")[mirrorAnnotation] = "x" }, "quarantine_pod", nil, "static Pod"},
		"Free":   {"there is nothing to release it from", nil, "release_pod", map[string]any{"labels": map[string]any{"a": "b"}}, "not in quarantine"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			object := (&unstructured.Unstructured{Object: pod("web-1")}).DeepCopy().Object
			if tc.change != nil {
				tc.change(object)
			}
			if name == "Mirror" { // only a kubelet may make one
				live := &unstructured.Unstructured{Object: object}
				if err := refuseUnquarantinable(live); err == nil || !strings.Contains(err.Error(), tc.says) {
					t.Errorf("%s: %v, want %q", tc.reason, err, tc.says)
				}
				return
			}
			s.create(object)
			parameters := map[string]any{"pod": "web-1"}
			maps.Copy(parameters, tc.more)
			_, err := s.request(tc.action, parameters).Plan(t.Context(), s.admin, newSubject("uid"))
			wantRefused(t, err, v1alpha1.DetailInvalidTargetState, tc.says)
		})
	}
}

func TestSelectsUnlabelled(t *testing.T) {
	t.Parallel()
	expression := func(operator string) map[string]any {
		return map[string]any{"matchExpressions": []any{map[string]any{"key": "app", "operator": operator}}}
	}
	for name, tc := range map[string]struct {
		selector map[string]any
		want     bool
	}{
		"All":    {map[string]any{}, true},
		"Absent": {expression("DoesNotExist"), true},
		"NotIn":  {expression("NotIn"), true},
		"In":     {expression("In"), false},
		"Exists": {expression("Exists"), false},
		"Labels": {map[string]any{"matchLabels": map[string]any{"app": "web"}}, false},
	} {
		if got := selectsUnlabelled(tc.selector); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestQuarantineIsBoth has the owner of a Pod do one half of it beforehand, in
// the name of the execution.
func TestQuarantineIsBoth(t *testing.T) {
	t.Parallel()
	mark := func(s *stage, o *unstructured.Unstructured) {
		s.patch(o, `{"metadata":{"labels":{"app":null,"`+LabelQuarantine+`":"`+quarantineID(o.GetUID())+`"},"annotations":{"`+v1alpha1.AnnotationLastExecution+`":"uid"}}}`)
	}
	forbid := func(o *unstructured.Unstructured) map[string]any {
		return addMarker(newDenyAllPolicy(o), newSubject("uid"))
	}
	for name, tc := range map[string]struct {
		reason  string
		forge   func(s *stage, o *unstructured.Unstructured)
		attempt int32
		code    Code
	}{
		"Labels":      {"nothing forbids it its traffic", mark, 1, CodeGuard},
		"LabelsAgain": {"nor does a later attempt believe that", mark, 2, CodeGuard},
		"OpenPolicy": {"it is not the planned one", func(s *stage, o *unstructured.Unstructured) {
			open := forbid(o)
			ensureMap(open, "spec")["egress"] = []any{map[string]any{}}
			s.create(open)
		}, 2, CodeGuard},
		"Policy":      {"it is not ours at the first attempt", func(s *stage, o *unstructured.Unstructured) { s.create(forbid(o)) }, 1, CodeGuard},
		"PolicyAgain": {"an attempt that died in between", func(s *stage, o *unstructured.Unstructured) { s.create(forbid(o)) }, 2, CodeOK},
		"Both": {"an attempt that died right before it could say so", func(s *stage, o *unstructured.Unstructured) {
			s.create(forbid(o))
			mark(s, o)
		}, 2, CodeOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			o := s.create(pod("web-1"))
			o = s.patch(o, `{"metadata":{"labels":{"app":"web"}}}`)
			r := s.request("quarantine_pod", map[string]any{"pod": "web-1"})
			c := s.as(r.Action, nil)
			p := s.plan(c, r, newSubject("uid"))
			tc.forge(s, o)
			wantCode(t, Execute(t.Context(), c, p, Run{Subject: newSubject("uid"), Attempt: tc.attempt}), tc.code)
		})
	}
}

// TestQuarantineLabelled uses a Pod that has only the quarantine label, set by another client.
func TestQuarantineLabelled(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	o := s.create(pod("web-1"))
	s.patch(o, `{"metadata":{"labels":{"app":null,"`+LabelQuarantine+`":"`+quarantineID(o.GetUID())+`"}}}`)
	r := s.request("quarantine_pod", map[string]any{"pod": "web-1"})
	c := s.as(r.Action, nil)
	p := s.plan(c, r, newSubject("uid"))
	wantCode(t, Execute(t.Context(), c, p, Run{Subject: newSubject("uid")}), CodeOK)
	if again := s.plan(c, r, newSubject("uid2")); len(p.Steps) != 1 || len(again.Steps) != 0 || p.Rollback.Available {
		t.Errorf("steps %+v, then %+v, rollback %+v", p.Steps, again.Steps, p.Rollback)
	}
}
