package fleetapi

import "testing"

// TestParseFieldsOfResource verifies which members of a resource the parameter fields can select.
func TestParseFieldsOfResource(t *testing.T) {
	for path, selectable := range map[string]bool{
		"created_time":                true,
		"spec":                        true,
		"owner_references.href":       true,
		"ownerResource.kind":          true,
		"metadata.displayName":        true,
		"status.sync_error":           true,
		"status.conditions.reason":    true,
		"spec.version":                false, // a spec, labels and times are shown whole
		"labels.region":               false,
		"metadata.labels.region":      false,
		"deleted_time.":               false,
		"status.conditions.data":      false,
		"owner_references.generation": false,
		"revision":                    false,
	} {
		if _, err := parseFieldsParameter([]string{path}); (err == nil) != selectable {
			t.Errorf("fields=%s: error %v, want selectable %v", path, err, selectable)
		}
	}
}
