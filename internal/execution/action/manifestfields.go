package action

import (
	"encoding/json"
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// fieldNamesAppliedBy returns the fields applied by a manager: nested objects, with null where the manager owns
// the whole value.
func fieldNamesAppliedBy(live *unstructured.Unstructured, manager string) map[string]any {
	for _, m := range live.GetManagedFields() {
		if m.Manager != manager || m.Operation != metav1.ManagedFieldsOperationApply || m.FieldsV1 == nil {
			continue
		}
		var fields map[string]any
		if json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields) == nil {
			return parseFieldsV1(fields)
		}
	}
	return nil
}

func parseFieldsV1(fields map[string]any) map[string]any {
	owned := map[string]any{}
	for key, value := range fields {
		name, ok := strings.CutPrefix(key, "f:")
		if !ok { // an item of a list, which is taken as a whole
			continue
		}
		owned[name] = nil
		inside, _ := value.(map[string]any)
		for k := range inside {
			if strings.HasPrefix(k, "f:") {
				owned[name] = parseFieldsV1(inside)
				break
			}
		}
	}
	return owned
}

// unionFields returns the fields of both. A whole value in either takes precedence.
func unionFields(preferred, other map[string]any) map[string]any {
	all := make(map[string]any, len(preferred)+len(other))
	maps.Copy(all, preferred)
	for key, value := range other {
		first, both := all[key]
		if !both {
			all[key] = value
			continue
		}
		x, isMap := first.(map[string]any)
		y, too := value.(map[string]any)
		if isMap && too {
			all[key] = unionFields(x, y)
		}
	}
	return all
}

// withoutServerFields returns an object without the fields written by the API server and
// controllers.
func withoutServerFields(live *unstructured.Unstructured) map[string]any {
	object := live.DeepCopy().Object
	delete(object, "status")
	metadata := map[string]any{"name": live.GetName(), "namespace": live.GetNamespace()}
	if labels := live.GetLabels(); len(labels) > 0 {
		metadata["labels"] = toAnyMap(labels)
	}
	annotations := live.GetAnnotations()
	delete(annotations, v1alpha1.AnnotationLastExecution)
	if len(annotations) > 0 {
		metadata["annotations"] = toAnyMap(annotations)
	}
	object["metadata"] = metadata
	return object
}

func toAnyMap(m map[string]string) map[string]any {
	all := make(map[string]any, len(m))
	for key, value := range m {
		all[key] = value
	}
	return all
}
