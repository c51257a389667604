package deploy_test

import (
	"maps"
	"testing"
)

// changeEventsSchemas are what of a configuration file's change_events the
// values have as it is: what there is no value for, and the sinks of the list,
// whose credentials are in Secrets.
func changeEventsSchemas(t *testing.T, defs map[string]any) (file, sink map[string]any) {
	t.Helper()
	within := func(part map[string]any, name string) map[string]any {
		t.Helper()
		inner, ok := part[name].(map[string]any)
		if !ok {
			t.Fatalf("there is no %s in a schema", name)
		}
		return inner
	}
	part := within(within(within(defs, "clusterWorkerFile"), "properties"), "change_events")
	file, keys := maps.Clone(part), maps.Clone(within(part, "properties"))
	sink = maps.Clone(within(within(keys, "sinks"), "items"))
	for _, name := range []string{
		"enabled", "cluster_name", "endpoint", "endpoint_file", "format", "timeout", "shutdown_timeout", "auth_header", "auth_scheme", "auth_token", "auth_token_file",
		"signing_key_file", "actions", "include_optional_actions", "allow_http", "allow_addresses", "allow_hosts", "sinks",
	} {
		within(keys, name)
		delete(keys, name)
	}
	file["properties"] = keys

	properties, refs := maps.Clone(within(sink, "properties")), map[string]any{}
	within(properties, "auth_token")
	delete(properties, "auth_token")
	for _, name := range []string{"authToken", "endpoint", "routingKey", "signingKey"} {
		refs[name] = map[string]any{"$ref": "#/$defs/secretRef"}
	}
	properties["secretRefs"] = map[string]any{"type": "object", "properties": refs, "additionalProperties": false}
	sink["properties"] = properties
	return file, sink
}
