package deploy_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleetloop/fleetloop/test/deploy"
)

// TestRefuses holds that a value which would do nothing, or harm, is refused
// by its name.
func TestRefuses(t *testing.T) {
	tests := map[string]struct {
		reason string
		values string
		want   []string
	}{
		"UnknownComponent":   {"a misspelt name", "fleetAPI: {enabled: false}", []string{"additional properties 'fleetAPI' not allowed"}},
		"UnknownKey":         {"with its place", "fleetApi: {replcias: 3}", []string{"/fleetApi", "'replcias'"}},
		"DryRunMisspelt":     {"nobody must act because of a capital letter", "global: {dryrun: true}", []string{"global.dryrun", "use global.dryRun"}},
		"DryRunText":         {"\"false\" would be true", "global: {dryRun: 'false'}", []string{"/global/dryRun", "want boolean"}},
		"APIConfig":          {"the file is checked before the pod is", "fleetApi: {config: {database: {max_con: 5}}}", []string{"/fleetApi/config/database", "'max_con'"}},
		"SentinelFile":       {"likewise", "sentinel: {files: [{name: a, config: {resource_typ: clusters}}]}", []string{"/sentinel/files/0/config", "'resource_typ'"}},
		"Spec":               {"likewise", "sentinel: {configs: [{name: a, spec: {resourceType: clusters, backoff: 1s}}]}", []string{"/sentinel/configs/0/spec", "'backoff'"}},
		"SpecEnum":           {"likewise", "sentinel: {configs: [{name: a, spec: {resourceType: cluster}}]}", []string{"/sentinel/configs/0/spec/resourceType", "clusters"}},
		"Form":               {"says which there are", "sentinel: {deploymentMode: single}", []string{"/sentinel/deploymentMode", "perConfig", "all", "file"}},
		"Replicas":           {"each would publish everything", "sentinel: {configs: [{name: eu, replicas: 2, spec: {resourceType: clusters}}]}", []string{`"eu" has 2 replicas`, "sharding.mode to auto"}},
		"ReplicasOfAll":      {"likewise", "sentinel: {deploymentMode: all, replicas: 2}", []string{"sentinel.replicas is 2", "sharding.mode to auto"}},
		"NoAPI":              {"says what to set", "fleetApi: {enabled: false}", []string{"sentinel.defaults.hyperfleetAPI.url"}},
		"NoAPIFile":          {"says what to set", "{fleetApi: {enabled: false}, sentinel: {deploymentMode: file}}", []string{"hyperfleet_api.endpoint"}},
		"NoDatabase":         {"a fleet API without a database never serves", "fleetApi: {database: {existingSecret: ''}}", []string{"/fleetApi/database/existingSecret"}},
		"WorkerNoDatabase":   {"it would have nothing to sync", "clusterWorker: {enabled: true, database: {existingSecret: ''}}", []string{"clusterWorker.database.existingSecret is empty"}},
		"WorkerNoKubeconfig": {"it would have nowhere to sync to", "clusterWorker: {enabled: true, kubeconfig: {existingSecret: ''}}", []string{"clusterWorker.kubeconfig.existingSecret is empty", "mode=mock"}},
		"WorkerMocks":        {"each would make Shoots of its own", "clusterWorker: {enabled: true, mode: mock}", []string{"clusterWorker.replicas is 2", "set replicas to 1"}},
		"WorkerMode":         {"says which there are", "clusterWorker: {mode: dry}", []string{"/clusterWorker/mode", "real", "mock"}},
		"WorkerNoAPI":        {"says what to set", "{fleetApi: {enabled: false}, sentinel: {enabled: false}, clusterWorker: {enabled: true}}", []string{"clusterWorker.api.url"}},
		"WorkerConfig":       {"the file is checked before the pod is", "clusterWorker: {config: {gardener: {qsp: 5}}}", []string{"/clusterWorker/config/gardener", "'qsp'"}},
		"WorkerDryRun":       {"it would act", "{global: {dryRun: true}, clusterWorker: {enabled: true}}", []string{"global.dryRun=true", "clusterWorker.mode=mock"}},
		"WorkerNotRequired": {
			"clusters would go before their Shoots",
			"{clusterWorker: {enabled: true}, fleetApi: {extraEnv: [{name: FLEET_API_REQUIRED_ADAPTERS_CLUSTERS, value: 'validation, dns'}]}}",
			[]string{`"validation, dns"`, "add gardener to it", "clusterWorker.requireGardenerAdapter=false"},
		},
		"ExecutionNoRunner":    {"every Job needs it", `executionController: {runner: {image: {repository: ''}}}`, []string{`/executionController/runner/image/repository`, `minLength`}},
		"ExecutionDigest":      {"a digest that is none", `executionController: {runner: {image: {digest: abc}}}`, []string{`/executionController/runner/image/digest`, `sha256`}},
		"ExecutionNoDatabase":  {"says what to set", `executionController: {enabled: true, database: {existingSecret: ''}}`, []string{`executionController.database.existingSecret is empty`, `audit.mode=off`}},
		"ExecutionNamespace":   {"names of objects begin with it", `executionController: {namespace: Kubernaut}`, []string{`/executionController/namespace`}},
		"ExecutionMode":        {"says which there are", `executionController: {policies: {mode: off}}`, []string{`/executionController/policies/mode`, `enforce`}},
		"ExecutionConfig":      {"the file is checked before the pod is", `executionController: {config: {limits: {max_concurent: 3}}}`, []string{`/executionController/config/limits`, `'max_concurent'`}},
		"ExecutionToleration":  {"as the file is", `executionController: {runner: {tolerations: [{key: a, operator: Exist}]}}`, []string{`/executionController/runner/tolerations/0/operator`, `Exists`}},
		"ExecutionResources":   {"likewise", `executionController: {runner: {actionResources: {drain_node: {memory: 1Gi}}}}`, []string{`/executionController/runner/actionResources/drain_node`, `'memory'`}},
		"ExecutionGuardConfig": {"the guard and the controller would not agree", `executionController: {enabled: true, config: {admission_policies: {policy_admins: a}}}`, []string{`executionController.config.admission_policies is not supported`, `set executionController.admissionPolicies`}},
		"ExecutionElect":       {"two that both act", `executionController: {enabled: true, config: {leader_elect: false}}`, []string{`executionController.replicas is 2`, `set replicas to 1`}},
		"ExecutionDryRun":      {"one of them would win", `{global: {dryRun: true}, executionController: {enabled: true, extraEnv: [{name: DRY_RUN, value: "false"}]}}`, []string{`DRY_RUN`, `global.dryRun is true`}},
		"ExecutionTargets":     {"nothing may act there", `executionController: {enabled: true, targetNamespaces: [kube-system]}`, []string{`"kube-system"`, `protected namespace`}},
		"ExecutionOwnTargets":  {"likewise", `executionController: {enabled: true, namespace: acting, targetNamespaces: [{name: acting, actions: [restart_pod]}]}`, []string{`"acting"`, `protected namespace`}},
		"ExecutionAction":      {"a misspelt action would be none", `executionController: {enabled: true, targetNamespaces: [{name: shop, actions: [restart_pods]}]}`, []string{`"restart_pods"`, `restart_pod, `}},
		"ExecutionTrusted":     {"it would end the expression that it stands in", `executionController: {admissionPolicies: {trustedRequesters: ['a" in ["']}}`, []string{`/executionController/admissionPolicies/trustedRequesters`}},
		"ExecutionFile":        {"the policies are Rego", `executionController: {policies: {files: {a.yaml: b}}}`, []string{`/executionController/policies/files`}},
		"EventsNoEndpoint":     {"there is nowhere to go", "global: {changeEvents: {enabled: true, clusterName: a}}", []string{"global.changeEvents.endpoint is empty", "endpointSecretRef.name"}},
		"EventsNoCluster":      {"nobody would know whose they are", "global: {changeEvents: {enabled: true, endpoint: 'https://e.example.com'}}", []string{"global.changeEvents.clusterName is empty", "set the name of this cluster"}},
		"EventsDots":           {"it would be another path", "global: {changeEvents: {enabled: true, endpoint: 'https://e.example.com', clusterName: '..'}}", []string{`global.changeEvents.clusterName is ".."`, "not a valid path segment"}},
		"EventsScheme":         {"nothing could be sent there", "global: {changeEvents: {enabled: true, clusterName: a, endpoint: 'ftp://e.example.com'}}", []string{"global.changeEvents.endpoint is not a valid URL", "https://"}},
		"EventsNoScheme":       {"likewise", "global: {changeEvents: {enabled: true, clusterName: a, endpoint: e.example.com/changes}}", []string{"global.changeEvents.endpoint is not a valid URL", "https://"}},
		"EventsPlain":          {"the token could be read on its way", "global: {changeEvents: {enabled: true, clusterName: a, endpoint: 'http://e.example.com'}}", []string{"plain http", "global.changeEvents.allowHTTP=true"}},
		"EventsPassword":       {"a credential belongs in a Secret", "global: {changeEvents: {enabled: true, clusterName: a, endpoint: 'https://a:b@e.example.com'}}", []string{"global.changeEvents.endpoint must not contain a user or password", "Secret"}},
		"EventsPrivate":        {"the component would refuse it", "global: {changeEvents: {enabled: true, clusterName: a, endpoint: 'https://10.1.2.3:8443/changes'}}", []string{"address 10.1.2.3", "add it to global.changeEvents.allowAddresses"}},
		"EventsMetadata":       {"likewise", "global: {changeEvents: {enabled: true, clusterName: a, allowHTTP: true, endpoint: 'http://169.254.169.254'}}", []string{"address 169.254.169.254", "allowAddresses"}},
		"EventsPrivateSix":     {"likewise", "global: {changeEvents: {enabled: true, clusterName: a, endpoint: 'https://[fd00::1]/changes'}}", []string{"address [fd00::1]", "allowAddresses"}},
		"EventsKeyless":        {"PagerDuty wants one", "global: {changeEvents: {enabled: true, clusterName: a, format: pagerduty, endpoint: 'https://e.example.com', auth: {secretRef: {name: ''}}}}", []string{"no routing key", "auth.secretRef.name"}},
		"EventsSinkScheme":     {"in the list as well", "global: {changeEvents: {enabled: true, clusterName: a, sinks: [{name: chat, endpoint: 'slack://x'}]}}", []string{`the endpoint of the sink "chat"`, "https://"}},
		"EventsSinkPlain":      {"in the list as well", "global: {changeEvents: {enabled: true, clusterName: a, sinks: [{name: chat, endpoint: 'http://e.example.com'}]}}", []string{`the endpoint of the sink "chat"`, "its allow_http=true"}},
		"EventsSinkNowhere":    {"there is nowhere to go", "global: {changeEvents: {enabled: true, clusterName: a, sinks: [{name: chat}]}}", []string{`the sink "chat"`, "has no endpoint", "secretRefs.endpoint"}},
		"EventsSinkTwice":      {"one of them would be left out", "global: {changeEvents: {enabled: true, clusterName: a, sinks: [{name: chat, endpoint: 'https://e.example.com', secretRefs: {endpoint: {name: a, key: b}}}]}}", []string{`the sink "chat"`, "more than one"}},
		"EventsSinkKeyless":    {"PagerDuty wants one", "global: {changeEvents: {enabled: true, clusterName: a, sinks: [{name: pager, format: pagerduty, endpoint: 'https://e.example.com'}]}}", []string{`the sink "pager"`, "secretRefs.routingKey"}},
		"EventsKey":            {"a misspelt name", "global: {changeEvents: {enable: true}}", []string{"/global/changeEvents", "'enable'"}},
		"EventsFormat":         {"says which there are", "global: {changeEvents: {format: xml}}", []string{"/global/changeEvents/format", "cloudevents"}},
		"EventsTimeout":        {"a number without a unit", "global: {changeEvents: {timeout: '10'}}", []string{"/global/changeEvents/timeout"}},
		"EventsToken":          {"a token belongs in a Secret", "global: {changeEvents: {sinks: [{name: a, endpoint: 'https://e.example.com', auth_token: x}]}}", []string{"/global/changeEvents/sinks/0", "'auth_token'"}},
		"EventsTwice":          {"they could not be told apart", "{global: {changeEvents: {enabled: true, clusterName: a, endpoint: 'https://e.example.com', sinks: [{name: default, endpoint: 'https://e.example.com'}]}}}", []string{`two sinks`, `"default"`}},
		"EventsTwoEndpoints":   {"one of them would be left out", "{global: {changeEvents: {enabled: true, clusterName: a, endpoint: 'https://e.example.com', endpointSecretRef: {name: b}}}}", []string{"are both set"}},
		"FaultsConfig":         {"the file is checked before the pod is", "nodeFaultController: {budget: {max_precent: 5}}", []string{"/nodeFaultController/budget", "'max_precent'"}},
		"FaultsRule":           {"likewise", "nodeFaultController: {rules: [{name: a, match: 'true', remedies: [reset]}]}", []string{"/nodeFaultController/rules/0/remedies", "reboot"}},
		"FaultsTwice":          {"one of them would be left out", "nodeFaultController: {enabled: true, config: {budget: {max_percent: 5}}}", []string{"config.budget is not supported", "set nodeFaultController.budget"}},
		"FaultsRoles":          {"the rights have to agree", "nodeFaultController: {enabled: true, config: {roles: [controller]}}", []string{"config.roles is not supported"}},
		"FaultsElect":          {"two that both act", "nodeFaultController: {enabled: true, config: {leader_elect: false}}", []string{"nodeFaultController.replicas is 2", "set replicas to 1"}},
		"FaultsNobody":         {"says what to set", "nodeFaultController: {enabled: true, intake: {auth: {cluster: false}}}", []string{"accepts no credentials", "intake.auth.tokensSecret"}},
		"FaultsJob":            {"it would have nothing to run", "nodeFaultController: {enabled: true, janitor: {rebootProvider: job}}", []string{"janitor.config.job.image"}},
		"FaultsWebhook":        {"it would have nobody to ask", "nodeFaultController: {enabled: true, janitor: {terminateProvider: webhook}}", []string{"janitor.terminateProvider is webhook", "janitor.config.webhook.url"}},
		"FaultsExecution":      {"it would have nothing to ask for", "nodeFaultController: {enabled: true, janitor: {rebootProvider: execution}}", []string{"janitor.config.execution.reboot.action"}},
		"FaultsProvider":       {"says which there are", "nodeFaultController: {janitor: {terminateProvider: job}}", []string{"/nodeFaultController/janitor/terminateProvider", "webhook"}},
		"FaultsDryRun":         {"one of them would win", `{global: {dryRun: true}, nodeFaultController: {enabled: true, extraEnv: [{name: DRY_RUN, value: "false"}]}}`, []string{"DRY_RUN", "global.dryRun is true"}},
		"ConsoleNoURL":         {"browsers need one", "console: {enabled: true}", []string{"console.publicURL is empty", "https://"}},
		"ConsolePlain":         {"people would sign in without TLS", "console: {publicURL: 'http://fleet.example.com'}", []string{"/console/publicURL"}},
		"ConsoleNoIssuer":      {"says what to set", "console: {enabled: true, publicURL: 'https://a', auth: {mode: oidc}}", []string{"console.auth.oidc.issuer", "console.auth.oidc.clientID"}},
		"ConsoleMode":          {"it would let in everyone", "console: {auth: {mode: none}}", []string{"/console/auth/mode", "token"}},
		"ConsoleNoAPI":         {"says what to set", "{fleetApi: {enabled: false}, sentinel: {enabled: false}, console: {enabled: true, publicURL: 'https://a'}}", []string{"console.api.url"}},
		"ConsoleConfig":        {"the file is checked before the pod is", "console: {config: {session: {idle: 1h}}}", []string{"/console/config/session", "'idle'"}},
		"ConsoleHosts":         {"volumes and rights have to agree", "console: {enabled: true, publicURL: 'https://a', config: {hosts: [{name: b}]}}", []string{"console.config.hosts is not supported", "set console.hosts"}},
		"ConsoleTwice":         {"they could not be told apart", "console: {enabled: true, publicURL: 'https://a', hosts: [{name: b}, {name: b, kubeconfigSecretRef: {name: c, key: d}}]}", []string{`console.hosts contains the name "b" twice`}},
		"BrokerVariable":       {"not a variable of the broker", "sentinel: {fileBroker: {env: {RABBIT: x}}}", []string{"/sentinel/fileBroker/env", "'RABBIT'"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, _, err := deploy.Release{Chart: chartDir, Values: newValues(t, test.values)}.Render()
			if err == nil {
				t.Fatalf("%s: it renders", test.reason)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %q does not say %q", test.reason, err, want)
				}
			}
		})
	}
}

