package deploy_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetloop/fleetloop/devstack/binaries"
	"github.com/fleetloop/fleetloop/internal/console/hosts"
	"github.com/fleetloop/fleetloop/test/deploy"
)

const consoleName = "fleetloop-console"

// TestGeneratedConsole compares the rules in the chart with those that the console's package names.
func TestGeneratedConsole(t *testing.T) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(hosts.NewConsoleClusterRole().Rules); err != nil {
		t.Fatal(err)
	}
	wantFile(t, filepath.Join(chartDir, "files/console/rules.json"), b.Bytes())
}

// consoleObjects renders the chart with values of the console and returns its objects.
func consoleObjects(t *testing.T, values string) []*unstructured.Unstructured {
	t.Helper()
	all := newValues(t, values)
	own, ok := all["console"].(map[string]any)
	if !ok {
		own = map[string]any{}
		all["console"] = own
	}
	own["enabled"] = true
	if own["publicURL"] == nil {
		own["publicURL"] = "https://fleet.example.com/"
	}
	return slices.DeleteFunc(render(t, deploy.Release{Values: all}), func(o *unstructured.Unstructured) bool {
		return o.GetLabels()["app.kubernetes.io/component"] != "console"
	})
}

// TestConsoleValues renders sets of values of the console.
func TestConsoleValues(t *testing.T) {
	tests := map[string]valuesTest{
		"Default": {
			reason: "two consoles of this cluster that share their sessions, with sign-in by token and no Ingress",
			values: "{console: {enabled: true, publicURL: 'https://fleet.example.com/'}, executionController: {namespace: acting}}",
			want: map[string]string{
				"Deployment/fleetloop-console spec.replicas":                           "2",
				"Deployment/fleetloop-console" + pod + "containers.0.image":            "fleetloop/console:dev",
				"Deployment/fleetloop-console" + pod + "containers.0.args":             "['--listen-address=:8082', '--metrics-bind-address=:9090', '--health-probe-bind-address=:8081', --config=/etc/console/config/console.yaml]",
				"Deployment/fleetloop-console" + pod + "serviceAccountName":            consoleName,
				"Deployment/fleetloop-console" + pod + "terminationGracePeriodSeconds": "60",
				"Deployment/fleetloop-console" + pod + "containers.0.env": "[{name: CONSOLE_PUBLIC_URL, value: 'https://fleet.example.com/'}, {name: CONSOLE_AUTH_MODE, value: token}, {name: FLEET_API_URL, value: 'http://fleetloop-fleet-api:8080'}, " +
					"{name: DATABASE_URL, valueFrom: {secretKeyRef: {name: fleetloop-console-database, key: url}}}, {name: CONSOLE_SESSION_KEY, valueFrom: {secretKeyRef: {name: fleetloop-console-session, key: key}}}, {name: GOMEMLIMIT, value: 460MiB}]",
				"Deployment/fleetloop-console" + pod + "volumes":            "[{name: config, configMap: {name: fleetloop-console}}]",
				"ConfigMap/fleetloop-console data":                          `{console.yaml: "hosts:\n- execution_namespace: acting\n  name: local\n"}`,
				"Service/fleetloop-console spec.ports.0":                    "{name: http, port: 8082, targetPort: http, protocol: TCP}",
				"NetworkPolicy/fleetloop-console spec.ingress":              "[{ports: [{port: http}]}, {ports: [{port: metrics}]}]",
				"PodDisruptionBudget/fleetloop-console spec.maxUnavailable": "1",
			},
			absent: []string{"Ingress/"},
		},
		"Exposed": {
			reason: "the Ingress has the host and the path of the public URL, and each host cluster its kubeconfig",
			values: `
console:
  enabled: true
  publicURL: https://fleet.example.com:8443/ops/console/
  api: {url: https://api.example.com}
  auth: {mode: oidc, oidc: {issuer: https://login.example.com, clientID: console, clientSecretRef: {name: oidc}, scopes: [openid, groups]}}
  hosts: [{name: eu, kubeconfigSecretRef: {name: eu-host, key: config}, executionNamespace: acting, assumeUsers: true, userPrefix: "oidc:", auditDatabaseSecretRef: {name: eu-audit, key: url}}]
  ingress: {enabled: true, className: nginx, tlsSecret: fleet-tls, annotations: {a: b}}
`,
			want: map[string]string{
				"Ingress/fleetloop-console spec.ingressClassName":           "nginx",
				"Ingress/fleetloop-console spec.tls":                        "[{hosts: [fleet.example.com], secretName: fleet-tls}]",
				"Ingress/fleetloop-console spec.rules":                      "[{host: fleet.example.com, http: {paths: [{path: /ops/console, pathType: Prefix, backend: {service: {name: fleetloop-console, port: {name: http}}}}]}}]",
				"Ingress/fleetloop-console metadata.annotations":            "{a: b}",
				"Deployment/fleetloop-console" + pod + "containers.0.env.7": "{name: CONSOLE_OIDC_CLIENT_SECRET, valueFrom: {secretKeyRef: {name: oidc, key: client-secret}}}",
				"Deployment/fleetloop-console" + pod + "containers.0.env.8": "{name: CONSOLE_OIDC_SCOPES, value: 'openid,groups'}",
				"Deployment/fleetloop-console" + pod + "containers.0.env.2": "{name: FLEET_API_URL, value: 'https://api.example.com'}",
				"Deployment/fleetloop-console" + pod + "volumes.0":          "{name: host-eu, secret: {secretName: eu-host}}",
				"Deployment/fleetloop-console" + pod + "volumes.1":          "{name: audit-eu, secret: {secretName: eu-audit}}",
				"ConfigMap/fleetloop-console data":                          `{console.yaml: "hosts:\n- assume_users: true\n  audit_database_url_file: /etc/console/audit/eu/url\n  execution_namespace: acting\n  kubeconfig: /etc/console/hosts/eu/config\n  name: eu\n  user_prefix: 'oidc:'\n"}`,
			},
			absent: []string{"ClusterRole/"},
		},
		"Monitored": {
			reason: "its alerts are there where it is",
			values: "{console: {enabled: true, publicURL: 'https://a'}, monitoring: {serviceMonitor: {enabled: true}, prometheusRule: {enabled: true}}}",
			want: map[string]string{
				"ServiceMonitor/fleetloop-console spec.endpoints":              "[{port: metrics, path: /metrics, interval: 30s}]",
				"PrometheusRule/fleetloop-console spec.groups.0.rules.0.alert": "ConsoleMissing",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, test.check)
	}
}

// findWrites returns the rights in rules that are more than reading and asking for reviews.
func findWrites(rules []rbacv1.PolicyRule) (found []string) {
	for _, rule := range rules {
		reviews := slices.Equal(rule.APIGroups, []string{"authorization.k8s.io"}) && slices.Equal(rule.Resources, []string{"subjectaccessreviews"})
		for _, verb := range rule.Verbs {
			if !slices.Contains([]string{"get", "list", "watch"}, verb) && (!reviews || verb != "create") {
				found = append(found, fmt.Sprintf("%s %v", verb, rule.Resources))
			}
		}
		if slices.Contains(rule.Resources, "secrets") || slices.Contains(rule.Resources, "*") || slices.Contains(rule.APIGroups, "*") {
			found = append(found, fmt.Sprintf("%v of %v", rule.Resources, rule.APIGroups))
		}
	}
	return found
}

// TestFindWrites covers that a right to write or to impersonate is found.
func TestFindWrites(t *testing.T) {
	for name, rule := range map[string]rbacv1.PolicyRule{
		"Write":       {APIGroups: []string{"fleetloop.io"}, Resources: []string{"nodefaults"}, Verbs: []string{"get", "patch"}},
		"Impersonate": {APIGroups: []string{""}, Resources: []string{"users", "groups"}, Verbs: []string{"impersonate"}},
		"Create":      {APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews", "selfsubjectaccessreviews"}, Verbs: []string{"create"}},
		"Token":       {APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{"create"}},
		"AllVerbs":    {APIGroups: []string{"fleetloop.io"}, Resources: []string{"nodefaults"}, Verbs: []string{"*"}},
		"AllKinds":    {APIGroups: []string{"fleetloop.io"}, Resources: []string{"*"}, Verbs: []string{"get"}},
		"Secrets":     {APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list"}},
	} {
		if got := findWrites(append(hosts.NewConsoleClusterRole().Rules, rule)); len(got) != 1 {
			t.Errorf("%s: found %v, want one", name, got)
		}
	}
}

// TestConsoleRights verifies that the service account of the console only reads, that its rules equal
// those of the hosts package, and that the chart grants them only if the console shows its own cluster.
func TestConsoleRights(t *testing.T) {
	tests := map[string]struct {
		reason, values string
		account        string // of the binding; none if empty
		token          bool
	}{
		"Default": {"the console shows this cluster", "{}", consoleName, true},
		"Account": {"another name", "console: {serviceAccount: {name: me}}", "me", true},
		"Remote":  {"another cluster has its own account", "console: {hosts: [{name: eu, kubeconfigSecretRef: {name: eu, key: config}}]}", "", false},
		"Both":    {"one of two is this cluster", "console: {hosts: [{name: eu, kubeconfigSecretRef: {name: eu, key: config}}, {name: us}]}", consoleName, true},
		"NoHost":  {"there is nothing to read", "console: {hosts: []}", "", false},
		"Own":     {"roles are made elsewhere", "console: {rbac: {create: false}}", "", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			roles, account := 0, ""
			for _, o := range consoleObjects(t, test.values) {
				switch o.GetKind() {
				case "Role", "RoleBinding":
					t.Errorf("%s: there is %s/%s", test.reason, o.GetKind(), o.GetName())
				case "ClusterRole":
					roles++
					var role rbacv1.ClusterRole
					if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
						t.Fatal(err)
					}
					if writes := findWrites(role.Rules); len(writes) > 0 || role.AggregationRule != nil {
						t.Errorf("the console may do more than read: %v, %v", writes, role.AggregationRule)
					}
					if diff := cmp.Diff(hosts.NewConsoleClusterRole().Rules, role.Rules); diff != "" {
						t.Errorf("package (-) and chart (+) differ:\n%s", diff)
					}
				case "ClusterRoleBinding":
					if at(o, "roleRef.name") != consoleName || at(o, "subjects.1") != nil || at(o, "subjects.0.namespace") != "hyperfleet-system" {
						t.Errorf("the binding is %v", o.Object)
					}
					account, _ = at(o, "subjects.0.name").(string)
				case "Deployment":
					if at(o, "spec.template.spec.automountServiceAccountToken") != test.token {
						t.Errorf("%s: the token is mounted: %t", test.reason, !test.token)
					}
				}
			}
			if account != test.account || (roles == 1) != (test.account != "") {
				t.Errorf("%s: %d roles for %q, want them for %q", test.reason, roles, account, test.account)
			}
		})
	}
}

// TestConsoleStarts starts the console with the arguments, the variables and the file that the chart
// renders. It checks that the program accepts them.
func TestConsoleStarts(t *testing.T) {
	folder := t.TempDir()
	program := filepath.Join(folder, "console")
	if err := binaries.Build(t.Context(), folder, "console"); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct{ values, url string }{
		"Token": {"console: {hosts: [{name: eu, kubeconfigSecretRef: {name: eu, key: config}}]}", "/"},
		"OIDC": {`
global: {changeEvents: {enabled: true, clusterName: a, endpoint: 'https://events.example.com', sinks: [{name: chat, format: slack, secretRefs: {endpoint: {name: b, key: url}}}]}}
console:
  publicURL: https://fleet.example.com:8443/ops/console/
  api: {url: https://api.example.com}
  auth: {mode: oidc, oidc: {issuer: https://login.example.com, clientID: console, clientSecretRef: {name: c}, scopes: [openid, groups], token: access_token}}
  hosts:
    - {name: eu, kubeconfigSecretRef: {name: eu, key: config}, executionNamespace: acting}
    - {name: us, kubeconfigSecretRef: {name: us, key: config}, assumeUsers: true, userPrefix: "oidc:"}
  config: {session: {idle_timeout: 30m}, log: {level: debug}}
  metrics: {tokenSecret: d}
`, "/ops/console/"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			objects := consoleObjects(t, test.values)
			find := func(kind string) *unstructured.Unstructured {
				i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind })
				if i < 0 {
					t.Fatalf("no %s found among %v", kind, names(objects))
				}
				return objects[i]
			}
			write := func(name, text string) {
				path := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			file, _ := at(find("ConfigMap"), "data.[console.yaml]").(string)
			write("config/console.yaml", strings.ReplaceAll(file, "/etc/console", dir))
			for _, host := range []string{"eu", "us"} {
				write("hosts/"+host+"/config", "{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a}}], clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}]}")
			}
			args, _ := at(find("Deployment"), "spec.template.spec.containers.0.args").([]any)
			console := exec.CommandContext(t.Context(), program)
			for _, arg := range args {
				console.Args = append(console.Args, strings.ReplaceAll(fmt.Sprint(arg), "/etc/console", dir))
			}
			// The rendered ports may be taken on this machine.
			console.Args = append(console.Args, "--listen-address=:0", "--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0")
			secrets := map[string]string{ //nolint:gosec // no credentials: nothing listens there
				"DATABASE_URL": "postgres://console:secret@127.0.0.1:1/fleet", "CONSOLE_SESSION_KEY": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
				"CONSOLE_OIDC_CLIENT_SECRET": "secret", "METRICS_TOKEN": "secret",
			}
			for _, e := range envOf(t, objects, consoleName) {
				name, value := fmt.Sprint(e["name"]), secrets[fmt.Sprint(e["name"])]
				if e["valueFrom"] == nil {
					value = fmt.Sprint(e["value"])
				}
				console.Env = append(console.Env, name+"="+value)
			}
			wantReady(t, console, test.url)
		})
	}
}

// wantReady runs a console until it logs that it is ready under a base path.
func wantReady(t *testing.T, console *exec.Cmd, path string) {
	t.Helper()
	log, err := console.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := console.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = console.Process.Kill()
		_ = console.Wait() // it was killed
	}()
	var text strings.Builder
	for lines := bufio.NewScanner(log); lines.Scan(); {
		text.WriteString(lines.Text() + "\n")
		var line struct{ Msg, URL string }
		if err := json.Unmarshal(lines.Bytes(), &line); err == nil && line.Msg == "console ready" {
			if _, after, _ := strings.Cut(line.URL, "://"); !strings.HasSuffix(after, path) || strings.Count(after, "/") != strings.Count(path, "/") {
				t.Errorf("the console is at %s, want the path %s", line.URL, path)
			}
			return
		}
	}
	t.Errorf("the console does not start:\n%s", text.String())
}
