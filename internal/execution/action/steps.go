package action

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// The verbs of steps.
const (
	verbCreate = "create"
	verbPatch  = "patch"
	verbDelete = "delete"
	verbEvict  = "evict"
)

// markerPath is the path of the marker annotation in a JSON patch.
var markerPath = "/metadata/annotations/" + strings.ReplaceAll(v1alpha1.AnnotationLastExecution, "/", "~1") //nolint:gochecknoglobals // a constant that Go has no way to write

// addMarker adds the marker to the body of a merge patch, a strategic merge patch or a new object.
// The marker is the UID of the execution, written in the same request.
func addMarker(body map[string]any, s Subject) map[string]any {
	ensureMap(ensureMap(body, "metadata"), "annotations")[v1alpha1.AnnotationLastExecution] = string(s.UID)
	return body
}

// ensureMap returns the object at a key, and creates it if it is missing.
func ensureMap(parent map[string]any, key string) map[string]any {
	if m, ok := parent[key].(map[string]any); ok {
		return m
	}
	m := map[string]any{}
	parent[key] = m
	return m
}

// newStepWithoutBody returns a step on a live object, without a body.
func newStepWithoutBody(live *unstructured.Unstructured, verb, description string) (v1alpha1.PlanStep, error) {
	k, ok := findKind(live.GetAPIVersion(), live.GetKind())
	if !ok {
		return v1alpha1.PlanStep{}, fmt.Errorf("no action supports kind %s", live.GetKind())
	}
	return v1alpha1.PlanStep{
		Description: description,
		Verb:        verb,
		APIVersion:  k.apiVersion(),
		Resource:    k.Resource,
		Namespace:   live.GetNamespace(),
		Name:        live.GetName(),
		UID:         live.GetUID(),
	}, nil
}

// newPatchStep returns a step that patches a live object. body is an object, or a list for a JSON
// patch. addMarker or appendMarkerOperation adds the marker.
func newPatchStep(live *unstructured.Unstructured, kind types.PatchType, body any, description string) (v1alpha1.PlanStep, error) {
	step, err := newStepWithoutBody(live, verbPatch, description)
	if err != nil {
		return step, err
	}
	step.PatchType = string(kind)
	return withJSONBody(step, body)
}

// newScaleStep returns a step that sets the replicas of a live object. It has no marker, because
// setting an absolute number twice has no further effect.
func newScaleStep(live *unstructured.Unstructured, replicas int64, description string) (v1alpha1.PlanStep, error) {
	body := map[string]any{"spec": map[string]any{"replicas": replicas}}
	step, err := newPatchStep(live, types.MergePatchType, body, description)
	step.Subresource = "scale"
	return step, err
}

// newDeleteStep returns a step that deletes a live object, but not another one with its name.
func newDeleteStep(live *unstructured.Unstructured, options map[string]any, description string) (v1alpha1.PlanStep, error) {
	step, err := newStepWithoutBody(live, verbDelete, description)
	if err != nil {
		return step, err
	}
	return withJSONBody(step, options)
}

// newCreateStep returns a step that creates an object. addMarker adds the marker, without which a
// second attempt cannot distinguish the object from a foreign one.
func newCreateStep(object map[string]any, description string) (v1alpha1.PlanStep, error) {
	step, err := newStepWithoutBody(&unstructured.Unstructured{Object: object}, verbCreate, description)
	if err != nil {
		return step, err
	}
	return withJSONBody(step, object)
}

func withJSONBody(step v1alpha1.PlanStep, body any) (v1alpha1.PlanStep, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return step, fmt.Errorf("%s: %w", step.Description, err)
	}
	if body != nil && string(text) != "null" {
		step.Body = string(text)
	}
	return step, nil
}

// appendMarkerOperation adds the marker to a JSON patch of a live object.
func appendMarkerOperation(operations []any, live *unstructured.Unstructured, s Subject) []any {
	if live.GetAnnotations() == nil {
		return append(
			operations,
			map[string]any{
				"op":    "add",
				"path":  "/metadata/annotations",
				"value": map[string]any{v1alpha1.AnnotationLastExecution: string(s.UID)},
			},
		)
	}
	return append(operations, map[string]any{"op": "add", "path": markerPath, "value": string(s.UID)})
}

