package check_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/check"
	"github.com/fleetloop/fleetloop/internal/policy"
)

// filledYAML is a Deployment with a password wherever people and programs put one.
const filledYAML = `
apiVersion: apps/v1
kind: Deployment
metadata:
  namespace: shop
  name: web
  uid: uid-web
  labels: {app: web}
  annotations: {note: hunter2}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {vault: hunter2}}
    spec:
      nodeSelector: {disk: fast}
      imagePullSecrets: [{name: registry}]
      hostAliases: [{ip: 10.0.0.1, hostnames: [hunter2]}]
      initContainers:
      - {name: setup, image: "setup:1", args: [--password=hunter2]}
      containers:
      - name: web
        image: web:1
        command: [web, --token, hunter2]
        args: [--password=hunter2]
        workingDir: /hunter2
        env: [{name: PASSWORD, value: hunter2}, {name: KEY, valueFrom: {secretKeyRef: {name: db, key: key}}}]
        resources: {requests: {cpu: 250m, memory: 256Mi}}
        lifecycle: {preStop: {exec: {command: [curl, hunter2]}}}
        livenessProbe: {periodSeconds: 5, exec: {command: [check, hunter2]}}
        readinessProbe: {periodSeconds: 7, httpGet: {port: 80, path: "/ready?token=hunter2", httpHeaders: [{name: Authorization, value: hunter2}]}}
      volumes:
      - {name: a, csi: {driver: d, volumeAttributes: {password: hunter2}}}
      - {name: b, flexVolume: {driver: d, options: {password: hunter2}}}
      - {name: c, gitRepo: {repository: hunter2}}
      - {name: d, secret: {secretName: tls}}
      unheardOf: hunter2
status:
  replicas: 3
  conditions:
  - {type: Available, status: "True", reason: Fine, message: hunter2}
`

// TestWhatConditionsSee verifies that conditions see no data that the requester may not be allowed
// to read.
func TestWhatConditionsSee(t *testing.T) {
	s := scalingState(t)
	s.Target = parseObject(t, filledYAML)
	s.Namespace.Annotations = map[string]string{"owner": "hunter2"}
	in := s.Input()
	in.Plan = check.PlanInput(&v1alpha1.Plan{
		Hash: "h", Target: v1alpha1.PlanTarget{Kind: "Deployment"}, Diff: "- hunter2", Before: &runtime.RawExtension{Raw: []byte(`{"replicas": 3, "env": "hunter2"}`)},
	}, nil)
	raw, err := s.ConditionInput(in, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(raw), "hunter2") {
		t.Errorf("a password is told: %s", raw)
	}
	if err := policy.CheckConditionInput(raw); err != nil {
		t.Error(err)
	}
	var got struct {
		Target struct {
			Labels map[string]string
			Object map[string]any
		}
		Plan struct{ Hash string }
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	want := parseObject(t, `
apiVersion: apps/v1
kind: Deployment
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeSelector: {disk: fast}
      imagePullSecrets: [{name: registry}]
      initContainers:
      - {name: setup, image: "setup:1"}
      containers:
      - name: web
        image: web:1
        env: [{name: PASSWORD}, {name: KEY, valueFrom: {secretKeyRef: {name: db, key: key}}}]
        resources: {requests: {cpu: 250m, memory: 256Mi}}
        livenessProbe: {periodSeconds: 5}
        readinessProbe: {periodSeconds: 7, httpGet: {port: 80}}
      volumes:
      - {name: a, csi: {driver: d}}
      - {name: b}
      - {name: c}
      - {name: d, secret: {secretName: tls}}
status:
  replicas: 3
  conditions:
  - {type: Available, status: "True", reason: Fine}
`)
	delete(want.Object, "apiVersion")
	delete(want.Object, "kind")
	text, err := json.Marshal(want.Object) // with the numbers of JSON
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fields, got.Target.Object); diff != "" {
		t.Errorf("the object (-want +got)\n%s", diff)
	}
	if got.Target.Labels["app"] != "web" || got.Plan.Hash != "h" {
		t.Errorf("%+v", got)
	}
	// Policies are the administrators', and see all of it.
	if text, err := json.Marshal(in); err != nil || strings.Count(string(text), "hunter2") < 12 {
		t.Errorf("policies are told less than there is (%v): %s", err, text)
	}
}

