package action

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// manifest returns the desired state of a ConfigMap.
func (s *stage) manifest(data map[string]any) map[string]any {
	o := settings(data)
	ensureMap(o, "metadata")["namespace"] = s.namespace
	return o
}

func (s *stage) apply(more map[string]any) Request {
	s.Helper()
	return (&stage{T: s.T}).request("apply_manifest", more)
}

// done plans and executes as an administrator.
func (s *stage) done(r Request, uid string) *v1alpha1.Plan {
	s.Helper()
	p := s.plan(s.admin, r, newSubject(uid))
	result := Execute(s.Context(), s.admin, p, Run{Subject: newSubject(uid)})
	wantCode(s.T, result, CodeOK)
	if !result.Changed {
		s.Errorf("changed nothing: %s", result.Message)
	}
	return p
}

func (s *stage) settings() *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: settings(nil)}
	o.SetNamespace(s.namespace)
	return o
}

// undo follows the way back.
func (s *stage) undo(p *v1alpha1.Plan, uid string) {
	s.Helper()
	if err := CheckTargetUnchanged(s.Context(), s.admin, p, p.Rollback.ExpectedCurrentValues); err != nil {
		s.Errorf("CheckTargetUnchanged() = %v", err)
	}
	r, err := Parse(&v1alpha1.KubernetesExecutionSpec{Action: p.Rollback.RollbackAction, Parameters: p.Rollback.RollbackParameters})
	if err != nil {
		s.Fatalf("Parse(rollback) = %v", err)
	}
	s.done(r, uid)
}

func TestApplyManifestCreates(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.plan(s.admin, s.apply(map[string]any{"manifest": s.manifest(map[string]any{"a": "1"})}), newSubject("uid"))
	wantCode(t, DryRun(t.Context(), s.admin, p, Run{Subject: newSubject("uid")}), CodeOK)
	if _, err := s.admin.getObjectOnce(t.Context(), targetOfObject(s.settings())); !apierrors.IsNotFound(err) {
		t.Fatalf("after the dry run it is there: %v", err)
	}
	wantCode(t, Execute(t.Context(), s.admin, p, Run{Subject: newSubject("uid")}), CodeOK)
	again := Execute(t.Context(), s.admin, p, Run{Subject: newSubject("uid"), Attempt: 2})
	wantCode(t, again, CodeOK)
	if again.Changed {
		t.Error("the second attempt changed something")
	}
	wantCode(t, Execute(t.Context(), s.admin, p, Run{Subject: newSubject("another")}), CodeGuard)
	s.undo(p, "back")
	if _, err := s.admin.getObjectOnce(t.Context(), targetOfObject(s.settings())); !apierrors.IsNotFound(err) {
		t.Errorf("after the way back it is there: %v", err)
	}
}

// TestApplyManifestChanges: what an earlier manifest of the same manager set
// goes, what others set stays, and the way back is back to all of it.
func TestApplyManifestChanges(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.create(settings(map[string]any{"theirs": "1"}))
	s.done(s.apply(map[string]any{"manifest": s.manifest(map[string]any{"ours": "1", "dropped": "1"})}), "first")
	want := map[string]any{"theirs": "1", "ours": "1", "dropped": "1"}
	if diff := cmp.Diff(any(want), s.read(s.settings()).Object["data"]); diff != "" {
		t.Fatalf("-want +got\n%s", diff)
	}
	p := s.done(s.apply(map[string]any{"manifest": s.manifest(map[string]any{"ours": "2", "new": "2"})}), "second")
	if diff := cmp.Diff(any(map[string]any{"theirs": "1", "ours": "2", "new": "2"}), s.read(s.settings()).Object["data"]); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	s.undo(p, "back")
	if diff := cmp.Diff(any(want), s.read(s.settings()).Object["data"]); diff != "" {
		t.Errorf("after the way back -want +got\n%s", diff)
	}
}

func TestApplyManifestDeletes(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.create(settings(map[string]any{"a": "1"}))
	p := s.done(s.apply(map[string]any{"manifest": s.manifest(nil), "state": "absent"}), "uid")
	if _, err := s.admin.getObjectOnce(t.Context(), targetOfObject(s.settings())); !apierrors.IsNotFound(err) {
		t.Fatalf("it is there: %v", err)
	}
	if !p.Rollback.Available {
		t.Fatalf("rollback %+v", p.Rollback)
	}
	r, err := Parse(&v1alpha1.KubernetesExecutionSpec{Action: p.Rollback.RollbackAction, Parameters: p.Rollback.RollbackParameters})
	if err != nil {
		t.Fatal(err)
	}
	s.done(r, "back")
	if diff := cmp.Diff(any(map[string]any{"a": "1"}), s.read(s.settings()).Object["data"]); diff != "" {
		t.Errorf("after the way back -want +got\n%s", diff)
	}
}

func TestApplyManifestOthersFields(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.done(s.apply(map[string]any{"manifest": s.manifest(map[string]any{"a": "1"}), "fieldManager": "somebody-else"}), "uid")
	changed := map[string]any{"manifest": s.manifest(map[string]any{"a": "2"})}
	_, err := s.apply(changed).Plan(t.Context(), s.admin, newSubject("uid2"))
	wantRefused(t, err, v1alpha1.DetailInvalidTargetState, `conflict with "somebody-else"`)
	changed["force"] = true
	s.done(s.apply(changed), "uid2")
}

