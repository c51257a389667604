package admission_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/sentinel/sentinelconfig"
)

// TestAbbreviatedExamples checks that examples without the API are refused, with a message about
// the missing field.
func TestAbbreviatedExamples(t *testing.T) {
	t.Parallel()
	namespace := kubebedtest.Namespace(t)
	out, err := kubebedtest.Bed(t).Kubectl(t.Context(), "apply", "-n", namespace, "-f", specification+"abbreviated.yaml")
	if err == nil {
		t.Fatalf("taken: %s", out)
	}
	for _, name := range []string{"cluster-sentinel-us-east", "cluster-sentinel-us-west", "nodepool-sentinel"} {
		if want := `"` + name + `" is invalid: `; !strings.Contains(err.Error(), want) {
			t.Errorf("no %s in %v", want, err)
		}
	}
	if n := strings.Count(err.Error(), "spec.hyperfleetAPI: Required value"); n != 3 {
		t.Errorf("it is said %d times what is missing: %v", n, err)
	}
}

// TestUnknownField: a word that is misspelt is an error, as in a file.
func TestUnknownField(t *testing.T) {
	t.Parallel()
	namespace := kubebedtest.Namespace(t)
	file := newFile(t, `apiVersion: hyperfleet.redhat.com/v1alpha1
kind: SentinelConfig
metadata: {name: typo}
spec:
  resourceType: clusters
  pollIntervall: 5s
  hyperfleetAPI: {url: "http://api"}
  broker: {type: nats, topic: t, url: "nats://nats"}
`)
	const want = `unknown field "spec.pollIntervall"`
	for _, how := range []string{"--validate=strict", "--server-side=false", "--server-side=true"} {
		if out, err := kubebedtest.Bed(t).Kubectl(t.Context(), "apply", how, "-n", namespace, "-f", file); err == nil || !strings.Contains(err.Error(), want) {
			// Server-side apply says it otherwise.
			if how == "--server-side=true" && err != nil && strings.Contains(err.Error(), ".spec.pollIntervall: field not declared in schema") {
				continue
			}
			t.Errorf("%s: got %q, %v", how, out, err)
		}
	}
}

