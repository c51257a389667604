package main

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetloop/fleetloop/internal/nodefault/roles"
)

// writeNodeFaults writes the rights of the node fault controller.
func writeNodeFaults() error {
	var people []runtime.Object
	for _, role := range roles.People() {
		people = append(people, role)
	}
	with := func(features ...roles.Feature) []runtime.Object {
		return roles.Process{Features: features, Actions: []string{"REBOOT_ACTION"}}.Rights()
	}
	for _, f := range []file{
		{"node-faults.yaml", "The node fault controller, its account, and what it needs to take reports, and to take nodes\n# out of service, drain them and give them back. It is one with the janitor here.", roles.Whole().Objects()},
		{"node-faults-latch.yaml", "Beside node-faults.yaml, where budget.on_trip is latch.", with(roles.Latch)},
		{"node-faults-deletion.yaml", "Beside node-faults.yaml, where drain.namespaces has force_after or drop_after.", with(roles.Deletion)},
		{"node-faults-verification.yaml", "Beside node-faults.yaml, where remediation.verification has an image.", with(roles.Verification)},
		{"node-faults-termination.yaml", "Beside node-faults.yaml, where nodes are terminated: takes the Nodes away whose machines are\n# gone.", with(roles.Termination)},
		{"node-faults-job.yaml", "Beside node-faults.yaml, where nodes are rebooted by a Job. Whoever may make Jobs in a namespace\n# that admits privileged pods may do anything to any node: it is best one of its own.", with(roles.Job)},
		{"node-faults-machine.yaml", "Beside node-faults.yaml, where Cluster API reboots and terminates nodes.", with(roles.MachineReboot, roles.MachineTermination)},
		{"node-faults-execution.yaml", "Beside node-faults.yaml, where KubernetesExecutions reboot and terminate nodes. Put the names of\n# the actions into resourceNames: it may ask for no others.", with(roles.Execution)},
		{"node-faults-people.yaml", "For others, to be bound: monitors that report faults, those who look, and those who give nodes\n# back and have them rebooted.", people},
	} {
		if err := write(f); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
	}
	return nil
}
