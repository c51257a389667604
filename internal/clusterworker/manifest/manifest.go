// Package manifest builds the Shoot of a cluster.
//
// The Shoot is a pure function of a cluster, its node pools and the configuration
// of the worker: the same input always gives the same bytes. The package reads the
// following keys of the specs, in camelCase or snake_case, and leaves the others
// to their readers:
//
//	cluster:    region, version (or kubernetes.version),
//	            network {type, nodeCIDR, podCIDR, serviceCIDR},
//	            provider {infrastructureConfig, controlPlaneConfig}
//	node pool:  machineType, replicas or minimum and maximum (or autoscaling {min, max}),
//	            image {name, version}, volume {type, size}, zones, labels,
//	            taints [{key, value, effect}]
//
// A spec from which no Shoot can be built is an error that names the field, in
// words for the cluster's owner. Gardener itself checks everything that only it
// can know, such as the available versions.
//
// DeriveShootName chooses the name of the Shoot.
package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// A Maker builds manifests for one worker. It is safe for concurrent use.
type Maker struct {
	resolvedConfig

	installation string
	nameLimit    int // longest name of a Shoot
}

// New validates the configuration of all Shoots. installationID is the id of the
// database, projectName the name of the Gardener project, and configuredNameLimit the
// configured limit of Shoot names.
func New(cfg Config, installationID, projectName string, configuredNameLimit int) (*Maker, error) {
	resolved, errConfig := cfg.resolveAndValidate()
	nameLimit, errLimit := ResolveNameLimit(configuredNameLimit, projectName)
	var errInstallation error
	if installationID == "" {
		errInstallation = errors.New("installation id is empty")
	}
	if err := errors.Join(errConfig, errInstallation, errLimit); err != nil {
		return nil, err
	}
	return &Maker{resolvedConfig: resolved, installation: installationID, nameLimit: nameLimit}, nil
}

// DeriveShootName returns the nth choice for the name of a cluster's Shoot, from 0.
func (m *Maker) DeriveShootName(claim clusterworker.Claim, choiceIndex int) string {
	return DeriveShootName(claim.Name, claim.ClusterID, choiceIndex, m.nameLimit)
}

// BuildManifest builds the manifest of a cluster that has a name for its Shoot. The error is for
// the cluster's owner.
func (m *Maker) BuildManifest(claim clusterworker.Claim) (shoot.Manifest, error) {
	if claim.ShootName == "" {
		return shoot.Manifest{}, errors.New("name of the Shoot is empty")
	}
	problems := &specProblems{}
	spec := decodeObject(problems, "spec", claim.Spec)
	region := cmp.Or(spec.readString("region"), m.Region)
	if region == "" {
		spec.addMissingProblem("region", "no default region is configured")
	}
	made := shoot.Manifest{
		APIVersion: shoot.APIVersion,
		Kind:       shoot.Kind,
		Metadata: shoot.Metadata{
			Name:        claim.ShootName,
			Namespace:   m.Namespace,
			Labels:      map[string]string{shoot.LabelCluster: claim.ClusterID, shoot.LabelInstallation: m.installation},
			Annotations: m.newAnnotations(claim),
		},
		Known: shoot.KnownGenerations{Synced: claim.SyncedGeneration, Sent: claim.Sent},
		Spec: shoot.Spec{
			CloudProfile:           shoot.CloudProfile{Name: m.CloudProfile, Kind: m.CloudProfileKind},
			CredentialsBindingName: m.CredentialsBindingName,
			Region:                 region,
			Kubernetes:             shoot.Kubernetes{Version: m.readKubernetesVersion(spec)},
			Networking:             m.buildNetworkingWithDefaults(spec),
			Provider:               m.buildProvider(spec),
		},
	}
	made.Spec.Provider.Workers = m.buildWorkers(problems, claim.Pools, region)
	if err := problems.joinFirstErrors(); err != nil {
		return shoot.Manifest{}, err
	}
	return made, nil
}

