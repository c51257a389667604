package admission_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// specification is the folder with the output of tools/dev.
const specification = "../../../../test/specification/operator/"

// TestSchemaOfTheSpecification checks that the CRD contains the resource's schema in the
// specification word for word, and otherwise only additions.
func TestSchemaOfTheSpecification(t *testing.T) {
	read := func(file string) (tree map[string]any) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(text, &tree); err != nil {
			t.Fatal(err)
		}
		return tree
	}
	var got []string
	compare("", read(specification+"crd.yaml"), read(crd), &got)
	want := []string{
		// NATS is one broker more, and an object without a spec asks for nothing.
		`.spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.broker.properties.type.enum: [gcp-pubsub rabbitmq] became [gcp-pubsub rabbitmq nats]`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// compare records the differences of got from the tree want. Line breaks in descriptions count as
// spaces.
func compare(path string, want, got any, differences *[]string) {
	switch want := want.(type) {
	case map[string]any:
		got, _ := got.(map[string]any)
		for key, value := range want {
			compare(path+"."+key, value, got[key], differences)
		}
		return
	case []any:
		got, _ := got.([]any)
		if strings.HasSuffix(path, ".required") {
			if !reflect.DeepEqual(setOf(want), setOf(got)) {
				*differences = append(*differences, fmt.Sprintf("%s: %v became %v", path, want, got))
			}
			return
		}
		if len(want) == len(got) {
			for i := range want {
				compare(fmt.Sprintf("%s[%d]", path, i), want[i], got[i], differences)
			}
			return
		}
	case string:
		if text, ok := got.(string); ok && want == strings.Join(strings.Fields(text), " ") {
			return
		}
	}
	if !reflect.DeepEqual(want, got) {
		*differences = append(*differences, fmt.Sprintf("%s: %v became %v", path, want, got))
	}
}

func setOf(list []any) map[any]bool {
	set := map[any]bool{}
	for _, v := range list {
		set[v] = true
	}
	return set
}

// TestSampleOfTheSpecification: the complete sample applies as it stands, and
// keeps every word.
func TestSampleOfTheSpecification(t *testing.T) {
	const namespace = "hyperfleet-system"
	newNamed(t, namespace)
	t.Cleanup(func() {
		if err := configs(t, namespace).Delete(context.WithoutCancel(t.Context()), "cluster-sentinel-us-east", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	if out := kubectl(t, "apply", "-f", specification+"sentinelconfig.yaml"); out != "sentinelconfig.hyperfleet.redhat.com/cluster-sentinel-us-east created\n" {
		t.Errorf("got %q", out)
	}
	got, err := configs(t, namespace).Get(t.Context(), "cluster-sentinel-us-east", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"resourceType":    "clusters",
		"backoffNotReady": "10s",
		"backoffReady":    "30m",
		"shardSelector":   map[string]any{"matchLabels": map[string]any{"region": "us-east"}},
		"hyperfleetAPI":   map[string]any{"url": "http://hyperfleet-api.hyperfleet-system.svc.cluster.local:8080", "timeout": "10s"},
		"broker":          map[string]any{"type": "gcp-pubsub", "topic": "hyperfleet-events", "projectID": "hyperfleet-prod"},
		"pollInterval":    "5s",
	}
	if diff := cmp.Diff(want, got.Object["spec"]); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if out := kubectl(t, "apply", "-f", specification+"sentinelconfig.yaml"); out != "sentinelconfig.hyperfleet.redhat.com/cluster-sentinel-us-east unchanged\n" {
		t.Errorf("the second time: got %q", out)
	}
}

// TestSchemaForEditors checks that the JSON Schema for editors accepts the sample and finds the
// typing errors that the API server finds.
func TestSchemaForEditors(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../../docs/schema/sentinelconfig.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema jsonschema.Schema
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err = os.ReadFile(specification + "sentinelconfig.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		reason   string
		old, new string
		ok       bool
	}{
		"Sample":  {"as it stands", "", "", true},
		"Data":    {"keys of the user's own", "pollInterval: 5s", "pollInterval: 5s\n  messageData: {a: {b: .id}}", true},
		"Key":     {"a key that there is not", "pollInterval", "pollIntervall", false},
		"Deep":    {"a key that there is not", "timeout", "timeOut", false},
		"Enum":    {"a broker that there is not", "gcp-pubsub", "pubsub", false},
		"Kind":    {"something else", "kind: SentinelConfig", "kind: Sentinel", false},
		"Missing": {"a field that must be there", "topic: hyperfleet-events", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var object any
			if err := yaml.Unmarshal([]byte(strings.Replace(string(text), tc.old, tc.new, 1)), &object); err != nil {
				t.Fatal(err)
			}
			if err := resolved.Validate(object); (err == nil) != tc.ok {
				t.Errorf("%s: got %v", tc.reason, err)
			}
		})
	}
}
