package guard_test

import (
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/fleetloop/fleetloop/deploy"
)

// valuesOf are what a field of a spec may have, each other than the rest, as far as
// the schema can tell. Nil is to leave it out.
func valuesOf(field string) []any {
	text, number := []any{nil, "", "a", "b"}, []any{nil, int64(1), int64(2)}
	condition := map[string]any{"type": "ready", "rego": "package a"}
	with := func(key string, value any) map[string]any {
		c := maps.Clone(condition)
		c[key] = value
		return c
	}
	conditions := []any{
		nil,
		[]any{},
		[]any{condition},
		[]any{condition, condition},
		[]any{with("rego", "package b")},
		[]any{with("required", false)},
		[]any{with("required", true)},
		[]any{with("timeout", "5s")},
	}
	reference := []any{
		nil, map[string]any{"name": "a"}, map[string]any{"name": "b"}, map[string]any{"name": "a", "namespace": ""}, map[string]any{"name": "a", "uid": "u"},
	}
	return map[string][]any{
		"action":                  {"scale_deployment", "delete_pod"},
		"parameters":              {nil, map[string]any{}}, // what is in them the guard alone can see
		"targetNamespace":         text,
		"resourceName":            text,
		"target":                  {nil, map[string]any{}, map[string]any{"name": ""}, map[string]any{"name": "a"}, map[string]any{"kind": "a"}, map[string]any{"uid": "a"}},
		"targetCluster":           text,
		"maxRetries":              append(number, int64(0)),
		"timeout":                 {nil, "5s", "5000ms", "1m"},
		"approvalTimeout":         {nil, "0s", "5s", "1m"},
		"preConditions":           conditions,
		"postConditions":          conditions,
		"remediationRequestRef":   reference,
		"workflowExecutionRef":    reference,
		"stepNumber":              number,
		"rollbackOf":              reference,
		"environment":             text,
		"requestedBy":             text,
		"requestedByAgent":        text,
		"requesterGroups":         {nil, []any{}, []any{"a"}, []any{"b"}, []any{"a", "b"}},
		"reason":                  text,
		"correlationID":           text,
		"dryRunMode":              {"Policy", "Always", "Only"},
		"executionMode":           {nil, "Job", "Inline"},
		"ttlSecondsAfterFinished": append(number, int64(0)),
	}[field]
}

// lastingFields are those of a spec that do not change.
func lastingFields(t *testing.T) []string {
	t.Helper()
	var crd apiextensionsv1.CustomResourceDefinition
	must(t, yaml.Unmarshal(deploy.KubernetesExecutionCRD, &crd))
	all := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties
	return slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(field string) bool {
		return slices.Contains([]string{"approvals", "approvalReceived", "cancel", "cancelledBy", "finalize"}, field)
	})
}

// TestFieldsLast holds that the schema alone, without a guard, keeps each field of
// a spec as it was asked for, and refuses nothing that leaves it so.
func TestFieldsLast(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	for n, field := range lastingFields(t) {
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			us := w.in(t).onTrial().as(boss)
			values := valuesOf(field)
			if len(values) == 0 {
				t.Fatal("it is not known what it may have")
			}
			for i, was := range values {
				name := "f" + strconv.Itoa(n) + "-" + strconv.Itoa(i)
				must(t, us.firmly().create(called(name, asked(map[string]any{field: was}))))
				for j, is := range values {
					f := fieldChange{field, is, i == j}
					f.write(t, us, name, nil)
					f.write(t, us, name, map[string]any{"cancel": true}) // which differs
					// To a comparison of all fields, one that is null may be in the place of
					// one that is gone.
					f.write(t, us, name, map[string]any{"environment": nil, "correlationID": nil, "target": nil})
				}
			}
		})
	}
}

// A fieldChange is a write of a spec in which one field has a value, maybe that
// which it had.
type fieldChange struct {
	field string
	value any
	same  bool
}

// write writes an execution with more beside the field.
func (f fieldChange) write(t *testing.T, us hand, name string, more map[string]any) {
	t.Helper()
	o := us.get(name)
	was, _ := o.Object["spec"].(map[string]any) // there is always one
	is := maps.Clone(was)
	for key, value := range more {
		if _, there := was[key]; !there {
			is[key] = value
		}
	}
	is[f.field] = f.value
	if f.value == nil {
		delete(is, f.field)
	}
	o.Object["spec"] = is
	stored, err := us.objects.Update(t.Context(), o, metav1.UpdateOptions{DryRun: us.dryRun})
	switch {
	case apierrors.IsInvalid(err) && !f.same:
		return
	case err != nil:
		t.Errorf("%v beside %v: %v", f.value, more, err)
		return
	}
	after, _ := stored.Object["spec"].(map[string]any) // likewise
	delete(after, "cancel")
	if diff := cmp.Diff(was, after); diff != "" {
		t.Errorf("%v beside %v (-was +is):\n%s", f.value, more, diff)
	}
}
