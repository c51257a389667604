// Package roles defines the permissions of the node fault controller in a cluster. It has
// a minimal grant for each feature, and roles for people who report faults, view them and
// operate the controller. The manifests, the chart and the tests use it.
//
// The janitor reboots and terminates nodes. If it has a separate account, no other
// account has these permissions.
package roles

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Default names.
const (
	Namespace = "fleetloop-system"
	Account   = "fleetloop-node-fault-controller"
	// JanitorAccount is the account of a separate janitor process.
	JanitorAccount = "fleetloop-node-janitor"
	// ExecutionNamespace is the namespace of executions.
	ExecutionNamespace = "kubernaut-executor"
)

// The Leases for leader election.
const (
	ControllerLease = "fleetloop-node-fault-controller"
	JanitorLease    = "fleetloop-node-janitor"
)

// BudgetLease stores an exhausted budget.
const BudgetLease = "fleetloop-node-fault-budget"

// A Feature is an optional function of a process.
type Feature string

// The features.
const (
	// Controller takes nodes out of service, drains them and releases them.
	Controller Feature = "nodes"
	// ManualReset keeps an exhausted budget closed until a person resets it.
	ManualReset Feature = "manual-reset"
	// Deletion deletes pods that a disruption budget blocks for too long.
	Deletion Feature = "deletion"
	// Verification tests nodes with a Job after a reboot.
	Verification Feature = "verification"

	// Intake receives reports.
	Intake Feature = "intake"
	// Reviews checks the Kubernetes tokens of reports.
	Reviews Feature = "reviews"

	// Janitor executes RebootNodes and TerminateNodes.
	Janitor Feature = "janitor"
	// Termination deletes the Nodes of deleted machines.
	Termination Feature = "termination"
	// Job reboots nodes with a Job on the node.
	Job Feature = "job"
	// MachineReboot requests remediations of machines from Cluster API.
	MachineReboot Feature = "machine-reboot"
	// MachineTermination deletes machines through Cluster API.
	MachineTermination Feature = "machine-termination"
	// Execution creates KubernetesExecutions.
	Execution Feature = "execution"
)

// Features returns all features.
func Features() []Feature {
	return []Feature{Controller, ManualReset, Deletion, Verification, Intake, Reviews, Janitor, Termination, Job, MachineReboot, MachineTermination, Execution}
}

