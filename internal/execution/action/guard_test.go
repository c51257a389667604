package action

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
)

// scaled is a Deployment with 3 replicas, and the plan for 5.
func (s *stage) scaled() (*unstructured.Unstructured, *v1alpha1.Plan) {
	s.Helper()
	o := s.create(deployment("web", 3))
	return o, s.plan(s.admin, s.request("scale_deployment", asked(map[string]any{"replicas": 5})), newSubject("uid"))
}

func (s *stage) wantReplicas(o *unstructured.Unstructured, want int64) {
	s.Helper()
	if got := replicasFieldOrDefault(s.read(o))["replicas"]; got != want {
		s.Errorf("%d replicas, want %d", got, want)
	}
}

// TestAnswers has the API server refuse the write.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		status int
		why    metav1.StatusReason
		times  int // how often; then the server itself answers
		code   Code
		says   string
	}{
		"Forbidden":   {"the role was taken away meanwhile", http.StatusForbidden, metav1.StatusReasonForbidden, 99, CodeForbidden, "scale Deployment"},
		"NoToken":     {"nobody we know", http.StatusUnauthorized, metav1.StatusReasonUnauthorized, 99, CodeForbidden, ""},
		"Invalid":     {"it does not pass the server's checks", http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, 99, CodeInvalid, ""},
		"Bad":         {"nor those of its reader", http.StatusBadRequest, metav1.StatusReasonBadRequest, 99, CodeInvalid, ""},
		"Webhook":     {"it may, and is refused", http.StatusBadRequest, metav1.StatusReasonBadRequest, 99, CodeDenied, "denied the request"},
		"WebhookCode": {"a webhook has what code it likes", http.StatusForbidden, metav1.StatusReasonForbidden, 99, CodeDenied, "denied the request"},
		"Policy":      {"so has a policy", http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, 99, CodeDenied, "denied request"},
		"Quota":       {"and a quota", http.StatusForbidden, metav1.StatusReasonForbidden, 99, CodeDenied, "exceeded quota"},
		"Gone":        {"deleted between reading and writing", http.StatusNotFound, metav1.StatusReasonNotFound, 99, CodeGuard, ""},
		"Busy":        {"for a moment", http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, 2, CodeOK, ""},
		"Down":        {"for a moment", http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, 2, CodeOK, ""},
		"Broken":      {"for good", http.StatusInternalServerError, metav1.StatusReasonInternalError, 99, CodeTransient, "tried 5 times"},
		"AlwaysOther": {"somebody always writes first", http.StatusConflict, metav1.StatusReasonConflict, 99, CodeTransient, ""},
		"Other":       {"somebody wrote first, twice", http.StatusConflict, metav1.StatusReasonConflict, 2, CodeOK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			o, p := s.scaled()
			var sent atomic.Int32
			w := &wire{before: func(int, *http.Request) *http.Response {
				if int(sent.Add(1)) <= tc.times {
					message, ok := map[string]string{
						"Forbidden": `deployments.apps "web" is forbidden: User "x" cannot patch resource "deployments/scale" in API group "apps"`,
						"Webhook":   `admission webhook "replicas.example.com" denied the request: three are enough`, "WebhookCode": `admission webhook "replicas.example.com" denied the request: three are enough`,
						"Policy": `deployments.apps "web" is forbidden: ValidatingAdmissionPolicy 'replicas' with binding 'replicas' denied request: three are enough`,
						"Quota":  `deployments.apps "web" is forbidden: exceeded quota: few, requested: count/deployments.apps=1`,
					}[name]
					if !ok {
						message = "no"
					}
					return refusal(tc.status, tc.why, message)
				}
				return nil
			}}
			var out bytes.Buffer
			result := Execute(t.Context(), connect(t, w), p, Run{Subject: newSubject("uid"), Output: &out})
			wantCode(t, result, tc.code)
			if !strings.Contains(result.Message, tc.says) || result.Code != CodeOK && !strings.Contains(out.String(), "error: ") {
				t.Errorf("message %q, output %q", result.Message, out.String())
			}
			want := int64(3)
			if tc.code == CodeOK {
				want = 5
			}
			s.wantReplicas(o, want)
			// An internal error may have come after the write.
			if mayHaveChanged := tc.code == CodeOK || name == "Broken"; result.Changed != mayHaveChanged || result.Code.Retry() != (tc.code == CodeTransient) {
				t.Errorf("result %+v", result)
			}
		})
	}
}

