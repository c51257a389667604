package action

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

const (
	oldValue = "correct-horse"
	newValue = "battery-staple"
)

func credentials(name string, labels map[string]any, data map[string]any) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name, "labels": labels}, "stringData": data}
}

// source is what a value is taken from.
func (s *stage) source() *unstructured.Unstructured {
	s.Helper()
	return s.create(credentials("source", map[string]any{LabelSecretSource: "true"}, map[string]any{"password": newValue}))
}

func fromSource(source, key string) map[string]any {
	return map[string]any{"key": key, "secretKeyRef": map[string]any{"name": source, "key": "password"}}
}

// subject is an execution in the stage's namespace.
func (s *stage) subject() Subject {
	subject := newSubject("uid")
	subject.Namespace, subject.Name = s.namespace, "execution"
	return subject
}

func (s *stage) secret(changes ...any) Request {
	s.Helper()
	return s.request("update_secret", map[string]any{"secret": "web", "dataFrom": changes})
}

// wantNoValue looks for values where none may be.
func wantNoValue(t *testing.T, where string, what any) {
	t.Helper()
	text, err := json.Marshal(what)
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{oldValue, newValue, "Y29ycmVjdC1ob3JzZQ", "YmF0dGVyeS1zdGFwbGU"} { // as they are, and in base 64
		if bytes.Contains(text, []byte(value)) {
			t.Errorf("%s has a value in it: %s", where, text)
		}
	}
}

func TestUpdateSecret(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	o := s.create(credentials("web", nil, map[string]any{"password": oldValue, "gone": oldValue, "other": "x"}))
	s.source()
	r := s.secret(fromSource("source", "password"), fromSource("source", "added"), map[string]any{"key": "gone", "remove": true})
	c := s.as(r.Action, nil)
	p := s.plan(c, r, s.subject())
	wantNoValue(t, "the plan", p)
	if again := s.plan(c, r, s.subject()); again.Hash != p.Hash {
		t.Error("the same state has another plan")
	}
	run := Run{Subject: newSubject("uid")} // an attempt does not know where the execution is
	dry := DryRun(t.Context(), c, p, run)
	wantCode(t, dry, CodeOK)
	wantNoValue(t, "the result of the dry run", dry)
	if live := s.read(o); live.GetResourceVersion() != o.GetResourceVersion() {
		t.Error("the dry run changed the Secret")
	}
	var out bytes.Buffer
	run.Output = &out
	result := Execute(t.Context(), c, p, run)
	wantCode(t, result, CodeOK)
	wantNoValue(t, "the result", result)
	wantNoValue(t, "the output", out.String())
	live := s.read(o)
	for key, want := range map[string]string{"password": newValue, "added": newValue, "other": "x"} {
		if got, _ := decodeSecretValue(live, key); string(got) != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if _, there := decodeSecretValue(live, "gone"); there {
		t.Error("gone is there")
	}
	kept := s.read(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": snapshotName("uid"), "namespace": s.namespace}}})
	if got, _ := decodeSecretValue(kept, "password"); string(got) != oldValue {
		t.Errorf("the snapshot has %q, want %q", got, oldValue)
	}
	if owners := kept.GetOwnerReferences(); len(owners) != 1 || owners[0].Kind != "KubernetesExecution" || owners[0].UID != "uid" {
		t.Errorf("owners %+v, want the execution", owners)
	}
	again := Execute(t.Context(), c, p, Run{Subject: newSubject("uid"), Attempt: 2})
	wantCode(t, again, CodeOK)
	if again.Changed {
		t.Error("the second attempt changed something")
	}
	s.wantBack(r, p, o, "update_secret")
	if got, _ := decodeSecretValue(s.read(o), "gone"); string(got) != oldValue {
		t.Errorf("after the way back gone is %q", got)
	}
}

// TestUpdateSecretChanged verifies that changed previous values and changed new values are both
// rejected.
func TestUpdateSecretChanged(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		object string
		says   string
	}{
		"Target": {"somebody else has set the key", "web", "data.password was"},
		"Source": {"the new value is another one", "source", "differs from the planned one"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			objects := map[string]*unstructured.Unstructured{
				"web": s.create(credentials("web", nil, map[string]any{"password": oldValue})), "source": s.source(),
			}
			r := s.secret(fromSource("source", "password"))
			p := s.plan(s.admin, r, s.subject())
			s.patch(objects[tc.object], `{"stringData":{"password":"third"}}`)
			result := Execute(t.Context(), s.admin, p, Run{Subject: newSubject("uid")})
			wantCode(t, result, CodeGuard)
			if !strings.Contains(result.Message, tc.says) {
				t.Errorf("%s: message %q, want %q", tc.reason, result.Message, tc.says)
			}
		})
	}
}

func TestUpdateSecretRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason  string
		source  map[string]any
		target  map[string]any
		subject Subject
		says    string
	}{
		"Closed": {
			reason: "whoever may ask could read all that is kept beside the executions",
			source: credentials("source", nil, map[string]any{"password": newValue}), says: LabelSecretSource,
		},
		"OthersSnapshot": {
			reason: "values go back to where they come from alone",
			source: credentials("source", map[string]any{LabelSnapshotOf: "another"}, map[string]any{"password": newValue}), says: LabelSecretSource,
		},
		"NoSource":  {reason: "there is no value", source: credentials("other", nil, nil), says: "does not exist"},
		"NoKey":     {reason: "there is no value", source: credentials("source", map[string]any{LabelSecretSource: "true"}, map[string]any{"user": newValue}), says: `no key "password"`},
		"Immutable": {reason: "the API server would refuse it", target: map[string]any{"immutable": true}, says: "immutable"},
		"Token": {reason: "its controller would write it again", target: map[string]any{
			"type": string(corev1.SecretTypeServiceAccountToken), "metadata": map[string]any{"name": "web", "annotations": map[string]any{corev1.ServiceAccountNameKey: "default"}},
		}, says: "service account"},
		"NoExecution": {reason: "there is no place to keep values", subject: newSubject("uid"), says: "namespace of its execution"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			target := credentials("web", nil, map[string]any{"user": oldValue})
			maps.Copy(target, tc.target)
			s.create(target)
			if tc.source != nil {
				s.create(tc.source)
			} else {
				s.source()
			}
			subject := s.subject()
			if tc.subject.UID != "" {
				subject = tc.subject
			}
			_, err := s.secret(fromSource("source", "password")).Plan(t.Context(), s.admin, subject)
			wantRefused(t, err, v1alpha1.DetailInvalidTargetState, tc.says)
			wantNoValue(t, "the error", err.Error())
		})
	}
}

// TestUpdateSecretParameters: whatever is wrong with them, no value is repeated.
func TestUpdateSecretParameters(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		from   []any
	}{
		"None":     {"nothing would be changed", []any{}},
		"Value":    {"values cannot be set inline", []any{map[string]any{"key": "password", "value": newValue}}},
		"Both":     {"nor beside", []any{map[string]any{"key": "password", "remove": true, "value": newValue}}},
		"Inside":   {"nor inside", []any{map[string]any{"key": "password", "secretKeyRef": map[string]any{"name": "source", "key": "password", "value": newValue}}}},
		"AsName":   {"a value is no name", []any{map[string]any{"key": "password", "secretKeyRef": map[string]any{"name": newValue + "!", "key": "password"}}}},
		"NoRemove": {"what is it then?", []any{map[string]any{"key": "password", "remove": false}}},
		"Twice":    {"which of them?", []any{fromSource("a", "password"), fromSource("b", "password")}},
		"TooMany":  {"digests take their time", make([]any, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "TooMany" {
				for i := range maxSecretKeys + 1 {
					tc.from = append(tc.from, fromSource("a", strings.Repeat("k", i+1)))
				}
			}
			_, err := Parse((&stage{T: t, namespace: "shop"}).spec("update_secret", map[string]any{"secret": "web", "dataFrom": tc.from}))
			if _, ok := errors.AsType[*InvalidError](err); !ok {
				t.Fatalf("%s: Parse() = %v", tc.reason, err)
			}
			wantNoValue(t, "the error", err.Error())
		})
	}
}
