package manifest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// Config is the operator's configuration of all Shoots of a worker, and the defaults of
// clusters. An empty field means its default, if it has one.
type Config struct {
	// Namespace is the namespace of the Gardener project with the Shoots. The client's
	// namespace determines it, so it is no separate setting.
	Namespace string

	ProviderType string `key:"provider_type" env:"GARDENER_PROVIDER_TYPE" flag:"gardener-provider-type" default:"local" doc:"Provider type of the Shoots: local, metal, aws, or any other provider with a Gardener extension."`

	CloudProfile     string `key:"cloud_profile" env:"GARDENER_CLOUD_PROFILE" flag:"gardener-cloud-profile" default:"local" doc:"Name of the CloudProfile, which lists regions, Kubernetes versions and machine types."`
	CloudProfileKind string `key:"cloud_profile_kind" env:"GARDENER_CLOUD_PROFILE_KIND" flag:"gardener-cloud-profile-kind" default:"CloudProfile" validate:"oneof=CloudProfile NamespacedCloudProfile" doc:"Kind of the cloud profile: CloudProfile or NamespacedCloudProfile."`

	CredentialsBindingName string `key:"credentials_binding_name" env:"GARDENER_CREDENTIALS_BINDING_NAME" flag:"gardener-credentials-binding-name" doc:"Name of the CredentialsBinding. Gardener requires one for every provider; for local its Secret may be empty."`

	Region            string `key:"region" env:"GARDENER_REGION" flag:"gardener-region" doc:"Default region (for the provider local: local; otherwise a cluster without a region fails)."`
	KubernetesVersion string `key:"kubernetes_version" env:"GARDENER_KUBERNETES_VERSION" flag:"gardener-kubernetes-version" doc:"Default Kubernetes version, such as 1.34 (if empty, Gardener chooses the newest in the cloud profile)."`
	MachineType       string `key:"machine_type" env:"GARDENER_MACHINE_TYPE" flag:"gardener-machine-type" doc:"Default machine type (for the provider local: local; otherwise a node pool without a machine type fails)."`

	VolumeType string   `key:"volume_type" env:"GARDENER_VOLUME_TYPE" doc:"Default volume type of machines. Required for the provider aws unless every node pool sets it."`
	VolumeSize string   `key:"volume_size" env:"GARDENER_VOLUME_SIZE" doc:"Default volume size of machines, such as 50Gi. Required for the provider aws unless every node pool sets it."`
	Zones      []string `key:"zones" env:"GARDENER_ZONES" doc:"Default zones of node pools, for clusters in the default region. Required for the provider aws unless every node pool sets them."`

	NetworkingType string `key:"networking_type" env:"GARDENER_NETWORKING_TYPE" flag:"gardener-networking-type" default:"calico" doc:"Default network plug-in."`
	NodeCIDR       string `key:"node_cidr" env:"GARDENER_NODE_CIDR" doc:"Default node CIDR (for the provider local: 10.0.0.0/16). Required for aws, within the VPC's range; not needed for metal."`
	PodCIDR        string `key:"pod_cidr" env:"GARDENER_POD_CIDR" doc:"Default pod CIDR (if empty, Gardener chooses it)."`
	ServiceCIDR    string `key:"service_cidr" env:"GARDENER_SERVICE_CIDR" doc:"Default service CIDR (if empty, Gardener chooses it)."`

	InfrastructureConfig string `key:"infrastructure_config" env:"GARDENER_INFRASTRUCTURE_CONFIG" file:"infrastructure_config_file" doc:"Default InfrastructureConfig of the provider, as a JSON object with apiVersion and kind, passed to Gardener unchanged. Required for aws and metal."`
	ControlPlaneConfig   string `key:"control_plane_config" env:"GARDENER_CONTROL_PLANE_CONFIG" file:"control_plane_config_file" doc:"Default ControlPlaneConfig of the provider, as a JSON object with apiVersion and kind, passed to Gardener unchanged."`

	Annotations map[string]string `key:"annotations" env:"GARDENER_ANNOTATIONS" doc:"Annotations of every Shoot, such as cluster.metal-stack.io/tenant=fleet (for the provider metal, that annotation defaults to the cluster's tenant)."`
}

