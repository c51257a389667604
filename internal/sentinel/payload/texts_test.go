package payload_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/sentinel/payload"
	"github.com/fleetloop/fleetloop/internal/settings"
)

func TestConversions(t *testing.T) {
	const raw = `{"id":"cls-1","generation":3,"spec":{"paused":true,"node-count":2,"in":1,"name":"x","none":null,"list":[1]}}`
	cases := map[string]struct {
		reason string
		text   string
		want   string // type and CEL form
	}{
		"Number":       {"of every resource", `.generation`, "number cel:resource.generation"},
		"Boolean":      {"of this resource", `.spec.paused`, "boolean cel:resource.spec.paused"},
		"Template":     {"a field is all of it", `{{- .generation }}`, "number cel:resource.generation"},
		"Hyphen":       {"CEL takes it for a minus", `.spec.node-count`, `number cel:resource.spec["node-count"]`},
		"ReservedWord": {"CEL takes it for its own", `.spec.in`, `number cel:resource.spec["in"]`},
		"Text":         {"it is one", `.spec.name`, ""},
		"Missing":      {"it has no type", `.spec.nope`, ""},
		"Null":         {"it has no type", `.spec.none`, ""},
		"List":         {"JSON as a text is meant", `.spec.list`, ""},
		"More":         {"a text is meant", `generation {{.generation}}`, ""},
		"Two":          {"a text is meant", `{{.generation}}{{.generation}}`, ""},
		"Function":     {"a text is meant", `{{printf "%03d" .generation}}`, ""},
		"CEL":          {"it keeps its type", `cel:resource.generation`, ""},
		"Literal":      {"it is a text", `generation`, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := build(t, settings.OrderedMap{{Key: "nested", Map: entry(tc.text)}})
			list, err := b.FindConversionsToText([]byte(raw))
			if err != nil {
				t.Fatal(err)
			}
			var got string
			for _, c := range list {
				got += c.Type + " " + c.CEL
				if c.Key != "message_data.nested.x" {
					t.Errorf("key %q", c.Key)
				}
				if _, err := payload.New(entry(c.CEL), payload.SnakeCase); err != nil {
					t.Errorf("%s does not compile: %v", c.CEL, err)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
	if _, err := build(t, entry(".generation")).FindConversionsToText([]byte("{")); err == nil {
		t.Error("no error for a resource that is no JSON")
	}
}
