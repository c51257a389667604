package sentinelconfig

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
)

// DiffSpecs lists the fields in which two specs differ, with their old and new values:
// spec.backoffReady: "30m" → "1h". For URLs, which may contain a password, it returns only the
// names. If the specs are equal, a Secret has changed.
func DiffSpecs(before, after *v1alpha1.SentinelConfigSpec) (changeDescriptions []string, err error) {
	was, err := flattenSpec(before)
	if err != nil {
		return nil, err
	}
	is, err := flattenSpec(after)
	if err != nil {
		return nil, err
	}
	all := maps.Clone(was)
	maps.Copy(all, is)
	var changes []string
	for _, path := range slices.Sorted(maps.Keys(all)) {
		switch old, now := was[path], is[path]; {
		case old == now:
		case strings.HasSuffix(path, ".url"):
			changes = append(changes, path)
		default:
			changes = append(changes, fmt.Sprintf("%s: %s → %s", path, truncateForLog(old), truncateForLog(now)))
		}
	}
	if len(changes) == 0 {
		changes = []string{"a Secret of the spec"}
	}
	return changes, nil
}

// truncateForLog formats a value for a log line.
func truncateForLog(value string) string {
	const most = 100
	switch {
	case value == "":
		return "(not set)"
	case len(value) > most:
		return strings.ToValidUTF8(value[:most], "") + "…"
	}
	return value
}

// flattenSpec returns the fields that a spec sets: JSON values by path.
func flattenSpec(spec *v1alpha1.SentinelConfigSpec) (jsonByPath map[string]string, err error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("compare specs: %w", err)
	}
	fields := map[string]string{}
	return fields, flattenJSON(fields, "spec", text)
}

// flattenJSON adds the fields of a JSON value to fields. Lists are one value.
func flattenJSON(fields map[string]string, path string, value json.RawMessage) error {
	if len(value) == 0 || value[0] != '{' {
		fields[path] = string(value)
		return nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(value, &members); err != nil {
		return fmt.Errorf("compare specs: %w", err)
	}
	for name, member := range members {
		if err := flattenJSON(fields, path+"."+name, member); err != nil {
			return err
		}
	}
	return nil
}