// TestForgedPlans are not done.
func TestForgedPlans(t *testing.T) {
	s := newStage(t)
	o, good := s.scaled()
	rehash := func(p *v1alpha1.Plan) { p.Hash = HashPlanEffect(p) }
	for name, tc := range map[string]struct {
		reason string
		forge  func(p *v1alpha1.Plan)
		says   string
	}{
		"Body":       {"the hash tells", func(p *v1alpha1.Plan) { p.Steps[0].Body = `{"spec":{"replicas":0}}` }, "hash"},
		"NoHash":     {"there must be one", func(p *v1alpha1.Plan) { p.Hash = "" }, "hash"},
		"Unknown":    {"there is none such", func(p *v1alpha1.Plan) { p.Action = "format_disk"; rehash(p) }, "unknown action"},
		"Alias":      {"plans have names", func(p *v1alpha1.Plan) { p.Action = "restart_deployment"; rehash(p) }, "unknown action"},
		"Parameters": {"they are read again", func(p *v1alpha1.Plan) { p.Parameters = &runtime.RawExtension{Raw: []byte(`{}`)}; rehash(p) }, "required ("},
		"NoObject":   {"they must be an object", func(p *v1alpha1.Plan) { p.Parameters = &runtime.RawExtension{Raw: []byte(`[]`)}; rehash(p) }, "must be an object"},
		"None":       {"there must be some", func(p *v1alpha1.Plan) { p.Parameters = nil; rehash(p) }, "no parameters"},
		"Target":     {"parameters and target belong together", func(p *v1alpha1.Plan) { p.Target.Name = "other"; rehash(p) }, "its parameters name"},
		"NoUID":      {"it must say which one", func(p *v1alpha1.Plan) { p.Target.UID = ""; rehash(p) }, "no UID"},
	} {
		t.Run(name, func(t *testing.T) {
			p := good.DeepCopy()
			tc.forge(p)
			w := &wire{}
			result := Execute(t.Context(), connect(t, w), p, Run{Subject: newSubject("uid")})
			wantCode(t, result, CodeInvalid)
			if !strings.Contains(result.Message, tc.says) || w.reads > 0 || len(w.sent()) > 0 {
				t.Errorf("message %q with %d reads, and sent %v", result.Message, w.reads, w.sent())
			}
			if dry := DryRun(t.Context(), connect(t, nil), p, Run{Subject: newSubject("uid")}); dry.DryRun.Success || len(dry.DryRun.Errors) != 1 {
				t.Errorf("dry run %+v", dry.DryRun)
			}
		})
	}
	s.wantReplicas(o, 3)
}

// TestMarker is what a second attempt knows the first by.
func TestMarker(t *testing.T) {
	s := newStage(t)
	o := s.create(deployment("web", 1))
	r := s.request("update_image", asked(map[string]any{"container": "app", "image": "registry.example.com/app:2"}))
	p := s.plan(s.admin, r, newSubject("uid-1"))
	wantCode(t, Execute(t.Context(), s.admin, p, Run{Subject: newSubject("uid-1")}), CodeOK)
	if got := s.read(o).GetAnnotations()[v1alpha1.AnnotationLastExecution]; got != "uid-1" {
		t.Errorf("marker %q", got)
	}
	w := &wire{}
	result := Execute(t.Context(), connect(t, w), p, Run{Subject: newSubject("uid-1"), Attempt: 2})
	wantCode(t, result, CodeOK)
	if len(w.sent()) > 0 || result.Changed || len(result.Resources) != 1 {
		t.Errorf("sent %v: %+v", w.sent(), result)
	}
	s.patch(o, `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"registry.example.com/app:3"}]}}}}`)
	result = Execute(t.Context(), connect(t, w), p, Run{Subject: newSubject("uid-1"), Attempt: 2})
	wantCode(t, result, CodeGuard) // what it was to do is not there, whoever has done what
	// Another execution's marker is no sign.
	result = Execute(t.Context(), connect(t, w), p, Run{Subject: newSubject("uid-2")})
	wantCode(t, result, CodeGuard)
}

// TestSetBack verifies that a second attempt does nothing if the first may have been reverted,
// which is undetectable without a marker.
func TestSetBack(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason  string
		between string
		attempt int32
		code    Code
		want    int64
	}{
		"Untouched":   {"the first cannot have done it", "", 2, CodeOK, 5},
		"SetBack":     {"somebody has set it back, or the first did nothing", `{"spec":{"replicas":3,"minReadySeconds":1}}`, 2, CodeGuard, 3},
		"FirstOfAll":  {"there was none before", `{"spec":{"replicas":3,"minReadySeconds":1}}`, 1, CodeOK, 5},
		"OnlyLabeled": {"no part of the spec has changed", `{"metadata":{"labels":{"a":"b"}}}`, 2, CodeOK, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			o, p := s.scaled()
			if tc.between != "" {
				s.patch(o, tc.between)
			}
			wantCode(t, Execute(t.Context(), s.admin, p, Run{Subject: newSubject("uid"), Attempt: tc.attempt}), tc.code)
			s.wantReplicas(o, tc.want)
		})
	}
}

