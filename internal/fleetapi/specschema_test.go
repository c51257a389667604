package fleetapi_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/fleetapi"
)

const exampleSchema = `{
	"type": "object", "required": ["version"], "additionalProperties": false,
	"properties": {
		"version": {"$ref": "#/$defs/version"},
		"pools": {"type": "array", "maxItems": 2, "items": {"type": "object", "properties": {"a/b": {"type": "integer", "minimum": 1}}}}
	},
	"$defs": {"version": {"type": "string", "pattern": "^1\\.[0-9]+$"}}
}`

func TestSpecSchemaCheck(t *testing.T) {
	s, err := fleetapi.CompileSpecSchema([]byte(exampleSchema))
	if err != nil {
		t.Fatal(err)
	}
	for spec, want := range map[string][]string{
		`{"version":"1.34"}`:                nil,
		`{"version":"9.99"}`:                {"spec.version /spec/version pattern"},
		`{}`:                                {"spec /spec required"},
		`{"version":1.34}`:                  {"spec.version /spec/version format"},
		`{"version":"1.34","colour":"red"}`: {"spec /spec format"},
		`{"version":"1.34","pools":[{"a/b":0},{"a/b":2}]}`: {"spec.pools.0.a/b /spec/pools/0/a~1b min"},
		`{"version":"1.34","pools":[1e400,{},{}]}`:         {"spec.pools /spec/pools max", "spec.pools.0 /spec/pools/0 format"},
	} {
		var got []string
		for _, e := range s.ValidateSpec([]byte(spec)) {
			got = append(got, e.Field+" "+e.Pointer+" "+e.Constraint)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", spec, diff)
		}
	}
}

func TestCompileSpecSchemaRefuses(t *testing.T) {
	for schema, says := range map[string]string{
		`[]`:                                    "not a JSON object",
		`{"type":`:                              "",
		`{"type":"colour"}`:                     "",
		`{"pattern":"("}`:                       "",
		`{"$ref":"https://example.com/x.json"}`: "refers to another document",
		`{"$ref":"file:///etc/passwd"}`:         "refers to another document",
		`{"$ref":"#/nowhere"}`:                  "nowhere",
	} {
		if _, err := fleetapi.CompileSpecSchema([]byte(schema)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want an error that says %q", schema, err, says)
		}
	}
}
