package action

import (
	"fmt"
	"maps"
	"net/http"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// node makes a Node that no other test has.
func (s *stage) node(spec map[string]any) *unstructured.Unstructured {
	s.Helper()
	return s.create(map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": s.namespace}, "spec": spec})
}

// onNode returns a request with a cluster-scoped target.
func (s *stage) onNode(action string, parameters map[string]any) Request {
	s.Helper()
	return (&stage{T: s.T}).request(action, parameters)
}

func TestNodes(t *testing.T) {
	t.Parallel()
	tainted := map[string]any{"taints": []any{map[string]any{"key": "a", "value": "b", "effect": "NoSchedule"}}}
	for name, tc := range map[string]struct {
		reason     string
		spec       map[string]any
		action     string
		parameters map[string]any

		before, after string
		back          string
		foreign       string
	}{
		"Cordon":   {"", nil, "cordon_node", nil, "unschedulable: false", "unschedulable: true", "uncordon_node", ""},
		"Uncordon": {"", map[string]any{"unschedulable": true}, "uncordon_node", nil, "unschedulable: true", "unschedulable: false", "cordon_node", ""},
		"Taint": {
			"a new one", nil, "taint_node",
			map[string]any{"key": "a", "value": "b", "effect": "NoSchedule"},
			"", "taint a:NoSchedule: b", "untaint_node",
			`{"spec":{"taints":[{"key":"a","value":"other","effect":"NoSchedule"}]}}`,
		},
		"TaintAnew": {
			"another value", tainted, "taint_node",
			map[string]any{"key": "a", "value": "c", "effect": "NoSchedule"},
			"taint a:NoSchedule: b", "taint a:NoSchedule: c", "taint_node",
			`{"spec":{"taints":[]}}`,
		},
		"TaintWithoutValue": {
			"a value is not needed", nil, "taint_node",
			map[string]any{"key": "a", "effect": "NoExecute"},
			"", "taint a:NoExecute: ", "untaint_node",
			`{"spec":{"taints":[{"key":"a","value":"other","effect":"NoExecute"}]}}`,
		},
		"Untaint": {
			"the one with the effect", tainted, "untaint_node",
			map[string]any{"key": "a", "effect": "NoSchedule"},
			"taint a:NoSchedule: b", "", "taint_node",
			`{"spec":{"taints":[{"key":"a","value":"other","effect":"NoSchedule"}]}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			o := s.node(tc.spec)
			parameters := map[string]any{"node": o.GetName()}
			maps.Copy(parameters, tc.parameters)
			r := s.onNode(tc.action, parameters)
			c := s.as(r.Action, nil)
			p := s.plan(c, r, newSubject("uid"))
			// The node's controllers taint it as they like, which is none of our business.
			s.patch(o, `{"metadata":{"labels":{"by":"somebody-else"}}}`)
			if tc.foreign != "" {
				s.wantGuarded(c, p, o, tc.foreign)
			}
			result := Execute(t.Context(), c, p, Run{Subject: newSubject("uid")})
			wantCode(t, result, CodeOK)
			if got := result.Resources; len(got) != 1 || got[0].Before != tc.before || got[0].After != tc.after || got[0].Kind != "Node" {
				t.Errorf("affected %+v, want %q to %q", got, tc.before, tc.after)
			}
			again := Execute(t.Context(), c, p, Run{Subject: newSubject("uid"), Attempt: 2})
			wantCode(t, again, CodeOK)
			if again.Changed {
				t.Error("the second attempt changed something")
			}
			s.wantBack(r, p, o, tc.back)
		})
	}
}

// wantBack follows the way back of a plan, and wants the values from before.
func (s *stage) wantBack(r Request, p *v1alpha1.Plan, o *unstructured.Unstructured, action string) {
	s.Helper()
	back := p.Rollback
	if !back.Available || back.RollbackAction != action {
		s.Fatalf("rollback %+v, want %s", back, action)
	}
	if err := CheckTargetUnchanged(s.Context(), s.admin, p, back.ExpectedCurrentValues); err != nil {
		s.Errorf("CheckTargetUnchanged() = %v", err)
	}
	undo, err := Parse(&v1alpha1.KubernetesExecutionSpec{Action: back.RollbackAction, Parameters: back.RollbackParameters})
	if err != nil {
		s.Fatalf("Parse(rollback) = %v", err)
	}
	c, subject := s.as(undo.Action, nil), newSubject("uid-of-the-way-back")
	subject.Namespace, subject.Name = s.namespace, "back"
	wantCode(s.T, Execute(s.Context(), c, s.plan(c, undo, subject), Run{Subject: subject}), CodeOK)
	if different := describeDifferences(decodeValues(p.Before), r.Action.kind.relevantValues(r.parsed, s.read(o))); len(different) > 0 {
		s.Errorf("after the way back: %v", different)
	}
	if CheckTargetUnchanged(s.Context(), s.admin, p, back.ExpectedCurrentValues) == nil {
		s.Error("the way back changed nothing of what it is to start from")
	}
}

// wantGuarded changes state that the plan depends on, expects the guard to stop the attempt, and
// reverts the change.
func (s *stage) wantGuarded(c Client, p *v1alpha1.Plan, o *unstructured.Unstructured, foreign string) {
	s.Helper()
	taints, _, _ := unstructured.NestedSlice(s.read(o).Object, "spec", "taints")
	s.patch(o, foreign)
	result := Execute(s.Context(), c, p, Run{Subject: newSubject("uid")})
	wantCode(s.T, result, CodeGuard)
	s.patch(o, fmt.Sprintf(`{"spec":{"taints":%s}}`, canonicalValue(taints)))
}

// TestTaintBesideOthers verifies that taints added by another client between planning, reading and
// writing are kept.
func TestTaintBesideOthers(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	o := s.node(map[string]any{"taints": []any{map[string]any{"key": "first", "effect": "NoSchedule"}}})
	r := s.onNode("taint_node", map[string]any{"node": o.GetName(), "key": "ours", "effect": "NoSchedule"})
	w := &wire{}
	c := s.as(r.Action, w)
	p := s.plan(c, r, newSubject("uid"))
	if p.Steps[0].Body != "" {
		t.Errorf("the plan has the other taints in it: %s", p.Steps[0].Body)
	}
	var once sync.Once
	w.before = func(_ int, _ *http.Request) *http.Response {
		once.Do(func() {
			s.patch(o, `{"spec":{"taints":[{"key":"first","effect":"NoSchedule"},{"key":"second","effect":"NoSchedule"}]}}`)
		})
		return nil
	}
	wantCode(t, Execute(t.Context(), c, p, Run{Subject: newSubject("uid")}), CodeOK)
	found := map[any]bool{}
	for _, one := range taintsOf(s.read(o)) {
		found[one["key"]] = true
	}
	if !found["first"] || !found["second"] || !found["ours"] {
		t.Errorf("taints %v, want all three", found)
	}
}

// TestCordonedBefore verifies that work not done has no rollback.
func TestCordonedBefore(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	o := s.node(map[string]any{"unschedulable": true})
	p := s.plan(s.admin, s.onNode("cordon_node", map[string]any{"node": o.GetName()}), newSubject("uid"))
	if len(p.Steps) != 0 || p.Rollback.Available {
		t.Errorf("plan %+v, want nothing to do and no way back", p)
	}
}