// resolvedConfig is a Config with defaults, parsed and validated.
type resolvedConfig struct {
	Config
	needs                        requiredFields
	infrastructure, controlPlane json.RawMessage
}

func (c Config) resolveAndValidate() (resolvedConfig, error) {
	s := resolvedConfig{Config: c}
	s.Namespace = cmp.Or(s.Namespace, "garden-fundament")
	s.ProviderType = cmp.Or(s.ProviderType, providerLocal)
	s.CloudProfile = cmp.Or(s.CloudProfile, "local")
	s.CloudProfileKind = cmp.Or(s.CloudProfileKind, "CloudProfile")
	s.NetworkingType = cmp.Or(s.NetworkingType, "calico")
	if s.ProviderType == providerLocal {
		s.Region = cmp.Or(s.Region, "local")
		s.MachineType = cmp.Or(s.MachineType, "local")
		s.NodeCIDR = cmp.Or(s.NodeCIDR, "10.0.0.0/16")
	}
	s.needs = requiredFieldsOf(s.ProviderType)
	s.KubernetesVersion = strings.TrimPrefix(s.KubernetesVersion, "v")

	var errs []error
	if s.CloudProfileKind != "CloudProfile" && s.CloudProfileKind != "NamespacedCloudProfile" {
		errs = append(errs, fmt.Errorf("invalid cloud_profile_kind %q: must be CloudProfile or NamespacedCloudProfile", s.CloudProfileKind))
	}
	if s.KubernetesVersion != "" && !isValidKubernetesVersion(s.KubernetesVersion) {
		errs = append(errs, fmt.Errorf("invalid kubernetes_version %q: use the form 1.34 or 1.34.1", s.KubernetesVersion))
	}
	for _, cidr := range []string{s.NodeCIDR, s.PodCIDR, s.ServiceCIDR} {
		if fault := describeCIDRFault(cidr); fault != "" {
			errs = append(errs, fmt.Errorf("%q %s", cidr, fault))
		}
	}
	var errInfrastructure, errControlPlane error
	s.infrastructure, errInfrastructure = parseJSONObjectOrNil("infrastructure config", c.InfrastructureConfig)
	s.controlPlane, errControlPlane = parseJSONObjectOrNil("control plane config", c.ControlPlaneConfig)
	errs = append(errs, errInfrastructure, errControlPlane)
	for _, key := range slices.Sorted(maps.Keys(c.Annotations)) {
		if isReservedAnnotation(key) {
			errs = append(errs, fmt.Errorf("annotation %q is reserved: Fleetloop or Gardener uses it", key))
		}
	}
	return s, errors.Join(errs...)
}

// isReservedAnnotation reports whether an annotation would interfere with those of the worker.
func isReservedAnnotation(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	ownDomain, _, _ := strings.Cut(shoot.AnnotationGeneration, "/")
	confirmationDomain, _, _ := strings.Cut(shoot.AnnotationConfirmDeletion, "/")
	return domain == ownDomain || domain == confirmationDomain || key == "gardener.cloud/operation"
}

// parseJSONObjectOrNil parses a provider's config, nil if empty.
func parseJSONObjectOrNil(description, text string) (json.RawMessage, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	raw, err := canonicalizeJSON(json.RawMessage(text))
	if err != nil {
		return nil, fmt.Errorf("the %s is not valid JSON: %w", description, err)
	}
	if k := detectJSONType(raw); k != anObject {
		return nil, fmt.Errorf("the %s must be a JSON object, not %s", description, k)
	}
	return raw, nil
}

// canonicalizeJSON returns the canonical encoding of a value: sorted unique keys and no
// spaces.
func canonicalizeJSON(raw json.RawMessage) (json.RawMessage, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber() // a float64 would change large numbers
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("unexpected data after the JSON value")
	}
	return json.Marshal(value)
}
