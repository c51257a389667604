package action

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// DescribeDifferences lists the fields that differ between two values of Plan.Before, in a form suitable
// for people and other systems.
func DescribeDifferences(was, is *runtime.RawExtension) []string {
	return describeDifferences(decodeValues(was), decodeValues(is))
}

// describeDifferences lists the fields that differ. The result goes to events, logs and other systems, so
// it contains no values with objects: the containers of a Pod may hold a password in their
// environment.
func describeDifferences(was, is map[string]any) []string {
	fields := map[string]any{}
	maps.Copy(fields, was)
	maps.Copy(fields, is)
	var different []string
	for _, f := range slices.Sorted(maps.Keys(fields)) {
		if canonicalValue(was[f]) == canonicalValue(is[f]) {
			continue
		}
		if containsObject(was[f]) || containsObject(is[f]) {
			different = append(different, f+" has changed")
			continue
		}
		before, after := TruncateText(formatUnquotedValue(was[f]), 128), TruncateText(formatUnquotedValue(is[f]), 128)
		different = append(different, fmt.Sprintf("%s was %s, and is %s", f, before, after))
	}
	return different
}

// containsObject reports whether a value is an object or a list that contains objects.
func containsObject(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		return true
	case []any:
		return slices.ContainsFunc(v, containsObject)
	}
	return false
}

// canonicalValue returns a value in the canonical form used for hashes.
func canonicalValue(value any) string {
	raw, err := json.Marshal(value)
	if err == nil {
		raw, err = canonicalJSON(raw)
	}
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(raw)
}
