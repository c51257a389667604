package deploy_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetloop/fleetloop/internal/nodefault"
	"github.com/fleetloop/fleetloop/test/deploy"
)

// TestGeneratedNodeFaults holds the file that the chart makes roles of to the
// package that says which are needed. Capitals stand for what an installation
// chooses.
func TestGeneratedNodeFaults(t *testing.T) {
	type role struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Rules []rbacv1.PolicyRule `json:"rules"`
	}
	var file struct {
		Features map[nodefault.Feature]nodefault.Grant `json:"features"`
		People   []role                                `json:"people"`
	}
	file.Features = map[nodefault.Feature]nodefault.Grant{}
	for _, f := range nodefault.Features() {
		file.Features[f] = nodefault.RBACGrantOfFeature(f, "EXECUTION_ACTIONS")
	}
	for _, r := range nodefault.PeopleRoles() {
		one := role{Rules: r.Rules}
		one.Metadata.Name = r.Name
		file.People = append(file.People, one)
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(file); err != nil {
		t.Fatal(err)
	}
	wantFile(t, filepath.Join(chartDir, "files/node-faults/grants.json"), b.Bytes())
}

const (
	repairing = "fleetloop-node-fault-controller"
	rebooting = "fleetloop-node-janitor"
	someImage = "registry.example.com/busybox@sha256:0000000000000000000000000000000000000000000000000000000000000000"
)

// TestNodeFaultsEquals holds the rights that the chart gives to what the package
// says is needed, whatever an installation chooses.
func TestNodeFaultsEquals(t *testing.T) {
	const namespace = "hyperfleet-system"
	whole := func(more ...nodefault.Feature) nodefault.ProcessRoles {
		p := nodefault.DefaultProcessRoles()
		p.Namespace, p.Account, p.Features = namespace, repairing, append(p.Features, more...)
		return p
	}
	with := func(p nodefault.ProcessRoles, change func(*nodefault.ProcessRoles)) nodefault.ProcessRoles {
		change(&p)
		return p
	}
	tests := map[string]struct {
		reason  string
		values  string
		want    []nodefault.ProcessRoles
		nobody  bool // the roles for people are not made
		nothing bool
	}{
		"Default": {reason: "a person reboots, and gives machines up", values: "{}", want: []nodefault.ProcessRoles{whole(nodefault.FeatureTermination)}},
		"Separate": {
			reason: "nobody but the janitor may reboot", values: "{janitor: {separate: true}}",
			want: []nodefault.ProcessRoles{
				{Namespace: namespace, Account: repairing, Features: []nodefault.Feature{nodefault.FeatureController, nodefault.FeatureIntake, nodefault.FeatureReviews}},
				{Namespace: namespace, Account: rebooting, Features: []nodefault.Feature{nodefault.FeatureJanitor, nodefault.FeatureTermination}},
			},
		},
		"Least": {
			reason: "no reports, no janitor, no people", values: "{intake: {enabled: false}, janitor: {enabled: false}, rbac: {userRoles: false}}", nobody: true,
			want: []nodefault.ProcessRoles{{Namespace: namespace, Account: repairing, Features: []nodefault.Feature{nodefault.FeatureController}}},
		},
		"Tokens": {
			reason: "tokens of a file alone are nobody else's business", values: "{intake: {auth: {cluster: false, tokensSecret: tokens}}, janitor: {terminateProvider: none}}",
			want: []nodefault.ProcessRoles{{Namespace: namespace, Account: repairing, Features: []nodefault.Feature{nodefault.FeatureController, nodefault.FeatureIntake, nodefault.FeatureJanitor}}},
		},
		"Latch": {
			reason: "what is closed stands in a Lease of its own", values: "{budget: {on_exhausted: manual-reset}, intake: {enabled: false}, janitor: {enabled: false}}",
			want: []nodefault.ProcessRoles{{Namespace: namespace, Account: repairing, Features: []nodefault.Feature{nodefault.FeatureController, nodefault.FeatureManualReset}}},
		},
		"Deletion": {
			reason: "pods are deleted where a namespace says so", values: "{drain: {namespaces: [{pattern: batch-*, delete_after: 10m}]}, janitor: {terminateProvider: none}}",
			want: []nodefault.ProcessRoles{{Namespace: namespace, Account: repairing, Features: []nodefault.Feature{nodefault.FeatureController, nodefault.FeatureDeletion, nodefault.FeatureIntake, nodefault.FeatureReviews, nodefault.FeatureJanitor}}},
		},
		"NoDeletion": {
			reason: "and not where it says never", values: "{drain: {namespaces: [{pattern: batch-*, delete_after: 0s, mode: wait}]}}", want: []nodefault.ProcessRoles{whole(nodefault.FeatureTermination)},
		},
		"Verification": {
			reason: "a Job tries a node out", values: "{remediation: {verification: {image: " + someImage + "}}, janitor: {enabled: false}}",
			want: []nodefault.ProcessRoles{{Namespace: namespace, Account: repairing, Features: []nodefault.Feature{nodefault.FeatureController, nodefault.FeatureVerification, nodefault.FeatureIntake, nodefault.FeatureReviews}}},
		},
		"Job": {
			reason: "Jobs in a namespace of their own", values: "{janitor: {rebootProvider: job, terminateProvider: webhook, config: {job: {image: " + someImage + ", namespace: reboots}, webhook: {url: 'https://bmc.example.com/end'}}}}",
			want: []nodefault.ProcessRoles{with(whole(nodefault.FeatureTermination, nodefault.FeatureJob), func(p *nodefault.ProcessRoles) { p.JobNamespace = "reboots" })},
		},
		"Machine":      {reason: "Cluster API in this cluster", values: "{janitor: {rebootProvider: machine, terminateProvider: machine}}", want: []nodefault.ProcessRoles{whole(nodefault.FeatureTermination, nodefault.FeatureMachineReboot, nodefault.FeatureMachineTermination)}},
		"MachineThere": {reason: "in another cluster it is another account's right", values: "{janitor: {rebootProvider: machine, terminateProvider: machine, machines: {kubeconfig: {existingSecret: mgmt}}}}", want: []nodefault.ProcessRoles{whole(nodefault.FeatureTermination)}},
		"Execution": {
			reason: "the actions that are asked for and no others", values: "{janitor: {rebootProvider: execution, terminateProvider: execution, config: {execution: {namespace: acting, reboot: {action: reboot_node}, terminate: {action: end_node}}}}}",
			want: []nodefault.ProcessRoles{with(whole(nodefault.FeatureTermination, nodefault.FeatureExecution), func(p *nodefault.ProcessRoles) {
				p.ExecutionNamespace, p.Actions = "acting", []string{"reboot_node", "end_node"}
			})},
		},
		"Account":  {reason: "another name", values: "{serviceAccount: {name: me}}", want: []nodefault.ProcessRoles{with(whole(nodefault.FeatureTermination), func(p *nodefault.ProcessRoles) { p.Account = "me" })}},
		"OfOthers": {reason: "all is made elsewhere", values: "{rbac: {create: false}}", nothing: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			values := map[string]any{"fleetApi": map[string]any{"enabled": false}, "sentinel": map[string]any{"enabled": false}}
			own := newValues(t, test.values)
			own["enabled"] = true
			values["nodeFaultController"] = own
			var got []*unstructured.Unstructured
			for _, o := range render(t, deploy.Release{Values: values}) {
				if o.GroupVersionKind().Group == rbacv1.GroupName {
					got = append(got, withoutChart(o))
				}
			}
			var want []runtime.Object
			for _, p := range test.want {
				want = append(want, p.RolesAndBindings()...)
			}
			if !test.nobody && !test.nothing {
				for _, r := range nodefault.PeopleRoles() {
					want = append(want, r)
				}
			}
			if diff := cmp.Diff(byName(t, bare(t, want)), byName(t, got)); diff != "" {
				t.Errorf("%s: package (-) and chart (+) differ:\n%s", test.reason, diff)
			}
		})
	}
}