// TestColumns: what a user reads.
func TestColumns(t *testing.T) {
	t.Parallel()
	namespace := kubebedtest.Namespace(t)
	kind := configs(t, namespace)
	for _, object := range []*unstructured.Unstructured{
		newObject(t, "everything", "{resourceType: nodepools, broker: {type: nats, topic: t, url: 'nats://x'}}"),
		newObject(t, "fresh", "{}"),
		newObject(t, "us-east", "{shardSelector: {matchLabels: {region: us-east}}, broker: {type: gcp-pubsub, topic: hyperfleet-events, projectID: p}}"),
	} {
		if _, err := kind.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	round := time.Now().Add(-72 * time.Hour).UTC().Format(time.RFC3339)
	for name, status := range map[string]map[string]any{
		"everything": {
			"observedGeneration": int64(1), "lastPollTime": round, "resourcesWatched": int64(0), "eventsPublished": int64(0),
			"conditions": []any{condition("Ready", "False", "the fleet API does not answer")},
		},
		"us-east": {
			"observedGeneration": int64(1), "lastPollTime": round, "selector": "region=us-east", "resourcesWatched": int64(1000000), "eventsPublished": int64(123456),
			"conditions": []any{condition("ConfigValid", "True", "generation 1 is in force"), condition("Ready", "True", "watches and publishes under generation 1")},
		},
	} {
		object, err := kind.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		object.Object["status"] = status
		if _, err := kind.UpdateStatus(t.Context(), object, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
			t.Fatal(err)
		}
	}
	young := regexp.MustCompile(`(?m)\b(\d+m)?\d+s\b`)
	wantGolden(t, "columns", young.ReplaceAllString(kubectl(t, "get", "sentinelconfigs", "-n", namespace), "<age>"))
	// The width of a column depends on the age.
	wide := young.ReplaceAllString(kubectl(t, "get", "sentinelconfigs", "-o", "wide", "-n", namespace), "<age>")
	wantGolden(t, "columns-wide", regexp.MustCompile(` {2,}`).ReplaceAllString(wide, "  "))
}

// TestShortName: kubectl takes sc alone for storage classes, which are its
// own, and says so.
func TestShortName(t *testing.T) {
	t.Parallel()
	namespace := kubebedtest.Namespace(t)
	if _, err := configs(t, namespace).Create(t.Context(), newObject(t, "short", "{}"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if out := kubectl(t, "get", "sc.hyperfleet.redhat.com", "-o", "name", "-n", namespace); out != "sentinelconfig.hyperfleet.redhat.com/short\n" {
		t.Errorf("got %q", out)
	}
}

func condition(typ, status, message string) map[string]any {
	return map[string]any{
		"type": typ, "status": status, "reason": "Test", "message": message, "lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
	}
}

// TestNames: how the resource is called, and that it is explained.
func TestNames(t *testing.T) {
	t.Parallel()
	out := kubectl(t, "api-resources", "--api-group=hyperfleet.redhat.com", "--no-headers")
	if got, want := strings.Join(strings.Fields(out), " "), "sentinelconfigs sc hyperfleet.redhat.com/v1alpha1 true SentinelConfig"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for field, want := range map[string]string{
		"sentinelconfig.spec.resourceType":     "HyperFleet resource type to watch (clusters, nodepools, etc.)",
		"sentinelconfigs.spec.broker.exchange": "Exchange name (optional for rabbitmq, defaults to topic)",
	} {
		if out := kubectl(t, "explain", field); !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("%s: got %s", field, out)
		}
	}
}

// TestStatusIsApart: who writes the spec does not touch the status, nor the
// other way around.
func TestStatusIsApart(t *testing.T) {
	t.Parallel()
	kind := configs(t, kubebedtest.Namespace(t))
	object := newObject(t, "apart", "{}")
	object.Object["status"] = map[string]any{"eventsPublished": int64(1)}
	object, err := kind.Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, given := object.Object["status"]; given {
		t.Errorf("it begins with a status: %v", object.Object)
	}

	object.Object["status"] = map[string]any{"eventsPublished": int64(2)}
	set(t, object, "7s", "spec", "pollInterval")
	if object, err = kind.UpdateStatus(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	wantField(t, object, "5s", "spec", "pollInterval")
	wantField(t, object, int64(2), "status", "eventsPublished")
	wantField(t, object, int64(1), "metadata", "generation")

	set(t, object, "7s", "spec", "pollInterval")
	set(t, object, int64(3), "status", "eventsPublished")
	if object, err = kind.Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	wantField(t, object, "7s", "spec", "pollInterval")
	wantField(t, object, int64(2), "status", "eventsPublished")
	wantField(t, object, int64(2), "metadata", "generation")
}

// TestKeptAsWritten checks that user-defined data is not pruned, and that params stay in their
// order, with every way of applying them.
func TestKeptAsWritten(t *testing.T) {
	t.Parallel()
	namespace := kubebedtest.Namespace(t)
	const params = `[{name: z, expr: "true"}, {name: a, expr: "z"}]`
	file := newFile(t, `apiVersion: hyperfleet.redhat.com/v1alpha1
kind: SentinelConfig
metadata: {name: kept}
spec:
  resourceType: clusters
  hyperfleetAPI: {url: "http://api"}
  broker: {type: nats, topic: t, url: "nats://nats"}
  messageData: {a: .id, nested: {deep: {b: "cel:1 + 1"}, number: 5, alive: true}}
  decision: {profile: expression, params: `+params+`, result: a}
`)
	kubectl(t, "apply", "--server-side", "--field-manager=one", "-n", namespace, "-f", file)
	kubectl(t, "apply", "--server-side", "--field-manager=two", "-n", namespace, "-f", file)
	object, err := configs(t, namespace).Get(t.Context(), "kept", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wantField(t, object, map[string]any{"a": ".id", "nested": map[string]any{"deep": map[string]any{"b": "cel:1 + 1"}, "number": int64(5), "alive": true}}, "spec", "messageData")
	wantField(t, object, []any{map[string]any{"name": "z", "expr": "true"}, map[string]any{"name": "a", "expr": "z"}}, "spec", "decision", "params")
}

// TestExamples checks that the shipped examples apply, and that the operator accepts them.
func TestExamples(t *testing.T) {
	t.Parallel()
	newNamed(t, "hyperfleet-system")
	for file, want := range map[string]int{"cluster-sentinel-default.yaml": 1, "sharded-by-region.yaml": 3} {
		file = "../../../../deploy/sentinel/" + file
		if out := kubectl(t, "apply", "--dry-run=server", "-f", file); strings.Count(out, "created (server dry run)") != want {
			t.Errorf("%s: got %s", file, out)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			var sc v1alpha1.SentinelConfig
			if err := yaml.UnmarshalStrict([]byte(document), &sc); err != nil {
				t.Fatal(err)
			}
			if _, err := sentinelconfig.TranslateSpec(&sc.Spec); err != nil {
				t.Errorf("%s: %v", sc.Name, err)
			}
		}
	}
}
