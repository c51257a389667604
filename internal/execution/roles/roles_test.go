package roles_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/roles"
)

// rules are all rules of some objects.
func rules(objects []runtime.Object) []rbacv1.PolicyRule {
	var all []rbacv1.PolicyRule
	for _, o := range objects {
		switch o := o.(type) {
		case *rbacv1.Role:
			all = append(all, o.Rules...)
		case *rbacv1.ClusterRole:
			all = append(all, o.Rules...)
		}
	}
	return all
}

func grants(r rbacv1.PolicyRule, verb, resource string) bool {
	return slices.Contains(r.Verbs, verb) && slices.Contains(r.Resources, resource)
}

func find(t *testing.T, name string) *action.Action {
	t.Helper()
	act, ok := action.Find(name)
	if !ok {
		t.Fatalf("there is no action %q", name)
	}
	return act
}

// TestNoWildcards: nobody may do everything, nor act in others' names, nor read
// Secrets that nobody named, nor give away rights.
func TestNoWildcards(t *testing.T) {
	t.Parallel()
	objects := map[string][]runtime.Object{"controller": roles.Controller{}.Objects(), "approver": {roles.ApproverClusterRole()}, "viewer": {roles.ViewerClusterRole()}, "administrator": {roles.AdministratorClusterRole()}}
	for _, act := range action.Catalogue() {
		objects[act.Name] = roles.Actions{}.BaseObjects(act)
	}
	for _, role := range roles.RequesterClusterRolesUpToRisk() {
		objects[role.Name] = []runtime.Object{role}
	}
	// What conditions are told of Secrets is looked up by an account that no action
	// has, where an installation binds it: by name, and nothing else.
	lookup := rules(roles.Actions{}.SecretLookupAccountAndRole())
	if want := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}}; !cmp.Equal(want, lookup) {
		t.Errorf("Secrets are looked up with %v, want %v", lookup, want)
	}
	for who, list := range objects {
		for _, r := range rules(list) {
			if slices.Contains(slices.Concat(r.Verbs, r.Resources, r.APIGroups, r.ResourceNames), "*") {
				t.Errorf("%s: %v is a wildcard", who, r)
			}
			for _, verb := range []string{"impersonate", "escalate", "bind", "deletecollection"} {
				if slices.Contains(r.Verbs, verb) {
					t.Errorf("%s may %s", who, verb)
				}
			}
			if slices.Contains(r.APIGroups, rbacv1.GroupName) {
				t.Errorf("%s has rights on roles: %v", who, r)
			}
			if slices.Contains(r.Resources, "secrets") && who != "update_secret" {
				t.Errorf("%s has rights on Secrets: %v", who, r)
			}
			if grants(r, "create", "serviceaccounts/token") && len(r.ResourceNames) == 0 {
				t.Errorf("%s may be any account", who)
			}
		}
	}
}

// TestControllerWritesNothing: whatever the controller has in the whole cluster
// is to look, and to ask who may do what.
func TestControllerWritesNothing(t *testing.T) {
	t.Parallel()
	for _, r := range (roles.Controller{}).ClusterRole().Rules {
		if slices.Equal(r.Resources, []string{"subjectaccessreviews"}) && slices.Equal(r.Verbs, []string{"create"}) {
			continue
		}
		if slices.Equal(r.Resources, []string{"endpointslices"}) { // of the API servers alone, to look up their addresses
			if !slices.Equal(r.Verbs, []string{"get"}) || !slices.Equal(r.ResourceNames, []string{"kubernetes"}) {
				t.Errorf("endpointslices: %v of %v", r.Verbs, r.ResourceNames)
			}
			continue
		}
		if diff := cmp.Diff([]string{"get", "list", "watch"}, r.Verbs); diff != "" {
			t.Errorf("%v: -want +got\n%s", r.Resources, diff)
		}
	}
}

// TestControllerReadsTargets: what an action acts on, the controller sees, but
// for Secrets.
func TestControllerReadsTargets(t *testing.T) {
	t.Parallel()
	look := (roles.Controller{}).ClusterRole().Rules
	for _, act := range action.Catalogue() {
		for _, p := range act.Permissions {
			sees := slices.ContainsFunc(look, func(r rbacv1.PolicyRule) bool {
				return slices.Contains(r.APIGroups, p.Group) && grants(r, "watch", p.Resource)
			})
			if sees != (p.Resource != "secrets") {
				t.Errorf("%s of %s: the controller sees them: %t", p.Resource, act.Name, sees)
			}
		}
	}
}

