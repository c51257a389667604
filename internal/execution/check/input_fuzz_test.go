package check_test

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/check"
	"github.com/fleetloop/fleetloop/internal/policy"
)

// FuzzObjects verifies that the input of any object is valid for policies and conditions, and
// bounded.
func FuzzObjects(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"kind":"Deployment"}`, `{"kind":"Secret","data":{"a":"canary"},"spec":{"a":"canary"},"metadata":{"annotations":{"a":"canary"}}}`,
		`{"kind":"Deployment","spec":null,"status":[]}`,
		`{"kind":"Deployment","spec":{"replicas":1.5,"selector":{"matchLabels":{"a":1}}},"status":{"conditions":{}}}`,
		`{"kind":"Deployment","spec":{"replicas":"3","selector":{"matchExpressions":[{"key":"a","operator":"Odd"}]},"template":{"spec":{"containers":[{"resources":{"requests":{"cpu":"NaN"}}}]}}}}`,
		`{"kind":"Deployment","metadata":{"labels":{"a":1},"annotations":[],"ownerReferences":[{"controller":true}],"uid":7}}`,
		`{"kind":"Node","status":{"images":[1]},"spec":{"x":"\ufffd"}}`,
		`{"kind":"Deployment","spec":` + strings.Repeat(`{"a":`, 60) + `1` + strings.Repeat(`}`, 60) + `}`,
		`{"kind":"StatefulSet","spec":{"a":"` + strings.Repeat("é", 40000) + `"},"status":{"b":"` + strings.Repeat("x", 40000) + `"}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var o map[string]any
		if err := utiljson.Unmarshal(raw, &o); err != nil || o == nil {
			t.Skip("no object")
		}
		s := scalingState(t)
		s.Target = &unstructured.Unstructured{Object: o}
		s.Request.Target.Kind = s.Target.GetKind()
		in := s.Input()
		in.Plan = check.PlanInput(&v1alpha1.Plan{Target: v1alpha1.PlanTarget{Kind: s.Request.Target.Kind}}, nil)
		text, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		if err := policy.CheckPolicyInput(text); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if size, err := json.Marshal(in.Target.Object); err != nil || len(size) > 32<<10 {
			t.Fatalf("%d bytes: %v", len(size), err)
		}
		if s.Request.Target.Kind == "Secret" && len(in.Target.Object)+len(in.Target.Annotations) > 0 {
			t.Fatalf("something of a Secret is told: %s", text)
		}
		flat, err := s.ConditionInput(in, nil, []corev1.Pod{})
		if err != nil {
			t.Fatal(err)
		}
		if err := policy.CheckConditionInput(flat); err != nil {
			t.Fatalf("%v: %s", err, flat)
		}
	})
}
