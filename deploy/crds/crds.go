// Package crds holds the CustomResourceDefinitions as they are shipped, for
// those who install them from Go.
package crds

import _ "embed" // for the file below

// SentinelConfigs is the CustomResourceDefinition of SentinelConfigs, in YAML.
//
//go:embed hyperfleet.redhat.com_sentinelconfigs.yaml
var SentinelConfigs []byte

// KubernetesExecutions is the CustomResourceDefinition of KubernetesExecutions,
// in YAML.
//
//go:embed kubernetesexecution.kubernaut.io_kubernetesexecutions.yaml
var KubernetesExecutions []byte

// NodeFaults, RebootNodes and TerminateNodes are the CustomResourceDefinitions
// of node faults and what is done about them, in YAML.
var (
	//go:embed fleetloop.io_nodefaults.yaml
	NodeFaults []byte
	//go:embed janitor.dgxc.nvidia.com_rebootnodes.yaml
	RebootNodes []byte
	//go:embed janitor.dgxc.nvidia.com_terminatenodes.yaml
	TerminateNodes []byte
)
