package action

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// TestPartialTypes: the fields of our types are those of Kubernetes, and the spec of a NetworkPolicy
// has all of them, so that none is refused or lost.
func TestPartialTypes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ours, theirs reflect.Type
		complete     bool
	}{
		"Pod":           {ours: reflect.TypeFor[partialPod](), theirs: reflect.TypeFor[corev1.Pod]()},
		"Event":         {ours: reflect.TypeFor[partialEvent](), theirs: reflect.TypeFor[corev1.Event]()},
		"NetworkPolicy": {reflect.TypeFor[networkPolicySpec](), reflect.TypeFor[networkingv1.NetworkPolicySpec](), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, problem := range compareFields(tc.ours, tc.theirs, tc.complete, name) {
				t.Error(problem)
			}
		})
	}
}

// compareFields lists the differences between the JSON fields of two types.
func compareFields(ours, theirs reflect.Type, complete bool, path string) []string {
	if ours == theirs {
		return nil
	}
	if ours.Kind() != theirs.Kind() {
		return []string{fmt.Sprintf("%s is a %s, that of Kubernetes a %s", path, ours, theirs)}
	}
	if k := ours.Kind(); k == reflect.Pointer || k == reflect.Slice {
		return compareFields(ours.Elem(), theirs.Elem(), complete, path)
	} else if k != reflect.Struct {
		return nil
	}
	var problems []string
	known := fieldsByName(theirs)
	for f := range ours.Fields() {
		other, there := known[jsonName(f)]
		if !there {
			problems = append(problems, fmt.Sprintf("%s has no field %q in Kubernetes", path, jsonName(f)))
			continue
		}
		delete(known, jsonName(f))
		if complete && f.Tag.Get("json") != other.Tag.Get("json") {
			problems = append(problems, fmt.Sprintf("%s.%s has the tag %q, in Kubernetes %q", path, f.Name, f.Tag.Get("json"), other.Tag.Get("json")))
		}
		problems = append(problems, compareFields(f.Type, other.Type, complete, path+"."+f.Name)...)
	}
	for name := range known {
		if complete {
			problems = append(problems, fmt.Sprintf("%s lacks the field %q", path, name))
		}
	}
	return problems
}

// fieldsByName returns the JSON fields of a struct, with those of the structs that it inlines.
func fieldsByName(t reflect.Type) map[string]reflect.StructField {
	fields := map[string]reflect.StructField{}
	for f := range t.Fields() {
		if f.Anonymous && jsonName(f) == "" {
			maps.Copy(fields, fieldsByName(f.Type))
			continue
		}
		fields[jsonName(f)] = f
	}
	return fields
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

func TestPartialValues(t *testing.T) {
	t.Parallel()
	got := []string{
		protocolTCP, policyTypeIngress, policyTypeEgress, podRunning, podSucceeded,
	}
	want := []string{
		string(corev1.ProtocolTCP), string(networkingv1.PolicyTypeIngress), string(networkingv1.PolicyTypeEgress),
		string(corev1.PodRunning), string(corev1.PodSucceeded),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values (-Kubernetes +ours):\n%s", diff)
	}
}