func (m *Maker) newAnnotations(claim clusterworker.Claim) map[string]string {
	out := map[string]string{}
	if m.ProviderType == providerMetal && claim.Tenant != "" {
		out[annotationMetalTenant] = claim.Tenant
	}
	maps.Copy(out, m.Annotations)
	out[shoot.AnnotationGeneration] = strconv.FormatInt(claim.Generation, 10)
	out[shoot.AnnotationName] = claim.Name
	if claim.History != "" {
		out[shoot.AnnotationHistory] = claim.History
	}
	return out
}

// readKubernetesVersion returns the version, empty if Gardener chooses it.
func (m *Maker) readKubernetesVersion(spec specObject) string {
	direct, nested := spec.readString("version"), spec.readObject("kubernetes").readString("version")
	if direct != "" && nested != "" && direct != nested {
		spec.p.addProblemf(
			"%s and %s have different values; set only one of them",
			spec.childPath("version"),
			spec.childPath("kubernetes.version"),
		)
	}
	version := strings.TrimPrefix(cmp.Or(direct, nested, m.KubernetesVersion), "v")
	if version != "" && !isValidKubernetesVersion(version) {
		spec.p.addProblemf("%s is %q, not a Kubernetes version; use the form 1.34 or 1.34.1", spec.childPath("version"), version)
	}
	return version
}

// isValidKubernetesVersion reports whether a version has two or three numbers and optionally a
// suffix. It can then be compared with others.
func isValidKubernetesVersion(v string) bool {
	if i := strings.IndexAny(v, "-+"); i > 0 {
		v = v[:i]
	}
	parts := strings.Split(v, ".")
	for _, part := range parts {
		if _, err := strconv.ParseUint(part, 10, 31); err != nil {
			return false
		}
	}
	return len(parts) == 2 || len(parts) == 3
}

func (m *Maker) buildNetworkingWithDefaults(spec specObject) *shoot.Networking {
	network := spec.readObject("network")
	networking := &shoot.Networking{
		Type:     cmp.Or(network.readString("type"), m.NetworkingType),
		Nodes:    cmp.Or(readCIDR(network, "nodeCIDR", "node_cidr"), m.NodeCIDR),
		Pods:     cmp.Or(readCIDR(network, "podCIDR", "pod_cidr"), m.PodCIDR),
		Services: cmp.Or(readCIDR(network, "serviceCIDR", "service_cidr"), m.ServiceCIDR),
	}
	if networking.Nodes == "" && m.needs.nodes {
		network.addMissingProblem("nodeCIDR", m.describeMissingDefault())
	}
	return networking
}

func readCIDR(network specObject, key, otherSpelling string) string {
	cidr := network.readString(key, otherSpelling)
	if fault := describeCIDRFault(cidr); fault != "" {
		network.p.addProblemf("%s is %q, which %s", network.childPath(key), cidr, fault)
	}
	return cidr
}

// describeCIDRFault returns the fault of a CIDR, empty if it is valid or empty.
func describeCIDRFault(cidr string) string {
	if cidr == "" {
		return ""
	}
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return "is not a CIDR; use the form 10.0.0.0/16"
	}
	if prefix != prefix.Masked() {
		return fmt.Sprintf("has host bits set; use %s", prefix.Masked())
	}
	return ""
}

func (m *Maker) buildProvider(spec specObject) shoot.Provider {
	config := spec.readObject("provider")
	out := shoot.Provider{
		Type:                 m.ProviderType,
		InfrastructureConfig: config.readCanonicalObject("infrastructureConfig", "infrastructure_config"),
		ControlPlaneConfig:   config.readCanonicalObject("controlPlaneConfig", "control_plane_config"),
	}
	if out.InfrastructureConfig == nil {
		out.InfrastructureConfig = slices.Clone(m.infrastructure)
	}
	if out.ControlPlaneConfig == nil {
		out.ControlPlaneConfig = slices.Clone(m.controlPlane)
	}
	if out.InfrastructureConfig == nil && m.needs.infrastructure {
		config.addMissingProblem("infrastructureConfig", m.describeMissingDefault())
	}
	return out
}

// describeMissingDefault returns why a value is required.
func (m *Maker) describeMissingDefault() string {
	return fmt.Sprintf("the provider %s requires it and no default is configured", m.ProviderType)
}
