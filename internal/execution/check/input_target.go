package check

import (
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

const (
	kindSecret = "Secret"

	maxObject      = 32 << 10 // bytes of spec and status, as JSON
	maxText        = 1 << 10  // bytes of one value within
	maxAnnotation  = 2 << 10  // bytes of one annotation value
	maxAnnotations = 16 << 10 // bytes of all annotations
	maxDepth       = 32       // nesting levels of an object
	maxTruncated   = 16       // names of omitted fields
	maxField       = 64       // bytes of such a name
)

// targetInput returns the policy input for an object.
func targetInput(t v1alpha1.Target, live *unstructured.Unstructured) execution.InputTarget {
	in := execution.InputTarget{
		APIVersion: t.APIVersion, Kind: t.Kind, Namespace: t.Namespace, Name: t.Name,
		Labels: map[string]string{}, Annotations: map[string]string{}, Object: map[string]any{}, OwnerChain: []string{},
	}
	if live == nil {
		return in
	}
	in.UID = string(live.GetUID())
	in.Labels = cloneOrEmptyMap(live.GetLabels())
	if t.Kind != kindSecret { // annotations of Secrets may contain their values
		in.Annotations = annotationsWithinLimits(live.GetAnnotations())
		in.Object = truncatedSpecAndStatus(live.Object, maxObject)
	}
	return in
}

// annotationsWithinLimits returns the short annotations. It omits the last-applied annotation of kubectl: the
// live object is present already, and the applied one differs from it.
func annotationsWithinLimits(all map[string]string) map[string]string {
	kept := map[string]string{}
	size := 0
	for _, k := range slices.Sorted(maps.Keys(all)) {
		v := all[k]
		if k == corev1.LastAppliedConfigAnnotation || len(v) > maxAnnotation || size+len(k)+len(v) > maxAnnotations {
			continue
		}
		size += len(k) + len(v)
		kept[k] = v
	}
	return kept
}

// truncatedSpecAndStatus returns the spec and status of an object. It truncates long texts, then drops the
// largest fields while the result is too large, and lists them in "truncated".
func truncatedSpecAndStatus(object map[string]any, maxBytes int) map[string]any {
	kept := map[string]any{}
	for _, part := range []string{"spec", "status"} {
		if fields, ok := object[part].(map[string]any); ok {
			kept[part] = truncateTexts(fields, 0)
		}
	}
	if status, ok := kept["status"].(map[string]any); ok {
		delete(status, "images") // of a Node: as large as everything else
	}
	if left := jsonSize(kept) - maxBytes; left > 0 {
		dropLargestFields(kept, left+maxTruncated*maxField)
	}
	if jsonSize(kept) > maxBytes {
		return map[string]any{"truncated": []any{"spec", "status"}}
	}
	return kept
}

// dropLargestFields removes the largest fields of spec and status until the given number of bytes is
// saved. It names the first ones.
func dropLargestFields(object map[string]any, bytesToSave int) {
	type field struct {
		part, name string
		size       int
	}
	var fields []field
	for _, part := range []string{"spec", "status"} {
		all, _ := object[part].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			fields = append(fields, field{part: part, name: name, size: len(name) + jsonSize(all[name])})
		}
	}
	slices.SortStableFunc(fields, func(a, b field) int { return b.size - a.size })
	gone := []any{}
	for _, f := range fields {
		if bytesToSave <= 0 {
			break
		}
		all, _ := object[f.part].(map[string]any)
		delete(all, f.name)
		bytesToSave -= f.size
		if len(gone) < maxTruncated {
			gone = append(gone, action.TruncateText(f.part+"."+f.name, maxField))
		}
	}
	object["truncated"] = gone
}

// truncateTexts returns a copy of a value with its long texts truncated.
func truncateTexts(value any, depth int) any {
	if depth > maxDepth {
		return nil
	}
	switch v := value.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, inner := range v {
			m[k] = truncateTexts(inner, depth+1)
		}
		return m
	case []any:
		l := make([]any, len(v))
		for i, inner := range v {
			l[i] = truncateTexts(inner, depth+1)
		}
		return l
	case string:
		return action.TruncateText(v, maxText)
	}
	return value
}

// jsonSize returns the size of a value as JSON.
func jsonSize(value any) int {
	text, err := json.Marshal(value)
	if err != nil {
		return maxObject + 1 // treat a value that cannot be encoded as too large
	}
	return len(text)
}