// TestAnnotationsStay has an object get its first annotations between planning a
// JSON patch and sending it, and lose its last.
func TestAnnotationsStay(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ before, meanwhile string }{
		"First": {"", `{"metadata":{"annotations":{"a":"b"}}}`},
		"Last":  {`{"metadata":{"annotations":{"a":"b"}}}`, `{"metadata":{"annotations":null}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			o := s.create(deployment("web", 1))
			if tc.before != "" {
				s.patch(o, tc.before)
			}
			r := s.request("patch_deployment", asked(map[string]any{"patchType": "json", "patch": `[{"op":"add","path":"/spec/minReadySeconds","value":3}]`}))
			p := s.plan(s.admin, r, newSubject("uid"))
			want := len(s.patch(o, tc.meanwhile).GetAnnotations()) + 1
			wantCode(t, Execute(t.Context(), s.admin, p, Run{Subject: newSubject("uid")}), CodeOK)
			if got := s.read(o).GetAnnotations(); len(got) != want || got[v1alpha1.AnnotationLastExecution] != "uid" {
				t.Errorf("annotations %v, want %d with the marker", got, want)
			}
		})
	}
}

// TestTargetOfSpec holds on to the object and state that were asked for.
func TestTargetOfSpec(t *testing.T) {
	s := newStage(t)
	o, _ := s.scaled()
	for name, tc := range map[string]struct {
		target v1alpha1.Target
		says   string
	}{
		"UID":             {v1alpha1.Target{UID: "other"}, ", but target."},
		"ResourceVersion": {v1alpha1.Target{UID: o.GetUID(), ResourceVersion: "1"}, ", but target."},
		"Same":            {v1alpha1.Target{UID: o.GetUID(), ResourceVersion: o.GetResourceVersion()}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			spec := s.spec("scale_deployment", asked(map[string]any{"replicas": 5}))
			spec.Target = &tc.target
			r, err := Parse(spec)
			if err != nil {
				t.Fatal(err)
			}
			_, err = r.Plan(t.Context(), s.admin, newSubject("uid"))
			if tc.says != "" {
				wantRefused(t, err, v1alpha1.DetailTargetChanged, tc.says)
			} else if err != nil {
				t.Errorf("Plan() = %v", err)
			}
		})
	}
}

// TestPlanForbidden names whom and what a role lacks.
func TestPlanForbidden(t *testing.T) {
	s := newStage(t)
	s.scaled()
	cfg, err := kubebedtest.Bed(t).User("nobody-" + s.namespace)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.request("scale_deployment", asked(map[string]any{"replicas": 5})).Plan(t.Context(), c, newSubject("uid"))
	wantRefused(t, err, v1alpha1.DetailRBACDenied, "kubernaut-action-scale-deployment")
	wantRefused(t, err, v1alpha1.DetailRBACDenied, "cannot get resource")
}

// TestCheckUnchanged changes the work of an execution as another client.
func TestCheckUnchanged(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		change func(s *stage, o *unstructured.Unstructured)
		says   string
	}{
		"Same":     {"what else changes does not matter", func(s *stage, o *unstructured.Unstructured) { s.patch(o, `{"metadata":{"labels":{"a":"b"}}}`) }, ""},
		"Values":   {"the field is named", func(s *stage, o *unstructured.Unstructured) { s.patch(o, `{"spec":{"replicas":7}}`) }, "replicas was 5, and is 7"},
		"Gone":     {"there is nothing to take back", func(s *stage, o *unstructured.Unstructured) { s.remove(o) }, "is gone"},
		"Replaced": {"another of its name", func(s *stage, o *unstructured.Unstructured) { s.remove(o); s.create(deployment("web", 5)) }, "another object"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			o, p := s.scaled()
			wantCode(t, Execute(t.Context(), s.admin, p, Run{Subject: newSubject("uid")}), CodeOK)
			tc.change(s, o)
			err := CheckTargetUnchanged(t.Context(), s.admin, p, p.Rollback.ExpectedCurrentValues)
			if tc.says != "" {
				wantRefused(t, err, v1alpha1.DetailTargetChanged, tc.says)
			} else if err != nil {
				t.Errorf("CheckTargetUnchanged() = %v", err)
			}
		})
	}
}

// TestPodWasDone has the second attempt find that the first did it.
func TestPodWasDone(t *testing.T) {
	s := newStage(t)
	o := s.create(pod("web-1"))
	p := s.plan(s.admin, s.request("delete_pod", map[string]any{"pod": "web-1"}), newSubject("uid"))
	s.remove(o)
	s.create(pod("web-1")) // as a StatefulSet does
	w := &wire{}
	c := connect(t, w)
	wantCode(t, Execute(t.Context(), c, p, Run{Subject: newSubject("uid")}), CodeGuard)
	wantCode(t, Execute(t.Context(), c, p, Run{Subject: newSubject("uid"), Attempt: 2}), CodeOK)
	if len(w.sent()) > 0 {
		t.Errorf("sent %v", w.sent())
	}
}

// TestEvictionRefused has a disruption budget say no.
func TestEvictionRefused(t *testing.T) {
	s := newStage(t)
	o := s.create(pod("web-1"))
	p := s.plan(s.admin, s.request("delete_pod", map[string]any{"pod": "web-1", "evict": true}), newSubject("uid"))
	w := &wire{before: func(int, *http.Request) *http.Response {
		return refusal(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "it would violate the pod's disruption budget")
	}}
	result := Execute(t.Context(), connect(t, w), p, Run{Subject: newSubject("uid")})
	wantCode(t, result, CodeTransient)
	if !strings.Contains(result.Message, "disruption budget") {
		t.Errorf("message %q", result.Message)
	}
	s.read(o)
}

// TestPlanAsStored is what a runner is given.
func TestPlanAsStored(t *testing.T) {
	s := newStage(t)
	o, p := s.scaled()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var read v1alpha1.Plan
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	read.PolicyHash = "of-the-policy"
	read.Hash = HashPlanEffect(&read)
	if read.Hash == p.Hash {
		t.Error("the hash does not cover the policies")
	}
	wantCode(t, Execute(t.Context(), s.admin, &read, Run{Subject: newSubject("uid")}), CodeOK)
	s.wantReplicas(o, 5)
}

// TestMarkerIsChecked sets the marker as another client. The UID of an execution is public.
func TestMarkerIsChecked(t *testing.T) {
	t.Parallel()
	marker := `{"metadata":{"annotations":{"` + v1alpha1.AnnotationLastExecution + `":"uid"}}}`
	for name, tc := range map[string]struct {
		reason  string
		action  string
		asks    map[string]any
		attempt int32
		code    Code
	}{
		"FirstAttempt":       {"nobody can have done it before", "update_image", map[string]any{"container": "app", "image": "registry.example.com/app:2"}, 1, CodeOK},
		"FirstAttemptScales": {"nor where the plan has no marker", "scale_deployment", map[string]any{"replicas": 5}, 1, CodeOK},
		"LaterAttempt":       {"what it stands for is not there: was it taken back?", "update_image", map[string]any{"container": "app", "image": "registry.example.com/app:2"}, 2, CodeGuard},
		"LaterAttemptScales": {"the same", "scale_deployment", map[string]any{"replicas": 5}, 2, CodeGuard},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			o := s.create(deployment("web", 3))
			p := s.plan(s.admin, s.request(tc.action, asked(tc.asks)), newSubject("uid"))
			s.patch(o, marker)
			w := &wire{}
			result := Execute(t.Context(), connect(t, w), p, Run{Subject: newSubject("uid"), Attempt: tc.attempt})
			if wantCode(t, result, tc.code); tc.code != CodeOK {
				if len(w.sent()) > 0 || result.Count != 0 || !strings.Contains(result.Message, "changed back") {
					t.Errorf("%s: sent %v: %+v", tc.reason, w.sent(), result)
				}
				return
			}
			if again := s.plan(s.admin, s.request(tc.action, asked(tc.asks)), newSubject("uid2")); len(again.Steps) != 0 || !result.Changed || len(result.Resources) != 1 {
				t.Errorf("%s: %+v, and there is still to do %+v", tc.reason, result, again.Steps)
			}
		})
	}
}

// TestMarkerOfAnother is on an object that the action would make.
func TestMarkerOfAnother(t *testing.T) {
	t.Parallel()
	for name, attempt := range map[string]int32{"FirstAttempt": 1, "LaterAttempt": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			manifest := map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "made", "namespace": s.namespace}, "data": map[string]any{"level": "debug"},
			}
			p := s.plan(s.admin, s.request("apply_manifest", map[string]any{"manifest": manifest}), newSubject("uid"))
			o := s.create(map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"level": "info"},
				"metadata": map[string]any{"name": "made", "annotations": map[string]any{v1alpha1.AnnotationLastExecution: "uid"}},
			})
			wantCode(t, Execute(t.Context(), s.admin, p, Run{Subject: newSubject("uid"), Attempt: attempt}), CodeGuard)
			s.patch(o, `{"data":{"level":"debug"}}`) // as it is to be
			want := CodeGuard
			if attempt > 1 {
				want = CodeOK
			}
			wantCode(t, Execute(t.Context(), s.admin, p, Run{Subject: newSubject("uid"), Attempt: attempt}), want)
		})
	}
}
