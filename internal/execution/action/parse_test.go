package action

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// newSpec returns a spec with the parameters as JSON.
func newSpec(action, parameters string) *v1alpha1.KubernetesExecutionSpec {
	spec := &v1alpha1.KubernetesExecutionSpec{Action: action}
	if parameters != "" {
		spec.Parameters = &runtime.RawExtension{Raw: []byte(parameters)}
	}
	return spec
}

func TestParse(t *testing.T) {
	const normal = `{"deployment":"web","namespace":"shop","replicas":5}`
	target := v1alpha1.Target{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web"}
	for name, tc := range map[string]struct {
		reason     string
		spec       *v1alpha1.KubernetesExecutionSpec
		parameters string
		target     v1alpha1.Target
	}{
		"Flat":  {"as they are documented", newSpec("scale_deployment", normal), normal, target},
		"Union": {"the older spelling", newSpec("scale_deployment", `{"scaleDeployment": `+normal+` }`), normal, target},
		"Filled": {"the execution says what is acted on", func() *v1alpha1.KubernetesExecutionSpec {
			s := newSpec("scale_deployment", ` { "replicas" : 5 } `)
			s.TargetNamespace, s.ResourceName = "shop", "web"
			return s
		}(), normal, target},
		"FilledUnion": {"both", func() *v1alpha1.KubernetesExecutionSpec {
			s := newSpec("scale_deployment", `{"scaleDeployment":{"replicas":5,"namespace":""}}`)
			s.Target = &v1alpha1.Target{Namespace: "shop", Name: "web", Kind: "Deployment", APIVersion: "apps/v1", UID: "u", ResourceVersion: "7"}
			return s
		}(), normal, v1alpha1.Target{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web", UID: "u", ResourceVersion: "7"}},
		"Null": {
			"is not given", newSpec("rollback_deployment", `{"deployment":"web","namespace":"shop","revision":null}`),
			`{"deployment":"web","namespace":"shop"}`, target,
		},
		"Default": {
			"is among those that were understood", newSpec("restart_pod", `{"pod":"web-1","namespace":"shop"}`),
			`{"evict":false,"namespace":"shop","pod":"web-1"}`,
			v1alpha1.Target{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web-1"},
		},
		"Quantities": {
			"are spelled as the API server does", newSpec("increase_resources", `{"deployment":"web","namespace":"shop","container":"app","cpuLimit":"1000m","memoryLimit":"2048Mi"}`),
			`{"allowDecrease":false,"container":"app","cpuLimit":"1","deployment":"web","memoryLimit":"2Gi","namespace":"shop"}`, target,
		},
		"Alias": {
			"says the kind", newSpec("restart_statefulset", `{"statefulset":"db","namespace":"shop"}`),
			`{"kind":"StatefulSet","name":"db","namespace":"shop"}`,
			v1alpha1.Target{APIVersion: "apps/v1", Kind: "StatefulSet", Namespace: "shop", Name: "db"},
		},
		"AliasUnion": {
			"in the older spelling", newSpec("restart_daemonset", `{"restartDaemonset":{"daemonset":"agent","namespace":"shop"}}`),
			`{"kind":"DaemonSet","name":"agent","namespace":"shop"}`,
			v1alpha1.Target{APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: "shop", Name: "agent"},
		},
		"PatchAsText": {
			"is what it says", newSpec("patch_deployment", `{"deployment":"web","namespace":"shop","patch":"{\"spec\": {\"replicas\": 2}}"}`),
			`{"deployment":"web","namespace":"shop","patch":{"spec":{"replicas":2}},"patchType":"strategic"}`, target,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Parse(tc.spec)
			if err != nil {
				t.Fatalf("Parse() = %v", err)
			}
			if string(r.Parameters) != tc.parameters {
				t.Errorf("parameters %s, want %s", r.Parameters, tc.parameters)
			}
			if diff := cmp.Diff(tc.target, r.Target); diff != "" {
				t.Errorf("target (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	const web = `"deployment":"web","namespace":"shop"`
	for name, tc := range map[string]struct {
		reason     string
		action     string
		parameters string
		change     func(s *v1alpha1.KubernetesExecutionSpec)
		says       []string
	}{
		"Nothing":       {"all that is missing is said", "scale_deployment", "", nil, []string{"deployment: required (a string)", "namespace: required", "replicas: required (an integer)"}},
		"NoReplicas":    {"there is no default", "scale_deployment", `{` + web + `}`, nil, []string{"replicas: required"}},
		"Text":          {"integers are not read from strings", "scale_deployment", `{` + web + `,"replicas":"5"}`, nil, []string{`replicas: must be an integer, is the string "5"`}},
		"Words":         {"integers are not words", "scale_deployment", `{` + web + `,"replicas":"five"}`, nil, []string{"replicas: must be an integer"}},
		"Fraction":      {"there is no half replica", "scale_deployment", `{` + web + `,"replicas":2.5}`, nil, []string{"replicas: must be an integer, is 2.5"}},
		"Exponent":      {"is no integer as it stands", "scale_deployment", `{` + web + `,"replicas":1e2}`, nil, []string{"replicas: must be an integer"}},
		"Huge":          {"beyond 64 bits", "scale_deployment", `{` + web + `,"replicas":99999999999999999999}`, nil, []string{"replicas: must be an integer"}},
		"List":          {"another type", "scale_deployment", `{` + web + `,"replicas":[5]}`, nil, []string{"replicas: must be an integer, is a list"}},
		"NoListOfKeys":  {"it may be a secret", "update_secret", `{"secret":"db","namespace":"shop","dataFrom":"hunter2"}`, nil, []string{"dataFrom: must be a list, is a string"}},
		"Negative":      {"absurd", "scale_deployment", `{` + web + `,"replicas":-1}`, nil, []string{"replicas: must be at least 0, is -1"}},
		"TooMany":       {"absurd", "scale_deployment", `{` + web + `,"replicas":1001}`, nil, []string{"replicas: must be at most 1000"}},
		"Unknown":       {"it was misspelt", "scale_deployment", `{` + web + `,"replicas":5,"replica":5}`, nil, []string{"replica: unknown parameter: did you mean replicas?"}},
		"Strange":       {"nothing is near", "scale_deployment", `{` + web + `,"replicas":5,"shell":"rm"}`, nil, []string{"shell: unknown parameter: want deployment, namespace, replicas"}},
		"Case":          {"names are exact", "scale_deployment", `{` + web + `,"Replicas":5}`, nil, []string{"Replicas: unknown parameter: did you mean replicas?"}},
		"BadName":       {"not a name in Kubernetes", "scale_deployment", `{"deployment":"Bad_Name!","namespace":"shop","replicas":1}`, nil, []string{`deployment: must be a DNS name`, `"Bad_Name!"`}},
		"Shell":         {"nothing is ever interpolated, and this is no name", "scale_deployment", `{"deployment":"web;kubectl delete ns x","namespace":"shop","replicas":1}`, nil, []string{"deployment: must be a DNS name"}},
		"Flag":          {"nor is this", "scale_deployment", `{"deployment":"--kubeconfig=y","namespace":"shop","replicas":1}`, nil, []string{"deployment: must be a DNS name"}},
		"EmptyName":     {"empty is not given", "scale_deployment", `{"deployment":"","namespace":"shop","replicas":1}`, nil, []string{"deployment: must not be empty"}},
		"Null":          {"null is not given", "scale_deployment", `{"deployment":null,"namespace":"shop","replicas":1}`, nil, []string{"deployment: required"}},
		"NamespaceDots": {"a namespace is a label", "scale_deployment", `{"deployment":"web","namespace":"a.b","replicas":1}`, nil, []string{"namespace: must be a DNS label"}},
		"NoObject":      {"a list is none", "scale_deployment", `[]`, nil, []string{"parameters: must be an object"}},
		"NoJSON":        {"nor is this", "scale_deployment", `{"a"`, nil, []string{"parameters: must be an object"}},
		"Trailing":      {"one object and nothing after it", "scale_deployment", `{} {}`, nil, []string{"parameters: must be an object"}},
		"TooLong":       {"16 KiB are enough", "scale_deployment", `{"deployment":"` + strings.Repeat("a", 17<<10) + `"}`, nil, []string{"parameters: must be at most 16384 bytes"}},
		"OtherUnion":    {"the union is of another action", "scale_deployment", `{"restartPod":{"pod":"a","namespace":"b"}}`, nil, []string{"parameters: belong to restart_pod"}},
		"EmptyUnion":    {"a union of nothing", "scale_deployment", `{"scaleDeployment":5}`, nil, []string{"scaleDeployment: must be an object"}},
		"Enum":          {"the values are said", "patch_deployment", `{` + web + `,"patch":{"spec":{}},"patchType":"magic"}`, nil, []string{"patchType: must be one of strategic, merge, json"}},
		"Boolean":       {"true is not a string", "restart_pod", `{"pod":"a","namespace":"b","evict":"true"}`, nil, []string{"evict: must be true or false"}},
		"Image":         {"a flag is no image", "update_image", `{` + web + `,"container":"app","image":"--x"}`, nil, []string{"image: must be an image"}},
		"ImageSpace":    {"nor is a command", "update_image", `{` + web + `,"container":"app","image":"a b"}`, nil, []string{"image: must be an image"}},
		"Quantity":      {"a number is no quantity", "increase_resources", `{` + web + `,"container":"app","cpuLimit":2}`, nil, []string{"cpuLimit: must be a quantity"}},
		"QuantityText":  {"nor are words", "increase_resources", `{` + web + `,"container":"app","cpuLimit":"lots"}`, nil, []string{`cpuLimit: must be a quantity, such as 500m or 2Gi, is "lots"`}},
		"QuantityBelow": {"nor is less than nothing", "increase_resources", `{` + web + `,"container":"app","cpuLimit":"-1"}`, nil, []string{"cpuLimit: must be a quantity"}},
		"NoShare":       {"nothing to increase", "increase_resources", `{` + web + `,"container":"app"}`, nil, []string{"is required"}},
		"Bounds":        {"upside down", "update_hpa", `{"hpa":"web","namespace":"shop","minReplicas":5,"maxReplicas":2}`, nil, []string{"minReplicas: 5 is more than maxReplicas 2"}},
		"Kind":          {"restarts are of three kinds", "rollout_restart", `{"kind":"Job","name":"a","namespace":"b"}`, nil, []string{"kind: must be one of Deployment, StatefulSet, DaemonSet"}},
		"KindTwice":     {"an alias says another", "restart_daemonset", `{"kind":"Deployment","name":"a","namespace":"b"}`, nil, []string{"kind: is \"Deployment\", but the parameters name a DaemonSet"}},
		"NameTwice":     {"which?", "rollout_restart", `{"deployment":"a","name":"b","namespace":"c"}`, nil, []string{"name: is also set as deployment"}},
		"OtherNamespace": {"the execution says another", "scale_deployment", `{` + web + `,"replicas":1}`, func(s *v1alpha1.KubernetesExecutionSpec) {
			s.TargetNamespace = "other"
		}, []string{`targetNamespace: is "other", but the parameters name "shop"`}},
		"OtherTarget": {"the execution says another", "scale_deployment", `{` + web + `,"replicas":1}`, func(s *v1alpha1.KubernetesExecutionSpec) {
			s.ResourceName = "api"
			s.Target = &v1alpha1.Target{APIVersion: "apps/v2", Kind: "StatefulSet", Namespace: "other", Name: "other"}
		}, []string{"resourceName", "target.apiVersion", "target.kind", "target.namespace", "target.name"}},
		"Timeout": {"the catalogue bounds it", "scale_deployment", `{` + web + `,"replicas":1}`, func(s *v1alpha1.KubernetesExecutionSpec) {
			s.Timeout = &metav1.Duration{Duration: time.Hour}
		}, []string{"timeout: must be at most 15m0s, is 1h0m0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := newSpec(tc.action, tc.parameters)
			if tc.change != nil {
				tc.change(spec)
			}
			_, err := Parse(spec)
			if _, ok := errors.AsType[*InvalidError](err); !ok {
				t.Fatalf("Parse() = %v, want an InvalidError", err)
			}
			for _, want := range tc.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("Parse() = %q, want it to say %q", err, want)
				}
			}
		})
	}
}

func TestParsePatch(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, kind, patch, says string
	}{
		"Name":         {"who it is", "merge", `{"metadata":{"name":"other"}}`, "must not change metadata.name"},
		"Namespace":    {"where it is", "strategic", `{"metadata":{"namespace":"other"}}`, "must not change metadata.namespace"},
		"Finalizers":   {"finalizers", "merge", `{"metadata":{"finalizers":null}}`, "must not change metadata.finalizers"},
		"Owners":       {"whose it is", "merge", `{"metadata":{"ownerReferences":[]}}`, "must not change metadata.ownerReferences"},
		"Directive":    {"a directive would clear all of it", "strategic", `{"metadata":{"$patch":"replace"}}`, "must not change metadata.$patch"},
		"AllOfIt":      {"and another", "strategic", `{"$patch":"delete"}`, "must not change $patch"},
		"NoMetadata":   {"null takes all away", "merge", `{"metadata":null}`, "metadata must be an object"},
		"NoLabels":     {"and here", "merge", `{"metadata":{"labels":null}}`, "metadata.labels must be an object"},
		"LabelOrder":   {"a directive among labels", "strategic", `{"metadata":{"annotations":{"$patch":"replace"}}}`, "must not change metadata.annotations[$patch]"},
		"Marker":       {"it is ours", "merge", `{"metadata":{"annotations":{"kubernaut.io/last-execution":"x"}}}`, "must not change metadata.annotations[kubernaut.io/last-execution]"},
		"Kind":         {"what it is", "merge", `{"kind":"Secret"}`, "must not change kind"},
		"Status":       {"it is its controller's", "merge", `{"status":{"replicas":1}}`, "must not change status"},
		"Case":         {"names are exact", "merge", `{"Metadata":{"finalizers":null}}`, "must not change Metadata"},
		"Operations":   {"for another type", "merge", `[{"op":"remove","path":"/spec/paused"}]`, "invalid for patchType merge"},
		"Object":       {"for another type", "json", `{"spec":{}}`, "invalid for patchType json"},
		"Number":       {"is no patch", "merge", `7`, "patch: must be an object, is 7"},
		"Text":         {"is none either", "merge", `"replicas 5"`, "patch: must be JSON"},
		"Nothing":      {"changes nothing", "merge", `{}`, "changes nothing"},
		"NoOperations": {"changes nothing", "json", `[]`, "changes nothing"},
		"PathOfName":   {"who it is", "json", `[{"op":"replace","path":"/metadata/name","value":"x"}]`, "must not change /metadata/name"},
		"PathOfAll":    {"everything", "json", `[{"op":"replace","path":"","value":{}}]`, "path must be a path"},
		"PathOfMeta":   {"all of it", "json", `[{"op":"remove","path":"/metadata"}]`, "must not change /metadata"},
		"PathOfLabels": {"all of them", "json", `[{"op":"remove","path":"/metadata/labels"}]`, "must not change /metadata/labels"},
		"PathOfMarker": {"it is ours", "json", `[{"op":"remove","path":"/metadata/annotations/kubernaut.io~1last-execution"}]`, "must not change"},
		"PathOfStatus": {"it is its controller's", "json", `[{"op":"add","path":"/status/replicas","value":1}]`, "must not change /status"},
		"PathLikeSpec": {"almost", "json", `[{"op":"add","path":"/specification","value":1}]`, "must not change /specification"},
		"Move":         {"what is moved goes away", "json", `[{"op":"move","from":"/metadata/finalizers","path":"/spec/x"}]`, "must not change /metadata/finalizers"},
		"NoFrom":       {"from where", "json", `[{"op":"copy","path":"/spec/x"}]`, "from must be a path"},
		"Op":           {"there is none such", "json", `[{"op":"execute","path":"/spec/x"}]`, "op must be one of"},
		"NoPath":       {"where", "json", `[{"op":"add","value":1}]`, "path must be a path"},
		"NoObjects":    {"operations are objects", "json", `[1]`, "must be a list of operations"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(newSpec("patch_deployment", fmt.Sprintf(`{"deployment":"web","namespace":"shop","patchType":%q,"patch":%s}`, tc.kind, tc.patch)))
			if _, ok := errors.AsType[*InvalidError](err); !ok || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("Parse() = %v, want that it %s", err, tc.says)
			}
		})
	}
}

func TestUnknownAction(t *testing.T) {
	for name, want := range map[string]string{
		"scale_deployments":                    "scale_deployment",
		"Scale_Deployment":                     "scale_deployment",
		"restart_daemonsets":                   "restart_daemonset",
		"format_disk":                          "",
		"":                                     "",
		strings.Repeat("scale_deployment", 20): "",
	} {
		_, err := Parse(newSpec(name, "{}"))
		unknown, ok := errors.AsType[*UnknownError](err)
		if !ok || unknown.Nearest != want || len(err.Error()) > 200 {
			t.Errorf("Parse(%q) = %v, want %q as the nearest", TruncateText(name, 20), err, want)
		}
	}
}

// TestCatalogue holds what all entries must have.
func TestCatalogue(t *testing.T) {
	taken := map[string]string{}
	for _, a := range Catalogue() {
		for _, name := range append([]string{a.Name}, a.Aliases...) {
			if other, ok := taken[name]; ok {
				t.Errorf("%s and %s are both called %s", a.Name, other, name)
			}
			taken[name] = a.Name
			if found, ok := Find(name); !ok || found != a {
				t.Errorf("Find(%s) = %v", name, found)
			}
		}
		if len(validation.IsDNS1123Label(a.ServiceAccount())) > 0 {
			t.Errorf("%s: the service account %s is no name", a.Name, a.ServiceAccount())
		}
		if a.Summary == "" || a.Risk == "" || a.Scope == "" || a.Timeout <= 0 && !a.NoJob || a.Timeout > a.MaxTimeout || a.MaxTimeout > time.Hour {
			t.Errorf("%s lacks something: %+v", a.Name, a)
		}
		if a.Reversible != (a.Rollback != "") || a.Retries > 0 && !a.Idempotent || a.Retries > 5 {
			t.Errorf("%s: reversible %t by %q, %d retries, idempotent %t", a.Name, a.Reversible, a.Rollback, a.Retries, a.Idempotent)
		}
		for _, kind := range a.Kinds {
			if _, ok := findKind("", kind); !ok {
				t.Errorf("%s: there is no %s", a.Name, kind)
			}
		}
		for _, p := range a.Permissions {
			if p.Resource == "" || p.Why == "" || len(p.Verbs) == 0 || slices.Contains(p.Verbs, "*") || p.Resource == "*" || p.Group == "*" {
				t.Errorf("%s: permission %+v", a.Name, p)
			}
			if a.ReadOnly && slices.ContainsFunc(p.Verbs, func(v string) bool { return v != "get" && v != "list" }) {
				t.Errorf("%s only reads, and may %v", a.Name, p.Verbs)
			}
		}
		if a.NoJob && len(a.Permissions) > 0 {
			t.Errorf("%s does nothing, and may %v", a.Name, a.Permissions)
		}
	}
	if names := Catalogue(); !slices.IsSortedFunc(names, func(a, b *Action) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("the catalogue is not sorted")
	}
}

func TestRights(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		spec   *v1alpha1.KubernetesExecutionSpec
		want   []Right
	}{
		"Scale": {"of the object by its name", newSpec("scale_deployment", `{"deployment":"web","namespace":"shop","replicas":1}`), []Right{
			{Group: "apps", Resource: "deployments", Verb: "get", Namespace: "shop", Name: "web"},
			{Group: "apps", Resource: "deployments", Subresource: "scale", Verb: "patch", Namespace: "shop", Name: "web"},
		}},
		"Restart": {"of its kind alone", newSpec("restart_daemonset", `{"name":"agent","namespace":"shop"}`), []Right{
			{Group: "apps", Resource: "daemonsets", Verb: "get", Namespace: "shop", Name: "agent"},
			{Group: "apps", Resource: "daemonsets", Verb: "patch", Namespace: "shop", Name: "agent"},
		}},
		"Rollback": {"lists have no name", newSpec("rollback_deployment", `{"deployment":"web","namespace":"shop"}`), []Right{
			{Group: "apps", Resource: "deployments", Verb: "get", Namespace: "shop", Name: "web"},
			{Group: "apps", Resource: "deployments", Verb: "patch", Namespace: "shop", Name: "web"},
			{Group: "apps", Resource: "replicasets", Verb: "list", Namespace: "shop"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Parse(tc.spec)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, r.Rights()); diff != "" {
				t.Errorf("rights (-want +got):\n%s", diff)
			}
		})
	}
	if got := (Right{Group: "apps", Resource: "deployments", Subresource: "scale", Verb: "patch"}).String(); got != "patch apps/deployments/scale" {
		t.Errorf("right %q", got)
	}
	if got := (Right{Resource: "pods", Verb: "get"}).String(); got != "get pods" {
		t.Errorf("right %q", got)
	}
}

// TestDecodeMany has lists and maps, which most actions do without.
func TestDecodeMany(t *testing.T) {
	type many struct {
		Keys  []string           `json:"keys" doc:"Keys." format:"config-key"`
		Data  map[string]*string `json:"data" doc:"Data." keys:"config-key"`
		Pairs map[string]string  `json:"pairs" doc:"Pairs." format:"label-value"`
		Items []map[string]any   `json:"items" doc:"Items."`
		Wait  metav1.Duration    `json:"wait" doc:"How long." default:"90s"`
	}
	for name, tc := range map[string]struct {
		in, normal, problem string
	}{
		"All":        {`{"keys":["a","b"],"data":{"a":"x","b":null},"pairs":{"a":"b"},"items":[{"n":1}],"wait":"2m"}`, `{"data":{"a":"x","b":null},"items":[{"n":1}],"keys":["a","b"],"pairs":{"a":"b"},"wait":"2m0s"}`, ""},
		"Default":    {`{}`, `{"wait":"1m30s"}`, ""},
		"NullKey":    {`{"keys":["a",null]}`, "", "keys: must be a list of strings"},
		"BadKey":     {`{"keys":["a","b c"]}`, "", "keys: [1] must be a key"},
		"BadName":    {`{"data":{"b c":"x"}}`, "", "data: key must be a key"},
		"Number":     {`{"data":{"b":5}}`, "", "data: must be an object whose values are strings or null"},
		"NullValue":  {`{"pairs":{"a":null}}`, "", "pairs: must be an object whose values are strings"},
		"NoList":     {`{"items":{}}`, "", "items: must be a list, is an object"},
		"NoItem":     {`{"items":[5]}`, "", "items: must be a list of objects"},
		"NoTime":     {`{"wait":"soon"}`, "", "wait: must be a duration"},
		"BackInTime": {`{"wait":"-1s"}`, "", "wait: must be a duration"},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := decodeObject([]byte(tc.in))
			if err != nil {
				t.Fatal(err)
			}
			normal, problems := decodeParameters(mustParseFieldTags(reflect.TypeFor[many]()), raw, reflect.New(reflect.TypeFor[many]()).Elem())
			if string(normal) != tc.normal || !strings.Contains(strings.Join(problems, "; "), tc.problem) || (tc.problem == "") != (problems == nil) {
				t.Errorf("decoded %s with %q, want %s with %q", normal, problems, tc.normal, tc.problem)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, a := range Catalogue() {
		f.Add(a.Name, `{"deployment":"web","namespace":"shop","replicas":5,"patch":{"spec":{"replicas":1}},"name":"a","kind":"Deployment"}`, "shop", "web")
	}
	f.Add("scale_deployment", `{"scaleDeployment":{"deployment":"web","replicas":5}}`, "shop", "")
	f.Add("update_image", `{"deployment":"web","container":"app","image":"registry.example.com:5000/a/b:1@sha256:x"}`, "shop", "")
	f.Add("patch_deployment", `{"deployment":"web","patchType":"json","patch":"[{\"op\":\"add\",\"path\":\"/spec/a~1b/-\"}]"}`, "shop", "")
	f.Fuzz(func(t *testing.T, action, parameters, namespace, name string) {
		spec := newSpec(action, parameters)
		spec.TargetNamespace, spec.ResourceName = namespace, name
		r, err := Parse(spec)
		if err != nil {
			_, unknown := errors.AsType[*UnknownError](err)
			_, invalid := errors.AsType[*InvalidError](err)
			if !unknown && !invalid {
				t.Fatalf("Parse() = %T %v", err, err)
			}
			return
		}
		// What was understood says it all: it is understood as the same again.
		again, err := Parse(newSpec(r.Action.Name, string(r.Parameters)))
		if err != nil {
			t.Fatalf("Parse(%s) = %v", r.Parameters, err)
		}
		if diff := cmp.Diff(r, again, cmpopts.IgnoreUnexported(Request{}), cmp.Comparer(func(a, b *Action) bool { return a == b })); diff != "" {
			t.Fatalf("understood otherwise: %s", diff)
		}
		if !json.Valid(r.Parameters) || strings.ContainsAny(r.Target.Name+r.Target.Namespace, " ;/'\"$`") || strings.HasPrefix(r.Target.Name, "-") {
			t.Fatalf("target %+v of %s", r.Target, r.Parameters)
		}
	})
}
