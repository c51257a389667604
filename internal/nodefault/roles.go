package nodefault

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Default names of an installation.
const (
	DefaultNamespace = "fleetloop-system"
	DefaultAccount   = "fleetloop-node-fault-controller"
	// DefaultJanitorAccount is the account of a separate janitor process.
	DefaultJanitorAccount = "fleetloop-node-janitor"
	// DefaultExecutionNamespace is the namespace of executions.
	DefaultExecutionNamespace = "kubernaut-executor"
)

// The Leases for leader election.
const (
	ControllerLease = "fleetloop-node-fault-controller"
	JanitorLease    = "fleetloop-node-janitor"
)

// BudgetLease is the Lease that stores exhausted budgets.
const BudgetLease = "fleetloop-node-fault-budget"

// A Feature is an optional function of a process, with a minimal grant of permissions.
//
// The janitor reboots and terminates nodes. If it has a separate account, no other account has
// these permissions.
type Feature string

// The features.
const (
	// FeatureController takes nodes out of service, drains them and releases them.
	FeatureController Feature = "nodes"
	// FeatureManualReset keeps an exhausted budget closed until a person resets it.
	FeatureManualReset Feature = "manual-reset"
	// FeatureDeletion deletes pods that a disruption budget blocks for too long.
	FeatureDeletion Feature = "deletion"
	// FeatureVerification tests nodes with a Job after a reboot.
	FeatureVerification Feature = "verification"

	// FeatureIntake receives reports.
	FeatureIntake Feature = "intake"
	// FeatureReviews checks the Kubernetes tokens of reports.
	FeatureReviews Feature = "reviews"

	// FeatureJanitor executes RebootNodes and TerminateNodes.
	FeatureJanitor Feature = "janitor"
	// FeatureTermination deletes the Nodes of deleted machines.
	FeatureTermination Feature = "termination"
	// FeatureJob reboots nodes with a Job on the node.
	FeatureJob Feature = "job"
	// FeatureMachineReboot requests remediations of machines from Cluster API.
	FeatureMachineReboot Feature = "machine-reboot"
	// FeatureMachineTermination deletes machines through Cluster API.
	FeatureMachineTermination Feature = "machine-termination"
	// FeatureExecution creates KubernetesExecutions.
	FeatureExecution Feature = "execution"
)

// Features returns all features.
func Features() []Feature {
	return []Feature{
		FeatureController, FeatureManualReset, FeatureDeletion, FeatureVerification, FeatureIntake, FeatureReviews,
		FeatureJanitor, FeatureTermination, FeatureJob, FeatureMachineReboot, FeatureMachineTermination, FeatureExecution,
	}
}

const (
	faultGroup         = "fleetloop.io"
	janitorGroup       = "janitor.dgxc.nvidia.com"
	machineGroup       = "cluster.x-k8s.io"
	executionGroup     = "kubernetesexecution.kubernaut.io"
	resourceExecutions = "kubernetesexecutions"
	verbExecute        = "execute"
	resourceFaults     = "nodefaults"
	resourceNodes      = "nodes"
	coordination       = "coordination.k8s.io"
	resourceReboots    = "rebootnodes"
	resourceEnds       = "terminatenodes"
)

// A Place is a namespace that an installation chooses.
type Place string

// The places.
const (
	PlaceOwn        Place = "own"        // the namespace of the process
	PlaceJobs       Place = "jobs"       // the namespace of the Jobs that reboot nodes
	PlaceExecutions Place = "executions" // the namespace of executions
)

// A Grant holds the permissions of a feature: cluster-wide ones, and those in one
// namespace.
type Grant struct {
	Cluster []rbacv1.PolicyRule `json:"cluster,omitempty"`
	Place   Place               `json:"place,omitempty"`
	Inside  []rbacv1.PolicyRule `json:"inside,omitempty"`
}

