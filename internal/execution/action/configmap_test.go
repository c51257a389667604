package action

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

func settings(data map[string]any) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "settings"}, "data": data}
}

func TestPatchConfigMap(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxConfigData)
	for name, tr := range map[string]trial{
		"Change": {
			reason: "a key that there is, one that there is not, and one that goes", object: settings(map[string]any{"level": "info", "old": "1", "other": "2"}),
			action: "patch_configmap", parameters: map[string]any{"configmap": "settings", "data": map[string]any{"level": "debug", "new": "3", "old": nil}},
			did: "patched", before: "data.level: info, data.old: 1", after: "data.level: debug, data.new: 3",
			foreign: `{"data":{"level":"warn"}}`, back: "patch_configmap",
		},
		"LongBefore": {
			reason: "what does not fit into a plan has no way back", object: settings(map[string]any{"level": long + "y"}),
			action: "update_configmap", parameters: map[string]any{"configmap": "settings", "data": map[string]any{"level": "debug"}},
			did: "patched", before: "data.level: sha256:", after: "data.level: debug",
			foreign: `{"data":{"level":"` + long + `z"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr.run(t)
		})
	}
}

func TestPatchConfigMapRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	sealed := settings(map[string]any{"level": "info"})
	sealed["immutable"] = true
	s.create(sealed)
	_, err := s.request("patch_configmap", map[string]any{"configmap": "settings", "data": map[string]any{"level": "debug"}}).Plan(t.Context(), s.admin, newSubject("uid"))
	wantRefused(t, err, v1alpha1.DetailInvalidTargetState, "immutable")
	for name, tc := range map[string]struct {
		reason string
		data   any
		want   string
	}{
		"None":     {"nothing would be changed", map[string]any{}, "at least one key"},
		"TooLong":  {"a plan has it several times", map[string]any{"a": strings.Repeat("x", maxConfigData+1)}, "at most 4096 bytes"},
		"Key":      {"the API server would refuse it", map[string]any{"a/b": "c"}, "must be a key"},
		"Number":   {"a ConfigMap has text alone", map[string]any{"a": 1}, "strings or null"},
		"NoObject": {"", "a=b", "must be an object"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse((&stage{T: t, namespace: "shop"}).spec("patch_configmap", map[string]any{"configmap": "settings", "data": tc.data}))
			var invalid *InvalidError
			if !errors.As(err, &invalid) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: Parse() = %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

func TestPatchConfigMapNothingToDo(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.create(settings(map[string]any{"level": "info"}))
	r := s.request("patch_configmap", map[string]any{"configmap": "settings", "data": map[string]any{"level": "info", "absent": nil}})
	p := s.plan(s.admin, r, newSubject("uid"))
	if len(p.Steps) != 0 || p.Rollback.Available {
		t.Errorf("plan %+v, want one without steps", p)
	}
	result := Execute(t.Context(), s.admin, p, Run{Subject: newSubject("uid")})
	wantCode(t, result, CodeOK)
	if result.Changed {
		t.Error("it changed something")
	}
}

func TestExpandPVC(t *testing.T) {
	t.Parallel()
	claim := map[string]any{
		"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": map[string]any{"name": "data"},
		"spec": map[string]any{
			"storageClassName": "grows", "accessModes": []any{"ReadWriteOnce"},
			"resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}},
		},
	}
	bound := func(s *stage, o *unstructured.Unstructured) {
		class := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": map[string]any{"name": "grows"},
			"provisioner": "example.com/none", "allowVolumeExpansion": true,
		}}
		s.shared(class)
		s.patch(o, `{"metadata":{"finalizers":null}}`) // which wait for a controller that is not here
		s.patch(o, `{"status":{"phase":"Bound","capacity":{"storage":"1Gi"}}}`, "status")
	}
	trial{
		reason: "more", object: claim, setup: bound,
		action: "expand_pvc", parameters: map[string]any{"pvc": "data", "size": "2048Mi"},
		did: "expanded", before: "storage: 1Gi", after: "storage: 2Gi",
	}.run(t)
	for name, tc := range map[string]struct {
		reason string
		size   string
		class  any
		bound  bool
		want   string
	}{
		"Less":      {"volumes cannot shrink", "512Mi", "grows", true, "cannot shrink"},
		"NotBound":  {"there is no volume yet", "2Gi", "grows", false, "is Pending"},
		"NoClass":   {"nobody could make it grow", "2Gi", "", true, "no storage class"},
		"ClassGone": {"nobody says that it may", "2Gi", "gone", true, "does not exist"},
		"Fixed":     {"the class says no", "2Gi", "fixed", true, "allowVolumeExpansion"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.shared(&unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": map[string]any{"name": "fixed"}, "provisioner": "example.com/none",
			}})
			o := (&unstructured.Unstructured{Object: claim}).DeepCopy()
			_ = unstructured.SetNestedField(o.Object, tc.class, "spec", "storageClassName")
			o = s.create(o.Object)
			if tc.bound {
				bound(s, o)
			}
			_, err := s.request("expand_pvc", map[string]any{"pvc": "data", "size": tc.size}).Plan(t.Context(), s.admin, newSubject("uid"))
			wantRefused(t, err, v1alpha1.DetailInvalidTargetState, tc.want)
		})
	}
}

// shared makes an object outside of namespaces that other tests make as well.
func (s *stage) shared(o *unstructured.Unstructured) {
	s.Helper()
	k, _ := findKind(o.GetAPIVersion(), o.GetKind())
	_, err := s.admin.resourceClient(k.GroupVersionResource, "").Create(s.Context(), o, metav1.CreateOptions{})
	s.made(err)
}
