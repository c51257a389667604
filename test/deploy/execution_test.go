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

	manifests "github.com/fleetloop/fleetloop/deploy"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/guard"
	"github.com/fleetloop/fleetloop/internal/execution/roles"
	"github.com/fleetloop/fleetloop/test/deploy"
)

// needs are the objects that executions need, for an installation's choices.
type needs struct {
	controller roles.Controller
	actions    roles.Actions
	guard      guard.Options
}

// rights are all roles, their bindings and the accounts of actions, those
// outside of namespaces apart.
func (n needs) rights() (inNamespaces, cluster []runtime.Object) {
	for _, act := range action.Catalogue() {
		if act.NoJob {
			continue
		}
		for _, o := range n.actions.BaseObjects(act) {
			_, binding := o.(*rbacv1.ClusterRoleBinding)
			role, isRole := o.(*rbacv1.ClusterRole)
			if binding || isRole && role.Name != act.ServiceAccount() {
				cluster = append(cluster, o)
			} else {
				inNamespaces = append(inNamespaces, o)
			}
		}
	}
	return append(inNamespaces, n.actions.SecretLookupAccountAndRole()...), cluster
}

// bindings have actions act in namespaces: all of them, or those named.
func (n needs) bindings(namespace string, only ...string) (list []runtime.Object) {
	for _, act := range action.Catalogue() {
		if !act.NoJob && (len(only) == 0 || slices.Contains(only, act.Name)) {
			list = append(list, n.actions.NamespaceBindings(act, namespace)...)
		}
	}
	return list
}

func people() []runtime.Object {
	list := []runtime.Object{roles.ViewerClusterRole(), roles.ApproverClusterRole(), roles.AdministratorClusterRole()}
	for _, role := range roles.RequesterClusterRolesUpToRisk() {
		list = append(list, role)
	}
	return list
}

// bare are objects as a manifest has them.
func bare(t *testing.T, objects []runtime.Object) []*unstructured.Unstructured {
	t.Helper()
	var list []*unstructured.Unstructured
	for _, o := range objects {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(content) // with the numbers of JSON, as rendered
		if err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{}
		if err := json.Unmarshal(raw, &u.Object); err != nil {
			t.Fatal(err)
		}
		delete(u.Object, "status")
		unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
		list = append(list, u)
	}
	return list
}

// TestGeneratedExecution holds the files that the chart makes objects of to the
// packages that say what executions need. Capitals stand for what an
// installation chooses.
func TestGeneratedExecution(t *testing.T) {
	const namespace = "EXECUTOR_NAMESPACE"
	n := needs{
		controller: roles.Controller{Namespace: namespace, Account: "CONTROLLER_ACCOUNT"},
		actions:    roles.Actions{Namespace: namespace},
		guard: guard.Options{
			Namespace: namespace, ControllerUser: "CONTROLLER_USER", PolicyConfigMap: "POLICY_CONFIG_MAP",
			PolicyAdmins: "POLICY_ADMINS", TrustedRequesters: []string{"TRUSTED_REQUESTERS"},
		},
	}
	inNamespaces, cluster := n.rights()
	chosen := needs{actions: roles.Actions{Namespace: namespace, Secrets: []string{"SECRET_NAMES"}, Manifests: []string{"MANIFEST_KINDS"}}}
	var byChoice []runtime.Object
	for _, name := range []string{"apply_manifest", "update_secret"} {
		act, ok := action.Find(name)
		if !ok {
			t.Fatalf("there is no action %s", name)
		}
		role, _, _ := chosen.actions.Roles(act)
		byChoice = append(byChoice, role)
	}
	for file, objects := range map[string][]runtime.Object{
		"controller":         n.controller.Objects(),
		"actions":            inNamespaces,
		"actions-cluster":    cluster,
		"actions-chosen":     byChoice,
		"bindings":           chosen.bindings("TARGET_NAMESPACE"),
		"secret-lookup":      n.actions.SecretLookupRoleBindings("TARGET_NAMESPACE"),
		"people":             people(),
		"admission-policies": guarded(n.guard),
		"mutating":           guard.MutatingPolicyObjects(n.guard),
	} {
		var b bytes.Buffer
		encoder := json.NewEncoder(&b)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(bare(t, objects)); err != nil {
			t.Fatal(err)
		}
		wantFile(t, filepath.Join(chartDir, "files/execution", file+".json"), b.Bytes())
	}
}

