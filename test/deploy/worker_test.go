package deploy_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleetloop/fleetloop/test/deploy"
)

const requiredVariable = "FLEET_API_REQUIRED_ADAPTERS_CLUSTERS"

// TestRequired: a deleted cluster must not go before its Shoot does, so the
// fleet API waits for the worker, whatever else it waits for.
func TestRequired(t *testing.T) {
	tests := map[string]struct {
		reason string
		values string
		want   []string // of the variable; none is no variable
	}{
		"Off":        {"there is no worker to wait for", "", nil},
		"On":         {"it comes after those that are required by themselves", "clusterWorker: {enabled: true}", []string{"validation,dns,provisioning,gardener"}},
		"Mock":       {"a Gardener in memory reports, too", "clusterWorker: {enabled: true, mode: mock, replicas: 1}", []string{"validation,dns,provisioning,gardener"}},
		"Configured": {"the user's own list", "{clusterWorker: {enabled: true}, fleetApi: {config: {required_adapters: {clusters: [dns]}}}}", []string{"dns,gardener"}},
		"None":       {"an empty list is one", "{clusterWorker: {enabled: true}, fleetApi: {config: {required_adapters: {clusters: []}}}}", []string{"gardener"}},
		"There":      {"it is required already", "{clusterWorker: {enabled: true}, fleetApi: {config: {required_adapters: {clusters: [gardener, dns]}}}}", nil},
		"OtherKind":  {"a list of another kind is another list", "{clusterWorker: {enabled: true}, fleetApi: {config: {required_adapters: {nodepools: [dns]}}}}", []string{"validation,dns,provisioning,gardener"}},
		"Variable":   {"the user's variable is the only one", "{clusterWorker: {enabled: true}, fleetApi: {extraEnv: [{name: " + requiredVariable + ", value: 'a, gardener'}]}}", []string{"a, gardener"}},
		"VariableOfSecret": {
			"what it refers to cannot be looked at",
			"{clusterWorker: {enabled: true}, fleetApi: {extraEnv: [{name: " + requiredVariable + ", valueFrom: {configMapKeyRef: {name: a, key: b}}}]}}",
			[]string{""},
		},
		"Unwanted": {"the user says otherwise", "clusterWorker: {enabled: true, requireGardenerAdapter: false}", nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, e := range envOf(t, render(t, deploy.Release{Values: newValues(t, test.values)}), "fleetloop-fleet-api") {
				if e["name"] == requiredVariable {
					value, _ := e["value"].(string)
					got = append(got, value)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("%s: %q, want %q", test.reason, got, test.want)
			}
		})
	}
}

// envOf is the environment of a Deployment's container.
func envOf(t *testing.T, objects []*unstructured.Unstructured, deployment string) (list []map[string]any) {
	t.Helper()
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "Deployment" && o.GetName() == deployment
	})
	if i < 0 {
		t.Fatalf("there is no Deployment %s", deployment)
	}
	env, _ := at(objects[i], "spec.template.spec.containers.0.env").([]any)
	for _, e := range env {
		variable, ok := e.(map[string]any)
		if !ok {
			t.Fatalf("a variable is a %T", e)
		}
		list = append(list, variable)
	}
	return list
}

// TestRequiredByDefault holds the list that the chart adds to against the one
// that the fleet API has by itself.
func TestRequiredByDefault(t *testing.T) {
	row := regexp.MustCompile("(?m)^\\| `required_adapters.clusters` \\| list of string \\| `([a-z,]+)` \\| `" + requiredVariable + "`")
	found := row.FindSubmatch(readFile(t, root+"/docs/reference/config.md"))
	if found == nil {
		t.Fatalf("the reference does not say what %s is by itself", requiredVariable)
	}
	want := string(found[1]) + ",gardener"
	env := envOf(t, render(t, withWorker(deploy.Release{})), "fleetloop-fleet-api")
	if !slices.ContainsFunc(env, func(e map[string]any) bool { return e["name"] == requiredVariable && e["value"] == want }) {
		t.Errorf("%s is not %q: %v", requiredVariable, want, env)
	}
}

// TestWorkerHasNoRights: what the worker may do it may do in the garden. In the
// cluster that it runs in it has an account without roles, whose token no pod
// gets.
func TestWorkerHasNoRights(t *testing.T) {
	accounts := 0
	for _, o := range render(t, withWorker(deploy.Release{Values: newValues(t, "sentinel: {enabled: false}")})) {
		switch o.GetKind() {
		case "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding":
			t.Errorf("there is %s/%s", o.GetKind(), o.GetName())
		case "ServiceAccount":
			accounts++
			if at(o, "automountServiceAccountToken") != false {
				t.Errorf("%s: its token is mounted", o.GetName())
			}
		case "Deployment":
			if at(o, "spec.template.spec.automountServiceAccountToken") != false {
				t.Errorf("%s: a token is mounted", o.GetName())
			}
		}
	}
	if accounts != 2 {
		t.Errorf("there are %d accounts, want one of the fleet API and one of the worker", accounts)
	}
}

// TestWorkerGuide holds that the guide applies the manifest that is shipped, and
// that all of it is in the namespace that the guide replaces.
func TestWorkerGuide(t *testing.T) {
	const file, namespace = "deploy/gardener/cluster-worker.yaml", "garden-fundament"
	guide := string(readFile(t, root+"/docs/how-to/sync-clusters-to-gardener.md"))
	if !strings.Contains(guide, "\nsed s/"+namespace+"/garden-fleet/g "+file+" | kubectl apply -f -\n") {
		t.Errorf("the guide does not apply %s in the project's namespace", file)
	}
	_, manifest, _ := strings.Cut(string(readFile(t, root+"/"+file)), "\n\n") // after what is said about it
	for object := range strings.SplitSeq(manifest, "\n---\n") {
		if !strings.Contains(object, namespace) {
			t.Errorf("an object of %s does not name %s:\n%s", file, namespace, object)
		}
	}
}
