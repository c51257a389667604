package rules

import "github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"

// LabelTerminate is the label whose value "allowed" on a node lets the rules of Defaults
// terminate it.
const LabelTerminate = "fleetloop.io/node-fault-terminate"

// Defaults returns the rules for an installation without rules. Non-fatal faults are only
// observed. For fatal faults, the node is cordoned and drained, and then rebooted,
// replaced or handed to support, as the source recommends. Only nodes with the label
// LabelTerminate are terminated; others are left to a person.
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
		// Any other recommendation cannot be done automatically, and must be shown to a
		// person.
		fatal(
			"support",
			`fault.fatal && !(fault.recommendedAction in ["", "NONE", "REPLACE_VM", "RESTART_VM", "RESTART_BM", "COMPONENT_RESET"])`,
			10,
			v1alpha1.RemedySupport,
		),
		fatal("fatal", `fault.fatal`, 0),
	}
}