func TestManifestOf(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason   string
		manifest string
		problem  string
	}{
		"Secret":     {"all could read its values", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a","namespace":"b"}}`, "update_secret"},
		"Node":       {"it is is not namespaced", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"a","namespace":"b"}}`, "is not namespaced"},
		"Unknown":    {"nobody knows where it is", `{"apiVersion":"v2","kind":"ConfigMap","metadata":{"name":"a","namespace":"b"}}`, "unsupported kind ConfigMap"},
		"NoKind":     {"", `{"metadata":{"name":"a","namespace":"b"}}`, "without a kind"},
		"NoName":     {"the API server would make one up", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"a","namespace":"b"}}`, "metadata.name"},
		"NoPlace":    {"which one?", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`, "metadata.namespace"},
		"Owner":      {"it would go with another object", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"b","ownerReferences":[]}}`, "metadata.ownerReferences"},
		"Finalizers": {"it could not be deleted", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"b","finalizers":["c"]}}`, "metadata.finalizers"},
		"Status":     {"it is another's to say", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a","namespace":"b"},"status":{}}`, "status"},
		"Marker":     {"it would look as if done", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"b","annotations":{"kubernaut.io/last-execution":"x"}}}`, "last-execution"},
		"TooLong":    {"a plan has it several times", fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"b"},"data":{"a":%q}}`, strings.Repeat("x", maxManifest)), "at most"},
		"List":       {"one execution, one object", `{"apiVersion":"v1","kind":"List","items":[]}`, "unsupported kind List"},
		"NoObject":   {"", `[]`, "must be an object"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse((&stage{T: t}).spec("apply_manifest", map[string]any{"manifest": json.RawMessage(tc.manifest)}))
			var invalid *InvalidError
			if !errors.As(err, &invalid) || !strings.Contains(err.Error(), tc.problem) && tc.problem != "must be an object" {
				t.Errorf("%s: Parse() = %v, want %q", tc.reason, err, tc.problem)
			}
		})
	}
}

// TestCut verifies that the selected fields of an object occur in it, and that no others are
// selected.
func TestCut(t *testing.T) {
	t.Parallel()
	values := rapid.Deferred(objects)
	rapid.Check(t, func(t *rapid.T) {
		fields, object := values.Draw(t, "fields"), values.Draw(t, "object")
		had := selectFields(fields, object)
		wantWithin(t, had, object, fields)
		if again := selectFields(fields, had); canonicalValue(again) != canonicalValue(had) {
			t.Fatalf("cut again: %v, want %v", again, had)
		}
		if all := selectFields(unionFields(fields, object), object); canonicalValue(all) != canonicalValue(object) {
			t.Fatalf("cut by all of its fields: %v, want %v", all, object)
		}
	})
}

// wantWithin fails the test unless had contains only values of the object, and only in the
// requested fields.
func wantWithin(t *rapid.T, had, object, fields map[string]any) {
	for key, value := range had {
		if _, asked := fields[key]; !asked {
			t.Fatalf("%q was not asked for", key)
		}
		inside, isMap := value.(map[string]any)
		within, both := object[key].(map[string]any)
		wanted, too := fields[key].(map[string]any)
		if isMap && both && too {
			wantWithin(t, inside, within, wanted)
		} else if canonicalValue(value) != canonicalValue(object[key]) {
			t.Fatalf("%q is %v, want %v", key, value, object[key])
		}
	}
}

// objects are small ones, whose keys meet.
func objects() *rapid.Generator[map[string]any] {
	return rapid.Custom(func(t *rapid.T) map[string]any {
		o := map[string]any{}
		for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3, rapid.ID[string]).Draw(t, "keys") {
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				o[key] = rapid.SampledFrom([]string{"x", "y"}).Draw(t, "text")
			case 1:
				o[key] = []any{"x"}
			default:
				o[key] = objects().Draw(t, "inside")
			}
		}
		return o
	})
}

// TestApplyManifestReplicas holds that the plan says how many replicas come of a
// manifest, also of one that leaves them out.
func TestApplyManifestReplicas(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	manifest := func(replicas int64, seconds int64) map[string]any {
		o := deployment("web", replicas)
		o["metadata"] = map[string]any{"name": "web", "namespace": s.namespace}
		spec, _ := o["spec"].(map[string]any)
		spec["minReadySeconds"] = seconds
		if replicas == 0 {
			delete(spec, "replicas")
		}
		return o
	}
	for i, step := range []struct {
		replicas int64 // 0 is none in the manifest
		want     string
	}{
		{5, "0 -> 5"}, {5, ""}, {7, "5 -> 7"}, {0, "7 -> 1"}, {0, ""},
	} {
		uid := fmt.Sprint("uid-", i)
		p := s.plan(s.admin, s.apply(map[string]any{"manifest": manifest(step.replicas, int64(i+1))}), newSubject(uid))
		if p.Impact.ReplicasChanged != step.want {
			t.Errorf("step %d: %q replicas, want %q", i, p.Impact.ReplicasChanged, step.want)
		}
		wantCode(t, Execute(t.Context(), s.admin, p, Run{Subject: newSubject(uid)}), CodeOK)
	}
}
