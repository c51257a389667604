package sentinelconfig

import (
	"fmt"
	"strings"

	"github.com/fleetloop/fleetloop/internal/sentinel"
)

// TranslateKeyErrors replaces the names of a file's settings in the engine's errors by the paths of a
// SentinelConfig's fields.
func TranslateKeyErrors(err error) error {
	return sentinel.WrapKeyErrors(err, func(key string, err error) error {
		return fmt.Errorf("%s: %w", translateKeyToFieldPath(key), err)
	})
}

// translateKeyToFieldPath returns the path of the field for a setting. A setting without a field keeps
// its name.
func translateKeyToFieldPath(key string) string {
	for _, f := range [...]struct{ key, field string }{
		{"resource_type", "spec.resourceType"},
		{"poll_interval", "spec.pollInterval"},
		{"max_age_not_ready", "spec.backoffNotReady"},
		{"max_age_ready", "spec.backoffReady"},
		{"resource_selector", "spec.shardSelector.matchLabels"},
		{"label_selector", "spec.shardSelector"},
		{"hyperfleet_api.endpoint", "spec.hyperfleetAPI.url"},
		{"hyperfleet_api.timeout", "spec.hyperfleetAPI.timeout"},
		{"hyperfleet_api.flavour", "spec.hyperfleetAPI.flavour"},
		{"source.mode", "spec.source.mode"},
		{"source.full_sweep_interval", "spec.source.fullSweepInterval"},
		{"message_data", "spec.messageData"},
		{"decision", "spec.decision"},
	} {
		if rest, ok := strings.CutPrefix(key, f.key); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return f.field + rest
		}
	}
	return key
}
