package deploy_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/sentinel/operator"
	"github.com/fleetloop/fleetloop/test/deploy"
)

// TestRoles holds the chart to the rights that the product says it needs, with
// each feature and without.
func TestRoles(t *testing.T) {
	tests := map[string]struct {
		values string
		want   operator.SentinelRoles
	}{
		"Default":     {"", operator.SentinelRoles{Secrets: []string{"fleetloop-broker", "fleetloop-sentinel-token"}}},
		"NoSecrets":   {"sentinel: {defaults: {hyperfleetAPI: {tokenSecretRef: null}, broker: {credentialsSecretRef: null}}}", operator.SentinelRoles{}},
		"MoreSecrets": {"sentinel: {rbac: {secretNames: [a, fleetloop-broker]}}", operator.SentinelRoles{Secrets: []string{"a", "fleetloop-broker", "fleetloop-sentinel-token"}}},
		"AllSecrets":  {"sentinel: {rbac: {allSecrets: true}}", operator.SentinelRoles{AllSecrets: true}},
		"Account":     {"sentinel: {serviceAccount: {name: me}}", operator.SentinelRoles{Account: "me", Secrets: []string{"fleetloop-broker", "fleetloop-sentinel-token"}}},
		"Auto":        {"sentinel: {deploymentMode: all, rbac: {allSecrets: true}, defaults: {sharding: {mode: auto}}}", operator.SentinelRoles{AllSecrets: true, Sharding: true}},
		"AutoOfOthers": {
			"sentinel: {rbac: {allSecrets: true, sharding: always}}",
			operator.SentinelRoles{AllSecrets: true, Sharding: true},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := map[string]any{}
			for _, o := range render(t, deploy.Release{Values: newValues(t, test.values)}) {
				if o.GetKind() == "Role" || o.GetKind() == "RoleBinding" {
					unstructured.RemoveNestedField(o.Object, "metadata", "labels")
					got[o.GetKind()+"/"+o.GetName()] = o.Object
				}
			}
			if test.want.Account == "" {
				test.want.Account = "fleetloop-sentinel"
			}
			want := map[string]any{}
			for _, object := range test.want.BuildAccountRolesAndBindings() {
				raw, err := yaml.Marshal(object)
				if err != nil {
					t.Fatal(err)
				}
				o := &unstructured.Unstructured{}
				if err := yaml.Unmarshal(raw, &o.Object); err != nil {
					t.Fatal(err)
				}
				if o.GetKind() != "ServiceAccount" {
					want[o.GetKind()+"/"+o.GetName()] = o.Object
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestArguments holds that the binaries know the flags and the variables that
// the chart gives them.
func TestArguments(t *testing.T) {
	reference := map[string]string{
		"fleet-api": string(readFile(t, root+"/docs/reference/fleet-api.md")),
		"migrate":   string(readFile(t, root+"/docs/reference/fleet-api.md")),
		"sentinel":  string(readFile(t, root+"/docs/reference/sentinel.md")),

		"cluster-worker": string(readFile(t, root+"/docs/reference/cluster-worker.md")),

		"execution-controller": string(readFile(t, root+"/docs/reference/execution-controller.md")),

		"node-fault-controller": string(readFile(t, root+"/docs/reference/node-fault-controller.md")),

		"console": string(readFile(t, root+"/docs/reference/console.md")),
	}
	settings := string(readFile(t, root+"/docs/reference/config.md")) + string(readFile(t, root+"/docs/explanation/brokers.md"))
	// Two are those of the Go runtime and of Google's library; the pod's own are told in the reference of flags.
	settings += "`POD_NAMESPACE` `POD_NAME` `GOMEMLIMIT` `GOOGLE_APPLICATION_CREDENTIALS`"
	for _, values := range []string{
		"fleetApi: {database: {migrate: job, migrationKey: owner}, tls: {existingSecret: a}, config: {database: {role: b}}, metrics: {tokenSecret: c}}",
		"sentinel: {deploymentMode: all, metrics: {tokenSecret: a}, gcpCredentialsSecret: b}",
		"sentinel: {deploymentMode: file}",
		`
clusterWorker:
  enabled: true
  gardener: {namespace: a, providerType: b, cloudProfile: c, credentialsBinding: d, region: e, kubernetesVersion: "1.34", machineType: f, maxShootNameLength: 15}
  metrics: {tokenSecret: g}
  config: {max_concurrent_syncs: 8}
`,
		`
global: {dryRun: true}
executionController:
  enabled: true
  runner: {priorityClassName: a, inlineActions: [restart_pod]}
  protectedNamespaces: [b]
  admissionPolicies: {policyAdmins: c, trustedRequesters: [d]}
  metrics: {tokenSecret: e}
  config: {limits: {max_concurrent: 3}}
`,
		`
global:
  dryRun: true
  changeEvents:
    enabled: true
    endpoint: https://events.example.com/changes
    clusterName: a
    auth: {scheme: Bearer}
    actions: [cordon]
    includeOptionalActions: true
    allowHTTP: true
    allowAddresses: [10.0.0.0/8]
    signingKeySecretRef: {name: b}
executionController: {enabled: true}
nodeFaultController:
  enabled: true
  intake: {auth: {tokensSecret: c}, tls: {existingSecret: d}, grpc: {enabled: true}}
  janitor: {separate: true, rebootProvider: webhook, terminateProvider: machine, webhook: {tokenSecretRef: {name: e}}, machines: {kubeconfig: {existingSecret: f}}, config: {webhook: {url: 'https://bmc.example.com'}}}
  metrics: {tokenSecret: g}
`,
		"{global: {changeEvents: {enabled: true, clusterName: a, endpointSecretRef: {name: b}, format: slack}}, clusterWorker: {enabled: true}}",
		"console: {enabled: true, publicURL: 'https://a', tls: {existingSecret: b}, metrics: {tokenSecret: c}, auth: {mode: oidc, oidc: {issuer: 'https://d', clientID: e, clientSecretRef: {name: f}, scopes: [openid]}}}",
	} {
		for _, o := range render(t, deploy.Release{Values: newValues(t, values)}) {
			name, ok := at(o, "spec.template.spec.containers.0.name").(string)
			if !ok {
				if o.GetName() == "fleetloop-broker-env" {
					variables, _ := at(o, "data").(map[string]any)
					for variable := range variables {
						if !strings.Contains(settings, "`"+variable+"`") {
							t.Errorf("nothing reads %s", variable)
						}
					}
				}
				continue
			}
			args, _ := at(o, "spec.template.spec.containers.0.args").([]any)
			if len(args) == 0 {
				t.Errorf("%s has no arguments", o.GetName())
			}
			for _, arg := range args {
				flag, _, _ := strings.Cut(arg.(string), "=") //nolint:errcheck // the API server lets in no other
				if !strings.Contains(reference[name], flag+" ") && flag != "migrate" {
					t.Errorf("%s: %s has no flag %s", o.GetName(), name, flag)
				}
			}
			env, _ := at(o, "spec.template.spec.containers.0.env").([]any)
			for i := range env {
				variable, _ := at(o, "spec.template.spec.containers.0.env."+strconv.Itoa(i)+".name").(string)
				if !strings.Contains(settings, "`"+variable+"`") {
					t.Errorf("%s: nothing reads %s", o.GetName(), variable)
				}
			}
		}
	}
}

// TestConfigsAreTyped holds that what the chart makes of values is what the
// operator reads, without a field that it does not know.
func TestConfigsAreTyped(t *testing.T) {
	found := 0
	for _, o := range render(t, deploy.Release{}) {
		if o.GetKind() != "SentinelConfig" {
			continue
		}
		found++
		raw, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		var config v1alpha1.SentinelConfig
		if err := yaml.UnmarshalStrict(raw, &config); err != nil {
			t.Error(err)
		}
		if want := v1alpha1.GroupVersion.String(); o.GetAPIVersion() != want {
			t.Errorf("%s is of %s, want %s", o.GetName(), o.GetAPIVersion(), want)
		}
	}
	if found != 2 {
		t.Errorf("%d SentinelConfigs, want 2", found)
	}
}