// RBACGrantOfFeature returns the permissions of a feature. For executions, actions are the allowed
// actions; none means no action.
func RBACGrantOfFeature(f Feature, actions ...string) Grant {
	switch f {
	case FeatureController:
		return controllerRBACGrant()
	case FeatureManualReset:
		return Grant{Place: PlaceOwn, Inside: leaseAccessRules(BudgetLease)}
	case FeatureDeletion:
		return Grant{Cluster: policyRules(policyRule(corev1.GroupName, "pods", "delete"))}
	case FeatureVerification:
		return Grant{Place: PlaceOwn, Inside: policyRules(policyRule("batch", "jobs", "get", "create"))}
	case FeatureIntake:
		return Grant{Cluster: policyRules(
			policyRule(corev1.GroupName, resourceNodes, "get"), // to reject reports about unknown nodes
			// Server-side apply of a missing object also requires create. Update is for a
			// fault that other managers also own.
			policyRule(faultGroup, resourceFaults, "get", "create", "patch", "update"),
		)}
	case FeatureReviews:
		return Grant{Cluster: policyRules(
			policyRule("authentication.k8s.io", "tokenreviews", "create"),
			policyRule("authorization.k8s.io", "subjectaccessreviews", "create"),
		)}
	case FeatureJanitor, FeatureTermination, FeatureJob, FeatureMachineReboot, FeatureMachineTermination, FeatureExecution:
		return janitorRBACGrant(f, actions)
	}
	return Grant{}
}

func controllerRBACGrant() Grant {
	return Grant{
		Cluster: policyRules(
			// A node that is not in the cache is read before a report is rejected.
			policyRule(corev1.GroupName, resourceNodes, "get", "list", "watch", "patch"),
			policyRule(faultGroup, resourceFaults, "get", "list", "watch", "create", "patch", "update", "delete"),
			policyRule(faultGroup, resourceFaults+"/status", "patch"),
			// Delete is for objects that have timed out or were cancelled.
			policyRule(janitorGroup, resourceReboots, "list", "watch", "create", "delete"),
			policyRule(janitorGroup, resourceEnds, "list", "watch", "create", "delete"),
			policyRule(corev1.GroupName, "pods", "list"),
			policyRule(corev1.GroupName, "pods/eviction", "create"),
			// to name the budget that blocks a pod
			policyRule("policy", "poddisruptionbudgets", "list"),
		),
		Place: PlaceOwn, Inside: leaseAccessRules(ControllerLease),
	}
}

// janitorRBACGrant returns the permissions of the features that reboot and terminate nodes.
func janitorRBACGrant(f Feature, actions []string) Grant {
	switch f {
	case FeatureTermination:
		return Grant{Cluster: policyRules(policyRule(corev1.GroupName, resourceNodes, "delete"))}
	case FeatureJob:
		return Grant{Place: PlaceJobs, Inside: policyRules(policyRule("batch", "jobs", "get", "create", "delete"))}
	case FeatureMachineReboot:
		return Grant{Cluster: policyRules(policyRule(machineGroup, "machines", "get", "patch"))}
	case FeatureMachineTermination:
		return Grant{Cluster: policyRules(policyRule(machineGroup, "machines", "get", "delete"))}
	case FeatureExecution:
		create := policyRule(executionGroup, resourceExecutions, "get", "create", "patch") // patch is for cancellation
		g := Grant{Place: PlaceExecutions, Inside: policyRules(create)}
		if len(actions) > 0 { // without names the rule would allow all actions
			ask := policyRule(executionGroup, resourceExecutions, verbExecute)
			ask.ResourceNames = actions
			g.Inside = append(g.Inside, ask)
		}
		return g
	case FeatureJanitor, FeatureController, FeatureManualReset, FeatureDeletion, FeatureVerification, FeatureIntake, FeatureReviews:
	}
	return Grant{
		Cluster: policyRules(
			policyRule(corev1.GroupName, resourceNodes, "get", "list", "watch"),
			policyRule(janitorGroup, resourceReboots, "list", "watch", "delete"),
			policyRule(janitorGroup, resourceEnds, "list", "watch", "delete"),
			policyRule(janitorGroup, resourceReboots+"/status", "update"),
			policyRule(janitorGroup, resourceEnds+"/status", "update"),
			policyRule(corev1.GroupName, "pods", "list"), // to find pods that are left on a node
		),
		Place: PlaceOwn, Inside: leaseAccessRules(JanitorLease),
	}
}

