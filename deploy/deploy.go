// Package deploy contains the CustomResourceDefinitions and the safety policies that are shipped with
// Fleetloop, for programs that install or load them. It also copies this folder for a release.
package deploy

import (
	"embed"
	"io/fs"
	"path"
)

// The CustomResourceDefinitions, in YAML.
var (
	//go:embed crds/hyperfleet.redhat.com_sentinelconfigs.yaml
	SentinelConfigCRD []byte
	//go:embed crds/kubernetesexecution.kubernaut.io_kubernetesexecutions.yaml
	KubernetesExecutionCRD []byte
	//go:embed crds/fleetloop.io_nodefaults.yaml
	NodeFaultCRD []byte
	//go:embed crds/janitor.dgxc.nvidia.com_rebootnodes.yaml
	RebootNodeCRD []byte
	//go:embed crds/janitor.dgxc.nvidia.com_terminatenodes.yaml
	TerminateNodeCRD []byte
)

//go:embed policies/*.rego
var policies embed.FS

// PolicyFiles returns the safety policies and their tests, by the names that they have in the
// ConfigMap.
func PolicyFiles() (map[string]string, error) {
	names, err := fs.Glob(policies, "policies/*.rego")
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, name := range names {
		text, err := policies.ReadFile(name)
		if err != nil {
			return nil, err
		}
		files[path.Base(name)] = string(text)
	}
	return files, nil
}
