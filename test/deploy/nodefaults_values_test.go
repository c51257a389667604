package deploy_test

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleetloop/fleetloop/test/deploy"
)

// ofNodeFaults renders the node fault controller alone.
func ofNodeFaults(t *testing.T, values string) []*unstructured.Unstructured {
	t.Helper()
	all := newValues(t, values)
	for _, other := range []string{"fleetApi", "sentinel"} {
		all[other] = map[string]any{"enabled": false}
	}
	return render(t, deploy.Release{Values: all})
}

// TestNodeFaultsValues renders sets of values, as TestValues does.
func TestNodeFaultsValues(t *testing.T) {
	const on = "nodeFaultController: {enabled: true"
	tests := map[string]struct {
		reason string
		values string
		want   map[string]map[string]string
	}{
		"Default": {
			reason: "two replicas that take reports by tokens of the cluster, and a person who reboots",
			values: on + "}",
			want: map[string]map[string]string{
				"Deployment/" + repairing: {
					"metadata.namespace": "hyperfleet-system", "spec.replicas": "2",
					"spec.template.spec.serviceAccountName":           repairing,
					"spec.template.spec.automountServiceAccountToken": "true",
					"spec.template.spec.containers.0.image":           "fleetloop/node-fault-controller:dev",
					"spec.template.spec.containers.0.args":            "['--metrics-bind-address=:8099', '--health-probe-bind-address=:8099']",
					"spec.template.spec.containers.0.ports":           "[{name: reports, containerPort: 8080, protocol: TCP}, {name: metrics, containerPort: 8099, protocol: TCP}]",
					"spec.template.spec.volumes":                      "",
					"spec.template.spec.containers.0.env": "[{name: ROLES, value: 'controller,intake,janitor'}, {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}, {name: CLUSTER_NAME, value: local}, " +
						"{name: LISTEN_ADDRESS, value: ':8080'}, {name: NODE_FAULT_INTAKE_AUTH_MODE, value: cluster}, {name: NODE_FAULT_REBOOT_PROVIDER, value: manual}, {name: NODE_FAULT_TERMINATE_PROVIDER, value: manual}, {name: GOMEMLIMIT, value: 460MiB}]",
				},
				"Service/" + repairing:             {"spec.type": "ClusterIP", "spec.ports": "[{name: reports, port: 8080, targetPort: reports, protocol: TCP}, {name: metrics, port: 8099, targetPort: metrics, protocol: TCP}]"},
				"PodDisruptionBudget/" + repairing: {"spec.maxUnavailable": "1"},
				"NetworkPolicy/" + repairing:       {"spec.ingress": "[{ports: [{port: reports}]}, {ports: [{port: metrics}]}]"},
				"ServiceAccount/" + repairing:      {"automountServiceAccountToken": "false"},
				"ConfigMap/" + repairing:           nil,
				"Deployment/" + rebooting:          nil,
			},
		},
		"Separate": {
			reason: "the janitor has an account, a number of pods and a Service of its own, and takes no reports",
			values: on + ", intake: {grpc: {enabled: true}}, janitor: {separate: true, replicas: 1, rebootProvider: webhook, config: {webhook: {url: 'https://bmc.example.com'}}, webhook: {tokenSecretRef: {name: bmc}}}}",
			want: map[string]map[string]string{
				"Deployment/" + repairing: {
					"spec.replicas": "2", "spec.template.spec.containers.0.env.0": "{name: ROLES, value: 'controller,intake'}",
					"spec.template.spec.volumes": "[{name: config, configMap: {name: fleetloop-node-fault-controller}}]",
				},
				"Deployment/" + rebooting: {
					"spec.replicas": "1", "spec.template.spec.serviceAccountName": rebooting, "spec.template.spec.containers.0.env.0": "{name: ROLES, value: janitor}",
					"spec.template.spec.containers.0.env.3":        "{name: NODE_FAULT_REBOOT_PROVIDER, value: webhook}",
					"spec.template.spec.containers.0.env.5":        "{name: NODE_ACTION_WEBHOOK_TOKEN_FILE, value: /etc/node-fault-controller/webhook/token}",
					"spec.template.spec.containers.0.volumeMounts": "[{name: webhook, mountPath: /etc/node-fault-controller/webhook, readOnly: true}, {name: config, mountPath: /etc/node-fault-controller/config, readOnly: true}]",
					"spec.template.spec.volumes":                   "[{name: webhook, secret: {secretName: bmc}}, {name: config, configMap: {name: fleetloop-node-fault-controller}}]",
				},
				"Service/" + rebooting:        {"spec.clusterIP": "None", "spec.ports": "[{name: metrics, port: 8099, targetPort: metrics, protocol: TCP}]"},
				"Service/" + repairing:        {"spec.ports.1": "{name: grpc, port: 8081, targetPort: grpc, protocol: TCP}"},
				"NetworkPolicy/" + rebooting:  {"spec.ingress": "[{ports: [{port: metrics}]}]"},
				"ServiceAccount/" + rebooting: {"metadata.namespace": "hyperfleet-system"},
				"ConfigMap/" + repairing:      {"data": `{node-fault-controller.yaml: "janitor:\n  webhook:\n    url: https://bmc.example.com\n"}`},
			},
		},
		"Options": {
			reason: "rules, a budget and the rest are in the file; tokens, certificates and a kubeconfig are folders",
			values: `
global: {dryRun: true, changeEvents: {enabled: true, endpoint: https://e.example.com, clusterName: prod-eu-1}}
nodeFaultController:
  enabled: true
  rules: [{name: gpu, match: fault.fatal, drain: true, remedies: [reboot]}]
  budget: {max_percent: 5}
  config: {retention: 48h}
  intake: {auth: {cluster: false, tokensSecret: monitors}, tls: {existingSecret: cert}}
  janitor: {rebootProvider: machine, terminateProvider: machine, machines: {kubeconfig: {existingSecret: mgmt}}}
`,
			want: map[string]map[string]string{
				"ConfigMap/" + repairing: {"data": `{node-fault-controller.yaml: "budget:\n  max_percent: 5\nretention: 48h\nrules:\n- drain: true\n  match: fault.fatal\n  name: gpu\n  remedies:\n  - reboot\n"}`},
				"Deployment/" + repairing: {
					"spec.template.spec.containers.0.args.2": "--config=/etc/node-fault-controller/config/node-fault-controller.yaml",
					"spec.template.spec.containers.0.env.2":  "{name: CLUSTER_NAME, value: prod-eu-1}",
					"spec.template.spec.containers.0.env.3":  "{name: DRY_RUN, value: 'true'}",
					"spec.template.spec.containers.0.env.5":  "{name: NODE_FAULT_INTAKE_AUTH_MODE, value: file}",
					"spec.template.spec.containers.0.env.6":  "{name: NODE_FAULT_INTAKE_TOKEN_FILE, value: /etc/node-fault-controller/tokens/tokens.yaml}",
					"spec.template.spec.containers.0.env.7":  "{name: TLS_CERT_FILE, value: /etc/node-fault-controller/tls/tls.crt}",
					"spec.template.spec.volumes": "[{name: tokens, secret: {secretName: monitors}}, {name: tls, secret: {secretName: cert}}, {name: machines, secret: {secretName: mgmt}}, " +
						"{name: config, configMap: {name: fleetloop-node-fault-controller}}, {name: change-events-token, secret: {secretName: change-events-token, optional: true}}]",
				},
			},
		},
		"Monitored": {
			reason: "its alerts are there where it is, and those on change events where they are sent",
			values: "{global: {changeEvents: {enabled: true, endpoint: 'https://e.example.com', clusterName: a}}, nodeFaultController: {enabled: true, janitor: {separate: true}}, monitoring: {serviceMonitor: {enabled: true}, prometheusRule: {enabled: true}}}",
			want: map[string]map[string]string{
				"ServiceMonitor/" + repairing:             {"spec.endpoints": "[{port: metrics, path: /metrics, interval: 30s}]"},
				"ServiceMonitor/" + rebooting:             {"spec.selector.matchLabels.[app.kubernetes.io/component]": "node-janitor"},
				"PrometheusRule/" + repairing:             {"spec.groups.0.rules.0.alert": "NodeFaultControllerMissing"},
				"PrometheusRule/fleetloop-change-events":  {"spec.groups.0.rules.0.alert": "ChangeEventsFailing"},
				"PrometheusRule/fleetloop-cluster-worker": nil,
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			objects := ofNodeFaults(t, test.values)
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

// TestTimeToStop: the kubelet waits for longer than the parts of the controller
// take to stop, which do so one after the other: what acts, what takes reports,
// and what sends.
func TestTimeToStop(t *testing.T) {
	row := regexp.MustCompile(`--stop-timeout .*\(default ([0-9a-z]+)\)`)
	found := row.FindSubmatch(readFile(t, root+"/docs/reference/node-fault-controller.md"))
	if found == nil {
		t.Fatal("the reference does not say how long a part may take")
	}
	stop, err := time.ParseDuration(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{repairing, rebooting} {
		for _, o := range ofNodeFaults(t, "nodeFaultController: {enabled: true, janitor: {separate: true}}") {
			if o.GetKind() != "Deployment" || o.GetName() != name {
				continue
			}
			seconds, _ := at(o, "spec.template.spec.terminationGracePeriodSeconds").(float64)
			if grace := time.Duration(seconds) * time.Second; grace < 2*stop {
				t.Errorf("%s: %s are not enough for two parts that take %s", name, grace, stop)
			}
		}
	}
}

// sending are the Deployments that tell of changes.
func sending() []string {
	return []string{"fleetloop-cluster-worker", "fleetloop-execution-controller", repairing}
}

const allSend = "clusterWorker: {enabled: true}, executionController: {enabled: true}, nodeFaultController: {enabled: true}"

// TestChangeEvents: all components that tell of changes have the settings from
// one block of values, and nothing of it where it is off.
func TestChangeEvents(t *testing.T) {
	const to = "enabled: true, endpoint: 'https://events.example.com/changes', clusterName: prod-eu-1"
	tests := map[string]struct {
		reason string
		values string // of global.changeEvents
		env    map[string]string
		mounts map[string]string // of Secrets, by their folders
		file   string            // change_events of the configuration file
	}{
		"Off": {reason: "nothing is needed, not even the Secret", values: "endpoint: 'https://events.example.com/changes', clusterName: a"},
		"On": {
			reason: "the least that can be said", values: to,
			env: map[string]string{
				"ENABLED": "true", "ENDPOINT": "https://events.example.com/changes", "CLUSTER_NAME": "prod-eu-1", "TIMEOUT": "10s", "SHUTDOWN_TIMEOUT": "10s",
				"FORMAT": "nvsentinel", "AUTH_TOKEN_FILE": "/etc/change-events/token/token",
			},
			mounts: map[string]string{"/etc/change-events/token": "change-events-token"},
		},
		"All": {
			reason: "all that there is", values: to + ", timeout: 5s, shutdownTimeout: 3s, auth: {headerName: X-Token, scheme: Token, secretRef: {name: mine, key: it}}, format: cloudevents, actions: [cordon, uncordon], includeOptionalActions: true, " +
				"allowHTTP: true, allowAddresses: [10.0.0.0/8, 'fd00::/8'], signingKeySecretRef: {name: signing, key: hmac}, config: {queue_size: 64, retry: {max_attempts: 3}}",
			env: map[string]string{
				"ENABLED": "true", "ENDPOINT": "https://events.example.com/changes", "CLUSTER_NAME": "prod-eu-1", "TIMEOUT": "5s", "SHUTDOWN_TIMEOUT": "3s",
				"FORMAT": "cloudevents", "AUTH_HEADER": "X-Token", "AUTH_SCHEME": "Token", "AUTH_TOKEN_FILE": "/etc/change-events/token/it", "ACTIONS": "cordon,uncordon",
				"INCLUDE_OPTIONAL_ACTIONS": "true", "ALLOW_HTTP": "true", "ALLOW_ADDRESSES": "10.0.0.0/8,fd00::/8", "SIGNING_KEY_FILE": "/etc/change-events/signing-key/hmac",
			},
			mounts: map[string]string{"/etc/change-events/token": "mine", "/etc/change-events/signing-key": "signing"},
			file:   "{queue_size: 64, retry: {max_attempts: 3}}",
		},
		"Vendor": {
			reason: "the format's own header, and a URL that is a secret", values: "enabled: true, clusterName: a, format: slack, endpointSecretRef: {name: slack}, auth: {secretRef: {name: ''}}",
			env: map[string]string{
				"ENABLED": "true", "ENDPOINT_FILE": "/etc/change-events/endpoint/url", "CLUSTER_NAME": "a", "TIMEOUT": "10s", "SHUTDOWN_TIMEOUT": "10s", "FORMAT": "slack",
			},
			mounts: map[string]string{"/etc/change-events/endpoint": "slack"},
		},
		"Sinks": {
			reason: "further sinks, with Secrets of their own", values: to + ", auth: {secretRef: {name: ''}}, sinks: [{name: pager, endpoint: 'https://p.example.com', format: pagerduty, secretRefs: {routingKey: {name: pd, key: k}}}, {name: chat, format: slack, secretRefs: {endpoint: {name: slack, key: url}}}]",
			env: map[string]string{
				"ENABLED": "true", "ENDPOINT": "https://events.example.com/changes", "CLUSTER_NAME": "prod-eu-1", "TIMEOUT": "10s", "SHUTDOWN_TIMEOUT": "10s", "FORMAT": "nvsentinel",
			},
			mounts: map[string]string{"/etc/change-events/sinks/pager/routing-key": "pd", "/etc/change-events/sinks/chat/endpoint": "slack"},
			file: "{sinks: [{name: pager, endpoint: 'https://p.example.com', format: pagerduty, routing_key_file: /etc/change-events/sinks/pager/routing-key/k}, " +
				"{name: chat, format: slack, endpoint_file: /etc/change-events/sinks/chat/endpoint/url}]}",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			objects := render(t, deploy.Release{Values: newValues(t, "{global: {changeEvents: {"+test.values+"}}, "+allSend+"}")})
			for _, deployment := range sending() {
				env := map[string]string{}
				for _, e := range envOf(t, objects, deployment) {
					if name, ok := strings.CutPrefix(fmt.Sprint(e["name"]), "CHANGE_EVENTS_"); ok {
						env[name] = fmt.Sprint(e["value"])
					}
				}
				want := orEmpty(test.env)
				if len(want) > 0 { // the fleet API of the release may always be a sink
					want = maps.Clone(want)
					const service = "fleetloop-fleet-api.hyperfleet-system"
					want["ALLOW_HOSTS"] = service + ":8080," + service + ".svc:8080," + service + ".svc.cluster.local:8080"
				}
				if diff := cmp.Diff(want, env); diff != "" {
					t.Errorf("%s: %s: (-want +got)\n%s", test.reason, deployment, diff)
				}
				if diff := cmp.Diff(orEmpty(test.mounts), eventMounts(t, objects, deployment)); diff != "" {
					t.Errorf("%s: %s: (-want +got)\n%s", test.reason, deployment, diff)
				}
				if diff := cmp.Diff(plain(t, []byte(test.file)), eventFile(t, objects, deployment)); diff != "" {
					t.Errorf("%s: %s: (-want +got)\n%s", test.reason, deployment, diff)
				}
			}
		})
	}
}

func orEmpty(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

func find(t *testing.T, objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	t.Helper()
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind && o.GetName() == name })
	if i < 0 {
		return nil
	}
	return objects[i]
}

// eventMounts are the Secrets of a Deployment with credentials of sinks, by the
// folders that they are in. A file of a Secret alone would never change.
func eventMounts(t *testing.T, objects []*unstructured.Unstructured, deployment string) map[string]string {
	t.Helper()
	o := find(t, objects, "Deployment", deployment)
	secrets := map[string]string{}
	volumes, _ := at(o, "spec.template.spec.volumes").([]any)
	for i := range volumes {
		name, _ := at(o, fmt.Sprintf("spec.template.spec.volumes.%d.name", i)).(string)
		secrets[name], _ = at(o, fmt.Sprintf("spec.template.spec.volumes.%d.secret.secretName", i)).(string)
	}
	found := map[string]string{}
	mounts, _ := at(o, "spec.template.spec.containers.0.volumeMounts").([]any)
	for i := range mounts {
		prefix := fmt.Sprintf("spec.template.spec.containers.0.volumeMounts.%d.", i)
		folder, _ := at(o, prefix+"mountPath").(string)
		if !strings.HasPrefix(folder, "/etc/change-events/") {
			continue
		}
		name, _ := at(o, prefix+"name").(string)
		found[folder] = secrets[name]
		if at(o, prefix+"subPath") != nil || at(o, prefix+"readOnly") != true {
			t.Errorf("%s: %s can be written, or is a file that never changes", deployment, folder)
		}
	}
	return found
}

// eventFile is change_events of the configuration file of a Deployment.
func eventFile(t *testing.T, objects []*unstructured.Unstructured, deployment string) any {
	t.Helper()
	o := find(t, objects, "ConfigMap", deployment)
	if o == nil {
		return nil
	}
	for file, text := range at(o, "data").(map[string]any) { //nolint:errcheck // it is one
		if path.Ext(file) != ".yaml" {
			t.Errorf("%s has a file %s", deployment, file)
		}
		content, _ := plain(t, []byte(fmt.Sprint(text))).(map[string]any)
		return content["change_events"]
	}
	return nil
}

// TestChangeEventsByDefault holds the block of values to what it is agreed to be.
func TestChangeEventsByDefault(t *testing.T) {
	var got map[string]any
	file, _ := plain(t, readFile(t, chartDir+"/values.yaml")).(map[string]any)
	if global, ok := file["global"].(map[string]any); ok {
		got, _ = global["changeEvents"].(map[string]any)
	}
	auth, _ := got["auth"].(map[string]any)
	want := map[string]any{
		"enabled": false, "endpoint": "", "clusterName": "", "timeout": "10s",
		"auth": map[string]any{"headerName": "Authorization", "secretRef": map[string]any{"name": "change-events-token", "key": "token"}},
	}
	for key := range got {
		if want[key] == nil {
			delete(got, key)
		}
	}
	delete(auth, "scheme")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestChangeEventsOwn: what a component's own file says of change events wins
// over what all have.
func TestChangeEventsOwn(t *testing.T) {
	values := "{global: {changeEvents: {enabled: true, endpoint: 'https://e.example.com', clusterName: a, config: {queue_size: 64, max_age: 1h}}}, clusterWorker: {enabled: true, config: {max_concurrent_syncs: 8, change_events: {queue_size: 8}}}}"
	got := eventFile(t, render(t, deploy.Release{Values: newValues(t, values)}), "fleetloop-cluster-worker")
	if diff := cmp.Diff(plain(t, []byte("{queue_size: 8, max_age: 1h}")), got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