// TestByName: without names there is no right, rather than one on all.
func TestByName(t *testing.T) {
	t.Parallel()
	secret, manifest := find(t, "update_secret"), find(t, "apply_manifest")
	for name, act := range map[string]*action.Action{"secrets": secret, "manifests": manifest} {
		if targets, cluster, _ := (roles.Actions{}).Roles(act); targets != nil || cluster != nil {
			t.Errorf("%s: rights %v, %v without a choice", name, targets, cluster)
		}
		if list := (roles.Actions{}).NamespaceBindings(act, "shop"); list != nil {
			t.Errorf("%s: bindings %v without a role", name, list)
		}
	}
	targets, _, _ := roles.Actions{Secrets: []string{"b", "a", "b"}}.Roles(secret)
	if diff := cmp.Diff([]string{"a", "b"}, targets.Rules[0].ResourceNames); diff != "" {
		t.Errorf("names -want +got\n%s", diff)
	}
	targets, _, _ = roles.Actions{Manifests: []string{"configmaps", "apps/deployments"}}.Roles(manifest)
	want := []rbacv1.PolicyRule{
		{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"get", "create", "patch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "create", "patch", "delete"}},
	}
	if diff := cmp.Diff(want, targets.Rules); diff != "" {
		t.Errorf("rules -want +got\n%s", diff)
	}
}

// TestNobodyShares: two actions never run as one account.
func TestNobodyShares(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, act := range action.Catalogue() {
		account := roles.Actions{}.Account(act)
		if other := seen[account.Name]; other != "" {
			t.Errorf("%s and %s run as %s", act.Name, other, account.Name)
		}
		seen[account.Name] = act.Name
		if account.AutomountServiceAccountToken == nil || *account.AutomountServiceAccountToken {
			t.Errorf("%s: its token is everywhere", account.Name)
		}
		if account.Namespace != roles.Namespace {
			t.Errorf("%s is in %s", account.Name, account.Namespace)
		}
	}
}

func TestRequesters(t *testing.T) {
	t.Parallel()
	may := map[string][]string{}
	for _, role := range roles.RequesterClusterRolesUpToRisk() {
		for _, r := range role.Rules {
			if slices.Contains(r.Verbs, "execute") {
				may[role.Name] = r.ResourceNames
			}
			if slices.Contains(r.Verbs, "approve") || slices.Contains(r.Verbs, "administer") {
				t.Errorf("%s may approve", role.Name)
			}
		}
	}
	for name, tc := range map[string]struct {
		reason string
		role   string
		action string
		want   bool
	}{
		"Low":       {"it changes nothing", "kubernaut-requester-low", "notify_only", true},
		"LowHigh":   {"it is of a higher risk", "kubernaut-requester-low", "drain_node", false},
		"HighLow":   {"a higher risk has the lower ones in it", "kubernaut-requester-high", "notify_only", true},
		"Alias":     {"it is what the request says", "kubernaut-requester-medium", "update_configmap", true},
		"High":      {"", "kubernaut-requester-high", "drain_node", true},
		"Anything":  {"it can be anything", "kubernaut-requester-high", "apply_manifest", false},
		"Critical":  {"", "kubernaut-requester-critical", "apply_manifest", true},
		"NoneNamed": {"no names would be all", "kubernaut-requester-low", "", false},
	} {
		if got := slices.Contains(may[tc.role], tc.action); got != tc.want {
			t.Errorf("%s: %s: %t", name, tc.reason, got)
		}
	}
	for _, r := range roles.RequesterClusterRole("nobody").Rules {
		if slices.Contains(r.Verbs, "execute") {
			t.Errorf("%v of one who may ask for nothing", r)
		}
	}
}

// TestManifests: the manifests are those of the code, whole.
func TestManifests(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../deploy/rbac/actions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	accounts := map[string]bool{}
	for part := range strings.SplitSeq(string(text), "\n---\n") {
		var o corev1.ServiceAccount
		if err := yaml.Unmarshal([]byte(part), &o); err != nil {
			t.Fatal(err)
		}
		if o.Kind == "ServiceAccount" {
			accounts[o.Name] = true
		}
	}
	for _, act := range action.Catalogue() {
		if accounts[act.ServiceAccount()] == act.NoJob {
			t.Errorf("%s: its account is in the manifest: %t (make generate)", act.Name, !act.NoJob)
		}
	}
}