// TestTakesSinks holds that what a component can work with is not refused.
func TestTakesSinks(t *testing.T) {
	for name, values := range map[string]string{ //nolint:gosec // no credentials: the names of Secrets
		"ZeroTimes":    "{enabled: true, clusterName: a, endpoint: 'https://e.example.com', timeout: 0s, shutdownTimeout: 0s, config: {max_age: 0s}}",
		"OwnAPI":       "{enabled: true, clusterName: a, endpoint: 'http://fleetloop-fleet-api.hyperfleet-system.svc:8080/api/changes'}",
		"Local":        "{enabled: true, clusterName: a, endpoint: 'http://127.0.0.1:9000/changes'}",
		"AllowedHTTP":  "{enabled: true, clusterName: a, endpoint: 'http://e.example.com:8080?a=b', allowHTTP: true}",
		"AllowedRange": "{enabled: true, clusterName: a, endpoint: 'https://10.1.2.3/changes', allowAddresses: [10.0.0.0/8]}",
		"Proxied":      "{enabled: true, clusterName: a, endpoint: 'https://10.1.2.3/changes', config: {proxy_url: 'http://proxy.example.com:3128'}}",
		"NumberedName": "{enabled: true, clusterName: a, endpoint: 'https://10.example.com/changes'}",
		"Secrets":      "{enabled: true, clusterName: a, endpointSecretRef: {name: url}, sinks: [{name: chat, format: slack, secretRefs: {endpoint: {name: a, key: b}}}]}",
		"PagerDuty":    "{enabled: true, clusterName: a, sinks: [{name: pager, format: pagerduty, endpoint: 'https://events.pagerduty.com/v2/change/enqueue', secretRefs: {routingKey: {name: a, key: b}}}]}",
		"Off":          "{enabled: false, endpoint: 'ftp://x'}",
	} {
		t.Run(name, func(t *testing.T) {
			values := "{clusterWorker: {enabled: true}, executionController: {enabled: true}, nodeFaultController: {enabled: true, intake: {auth: {tokensSecret: t}}}, global: {changeEvents: " + values + "}}"
			if _, _, err := (deploy.Release{Chart: chartDir, Values: newValues(t, values)}).Render(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestNotes holds that the notes name every Secret that has to exist.
func TestNotes(t *testing.T) {
	tests := map[string]struct{ values, want string }{
		"Default": {"", "default"},
		"File":    {"sentinel: {deploymentMode: file}", "file"},
		"Worker":  {"clusterWorker: {enabled: true, config: {max_concurrent_syncs: 8}}", "cluster-worker"},
		"Acting":  {"{global: {dryRun: true}, executionController: {enabled: true, targetNamespaces: [shop]}}", "executions"},
		"Faults":  {"{global: {changeEvents: {enabled: true, endpoint: 'https://e.example.com', clusterName: a, sinks: [{name: pager, endpoint: 'https://p.example.com', secretRefs: {routingKey: {name: pager, key: key}}}]}}, clusterWorker: {enabled: true}, executionController: {enabled: true}, nodeFaultController: {enabled: true, intake: {auth: {tokensSecret: monitors}}, janitor: {webhook: {tokenSecretRef: {name: bmc}}, machines: {kubeconfig: {existingSecret: mgmt}}}}}", "node-faults"},
		"Console": {"console: {enabled: true, publicURL: 'https://fleet.example.com/', auth: {mode: oidc, oidc: {issuer: 'https://login.example.com', clientID: a, clientSecretRef: {name: oidc}}}, hosts: [{name: local}, {name: eu, kubeconfigSecretRef: {name: eu, key: config}}], tls: {existingSecret: b}, ingress: {enabled: true, tlsSecret: c}}", "console"},
		"Idle":    {"executionController: {enabled: true, audit: {mode: 'off'}, admissionPolicies: {enabled: false}}", "executions-idle"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			objects, notes, err := deploy.Release{Chart: chartDir, Values: newValues(t, test.values)}.Render()
			if err != nil {
				t.Fatal(err)
			}
			wantFile(t, "testdata/notes-"+test.want+".txt", []byte(notes))
			for _, secret := range secretsOf(t, objects) {
				if !strings.Contains(notes, secret) {
					t.Errorf("the Secret %s is not mentioned", secret)
				}
			}
		})
	}
}

// secretsOf finds the Secrets that objects name.
func secretsOf(t *testing.T, objects []*unstructured.Unstructured) []string {
	t.Helper()
	var out []string
	var walk func(key string, v any)
	walk = func(key string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, child := range v {
				name, _ := v["name"].(string)
				if isRef := key == "secretKeyRef" || key == "secretRef" || strings.HasSuffix(key, "SecretRef"); isRef && k == "name" {
					out = append(out, name)
				}
				if text, ok := child.(string); ok && k == "secretName" {
					out = append(out, text)
				}
				walk(k, child)
			}
		case []any:
			for _, child := range v {
				walk(key, child)
			}
		}
	}
	for _, o := range objects {
		walk("", o.Object)
	}
	slices.Sort(out)
	out = slices.Compact(out)
	if len(out) == 0 {
		t.Fatal("no Secret is named at all")
	}
	return out
}
