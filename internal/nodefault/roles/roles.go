// Package roles says which rights the node fault controller needs in a cluster:
// a grant for each of its features, with nothing in it that the feature could do
// without, and the roles of those who report faults, look, and lend a hand. The
// manifests, the chart and the tests have them from here.
//
// The janitor is the one that reboots and terminates. With an account of its own
// nobody else has the rights for it.
package roles

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Names, unless an installation says otherwise.
const (
	Namespace = "fleetloop-system"
	Account   = "fleetloop-node-fault-controller"
	// JanitorAccount is that of a janitor which is a process of its own.
	JanitorAccount = "fleetloop-node-janitor"
	// ExecutionNamespace is where executions are.
	ExecutionNamespace = "kubernaut-executor"
)

// The Leases by which one replica acts.
const (
	ControllerLease = "fleetloop-node-fault-controller"
	JanitorLease    = "fleetloop-node-janitor"
)

// BudgetLease keeps an exhausted budget closed.
const BudgetLease = "fleetloop-node-fault-budget"

// A Feature is something that a process does or not.
type Feature string

// The features.
const (
	// Controller takes nodes out of service, drains them and gives them back.
	Controller Feature = "nodes"
	// ManualReset keeps an exhausted budget closed until a person opens it.
	ManualReset Feature = "manual-reset"
	// Deletion deletes pods that a disruption budget keeps for too long.
	Deletion Feature = "deletion"
	// Verification tries nodes out after a reboot, by a Job.
	Verification Feature = "verification"

	// Intake takes reports.
	Intake Feature = "intake"
	// Reviews asks whose the tokens of the cluster are that come with them.
	Reviews Feature = "reviews"

	// Janitor carries RebootNodes and TerminateNodes out.
	Janitor Feature = "janitor"
	// Termination takes the Nodes away whose machines are gone.
	Termination Feature = "termination"
	// Job reboots nodes by a Job on them.
	Job Feature = "job"
	// MachineReboot has Cluster API remediate machines.
	MachineReboot Feature = "machine-reboot"
	// MachineTermination has Cluster API delete machines.
	MachineTermination Feature = "machine-termination"
	// Execution asks for KubernetesExecutions.
	Execution Feature = "execution"
)

// Features are all there are.
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
	PlaceOwn        Place = "own"        // that of the process
	PlaceJobs       Place = "jobs"       // that of the Jobs that reboot nodes
	PlaceExecutions Place = "executions" // that of executions
)

// A Grant is what a feature needs: outside of namespaces, and in one.
type Grant struct {
	Cluster []rbacv1.PolicyRule `json:"cluster,omitempty"`
	Place   Place               `json:"place,omitempty"`
	Inside  []rbacv1.PolicyRule `json:"inside,omitempty"`
}

// GrantOf is what a feature needs. Of executions these are the actions that are
// asked for; none is no action.
func GrantOf(f Feature, actions ...string) Grant {
	switch f {
	case Controller:
		return controller()
	case ManualReset:
		return Grant{Place: PlaceOwn, Inside: leaseRules(BudgetLease)}
	case Deletion:
		return Grant{Cluster: policyRules(policyRule(corev1.GroupName, "pods", "delete"))}
	case Verification:
		return Grant{Place: PlaceOwn, Inside: policyRules(policyRule("batch", "jobs", "get", "create"))}
	case Intake:
		return Grant{Cluster: policyRules(
			policyRule(corev1.GroupName, nodes, "get"), // a fault of no node is refused
			// Server-side apply of an object that is not there is a create as
			// well. Update is for a fault that others have a hand in.
			policyRule(faultGroup, faults, "get", "create", "patch", "update"),
		)}
	case Reviews:
		return Grant{Cluster: policyRules(
			policyRule("authentication.k8s.io", "tokenreviews", "create"),
			policyRule("authorization.k8s.io", "subjectaccessreviews", "create"),
		)}
	case Janitor, Termination, Job, MachineReboot, MachineTermination, Execution:
		return repairRoles(f, actions)
	}
	return Grant{}
}

func controller() Grant {
	return Grant{
		Cluster: policyRules(
			// One that is not in memory is asked for before a report is refused.
			policyRule(corev1.GroupName, nodes, "get", "list", "watch", "patch"),
			policyRule(faultGroup, faults, "get", "list", "watch", "create", "patch", "update", "delete"),
			policyRule(faultGroup, faults+"/status", "patch"),
			// Delete is for those that nobody waits for any more.
			policyRule(janitorGroup, resourceReboots, "list", "watch", "create", "delete"),
			policyRule(janitorGroup, resourceEnds, "list", "watch", "create", "delete"),
			policyRule(corev1.GroupName, "pods", "list"),
			policyRule(corev1.GroupName, "pods/eviction", "create"),
			// To say which one keeps a pod.
			policyRule("policy", "poddisruptionbudgets", "list"),
		),
		Place: PlaceOwn, Inside: leaseRules(ControllerLease),
	}
}

// repairRoles are those of what reboots and terminates.
func repairRoles(f Feature, actions []string) Grant {
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
		g := Grant{Place: PlaceExecutions, Inside: policyRules(policyRule(executionGroup, executions, "get", "create", "patch"))} // patch is to cancel
		if len(actions) > 0 {                                                                                                     // without names it would be all
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
			policyRule(corev1.GroupName, "pods", "list"), // what is left on a node
		),
		Place: PlaceOwn, Inside: leaseRules(JanitorLease),
	}
}

// leaseRules are the rights of who keeps one: a leader, or the budget. One that is to
// be made has no name yet.
func leaseRules(name string) []rbacv1.PolicyRule {
	keep := policyRule(coordination, "leases", "get", "update")
	keep.ResourceNames = []string{name}
	return policyRules(policyRule(coordination, "leases", "create"), keep)
}

// A Process is one account and what it is for. The zero value of each field but
// Features means its default.
type Process struct {
	Namespace, Account string
	Features           []Feature

	JobNamespace       string // empty means Namespace
	ExecutionNamespace string
	// Actions are those that executions may be asked for.
	Actions []string
}

// Whole is the process that does everything but what an installation has to
// choose.
func Whole() Process { return Process{Features: []Feature{Controller, Intake, Reviews, Janitor}} }

// Objects are the account, the roles and their bindings.
func (p Process) Objects() []runtime.Object {
	p = p.withDefaults()
	list := []runtime.Object{&corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "ServiceAccount"},
		ObjectMeta: metav1.ObjectMeta{Name: p.Account, Namespace: p.Namespace},
	}}
	return append(list, p.Rights()...)
}

// Rights are the roles and their bindings, feature by feature.
func (p Process) Rights() []runtime.Object {
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
			at := p.nameIn(g.Place)
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

func (p Process) nameIn(place Place) string {
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

// ClusterRole is a role of a name.
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
