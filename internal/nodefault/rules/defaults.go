package rules

import "github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"

// LabelTerminate is the label that, with the value "allowed" on a node, lets
// the rules of Defaults terminate it.
const LabelTerminate = "fleetloop.io/node-fault-terminate"

// Defaults are the rules that hold where none are given. Faults that are not
// fatal are only observed. Fatal ones have the node cordoned and drained, and
// then rebooted, replaced or looked at, as their source recommends. Only nodes
// that say so by a label are terminated: others are left to a person.
func Defaults() Config {
	yes := true
	fatal := func(name, match string, priority int, remedies ...v1alpha1.Remedy) Rule {
		return Rule{Name: name, Match: match, Cordon: &yes, Drain: &yes, Remedies: remedies, Priority: priority}
	}
	return Config{
		fatal("terminate", `fault.fatal && fault.recommendedAction == "REPLACE_VM" && node.labels["`+LabelTerminate+`"] == "allowed"`, 40,
			v1alpha1.RemedyTerminate, v1alpha1.RemedySupport),
		fatal("replace", `fault.fatal && fault.recommendedAction == "REPLACE_VM"`, 30, v1alpha1.RemedySupport),
		fatal("restart", `fault.fatal && fault.recommendedAction in ["RESTART_VM", "RESTART_BM", "COMPONENT_RESET"]`, 20,
			v1alpha1.RemedyReboot, v1alpha1.RemedySupport),
		// Whatever else a source recommends is beyond us, and must not stay unsaid.
		fatal("support", `fault.fatal && !(fault.recommendedAction in ["", "NONE", "REPLACE_VM", "RESTART_VM", "RESTART_BM", "COMPONENT_RESET"])`, 10,
			v1alpha1.RemedySupport),
		fatal("fatal", `fault.fatal`, 0),
	}
}
