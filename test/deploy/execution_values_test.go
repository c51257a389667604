package deploy_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/fleetloop/fleetloop/test/deploy"
)

const acting = "Deployment/fleetloop-execution-controller"

// TestExecutionValues renders sets of values, as TestValues does.
func TestExecutionValues(t *testing.T) {
	tests := map[string]struct {
		reason string
		values string
		want   map[string]map[string]string
	}{
		"Default": {
			reason: "two replicas beside the executions, with a login and the account that the guard knows",
			values: executionIsThere,
			want: map[string]map[string]string{
				acting: {
					"metadata.namespace": "kubernaut-executor", "spec.replicas": "2",
					"spec.template.spec.serviceAccountName":           "kubernaut-execution-controller",
					"spec.template.spec.automountServiceAccountToken": "true",
					"spec.template.spec.containers.0.image":           "fleetloop/execution-controller:dev",
					"spec.template.spec.containers.0.args":            "['--metrics-bind-address=:8098', '--health-probe-bind-address=:8098']",
					"spec.template.spec.containers.0.readinessProbe":  "{httpGet: {path: /readyz, port: metrics}, initialDelaySeconds: 5, periodSeconds: 10}",
					"spec.template.spec.containers.0.env": "[{name: DATABASE_URL, valueFrom: {secretKeyRef: {name: fleetloop-execution-controller-database, key: url}}}, {name: AUDIT, value: postgres}, " +
						"{name: EXECUTOR_NAMESPACE, value: kubernaut-executor}, {name: CLUSTER_NAME, value: local}, {name: RUNNER_IMAGE, value: 'fleetloop/action-runner:dev'}, {name: RUNNER_PULL_POLICY, value: IfNotPresent}, " +
						"{name: EXECUTION_MODE, value: Job}, {name: POLICY_CONFIG_MAP, value: safety-policies}, {name: POLICY_MODE, value: enforce}, " +
						"{name: CONTROLLER_USER, value: 'system:serviceaccount:kubernaut-executor:kubernaut-execution-controller'}, {name: GOMEMLIMIT, value: 460MiB}]",
				},
				"PodDisruptionBudget/fleetloop-execution-controller": {"metadata.namespace": "kubernaut-executor", "spec.maxUnavailable": "1"},
				"NetworkPolicy/fleetloop-execution-controller":       {"metadata.namespace": "kubernaut-executor", "spec.ingress": "[{ports: [{port: metrics}]}]"},
				"Service/fleetloop-execution-controller":             {"metadata.namespace": "kubernaut-executor", "spec.ports": "[{name: metrics, port: 8098, targetPort: metrics, protocol: TCP}]"},
				"ConfigMap/fleetloop-execution-controller":           nil,
				"ClusterRole/kubernaut-action-update-secret":         nil,
				"RoleBinding/kubernaut-action-restart-pod":           nil,
			},
		},
		"DryRun": {
			reason: "one value for whatever acts on clusters", values: "{global: {dryRun: true}, executionController: {enabled: true, audit: {mode: 'off'}}}",
			want: map[string]map[string]string{acting: {
				"spec.template.spec.containers.0.env.0": "{name: AUDIT, value: 'off'}",
				"spec.template.spec.containers.0.env.3": "{name: DRY_RUN, value: 'true'}",
			}},
		},
		"Options": {
			reason: "another namespace, images by their digests, and settings of the file",
			values: `
global: {imageRegistry: registry.example.com, imagePullSecrets: [{name: pull}]}
executionController:
  enabled: true
  namespace: acting
  runner: {image: {digest: "sha256:0000000000000000000000000000000000000000000000000000000000000000"}, mode: Inline, inlineActions: [restart_pod, delete_pod], priorityClassName: high}
  protectedNamespaces: [vault, istio-system]
  admissionPolicies: {policyAdmins: "oidc:Platform Admins", trustedRequesters: [a, b]}
  policies: {create: false, name: laws, mode: warn}
  config: {limits: {max_concurrent: 3}}
  extraEnv: [{name: LOG_LEVEL, value: debug}]
`,
			want: map[string]map[string]string{
				acting: { //nolint:gosec // no credentials: the name of a Secret
					"metadata.namespace":                        "acting",
					"spec.template.spec.imagePullSecrets":       "[{name: pull}]",
					"spec.template.spec.containers.0.env.2":     "{name: EXECUTOR_NAMESPACE, value: acting}",
					"spec.template.spec.containers.0.env.4":     "{name: RUNNER_IMAGE, value: 'registry.example.com/fleetloop/action-runner@sha256:0000000000000000000000000000000000000000000000000000000000000000'}",
					"spec.template.spec.containers.0.env.6":     "{name: EXECUTION_MODE, value: Inline}",
					"spec.template.spec.containers.0.env.7":     "{name: POLICY_CONFIG_MAP, value: laws}",
					"spec.template.spec.containers.0.env.9":     "{name: CONTROLLER_USER, value: 'system:serviceaccount:acting:kubernaut-execution-controller'}",
					"spec.template.spec.containers.0.env.10":    "{name: INLINE_ACTIONS, value: 'restart_pod,delete_pod'}",
					"spec.template.spec.containers.0.env.11":    "{name: POLICY_ADMINS, value: 'oidc:Platform Admins'}",
					"spec.template.spec.containers.0.env.12":    "{name: PROTECTED_NAMESPACES, value: 'vault,istio-system'}",
					"spec.template.spec.containers.0.env.13":    "{name: RUNNER_PRIORITY_CLASS, value: high}",
					"spec.template.spec.containers.0.env.14":    "{name: RUNNER_PULL_SECRETS, value: pull}",
					"spec.template.spec.containers.0.env.15":    "{name: TRUSTED_REQUESTERS, value: 'a,b'}",
					"spec.template.spec.containers.0.env.17":    "{name: LOG_LEVEL, value: debug}",
					"spec.template.spec.containers.0.args.2":    "--config=/etc/execution-controller/config/execution-controller.yaml",
					"spec.template.spec.volumes":                "[{name: config, configMap: {name: fleetloop-execution-controller}}]",
					"spec.template.spec.containers.0.resources": "{requests: {cpu: 100m, memory: 128Mi}, limits: {memory: 768Mi}}",
				},
				"ConfigMap/fleetloop-execution-controller": {"metadata.namespace": "acting", "data": `{execution-controller.yaml: "limits:\n  max_concurrent: 3\n"}`},
				"ConfigMap/laws":            nil,
				"ConfigMap/safety-policies": nil,
			},
		},
		"Placed": {
			reason: "where Jobs run and what they may use is for the file, beside what else it says of the runner",
			values: `
executionController:
  enabled: true
  runner:
    nodeSelector: {node-role.kubernetes.io/infra: ""}
    tolerations: [{key: node-role.kubernetes.io/infra, operator: Exists, effect: NoExecute, tolerationSeconds: 60}]
    resources: {requests: {cpu: 1, memory: 134217728}}
    actionResources: {drain_node: {limits: {memory: 1Gi}}}
  config: {runner: {on_target_node: true, resources: {limits: {cpu: "2"}}}}
`,
			want: map[string]map[string]string{
				"ConfigMap/fleetloop-execution-controller": {
					"data": `{execution-controller.yaml: "runner:\n  action_resources:\n    drain_node:\n      limits:\n        memory: 1Gi\n` +
						`  node_selector:\n    node-role.kubernetes.io/infra: \"\"\n  on_target_node: true\n  resources:\n    requests:\n      cpu: 1\n      memory: 134217728\n` +
						`  tolerations:\n  - effect: NoExecute\n    key: node-role.kubernetes.io/infra\n    operator: Exists\n    tolerationSeconds: 60\n"}`,
				},
				acting: {"spec.template.spec.containers.0.args.2": "--config=/etc/execution-controller/config/execution-controller.yaml"},
			},
		},
		"Monitored": {
			reason: "its alerts are there where it is, beside it", values: "{executionController: {enabled: true}, monitoring: {serviceMonitor: {enabled: true}, prometheusRule: {enabled: true}}}",
			want: map[string]map[string]string{
				"ServiceMonitor/fleetloop-execution-controller": {"metadata.namespace": "kubernaut-executor", "spec.endpoints": "[{port: metrics, path: /metrics, interval: 30s}]", "spec.jobLabel": "app.kubernetes.io/component"},
				"PrometheusRule/fleetloop-execution-controller": {"metadata.namespace": "kubernaut-executor", "spec.groups.0.rules.0.alert": "ExecutionControllerMissing"},
				"PrometheusRule/fleetloop":                      {"metadata.namespace": "hyperfleet-system"},
			},
		},
		"Alone": {
			reason: "executions need no fleet API", values: "{fleetApi: {enabled: false}, sentinel: {enabled: false}, executionController: {enabled: true}}",
			want: map[string]map[string]string{acting: {"spec.replicas": "2"}, "Deployment/fleetloop-fleet-api": nil},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			objects := render(t, deploy.Release{Values: newValues(t, test.values)})
			for name, paths := range test.want {
				i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind()+"/"+o.GetName() == name })
				if (i < 0) != (paths == nil) {
					t.Errorf("%s: %s is there: %t", test.reason, name, i >= 0)
					continue
				}
				for path, text := range paths {
					if diff := cmp.Diff(plain(t, []byte(text)), plain(t, newText(t, at(objects[i], path)))); diff != "" {
						t.Errorf("%s: %s %s: (-want +got)\n%s", test.reason, name, path, diff)
					}
				}
			}
		})
	}
}