// executionOf are the objects of the execution controller in a rendering,
// without those of Prometheus, each with the labels that it has anywhere.
func executionOf(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	var list []*unstructured.Unstructured
	for _, o := range objects {
		if o.GetLabels()["app.kubernetes.io/component"] == "execution-controller" {
			list = append(list, o)
		}
	}
	return list
}

// TestExecutionEquals holds what the chart makes to what the packages say that
// executions need: accounts, roles, bindings and admission policies, whatever
// an installation chooses.
func TestExecutionEquals(t *testing.T) {
	const on = "executionController: {enabled: true, "
	tests := map[string]struct {
		reason string
		values string
		serves string // what the cluster serves beside the usual
		want   func(needs) []runtime.Object
		needs  needs
	}{
		"Stamps":  {reason: "names are filled in where the cluster can", values: on + "}", serves: servesStamps, want: needs.stamped},
		"Stamped": {reason: "or is said to", values: on + "admissionPolicies: {mutating: true}}", want: needs.stamped},
		"StampsElsewhere": {
			reason: "in another namespace", values: on + "namespace: acting}", serves: servesStamps, want: needs.stamped,
			needs: needs{roles.Controller{Namespace: "acting"}, roles.Actions{Namespace: "acting"}, guard.Options{Namespace: "acting"}},
		},
		"Default": {reason: "no action may act anywhere yet, and the guard stands", values: on + "}", want: needs.everything},
		"Elsewhere": {
			reason: "another namespace, and another account", values: on + "namespace: acting, serviceAccount: {name: actor}}", want: needs.everything,
			needs: needs{
				roles.Controller{Namespace: "acting", Account: "actor"},
				roles.Actions{Namespace: "acting"},
				guard.Options{Namespace: "acting", ControllerUser: "system:serviceaccount:acting:actor"},
			},
		},
		"Guard": {
			reason: "names in expressions, in their order",
			values: on + `policies: {name: laws}, admissionPolicies: {policyAdmins: "oidc:Platform Admins", trustedRequesters: ["system:serviceaccount:portal:portal", "CN=a, O=b", "CN=a, O=b"]}}`,
			want:   needs.everything,
			needs: needs{guard: guard.Options{
				PolicyConfigMap: "laws", PolicyAdmins: "oidc:Platform Admins", TrustedRequesters: []string{"system:serviceaccount:portal:portal", "CN=a, O=b"},
			}},
		},
		"SettingsInOrder": {
			reason: "a name that comes before that of the emergency stop", values: on + "policies: {name: a-policy}}", want: needs.everything,
			needs: needs{guard: guard.Options{PolicyConfigMap: "a-policy"}},
		},
		"Targets": {
			reason: "all actions in one namespace, one in another", values: on + "targetNamespaces: [shop, {name: batch, actions: [restart_pod]}]}",
			want: func(n needs) []runtime.Object {
				return slices.Concat(n.everything(), n.bindings("shop"), n.bindings("batch", "restart_pod"), n.actions.SecretLookupRoleBindings("shop", "batch"))
			},
		},
		"NoSecrets": {
			reason: "conditions are told nothing of Secrets", values: on + "targetNamespaces: [shop], rbac: {secretLookup: false}}",
			want: func(n needs) []runtime.Object { return slices.Concat(n.everything(), n.bindings("shop")) },
		},
		"Chosen": {
			reason: "Secrets by their names, and kinds", values: on + "targetNamespaces: [shop], rbac: {secretNames: [b, a, b], manifestKinds: [configmaps, apps/deployments]}}",
			want: func(n needs) []runtime.Object {
				return slices.Concat(n.everything(), n.bindings("shop"), n.actions.SecretLookupRoleBindings("shop"))
			},
			needs: needs{actions: roles.Actions{Secrets: []string{"b", "a"}, Manifests: []string{"configmaps", "apps/deployments"}}},
		},
		"NothingOutside": {
			reason: "no rights on nodes, and none for people", values: on + "rbac: {clusterScopedActions: false, userRoles: false}, admissionPolicies: {mutating: false}}", serves: servesStamps,
			want: func(n needs) []runtime.Object {
				inNamespaces, _ := n.rights()
				return slices.Concat(n.controller.Objects(), inNamespaces, guarded(n.guard))
			},
		},
		"OfOthers": {
			reason: "all is made elsewhere", values: on + "rbac: {create: false}, serviceAccount: {create: false}, admissionPolicies: {enabled: false, mutating: true}}",
			want: func(needs) []runtime.Object { return nil },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []*unstructured.Unstructured
			for _, o := range executionOf(render(t, deploy.Release{Values: newValues(t, test.values), APIVersions: []string{test.serves}})) {
				if needed(o) {
					got = append(got, withoutChart(o))
				}
			}
			if diff := cmp.Diff(byName(t, bare(t, test.want(test.needs))), byName(t, got)); diff != "" {
				t.Errorf("%s: packages (-) and chart (+) differ:\n%s", test.reason, diff)
			}
		})
	}
}

