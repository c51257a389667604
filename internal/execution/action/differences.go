package action

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// Differences are the fields of two values of Plan.Before that are not the same,
// as people and other systems may be told of them.
func Differences(was, is *runtime.RawExtension) []string {
	return differences(valuesOf(was), valuesOf(is))
}

// differences are the fields that are not what they were. What they say goes to
// events, logs and other systems, so it has no value with objects in it: the
// containers of a Pod, say, whose environment may have a password.
func differences(was, is map[string]any) []string {
	fields := slices.Collect(maps.Keys(was))
	for f := range is {
		if _, both := was[f]; !both {
			fields = append(fields, f)
		}
	}
	slices.Sort(fields)
	var different []string
	for _, f := range fields {
		switch {
		case canonicalValue(was[f]) == canonicalValue(is[f]):
		case hasObjects(was[f]) || hasObjects(is[f]):
			different = append(different, f+" has changed")
		default:
			different = append(different, fmt.Sprintf("%s was %s, and is %s", f, truncateText(formatValue(was[f]), 128), truncateText(formatValue(is[f]), 128)))
		}
	}
	return different
}

// hasObjects says whether a value is an object, or a list with some in it.
func hasObjects(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		return true
	case []any:
		return slices.ContainsFunc(v, hasObjects)
	}
	return false
}

// canonicalValue is a value as hashes know it.
func canonicalValue(value any) string {
	raw, err := json.Marshal(value)
	if err == nil {
		raw, err = canonical(raw)
	}
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(raw)
}