// adaptMarkerOperation adapts the marker of a JSON patch to the present object. Annotations may have
// appeared since planning, and adding the marker as the only one would remove them. If they have
// disappeared, the planned patch would not apply.
func adaptMarkerOperation(step v1alpha1.PlanStep, live *unstructured.Unstructured) v1alpha1.PlanStep {
	if types.PatchType(step.PatchType) != types.JSONPatchType {
		return step
	}
	operations, err := decodeJSONPatch(step)
	if err != nil || len(operations) == 0 {
		return step // sendStepWithRetry reports the error
	}
	last := operations[len(operations)-1]
	if !writesMarker(last) {
		return step
	}
	uid := last["value"]
	if all, ok := uid.(map[string]any); ok {
		uid = all[v1alpha1.AnnotationLastExecution]
	}
	if live.GetAnnotations() == nil {
		last["path"], last["value"] = "/metadata/annotations", map[string]any{v1alpha1.AnnotationLastExecution: uid}
	} else {
		last["path"], last["value"] = markerPath, uid
	}
	if body, err := json.Marshal(operations); err == nil {
		step.Body = string(body)
	}
	return step
}

// patchBodyWithPreconditions returns a body that the API server rejects for another object or another state of it.
func patchBodyWithPreconditions(step v1alpha1.PlanStep, resourceVersion string) ([]byte, error) {
	if types.PatchType(step.PatchType) == types.JSONPatchType {
		return jsonPatchWithPreconditions(step, resourceVersion)
	}
	var body map[string]any
	if err := utiljson.Unmarshal([]byte(step.Body), &body); err != nil || body == nil {
		return nil, fmt.Errorf("body of %q is not an object", step.Description)
	}
	metadata := ensureMap(body, "metadata")
	if step.UID != "" {
		metadata["uid"] = string(step.UID)
	}
	if resourceVersion != "" {
		metadata["resourceVersion"] = resourceVersion
	}
	if len(metadata) == 0 {
		delete(body, "metadata")
	}
	return json.Marshal(body)
}

// decodeJSONPatch decodes the body of a JSON patch, with numbers unchanged.
func decodeJSONPatch(step v1alpha1.PlanStep) ([]map[string]any, error) {
	decoder := json.NewDecoder(strings.NewReader(step.Body))
	decoder.UseNumber()
	var operations []map[string]any
	if err := decoder.Decode(&operations); err != nil {
		return nil, fmt.Errorf("body of %q is not a list of operations", step.Description)
	}
	return operations, nil
}

// jsonPatchWithPreconditions writes UID and resourceVersion. The API server compares them with those of the object
// and reports a conflict. A failed test operation could not be distinguished from a patch that does
// not fit.
func jsonPatchWithPreconditions(step v1alpha1.PlanStep, resourceVersion string) ([]byte, error) {
	operations, err := decodeJSONPatch(step)
	if err != nil {
		return nil, err
	}
	if resourceVersion != "" {
		first := map[string]any{"op": "add", "path": "/metadata/resourceVersion", "value": resourceVersion}
		operations = append([]map[string]any{first}, operations...)
	}
	return json.Marshal(operations)
}

// writesMarker reports whether an operation only writes the marker.
func writesMarker(operation map[string]any) bool {
	if operation["path"] == markerPath {
		return true
	}
	value, ok := operation["value"].(map[string]any)
	return ok && operation["path"] == "/metadata/annotations" && len(value) == 1 && value[v1alpha1.AnnotationLastExecution] != nil
}

// objectOfStep returns the object of a step.
func objectOfStep(step v1alpha1.PlanStep) v1alpha1.Target {
	return v1alpha1.Target{
		APIVersion: step.APIVersion, Kind: kindOfStep(step), Namespace: step.Namespace, Name: step.Name,
	}
}

// kindOfStep returns the kind of the object of a step.
func kindOfStep(step v1alpha1.PlanStep) string {
	for _, k := range knownKinds() {
		if k.Resource == step.Resource && k.apiVersion() == step.APIVersion {
			return k.kind
		}
	}
	return step.Resource
}

// resourceOfStep returns the resource to which a step is sent.
func resourceOfStep(step v1alpha1.PlanStep) (schema.GroupVersionResource, error) {
	gv, err := schema.ParseGroupVersion(step.APIVersion)
	if err != nil || step.Resource == "" {
		return schema.GroupVersionResource{}, newHalt(CodeInvalid, "%s: a step without a resource", step.Description)
	}
	return gv.WithResource(step.Resource), nil
}