const (
	faultGroup      = "fleetloop.io"
	janitorGroup    = "janitor.dgxc.nvidia.com"
	machineGroup    = "cluster.x-k8s.io"
	executionGroup  = "kubernetesexecution.kubernaut.io"
	executions      = "kubernetesexecutions"
	verbExecute     = "execute"
	faults          = "nodefaults"
	nodes           = "nodes"
	coordination    = "coordination.k8s.io"
	resourceReboots = "rebootnodes"
	resourceEnds    = "terminatenodes"
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

// GrantOf returns the permissions of a feature. For executions, actions are the allowed
// actions; none means no action.
func GrantOf(f Feature, actions ...string) Grant {
	switch f {
	case Controller:
		return controllerGrant()
	case ManualReset:
		return Grant{Place: PlaceOwn, Inside: leaseAccessRules(BudgetLease)}
	case Deletion:
		return Grant{Cluster: policyRules(policyRule(corev1.GroupName, "pods", "delete"))}
	case Verification:
		return Grant{Place: PlaceOwn, Inside: policyRules(policyRule("batch", "jobs", "get", "create"))}
	case Intake:
		return Grant{Cluster: policyRules(
			policyRule(corev1.GroupName, nodes, "get"), // to reject reports about unknown nodes
			// Server-side apply of a missing object also requires create. Update is for a
			// fault that other managers also own.
			policyRule(faultGroup, faults, "get", "create", "patch", "update"),
		)}
	case Reviews:
		return Grant{Cluster: policyRules(
			policyRule("authentication.k8s.io", "tokenreviews", "create"),
			policyRule("authorization.k8s.io", "subjectaccessreviews", "create"),
		)}
	case Janitor, Termination, Job, MachineReboot, MachineTermination, Execution:
		return repairGrant(f, actions)
	}
	return Grant{}
}

func controllerGrant() Grant {
	return Grant{
		Cluster: policyRules(
			// A node that is not in the cache is read before a report is rejected.
			policyRule(corev1.GroupName, nodes, "get", "list", "watch", "patch"),
			policyRule(faultGroup, faults, "get", "list", "watch", "create", "patch", "update", "delete"),
			policyRule(faultGroup, faults+"/status", "patch"),
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

// repairGrant returns the permissions of the features that reboot and terminate nodes.
func repairGrant(f Feature, actions []string) Grant {
	switch f {
	case Termination:
		return Grant{Cluster: policyRules(policyRule(corev1.GroupName, nodes, "delete"))}
	case Job:
		return Grant{Place: PlaceJobs, Inside: policyRules(policyRule("batch", "jobs", "get", "create", "delete"))}
	case MachineReboot:
		return Grant{Cluster: policyRules(policyRule(machineGroup, "machines", "get", "patch"))}
	case MachineTermination:
		return Grant{Cluster: policyRules(policyRule(machineGroup, "machines", "get", "delete"))}
	case Execution:
		g := Grant{Place: PlaceExecutions, Inside: policyRules(policyRule(executionGroup, executions, "get", "create", "patch"))} // patch is for cancellation
		if len(actions) > 0 {                                                                                                     // without names the rule would allow all actions
			ask := policyRule(executionGroup, executions, verbExecute)
			ask.ResourceNames = actions
			g.Inside = append(g.Inside, ask)
		}
		return g
	case Janitor, Controller, ManualReset, Deletion, Verification, Intake, Reviews:
	}
	return Grant{
		Cluster: policyRules(
			policyRule(corev1.GroupName, nodes, "get", "list", "watch"),
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

// A Process is one account with its features. The zero value of each field but Features
// means its default.
type Process struct {
	Namespace, Account string
	Features           []Feature

	JobNamespace       string // empty means Namespace
	ExecutionNamespace string
	// Actions are the allowed actions of executions.
	Actions []string
}

// DefaultProcess returns a process with all features that need no choice by an installation.
func DefaultProcess() Process {
	return Process{Features: []Feature{Controller, Intake, Reviews, Janitor}}
}

// Objects returns the account, the roles and their bindings.
func (p Process) Objects() []runtime.Object {
	p = p.withDefaults()
	list := []runtime.Object{&corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "ServiceAccount"},
		ObjectMeta: metav1.ObjectMeta{Name: p.Account, Namespace: p.Namespace},
	}}
	return append(list, p.RolesAndBindings()...)
}

// RolesAndBindings returns the roles and their bindings for each feature.
func (p Process) RolesAndBindings() []runtime.Object {
	p = p.withDefaults()
	var list []runtime.Object
	for _, f := range p.Features {
		name, g := p.Account+"-"+string(f), GrantOf(f, p.Actions...)
		if len(g.Cluster) > 0 {
			list = append(list, ClusterRole(name, g.Cluster), &rbacv1.ClusterRoleBinding{
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

func (p Process) withDefaults() Process {
	p.Namespace = cmp.Or(p.Namespace, Namespace)
	p.Account = cmp.Or(p.Account, Account)
	p.JobNamespace = cmp.Or(p.JobNamespace, p.Namespace)
	p.ExecutionNamespace = cmp.Or(p.ExecutionNamespace, ExecutionNamespace)
	return p
}

func (p Process) namespaceOf(place Place) string {
	switch place {
	case PlaceJobs:
		return p.JobNamespace
	case PlaceExecutions:
		return p.ExecutionNamespace
	case PlaceOwn:
	}
	return p.Namespace
}

func (p Process) roleSubjects() []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: p.Account, Namespace: p.Namespace}}
}

// ClusterRole returns a ClusterRole with a name and rules.
func ClusterRole(name string, list []rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      list,
	}
}

func policyRule(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

func policyRules(list ...rbacv1.PolicyRule) []rbacv1.PolicyRule { return list }