// TestWhatConditionsSeeOfOtherKinds verifies that conditions see the health of objects of unlisted
// kinds.
func TestWhatConditionsSeeOfOtherKinds(t *testing.T) {
	for name, c := range map[string]struct{ reason, object, want string }{
		"Custom": {
			"its fields may mean anything",
			`{apiVersion: example.com/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 3, password: hunter2}, status: {token: hunter2, conditions: [{type: Ready, status: "True", message: hunter2}]}}`,
			`{"status":{"conditions":[{"status":"True","type":"Ready"}]}}`,
		},
		"ConfigMap": {"its values are no spec", `{apiVersion: v1, kind: ConfigMap, metadata: {name: web}, data: {password: hunter2}}`, `{}`},
		"Node": {
			"what a kubelet says of itself is left out",
			`{apiVersion: v1, kind: Node, metadata: {name: a}, spec: {unschedulable: true, providerID: hunter2}, status: {phase: hunter2, capacity: {cpu: "4"}}}`,
			`{"spec":{"unschedulable":true},"status":{"capacity":{"cpu":"4"}}}`,
		},
		"Odd": {"a text where an object is expected", `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {template: hunter2}, status: hunter2}`, `{"spec":{"template":null}}`},
		"Pod": {
			"what a container said when it ended is left out",
			`{apiVersion: v1, kind: Pod, metadata: {name: a}, status: {phase: Failed, message: hunter2, containerStatuses: [{name: a, restartCount: 2, state: {terminated: {exitCode: 1, message: hunter2}}}]}}`,
			`{"status":{"containerStatuses":[{"name":"a","restartCount":2,"state":{"terminated":{"exitCode":1}}}],"phase":"Failed"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := scalingState(t)
			s.Target = parseObject(t, c.object)
			raw, err := s.ConditionInput(s.Input(), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			var got struct {
				Target struct{ Object json.RawMessage }
			}
			if err := json.Unmarshal(raw, &got); err != nil {
				t.Fatal(err)
			}
			if string(got.Target.Object) != c.want {
				t.Errorf("%s: %s, want %s", c.reason, got.Target.Object, c.want)
			}
		})
	}
}

func TestSecretRefs(t *testing.T) {
	for name, c := range map[string]struct {
		reason, object string
		want           []check.SecretRef
		none           bool
	}{
		"NoTarget":  {reason: "there is nothing that could name one", none: true},
		"ConfigMap": {reason: "it has no Pods", object: `{apiVersion: v1, kind: ConfigMap, metadata: {name: web}}`, none: true},
		"None":      {reason: "a workload that names none", object: deploymentYAML},
		"Filled": {
			reason: "for images, variables and volumes, by their names", object: filledYAML,
			want: []check.SecretRef{{Name: "db"}, {Name: "registry", Pulls: true}, {Name: "tls"}},
		},
		"Pod": {
			reason: "a Pod names them itself; what is optional may be missing, and once is enough",
			object: `
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  imagePullSecrets: [{name: both}]
  initContainers:
  - {name: i, envFrom: [{secretRef: {name: all}}, {secretRef: {name: maybe, optional: true}}]}
  containers:
  - {name: c, env: [{name: A, valueFrom: {secretKeyRef: {name: both, key: a}}}, {name: B, valueFrom: {secretKeyRef: {name: maybe, key: b, optional: true}}}]}
  volumes:
  - {name: a, secret: {secretName: maybe, optional: true}}
  - {name: b, projected: {sources: [{secret: {name: projected}}, {configMap: {name: c}}, {secret: {name: maybe, optional: true}}]}}
  - {name: c, csi: {driver: d, nodePublishSecretRef: {name: csi}}}
`,
			want: []check.SecretRef{{Name: "all"}, {Name: "both", Pulls: true}, {Name: "csi"}, {Name: "projected"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := scalingState(t)
			s.Target = nil
			if c.object != "" {
				s.Target = parseObject(t, c.object)
			}
			got, ok := check.RequiredSecretRefs(s.Target)
			if diff := cmp.Diff(c.want, got); diff != "" || ok == c.none {
				t.Errorf("%s: known %t (-want +got)\n%s", c.reason, ok, diff)
			}
		})
	}
}

// TestWhatIsNotKnown verifies that unknown values have no name, and that rights are reported as
// they are.
func TestWhatIsNotKnown(t *testing.T) {
	s := scalingState(t)
	s.Target, s.Namespace, s.Unread, s.PermissionsOK = nil, nil, true, false
	got := flatInput(t, s, nil, nil)
	for _, name := range []string{"deployment_found", "invalid_secrets", "current_replicas"} {
		if v, known := got[name]; known {
			t.Errorf("%s is %v, and nobody could look", name, v)
		}
	}
	if s.Input().ServiceAccount.PermissionsOK {
		t.Error("the account is said to have its rights")
	}
	s = scalingState(t)
	s.InvalidSecrets = []string{}
	if got, ok := flatInput(t, s, nil, nil)["invalid_secrets"].([]any); !ok || len(got) != 0 {
		t.Errorf("invalid_secrets is %v, want an empty list", got)
	}
	s.InvalidSecrets = []string{"db"}
	if got, _ := flatInput(t, s, nil, nil)["invalid_secrets"].([]any); !slices.Equal(got, []any{"db"}) {
		t.Errorf("invalid_secrets is %v", got)
	}
}