// TestNodeFaultsShipped: who applies the manifests by themselves gets what the
// package says, and so what the chart makes.
func TestNodeFaultsShipped(t *testing.T) {
	var shipped []*unstructured.Unstructured
	for _, file := range []string{"", "-manual-reset", "-deletion", "-verification", "-termination", "-job", "-machine", "-execution", "-people"} {
		objects, err := deploy.ParseObjects(readFile(t, root+"/deploy/rbac/node-faults"+file+".yaml"))
		if err != nil || len(objects) == 0 {
			t.Fatalf("%s: %d objects, %v", file, len(objects), err)
		}
		shipped = append(shipped, objects...)
	}
	p := nodefault.DefaultProcessRoles()
	for _, f := range nodefault.Features() {
		if !slices.Contains(p.Features, f) {
			p.Features = append(p.Features, f)
		}
	}
	p.Actions = []string{"REBOOT_ACTION"}
	want := p.ServiceAccountAndRoles()
	for _, r := range nodefault.PeopleRoles() {
		want = append(want, r)
	}
	if diff := cmp.Diff(byName(t, bare(t, want)), byName(t, shipped)); diff != "" {
		t.Errorf("package (-) and manifests (+) differ:\n%s", diff)
	}
}

// TestLeases: the names that the roles are for are those that the processes take.
func TestLeases(t *testing.T) {
	text := string(readFile(t, root+"/internal/app/nodefaultapp/nodefaultapp.go"))
	for _, constant := range []string{"ControllerLease", "JanitorLease"} {
		if !strings.Contains(text, "kubeOptionsWithLease(nodefault."+constant+")") {
			t.Errorf("nodefaultapp does not use nodefault.%s", constant)
		}
	}
}