// TestExecutionShipped: who applies the manifests by themselves gets what the
// chart makes.
func TestExecutionShipped(t *testing.T) {
	var shipped []*unstructured.Unstructured
	for _, file := range []string{"rbac/actions", "rbac/actions-cluster", "rbac/actions-namespace", "rbac/actions-controller", "rbac/actions-people", "admission-policies/validating", "admission-policies/mutating"} {
		objects, err := deploy.ParseObjects(readFile(t, root+"/deploy/"+file+".yaml"))
		if err != nil || len(objects) == 0 {
			t.Fatalf("%s: %d objects, %v", file, len(objects), err)
		}
		for _, o := range objects {
			if file == "rbac/actions-namespace" {
				o.SetNamespace("shop")
			}
			unstructured.RemoveNestedField(o.Object, "metadata", "creationTimestamp")
			shipped = append(shipped, o)
		}
	}
	var made []*unstructured.Unstructured
	for _, o := range executionOf(render(t, deploy.Release{APIVersions: []string{servesStamps}, Values: newValues(t, "executionController: {enabled: true, targetNamespaces: [shop]}")})) {
		if needed(o) {
			made = append(made, withoutChart(o))
		}
	}
	if diff := cmp.Diff(byName(t, shipped), byName(t, made)); diff != "" {
		t.Errorf("manifests (-) and chart (+) differ:\n%s", diff)
	}
}

// needed is whether an object is of those that the packages say executions need.
func needed(o *unstructured.Unstructured) bool {
	group := o.GroupVersionKind().Group
	return group == rbacv1.GroupName || group == "admissionregistration.k8s.io" || o.GetKind() == "ServiceAccount"
}

// everything is what is needed where nothing is bound in any namespace.
func (n needs) everything() []runtime.Object {
	inNamespaces, cluster := n.rights()
	return slices.Concat(n.controller.Objects(), inNamespaces, cluster, people(), guarded(n.guard))
}

// guarded is all that guards executions, whatever the version of Kubernetes.
func guarded(o guard.Options) []runtime.Object {
	return slices.Concat(guard.ValidatingPolicyObjects(o), guard.WrongNamespaceWarningObjects(o))
}

// stamped is that where names are filled in.
func (n needs) stamped() []runtime.Object {
	return append(n.everything(), guard.MutatingPolicyObjects(n.guard)...)
}

// withoutChart takes from an object the labels that are the chart's.
func withoutChart(o *unstructured.Unstructured) *unstructured.Unstructured {
	o = o.DeepCopy()
	labels := o.GetLabels()
	for name := range labels {
		if strings.HasPrefix(name, "app.kubernetes.io/") || strings.HasPrefix(name, "helm.sh/") {
			delete(labels, name)
		}
	}
	if len(labels) == 0 {
		labels = nil
	}
	o.SetLabels(labels)
	return o
}

// TestPolicies: the ConfigMap is what is shipped, and what an installation puts
// in its place.
func TestPolicies(t *testing.T) {
	shipped, err := manifests.PolicyFiles()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ values, config string }{
		"Shipped": {"executionController: {enabled: true}", shipped["config.rego"]},
		"Own":     {"executionController: {enabled: true, policies: {files: {config.rego: mine}}}", "mine"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := render(t, deploy.Release{Values: newValues(t, test.values)})
			i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetName() == "safety-policies" })
			if i < 0 {
				t.Fatalf("no policies among %v", names(objects))
			}
			got, _, err := unstructured.NestedStringMap(objects[i].Object, "data")
			if err != nil {
				t.Fatal(err)
			}
			shipped["config.rego"] = test.config
			if diff := cmp.Diff(shipped, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if mode := objects[i].GetAnnotations()["kubernaut.io/policy-mode"]; mode != "enforce" {
				t.Errorf("its mode is %q", mode)
			}
		})
	}
}
