package facts

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
)

const (
	kindSecret = "Secret"

	maxObject      = 32 << 10 // of an object's spec and status, as JSON
	maxText        = 1 << 10  // of one value within it
	maxAnnotation  = 2 << 10  // of the value of one annotation
	maxAnnotations = 16 << 10 // of all of an object
	maxDepth       = 32       // of an object
	maxTruncated   = 16       // fields that were left out, and are named
	maxField       = 64       // of such a name
)

// targetInput is what a policy sees of an object.
func targetInput(t v1alpha1.Target, live *unstructured.Unstructured) execution.InputTarget {
	in := execution.InputTarget{
		APIVersion: t.APIVersion, Kind: t.Kind, Namespace: t.Namespace, Name: t.Name,
		Labels: map[string]string{}, Annotations: map[string]string{}, Object: map[string]any{}, OwnerChain: []string{},
	}
	if live == nil {
		return in
	}
	in.UID = string(live.GetUID())
	in.Labels = nonNilMap(live.GetLabels())
	if t.Kind != kindSecret { // whose values stand in annotations, too
		in.Annotations = annotations(live.GetAnnotations())
		in.Object = pruneObject(live.Object, maxObject)
	}
	return in
}

// annotations are those that are short. The one in which kubectl keeps the whole
// object is left out: the object is there, and what was applied is not it.
func annotations(all map[string]string) map[string]string {
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

// pruneObject is an object's spec and status. Long texts are cut; where it is still
// too much, the largest fields go, and are named in "truncated".
func pruneObject(object map[string]any, most int) map[string]any {
	kept := map[string]any{}
	for _, part := range []string{"spec", "status"} {
		if fields, ok := object[part].(map[string]any); ok {
			kept[part] = shortened(fields, 0)
		}
	}
	if status, ok := kept["status"].(map[string]any); ok {
		delete(status, "images") // of a Node: as long as all else together
	}
	if left := jsonSize(kept) - most; left > 0 {
		dropLargest(kept, left+maxTruncated*maxField)
	}
	if jsonSize(kept) > most {
		return map[string]any{"truncated": []any{"spec", "status"}}
	}
	return kept
}

// dropLargest takes fields from spec and status, the largest first, until they are
// smaller by some bytes, and names those that were taken first.
func dropLargest(object map[string]any, bytes int) {
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
		if bytes <= 0 {
			break
		}
		all, _ := object[f.part].(map[string]any)
		delete(all, f.name)
		bytes -= f.size
		if len(gone) < maxTruncated {
			gone = append(gone, truncateText(f.part+"."+f.name, maxField))
		}
	}
	object["truncated"] = gone
}

// shortened is a copy of a value with its long texts cut.
func shortened(value any, depth int) any {
	if depth > maxDepth {
		return nil
	}
	switch v := value.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, inner := range v {
			m[k] = shortened(inner, depth+1)
		}
		return m
	case []any:
		l := make([]any, len(v))
		for i, inner := range v {
			l[i] = shortened(inner, depth+1)
		}
		return l
	case string:
		return truncateText(v, maxText)
	}
	return value
}

// jsonSize is how much a value is as JSON.
func jsonSize(value any) int {
	text, err := json.Marshal(value)
	if err != nil {
		return maxObject + 1 // what cannot be written is too much
	}
	return len(text)
}

// truncateText bounds a text, and marks where it was cut.
func truncateText(s string, most int) string {
	const mark = "…"
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most-len(mark)], "") + mark
}
