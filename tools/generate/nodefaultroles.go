package main

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetloop/fleetloop/internal/nodefault"
)

// writeNodeFaultRoles writes the permissions of the node fault controller.
func writeNodeFaultRoles() error {
	var people []runtime.Object
	for _, role := range nodefault.PeopleRoles() {
		people = append(people, role)
	}
	with := func(features ...nodefault.Feature) []runtime.Object {
		return nodefault.ProcessRoles{Features: features, Actions: []string{"REBOOT_ACTION"}}.RolesAndBindings()
	}
	for _, f := range []file{
		{"node-faults.yaml", "ServiceAccount and permissions of node-fault-controller, with the janitor in the same process: receive\n# reports, and quarantine, drain and release nodes.", nodefault.DefaultProcessRoles().ServiceAccountAndRoles()},
		{"node-faults-manual-reset.yaml", "Needed in addition to node-faults.yaml if budget.on_exhausted is manual-reset.", with(nodefault.FeatureManualReset)},
		{"node-faults-deletion.yaml", "Needed in addition to node-faults.yaml if an entry of drain.namespaces sets delete_after or force_delete_after.", with(nodefault.FeatureDeletion)},
		{"node-faults-verification.yaml", "Needed in addition to node-faults.yaml if remediation.verification.image is set.", with(nodefault.FeatureVerification)},
		{"node-faults-termination.yaml", "Needed in addition to node-faults.yaml if nodes are terminated: deletes the Nodes of terminated\n# machines.", with(nodefault.FeatureTermination)},
		{"node-faults-job.yaml", "Needed in addition to node-faults.yaml if a Job reboots nodes. Anyone who can create Jobs in a\n# namespace that admits privileged pods can control every node: use a separate namespace.", with(nodefault.FeatureJob)},
		{"node-faults-machine.yaml", "Needed in addition to node-faults.yaml if Cluster API reboots and terminates nodes.", with(nodefault.FeatureMachineReboot, nodefault.FeatureMachineTermination)},
		{"node-faults-execution.yaml", "Needed in addition to node-faults.yaml if KubernetesExecutions reboot and terminate nodes. List the\n# allowed actions in resourceNames.", with(nodefault.FeatureExecution)},
		{"node-faults-people.yaml", "Roles for you to bind: for monitors that report faults, for viewers, and for operators who release\n# and reboot nodes.", people},
	} {
		if err := writeManifestFile(f); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
	}
	return nil
}
