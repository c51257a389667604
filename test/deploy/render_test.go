package deploy_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/action"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/fleetloop/fleetloop/test/deploy"
)

// newValues reads values as a user writes them.
func newValues(t *testing.T, text string) map[string]any {
	t.Helper()
	var values map[string]any
	if err := yaml.Unmarshal([]byte(text), &values); err != nil {
		t.Fatal(err)
	}
	return values
}

// at gives what stands in an object at a path such as spec.ports.0.name; a
// step that has dots itself is in brackets.
func at(o *unstructured.Unstructured, path string) any {
	var here any = o.Object
	for path != "" {
		var step string
		if strings.HasPrefix(path, "[") {
			step, path, _ = strings.Cut(path[1:], "]")
			path = strings.TrimPrefix(path, ".")
		} else {
			step, path, _ = strings.Cut(path, ".")
		}
		switch v := here.(type) {
		case map[string]any:
			here = v[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(v) {
				return nil
			}
			here = v[i]
		default:
			return nil
		}
	}
	return here
}

// names are "Kind/name" of objects.
func names(objects []*unstructured.Unstructured) []string {
	var out []string
	for _, o := range objects {
		out = append(out, o.GetKind()+"/"+o.GetName())
	}
	slices.Sort(out)
	return out
}

const pod = " spec.template.spec."

// A valuesTest is a set of values. What is wanted is at an object and a path in
// it, in YAML; an empty text wants nothing there.
type valuesTest struct {
	reason string
	values string
	want   map[string]string
	absent []string // objects, or all of a kind as "Kind/"
}

// TestValues renders sets of values.
func TestValues(t *testing.T) {
	tests := map[string]valuesTest{
		"Default": {
			reason: "the sentinel's Deployment is the specification's",
			want: map[string]string{
				"Deployment/fleetloop-sentinel-clusters spec.replicas":                                          "1",
				"Deployment/fleetloop-sentinel-clusters" + pod + "containers.0.command":                         "[/sentinel]",
				"Deployment/fleetloop-sentinel-clusters" + pod + "containers.0.args":                            "[--config=clusters, --namespace=$(POD_NAMESPACE), '--metrics-bind-address=:8080', '--health-probe-bind-address=:8081']",
				"Deployment/fleetloop-sentinel-clusters" + pod + "containers.0.ports":                           "[{name: metrics, containerPort: 8080, protocol: TCP}, {name: health, containerPort: 8081, protocol: TCP}]",
				"Deployment/fleetloop-sentinel-clusters" + pod + "containers.0.resources":                       "{requests: {cpu: 50m, memory: 64Mi}, limits: {cpu: 100m, memory: 128Mi}}",
				"Deployment/fleetloop-sentinel-clusters" + pod + "containers.0.env.2":                           "{name: GOMEMLIMIT, value: 115MiB}",
				"Deployment/fleetloop-sentinel-clusters" + pod + "serviceAccountName":                           "fleetloop-sentinel",
				"Deployment/fleetloop-sentinel-clusters" + pod + "containers.0.livenessProbe":                   "{httpGet: {path: /healthz, port: health}, initialDelaySeconds: 15, periodSeconds: 20}",
				"Deployment/fleetloop-sentinel-clusters" + pod + "containers.0.readinessProbe":                  "{httpGet: {path: /readyz, port: health}, initialDelaySeconds: 5, periodSeconds: 10}",
				"Deployment/fleetloop-sentinel-clusters metadata.labels.[sentinel.hyperfleet.io/resource-type]": "clusters",
				"SentinelConfig/clusters spec.hyperfleetAPI.url":                                                "http://fleetloop-fleet-api:8080",
				"Deployment/fleetloop-fleet-api" + pod + "containers.0.image":                                   "fleetloop/fleet-api:dev",
				"Deployment/fleetloop-fleet-api" + pod + "automountServiceAccountToken":                         "false",
			},
			absent: []string{"ServiceMonitor/", "PrometheusRule/", "ConfigMap/", "Job/", "Deployment/fleetloop-execution-controller", "ClusterRole/", "ValidatingAdmissionPolicy/", "Deployment/fleetloop-cluster-worker", "ServiceAccount/fleetloop-cluster-worker", "Service/fleetloop-cluster-worker", "Deployment/fleetloop-console", "ServiceAccount/fleetloop-console", "Service/fleetloop-console", "NetworkPolicy/fleetloop-console", "PodDisruptionBudget/fleetloop-console", "Ingress/"},
		},
		"All": {
			reason: "one Deployment runs every SentinelConfig of the namespace",
			values: "sentinel: {deploymentMode: all}",
			want: map[string]string{
				"Deployment/fleetloop-sentinel" + pod + "containers.0.args.0": "--all",
				"SentinelConfig/nodepools spec.resourceType":                  "nodepools",
			},
			absent: []string{"Deployment/fleetloop-sentinel-clusters"},
		},
		"File": {
			reason: "a file and BROKER_* variables need no Kubernetes API",
			values: "sentinel: {deploymentMode: file, files: [{name: eu, config: {resource_type: clusters, resource_selector: [{label: region, value: eu}]}}]}",
			want: map[string]string{
				"Deployment/fleetloop-sentinel-eu" + pod + "containers.0.args.0":          "--config=/etc/sentinel/config/sentinel-config.yaml",
				"Deployment/fleetloop-sentinel-eu" + pod + "automountServiceAccountToken": "false",
				"Deployment/fleetloop-sentinel-eu" + pod + "containers.0.envFrom":         "[{configMapRef: {name: fleetloop-broker-env}}, {secretRef: {name: fleetloop-broker-env}}]",
				"ConfigMap/fleetloop-broker-env data":                                     "{BROKER_TYPE: rabbitmq, BROKER_EXCHANGE: hyperfleet-events, BROKER_EXCHANGE_TYPE: fanout}",
				"ConfigMap/fleetloop-sentinel-eu data":                                    `{sentinel-config.yaml: "hyperfleet_api:\n  endpoint: http://fleetloop-fleet-api:8080\nresource_selector:\n- label: region\n  value: eu\nresource_type: clusters\n"}`,
			},
			absent: []string{"SentinelConfig/", "Role/", "RoleBinding/"},
		},
		"FileBrokerOfOthers": {
			reason: "the specification's ConfigMap serves as it is",
			values: "sentinel: {deploymentMode: file, fileBroker: {existingConfigMap: hyperfleet-sentinel-broker, existingSecret: ''}}",
			want: map[string]string{
				"Deployment/fleetloop-sentinel-clusters" + pod + "containers.0.envFrom": "[{configMapRef: {name: hyperfleet-sentinel-broker}}]",
			},
			absent: []string{"ConfigMap/fleetloop-broker-env"},
		},
		"Auto": {
			reason: "replicas that divide a fleet see each other's leases",
			values: "sentinel: {configs: [{name: eu, replicas: 3, spec: {resourceType: clusters, sharding: {mode: auto}}}]}",
			want: map[string]string{
				"Deployment/fleetloop-sentinel-eu spec.replicas":                     "3",
				"Deployment/fleetloop-sentinel-eu" + pod + "containers.0.env.1.name": "POD_NAME",
				"PodDisruptionBudget/fleetloop-sentinel-eu spec.maxUnavailable":      "1",
				"Role/fleetloop-sentinel-sharding rules.0.resources":                 "[leases]",
			},
		},
		"Overlay": {
			reason: "a config is laid over the defaults, and its Deployment over the component's",
			values: `
sentinel:
  defaults: {hyperfleetAPI: {url: https://fleet.example.com}, pollInterval: 10s, broker: {type: gcp-pubsub, projectID: p, credentialsSecretRef: {name: gcp}}}
  gcpCredentialsSecret: gcp-pubsub-credentials
  configs:
    - name: us-east
      resources: {limits: {memory: 1Gi}}
      nodeSelector: {region: us-east}
      extraEnv: [{name: LOG_LEVEL, value: debug}]
      spec: {resourceType: clusters, backoffReady: 1h, shardSelector: {matchLabels: {region: us-east}}, broker: {topic: t}}
`,
			want: map[string]string{
				"SentinelConfig/us-east spec": "{resourceType: clusters, backoffReady: 1h, pollInterval: 10s, shardSelector: {matchLabels: {region: us-east}}, " +
					"hyperfleetAPI: {url: 'https://fleet.example.com', tokenSecretRef: {name: fleetloop-sentinel-token}}, broker: {type: gcp-pubsub, topic: t, projectID: p, credentialsSecretRef: {name: gcp}}}",
				"Role/fleetloop-sentinel-secrets rules.0.resourceNames":                     "[fleetloop-sentinel-token, gcp]",
				"Deployment/fleetloop-sentinel-us-east" + pod + "nodeSelector":              "{region: us-east}",
				"Deployment/fleetloop-sentinel-us-east" + pod + "containers.0.env.2":        "{name: GOOGLE_APPLICATION_CREDENTIALS, value: /var/secrets/google/key.json}",
				"Deployment/fleetloop-sentinel-us-east" + pod + "containers.0.env.3":        "{name: GOMEMLIMIT, value: 921MiB}",
				"Deployment/fleetloop-sentinel-us-east" + pod + "containers.0.env.4":        "{name: LOG_LEVEL, value: debug}",
				"Deployment/fleetloop-sentinel-us-east" + pod + "volumes":                   "[{name: gcp-credentials, secret: {secretName: gcp-pubsub-credentials}}]",
				"Deployment/fleetloop-sentinel-us-east" + pod + "containers.0.volumeMounts": "[{name: gcp-credentials, mountPath: /var/secrets/google, readOnly: true}]",
			},
		},
		"APIOnly": {
			reason: "each component can be off",
			values: "sentinel: {enabled: false}",
			want:   map[string]string{"Service/fleetloop-fleet-api spec.type": "ClusterIP"},
			absent: []string{"Deployment/fleetloop-sentinel-clusters", "SentinelConfig/", "Role/", "RoleBinding/", "ServiceAccount/fleetloop-sentinel", "Service/fleetloop-sentinel", "NetworkPolicy/fleetloop-sentinel"},
		},
		"SentinelOnly": {
			reason: "each component can be off",
			values: "{fleetApi: {enabled: false}, sentinel: {defaults: {hyperfleetAPI: {url: 'http://elsewhere'}}}}",
			want:   map[string]string{"SentinelConfig/clusters spec.hyperfleetAPI.url": "http://elsewhere"},
			absent: []string{"Deployment/fleetloop-fleet-api", "Service/fleetloop-fleet-api", "ServiceAccount/fleetloop-fleet-api", "NetworkPolicy/fleetloop-fleet-api", "PodDisruptionBudget/fleetloop-fleet-api"},
		},
		"MigrateByJob": {
			reason: "the server then never has the owner's password, and waits",
			values: "fleetApi: {database: {migrate: job, migrationKey: owner}, config: {database: {role: reader}}}",
			want: map[string]string{
				"Deployment/fleetloop-fleet-api" + pod + "containers.0.args.5":        "--migrate=false",
				"Deployment/fleetloop-fleet-api" + pod + "containers.0.env":           "[{name: DATABASE_URL, valueFrom: {secretKeyRef: {name: fleetloop-database, key: url}}}, {name: GOMEMLIMIT, value: 460MiB}]",
				"Job/fleetloop-fleet-api-migrate" + pod + "containers.0.args":         "[migrate, --database-role=reader]",
				"Job/fleetloop-fleet-api-migrate" + pod + "containers.0.env.1":        "{name: DATABASE_MIGRATION_URL, valueFrom: {secretKeyRef: {name: fleetloop-database, key: owner}}}",
				"Job/fleetloop-fleet-api-migrate" + pod + "serviceAccountName":        "default",
				"Job/fleetloop-fleet-api-migrate metadata.annotations.[helm.sh/hook]": "pre-install,pre-upgrade",
			},
		},
		"ReadFromStandby": {
			reason: "only the servers read",
			values: "fleetApi: {database: {migrate: job, readKey: standby}}",
			want: map[string]string{
				"Deployment/fleetloop-fleet-api" + pod + "containers.0.env.1": "{name: DATABASE_READ_URL, valueFrom: {secretKeyRef: {name: fleetloop-database, key: standby}}}",
				"Job/fleetloop-fleet-api-migrate" + pod + "containers.0.env":  "[{name: DATABASE_URL, valueFrom: {secretKeyRef: {name: fleetloop-database, key: url}}}]",
			},
		},
		"APIOptions": {
			reason: "TLS, a configuration file, and no fixed tokens where an issuer has them",
			values: `
fleetApi:
  replicas: 3
  service: {name: hyperfleet-api, port: 80}
  tls: {existingSecret: api-tls}
  auth: {tokensSecret: ""}
  metrics: {tokenSecret: scrape}
  config: {auth: {issuers: [{issuer: https://login.example.com, audience: fleet-api}]}}
`,
			want: map[string]string{
				"SentinelConfig/clusters spec.hyperfleetAPI.url": "https://hyperfleet-api:80",
				"Service/hyperfleet-api spec.ports.0":            "{name: http, port: 80, targetPort: http, protocol: TCP}",
				"ConfigMap/fleetloop-fleet-api data":             `{fleet-api.yaml: "auth:\n  issuers:\n  - audience: fleet-api\n    issuer: https://login.example.com\n"}`,
				"Deployment/fleetloop-fleet-api" + pod + "containers.0.args": "['--listen-address=:8080', '--metrics-bind-address=:9090', '--health-probe-bind-address=:8081', --auth-mode=bearer, " +
					"--tls-cert-file=/etc/fleet-api/tls/tls.crt, --tls-key-file=/etc/fleet-api/tls/tls.key, --migrate=true, --config=/etc/fleet-api/config/fleet-api.yaml]",
				"Deployment/fleetloop-fleet-api" + pod + "volumes":            "[{name: tls, secret: {secretName: api-tls}}, {name: config, configMap: {name: fleetloop-fleet-api}}]",
				"Deployment/fleetloop-fleet-api" + pod + "containers.0.env.2": "{name: METRICS_TOKEN, valueFrom: {secretKeyRef: {name: scrape, key: token}}}",
			},
		},
		"Usual": {
			reason: "what users of charts expect to be able to set",
			values: `
fullnameOverride: fl
commonLabels: {team: fleet}
commonAnnotations: {owner: fleet@example.com}
global: {imageRegistry: registry.example.com/mirror/, imagePullSecrets: [{name: pull}], dryRun: true, ofAnother: chart}
fleetApi:
  image: {digest: "sha256:0000000000000000000000000000000000000000000000000000000000000000"}
  podLabels: {a: b}
  podAnnotations: {c: d}
  tolerations: [{key: k, operator: Exists}]
  affinity: {nodeAffinity: {}}
  topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
  priorityClassName: high
  extraEnv: [{name: LOG_LEVEL, value: debug}]
  extraEnvFrom: [{secretRef: {name: more}}]
  networkPolicy: {from: [{podSelector: {}}], egress: []}
`,
			want: map[string]string{
				"Deployment/fl-fleet-api" + pod + "containers.0.image":               "registry.example.com/mirror/fleetloop/fleet-api@sha256:0000000000000000000000000000000000000000000000000000000000000000",
				"Deployment/fl-fleet-api" + pod + "imagePullSecrets":                 "[{name: pull}]",
				"Deployment/fl-fleet-api metadata.annotations.owner":                 "fleet@example.com",
				"Deployment/fl-fleet-api spec.template.metadata.labels.a":            "b",
				"Deployment/fl-fleet-api spec.template.metadata.labels.team":         "fleet",
				"Deployment/fl-fleet-api spec.selector.matchLabels.team":             "",
				"Deployment/fl-fleet-api spec.template.metadata.annotations":         "{c: d}",
				"Deployment/fl-fleet-api" + pod + "tolerations":                      "[{key: k, operator: Exists}]",
				"Deployment/fl-fleet-api" + pod + "affinity":                         "{nodeAffinity: {}}",
				"Deployment/fl-fleet-api" + pod + "topologySpreadConstraints":        "[{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app.kubernetes.io/name: fleetloop, app.kubernetes.io/instance: fleetloop, app.kubernetes.io/component: fleet-api}}}]",
				"Deployment/fl-fleet-api" + pod + "priorityClassName":                "high",
				"Deployment/fl-fleet-api" + pod + "containers.0.env.2":               "{name: LOG_LEVEL, value: debug}",
				"Deployment/fl-fleet-api" + pod + "containers.0.envFrom":             "[{secretRef: {name: more}}]",
				"NetworkPolicy/fl-fleet-api spec.policyTypes":                        "[Ingress, Egress]",
				"NetworkPolicy/fl-fleet-api spec.ingress.0":                          "{ports: [{port: http}], from: [{podSelector: {}}]}",
				"SentinelConfig/clusters spec.hyperfleetAPI.url":                     "http://fl-fleet-api:8080",
				"Deployment/fl-sentinel-clusters spec.template.metadata.labels.team": "fleet",
			},
		},
		"Worker": {
			reason: "two workers that sync to a garden, by a login, a kubeconfig and a token of their own",
			values: "clusterWorker: {enabled: true, gardener: {namespace: garden-fleet, providerType: metal, cloudProfile: metal, credentialsBinding: hetzner, region: fra, kubernetesVersion: '1.34', machineType: c1, maxShootNameLength: 15}}",
			want: map[string]string{
				"Deployment/fleetloop-cluster-worker spec.replicas":                           "2",
				"Deployment/fleetloop-cluster-worker" + pod + "containers.0.image":            "fleetloop/cluster-worker:dev",
				"Deployment/fleetloop-cluster-worker" + pod + "containers.0.args":             "['--metrics-bind-address=:8097', '--health-probe-bind-address=:8097']",
				"Deployment/fleetloop-cluster-worker" + pod + "containers.0.ports":            "[{name: metrics, containerPort: 8097, protocol: TCP}]",
				"Deployment/fleetloop-cluster-worker" + pod + "containers.0.livenessProbe":    "{httpGet: {path: /healthz, port: metrics}, initialDelaySeconds: 15, periodSeconds: 20}",
				"Deployment/fleetloop-cluster-worker" + pod + "containers.0.readinessProbe":   "{httpGet: {path: /readyz, port: metrics}, initialDelaySeconds: 5, periodSeconds: 10}",
				"Deployment/fleetloop-cluster-worker" + pod + "automountServiceAccountToken":  "false",
				"Deployment/fleetloop-cluster-worker" + pod + "terminationGracePeriodSeconds": "45",
				"Deployment/fleetloop-cluster-worker" + pod + "volumes":                       "[{name: garden, secret: {secretName: fleetloop-garden}}, {name: api-token, secret: {secretName: fleetloop-cluster-worker-token}}]",
				"Deployment/fleetloop-cluster-worker" + pod + "containers.0.volumeMounts":     "[{name: garden, mountPath: /etc/cluster-worker/garden, readOnly: true}, {name: api-token, mountPath: /etc/cluster-worker/api-token, readOnly: true}]",
				"Deployment/fleetloop-cluster-worker" + pod + "containers.0.env": "[{name: DATABASE_URL, valueFrom: {secretKeyRef: {name: fleetloop-cluster-worker-database, key: url}}}, {name: CLUSTER_WORKER_LISTEN, value: 'on'}, " +
					"{name: GARDENER_MODE, value: real}, {name: GARDENER_KUBECONFIG, value: /etc/cluster-worker/garden/kubeconfig}, {name: GARDENER_CLOUD_PROFILE, value: metal}, " +
					"{name: GARDENER_CREDENTIALS_BINDING_NAME, value: hetzner}, {name: GARDENER_KUBERNETES_VERSION, value: '1.34'}, {name: GARDENER_MACHINE_TYPE, value: c1}, " +
					"{name: GARDENER_MAX_SHOOT_NAME_LEN, value: '15'}, {name: GARDENER_NAMESPACE, value: garden-fleet}, {name: GARDENER_PROVIDER_TYPE, value: metal}, {name: GARDENER_REGION, value: fra}, " +
					"{name: HYPERFLEET_API_ENDPOINT, value: 'http://fleetloop-fleet-api:8080'}, {name: HYPERFLEET_API_TOKEN_FILE, value: /etc/cluster-worker/api-token/token}, {name: GOMEMLIMIT, value: 460MiB}]",
				"PodDisruptionBudget/fleetloop-cluster-worker spec.maxUnavailable": "1",
				"NetworkPolicy/fleetloop-cluster-worker spec.ingress":              "[{ports: [{port: metrics}]}]",
				"Service/fleetloop-cluster-worker spec.ports":                      "[{name: metrics, port: 8097, targetPort: metrics, protocol: TCP}]",
			},
			absent: []string{"ConfigMap/", "Role/fleetloop-cluster-worker", "ClusterRole/"},
		},
		"WorkerMocks": {
			reason: "a Gardener in memory needs no kubeconfig, and an API without authentication no token",
			values: "clusterWorker: {enabled: true, mode: mock, replicas: 1, listen: false, kubeconfig: {existingSecret: ''}, api: {url: 'http://elsewhere', tokenSecret: ''}, config: {max_concurrent_syncs: 8}}",
			want: map[string]string{
				"Deployment/fleetloop-cluster-worker" + pod + "volumes":             "[{name: config, configMap: {name: fleetloop-cluster-worker}}]",
				"Deployment/fleetloop-cluster-worker" + pod + "containers.0.args.2": "--config=/etc/cluster-worker/config/cluster-worker.yaml",
				"Deployment/fleetloop-cluster-worker" + pod + "containers.0.env":    "[{name: DATABASE_URL, valueFrom: {secretKeyRef: {name: fleetloop-cluster-worker-database, key: url}}}, {name: CLUSTER_WORKER_LISTEN, value: 'off'}, {name: GARDENER_MODE, value: mock}, {name: HYPERFLEET_API_ENDPOINT, value: 'http://elsewhere'}, {name: GOMEMLIMIT, value: 460MiB}]",
				"ConfigMap/fleetloop-cluster-worker data":                           `{cluster-worker.yaml: "max_concurrent_syncs: 8\n"}`,
			},
		},
		"WorkerMonitored": {
			reason: "its alerts are there where it is",
			values: "{clusterWorker: {enabled: true}, monitoring: {serviceMonitor: {enabled: true}, prometheusRule: {enabled: true}}}",
			want: map[string]string{
				"ServiceMonitor/fleetloop-cluster-worker spec.endpoints":                                "[{port: metrics, path: /metrics, interval: 30s}]",
				"PrometheusRule/fleetloop-cluster-worker spec.groups.0.name":                            "cluster-worker",
				"PrometheusRule/fleetloop-cluster-worker spec.groups.0.rules.0.annotations.runbook_url": "https://github.com/fleetloop/fleetloop/blob/main/docs/runbooks/ClusterWorkerMissing.md",
				"PrometheusRule/fleetloop spec.groups.0.name":                                           "sentinel",
			},
		},
		"Monitored": {
			reason: "where Prometheus's operator is said to be there, it is used",
			values: "monitoring: {serviceMonitor: {enabled: true, labels: {release: prom}}, prometheusRule: {enabled: true, runbookBase: https://example.com/}}",
			want: map[string]string{
				"ServiceMonitor/fleetloop-sentinel metadata.labels.release":              "prom",
				"ServiceMonitor/fleetloop-sentinel spec.endpoints":                       "[{port: metrics, path: /metrics, interval: 30s}]",
				"PrometheusRule/fleetloop spec.groups.0.rules.0.annotations.runbook_url": "https://example.com/docs/runbooks/SentinelMissing.md",
			},
			absent: []string{"PrometheusRule/fleetloop-cluster-worker", "ServiceMonitor/fleetloop-cluster-worker", "PrometheusRule/fleetloop-console"},
		},
	}
	for name, test := range tests {
		t.Run(name, test.check)
	}
}

// check renders the values and compares what is there.
func (test valuesTest) check(t *testing.T) {
	objects := render(t, deploy.Release{Values: newValues(t, test.values)})
	got, want := map[string]any{}, map[string]any{}
	for place, text := range test.want {
		name, path, _ := strings.Cut(place, " ")
		var v any
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			t.Fatalf("%s: %v", place, err)
		}
		want[place] = v
		i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind()+"/"+o.GetName() == name })
		if i < 0 {
			t.Fatalf("no %s among %v", name, names(objects))
		}
		raw, err := yaml.Marshal(at(objects[i], path))
		if err != nil {
			t.Fatal(err)
		}
		var same any // with the numbers of YAML
		if err := yaml.Unmarshal(raw, &same); err != nil {
			t.Fatal(err)
		}
		got[place] = same
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: (-want +got)\n%s", test.reason, diff)
	}
	for _, name := range names(objects) {
		for _, absent := range test.absent {
			if name == absent || strings.HasSuffix(absent, "/") && strings.HasPrefix(name, absent) {
				t.Errorf("%s: there is %s", test.reason, name)
			}
		}
	}
}