// plain is what a text in YAML says.
func plain(t *testing.T, text []byte) any {
	t.Helper()
	var v any
	if err := yaml.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func newText(t *testing.T, v any) []byte {
	t.Helper()
	text, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestGuardAndControllerAgree: what the admission policies say of who is who is
// what the controller is told, so that it finds them as it expects them.
func TestGuardAndControllerAgree(t *testing.T) {
	values := "executionController: {enabled: true, namespace: acting, serviceAccount: {name: me}, policies: {name: laws}, admissionPolicies: {policyAdmins: a, trustedRequesters: [c, b]}}"
	env := map[string]any{}
	for _, e := range envOf(t, render(t, deploy.Release{Values: newValues(t, values)}), "fleetloop-execution-controller") {
		name, ok := e["name"].(string)
		if !ok {
			t.Fatalf("a variable has no name: %v", e)
		}
		env[name] = e["value"]
	}
	for name, want := range map[string]string{
		"EXECUTOR_NAMESPACE": "acting", "CONTROLLER_USER": "system:serviceaccount:acting:me",
		"POLICY_CONFIG_MAP": "laws", "POLICY_ADMINS": "a", "TRUSTED_REQUESTERS": "c,b",
	} {
		if env[name] != want {
			t.Errorf("%s is %v, want %s", name, env[name], want)
		}
	}
}