// leaseAccessRules returns the permissions for a Lease, of leader election or of the budget. A
// create request cannot be limited to a name.
func leaseAccessRules(leaseName string) []rbacv1.PolicyRule {
	keep := policyRule(coordination, "leases", "get", "update")
	keep.ResourceNames = []string{leaseName}
	return policyRules(policyRule(coordination, "leases", "create"), keep)
}

// ProcessRoles are the account and the permissions of one process with its features. The zero value
// of each field but Features means its default.
type ProcessRoles struct {
	Namespace, Account string
	Features           []Feature

	JobNamespace       string // empty means Namespace
	ExecutionNamespace string
	// Actions are the allowed actions of executions.
	Actions []string
}

// DefaultProcessRoles returns the roles of a process with all features that need no choice by an
// installation.
func DefaultProcessRoles() ProcessRoles {
	return ProcessRoles{Features: []Feature{FeatureController, FeatureIntake, FeatureReviews, FeatureJanitor}}
}

// ServiceAccountAndRoles returns the account, the roles and their bindings.
func (p ProcessRoles) ServiceAccountAndRoles() []runtime.Object {
	p = p.withDefaults()
	list := []runtime.Object{&corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "ServiceAccount"},
		ObjectMeta: metav1.ObjectMeta{Name: p.Account, Namespace: p.Namespace},
	}}
	return append(list, p.RolesAndBindings()...)
}

// RolesAndBindings returns the roles and their bindings for each feature.
func (p ProcessRoles) RolesAndBindings() []runtime.Object {
	p = p.withDefaults()
	var list []runtime.Object
	for _, f := range p.Features {
		name, g := p.Account+"-"+string(f), RBACGrantOfFeature(f, p.Actions...)
		if len(g.Cluster) > 0 {
			list = append(list, newClusterRole(name, g.Cluster), &rbacv1.ClusterRoleBinding{
				TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
				ObjectMeta: metav1.ObjectMeta{Name: name},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
				Subjects:   p.roleSubjects(),
			})
		}
		if len(g.Inside) > 0 {
			at := p.namespaceOf(g.Place)
			list = append(list, &rbacv1.Role{
				TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "Role"},
				ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: at},
				Rules:      g.Inside,
			}, &rbacv1.RoleBinding{
				TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
				ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: at},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
				Subjects:   p.roleSubjects(),
			})
		}
	}
	return list
}

func (p ProcessRoles) withDefaults() ProcessRoles {
	p.Namespace = cmp.Or(p.Namespace, DefaultNamespace)
	p.Account = cmp.Or(p.Account, DefaultAccount)
	p.JobNamespace = cmp.Or(p.JobNamespace, p.Namespace)
	p.ExecutionNamespace = cmp.Or(p.ExecutionNamespace, DefaultExecutionNamespace)
	return p
}

func (p ProcessRoles) namespaceOf(place Place) string {
	switch place {
	case PlaceJobs:
		return p.JobNamespace
	case PlaceExecutions:
		return p.ExecutionNamespace
	case PlaceOwn:
	}
	return p.Namespace
}

func (p ProcessRoles) roleSubjects() []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: p.Account, Namespace: p.Namespace}}
}

// newClusterRole returns a ClusterRole with a name and rules.
func newClusterRole(name string, rules []rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      rules,
	}
}

func policyRule(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

func policyRules(list ...rbacv1.PolicyRule) []rbacv1.PolicyRule { return list }