// TestLint holds that Helm finds nothing to say but that there is no icon.
func TestLint(t *testing.T) {
	lint := action.NewLint()
	lint.Strict = true
	result := lint.Run([]string{chartDir}, map[string]any{})
	for _, m := range result.Messages {
		if !strings.Contains(m.Err.Error(), "icon is recommended") {
			t.Errorf("%s: %v", m.Path, m.Err)
		}
	}
	if err := errors.Join(result.Errors...); err != nil {
		t.Error(err)
	}
	if result.TotalChartsLinted != 1 {
		t.Errorf("%d charts were linted", result.TotalChartsLinted)
	}
	if _, err := os.Stat(chartDir + "/templates/NOTES.txt"); err != nil {
		t.Error(err)
	}
}

// TestSpecificationFiles holds that the specification's configuration files
// are values as they stand.
func TestSpecificationFiles(t *testing.T) {
	paths, err := filepath.Glob("../specification/service/sentinel-*config.yaml")
	if err != nil || len(paths) != 4 {
		t.Fatalf("%v, %v", paths, err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			config := newValues(t, string(readFile(t, path)))
			objects := render(t, deploy.Release{Values: map[string]any{"sentinel": map[string]any{
				"deploymentMode": "file", "files": []any{map[string]any{"name": "a", "config": config}},
			}}})
			i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool {
				return o.GetKind() == "ConfigMap" && o.GetName() == "fleetloop-sentinel-a"
			})
			text, _ := at(objects[i], "data.[sentinel-config.yaml]").(string)
			if diff := cmp.Diff(config, newValues(t, text)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
