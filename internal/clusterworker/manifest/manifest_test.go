package manifest_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/manifest"
	"github.com/fleetloop/fleetloop/internal/settings"
)

var _ clusterworker.Maker = (*manifest.Maker)(nil)

const (
	clusterID    = "0b7e3c52-5d1b-4a35-9d39-0f6f2f0f6a01"
	installation = "5c6a0f6e-1f2d-4c3b-8a9b-0c1d2e3f4a5b"
)

// local, metal and aws return typical configurations of operators.
func local() manifest.Config { return manifest.Config{CredentialsBindingName: "local"} }

func metal() manifest.Config {
	return manifest.Config{
		Namespace: "garden-m", ProviderType: "metal", CloudProfile: "metal", CredentialsBindingName: "metal",
		Region: "west", KubernetesVersion: "1.34", MachineType: "c1-large",
		PodCIDR: "10.240.0.0/13", ServiceCIDR: "10.248.0.0/18",
		InfrastructureConfig: `{"kind": "InfrastructureConfig", "apiVersion": "metal.provider.extensions.gardener.cloud/v1alpha1", "partitionID": "p1", "projectID": "x"}`,
		ControlPlaneConfig:   `{"kind": "ControlPlaneConfig", "apiVersion": "metal.provider.extensions.gardener.cloud/v1alpha1"}`,
	}
}

func aws() manifest.Config {
	return manifest.Config{
		Namespace: "garden-a", ProviderType: "aws", CloudProfile: "aws", CredentialsBindingName: "aws",
		Region: "eu-central-1", KubernetesVersion: "1.34.1", MachineType: "m5.large",
		VolumeType: "gp3", VolumeSize: "50Gi", Zones: []string{"eu-central-1a"}, NodeCIDR: "10.250.0.0/16",
		InfrastructureConfig: `{"apiVersion":"aws.provider.extensions.gardener.cloud/v1alpha1","kind":"InfrastructureConfig","networks":{"vpc":{"cidr":"10.250.0.0/16"}}}`,
	}
}

// claim returns a cluster, with its node pools as alternating names and specs.
func claim(spec string, pools ...string) clusterworker.Claim {
	c := clusterworker.Claim{
		ClusterID: clusterID, Generation: 7, ClusterGeneration: 3, Tenant: "acme", Name: "eu-west-03",
		ShootName: "eu-we-oyldub", Spec: json.RawMessage(spec),
	}
	for pool := range slices.Chunk(pools, 2) {
		c.Pools = append(c.Pools, clusterworker.Pool{ID: pool[0], Name: pool[0], Spec: json.RawMessage(pool[1])})
	}
	return c
}

func newMaker(t *testing.T, cfg manifest.Config) *manifest.Maker {
	t.Helper()
	m, err := manifest.New(cfg, installation, "fundament", 21)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return m
}

// made returns the sent manifest in readable form.
func made(t *testing.T, cfg manifest.Config, c clusterworker.Claim) string {
	t.Helper()
	m, err := newMaker(t, cfg).BuildManifest(c)
	if err != nil {
		t.Fatalf("Make: %v", err)
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatalf("marshal: %v", err)
	}
	return indented(t, string(text))
}

func indented(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Indent(&b, []byte(text), "", " "); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return b.String()
}

func TestWhole(t *testing.T) {
	cases := map[string]struct {
		reason string
		cfg    manifest.Config
		claim  clusterworker.Claim
		want   string
	}{
		"LocalWithoutAnything": {
			reason: "an empty cluster becomes a Shoot that Gardener takes, with one pool that can grow and shrink to one machine",
			cfg:    local(), claim: claim(`{}`),
			want: `{
				"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Shoot",
				"metadata": {
					"name": "eu-we-oyldub", "namespace": "garden-fundament",
					"labels": {"fleetloop.io/cluster-id": "0b7e3c52-5d1b-4a35-9d39-0f6f2f0f6a01", "fleetloop.io/installation": "5c6a0f6e-1f2d-4c3b-8a9b-0c1d2e3f4a5b"},
					"annotations": {"fleetloop.io/cluster-name": "eu-west-03", "fleetloop.io/generation": "7"}
				},
				"spec": {
					"cloudProfile": {"name": "local", "kind": "CloudProfile"},
					"credentialsBindingName": "local",
					"region": "local", "kubernetes": {},
					"networking": {"type": "calico", "nodes": "10.0.0.0/16"},
					"provider": {"type": "local", "workers": [{"name": "default", "machine": {"type": "local"}, "minimum": 1, "maximum": 3}]}
				}
			}`,
		},
		"MetalByDefaults": {
			reason: "the provider's configs are passed on, it allocates the nodes' addresses, and its admission is told the tenant",
			cfg:    metal(), claim: claim(`{}`, "workers", `{"replicas":3}`),
			want: `{
				"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Shoot",
				"metadata": {
					"name": "eu-we-oyldub", "namespace": "garden-m",
					"labels": {"fleetloop.io/cluster-id": "0b7e3c52-5d1b-4a35-9d39-0f6f2f0f6a01", "fleetloop.io/installation": "5c6a0f6e-1f2d-4c3b-8a9b-0c1d2e3f4a5b"},
					"annotations": {"cluster.metal-stack.io/tenant": "acme", "fleetloop.io/cluster-name": "eu-west-03", "fleetloop.io/generation": "7"}
				},
				"spec": {
					"cloudProfile": {"name": "metal", "kind": "CloudProfile"},
					"credentialsBindingName": "metal",
					"region": "west", "kubernetes": {"version": "1.34"},
					"networking": {"type": "calico", "pods": "10.240.0.0/13", "services": "10.248.0.0/18"},
					"provider": {
						"type": "metal",
						"infrastructureConfig": {"apiVersion": "metal.provider.extensions.gardener.cloud/v1alpha1", "kind": "InfrastructureConfig", "partitionID": "p1", "projectID": "x"},
						"controlPlaneConfig": {"apiVersion": "metal.provider.extensions.gardener.cloud/v1alpha1", "kind": "ControlPlaneConfig"},
						"workers": [{"name": "workers", "machine": {"type": "c1-large"}, "minimum": 3, "maximum": 3}]
					}
				}
			}`,
		},
		"AWSWithEverything": {
			reason: "whatever a cluster says goes before the defaults, and keys of others are not looked at",
			cfg:    aws(),
			claim: claim(`{
				"region": "eu-west-1", "version": "v1.35.0", "owner": 7, "Region": "no",
				"network": {"type": "cilium", "nodeCIDR": "10.1.0.0/16", "pod_cidr": "100.64.0.0/12", "serviceCIDR": "100.80.0.0/13", "service_cidr": "100.80.0.0/13"},
				"provider": {"infrastructure_config": {"kind": "InfrastructureConfig", "big": 12345678901234567890}, "controlPlaneConfig": {"kind": "ControlPlaneConfig"}}
			}`,
				"zeta", `{"machine_type": "m5.xlarge", "replicas": 0, "zones": ["eu-west-1b", "eu-west-1a"]}`,
				"alpha", `{
					"machineType": "c5.large", "autoscaling": {"min": 2, "max": 5}, "minimum": 2, "zones": ["eu-west-1c"], "disks": null,
					"image": {"name": "gardenlinux", "version": "1877.2.0"}, "volume": {"type": "io2", "size": "100Gi"},
					"labels": {"team": "b", "stage": "a"}, "taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}`),
			want: `{
				"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Shoot",
				"metadata": {
					"name": "eu-we-oyldub", "namespace": "garden-a",
					"labels": {"fleetloop.io/cluster-id": "0b7e3c52-5d1b-4a35-9d39-0f6f2f0f6a01", "fleetloop.io/installation": "5c6a0f6e-1f2d-4c3b-8a9b-0c1d2e3f4a5b"},
					"annotations": {"fleetloop.io/cluster-name": "eu-west-03", "fleetloop.io/generation": "7"}
				},
				"spec": {
					"cloudProfile": {"name": "aws", "kind": "CloudProfile"},
					"credentialsBindingName": "aws",
					"region": "eu-west-1", "kubernetes": {"version": "1.35.0"},
					"networking": {"type": "cilium", "nodes": "10.1.0.0/16", "pods": "100.64.0.0/12", "services": "100.80.0.0/13"},
					"provider": {
						"type": "aws",
						"infrastructureConfig": {"big": 12345678901234567890, "kind": "InfrastructureConfig"},
						"controlPlaneConfig": {"kind": "ControlPlaneConfig"},
						"workers": [
							{
								"name": "alpha", "machine": {"type": "c5.large", "image": {"name": "gardenlinux", "version": "1877.2.0"}}, "minimum": 2, "maximum": 5,
								"volume": {"type": "io2", "size": "100Gi"}, "zones": ["eu-west-1c"],
								"labels": {"stage": "a", "team": "b"}, "taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
							},
							{
								"name": "zeta", "machine": {"type": "m5.xlarge"}, "minimum": 0, "maximum": 0,
								"volume": {"type": "gp3", "size": "50Gi"}, "zones": ["eu-west-1b", "eu-west-1a"]
							}
						]
					}
				}
			}`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(indented(t, c.want), made(t, c.cfg, c.claim)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

// TestConfiguration: the specification's variables and defaults reach the Shoot, and an
// empty Config means the same.
func TestConfiguration(t *testing.T) {
	var loaded manifest.Config
	if _, err := settings.Load(&loaded, settings.Source{}); err != nil {
		t.Fatalf("Load: %v", err)
	}
	if diff := cmp.Diff(made(t, manifest.Config{}, claim(`{}`)), made(t, loaded, claim(`{}`))); diff != "" {
		t.Errorf("without the loader the defaults are others (-zero +loaded):\n%s", diff)
	}
	if strings.Contains(made(t, loaded, claim(`{}`)), "credentialsBindingName") {
		t.Error("a credentials binding that is not configured is in the manifest")
	}
	env := map[string]string{
		"GARDENER_PROVIDER_TYPE": "openstack", "GARDENER_CLOUD_PROFILE": "os", "GARDENER_CLOUD_PROFILE_KIND": "NamespacedCloudProfile",
		"GARDENER_CREDENTIALS_BINDING_NAME": "creds", "GARDENER_REGION": "r1", "GARDENER_KUBERNETES_VERSION": "1.33", "GARDENER_MACHINE_TYPE": "m1",
		"GARDENER_NETWORKING_TYPE": "cilium", "GARDENER_NODE_CIDR": "10.2.0.0/16", "GARDENER_ZONES": "r1a,r1b", "GARDENER_VOLUME_SIZE": "20Gi",
		"GARDENER_INFRASTRUCTURE_CONFIG": `{"kind":"I"}`, "GARDENER_CONTROL_PLANE_CONFIG": `{"kind":"C"}`, "GARDENER_ANNOTATIONS": "a=b,c=d",
	}
	var cfg manifest.Config
	if _, err := settings.Load(&cfg, settings.Source{Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok }}); err != nil {
		t.Fatalf("Load: %v", err)
	}
	cfg.Namespace = "garden-x" // the client's
	c := claim(`{}`)
	const want = `{
		"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Shoot",
		"metadata": {
			"name": "eu-we-oyldub", "namespace": "garden-x",
			"labels": {"fleetloop.io/cluster-id": "0b7e3c52-5d1b-4a35-9d39-0f6f2f0f6a01", "fleetloop.io/installation": "5c6a0f6e-1f2d-4c3b-8a9b-0c1d2e3f4a5b"},
			"annotations": {"a": "b", "c": "d", "fleetloop.io/cluster-name": "eu-west-03", "fleetloop.io/generation": "7"}
		},
		"spec": {
			"cloudProfile": {"name": "os", "kind": "NamespacedCloudProfile"}, "credentialsBindingName": "creds", "region": "r1", "kubernetes": {"version": "1.33"},
			"networking": {"type": "cilium", "nodes": "10.2.0.0/16"},
			"provider": {"type": "openstack", "infrastructureConfig": {"kind": "I"}, "controlPlaneConfig": {"kind": "C"},
				"workers": [{"name": "default", "machine": {"type": "m1"}, "minimum": 1, "maximum": 3, "volume": {"size": "20Gi"}, "zones": ["r1a", "r1b"]}]}
		}
	}`
	if diff := cmp.Diff(indented(t, want), made(t, cfg, c)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNewRefuses(t *testing.T) {
	cases := map[string]struct {
		reason  string
		change  func(*manifest.Config)
		project string
		maxName int
		says    string
	}{
		"BadJSON":   {reason: "at start, not at the first cluster", change: func(c *manifest.Config) { c.InfrastructureConfig = `{"a":` }, says: "infrastructure config is not valid JSON"},
		"TwoValues": {reason: "half of it would be lost", change: func(c *manifest.Config) { c.ControlPlaneConfig = `{} }` }, says: "control plane config is not valid JSON: unexpected data"},
		"NoObject":  {reason: "Gardener takes objects", change: func(c *manifest.Config) { c.ControlPlaneConfig = `"x"` }, says: "must be a JSON object, not a string"},
		"Version":   {reason: "versions are compared", change: func(c *manifest.Config) { c.KubernetesVersion = "latest" }, says: `invalid kubernetes_version "latest"`},
		"CIDR":      {reason: "Gardener would refuse every cluster", change: func(c *manifest.Config) { c.PodCIDR = "10.0.0.1/8" }, says: "use 10.0.0.0/8"},
		"Kind":      {reason: "there are two", change: func(c *manifest.Config) { c.CloudProfileKind = "Profile" }, says: `cloud_profile_kind "Profile"`},
		"Ours":      {reason: "the generation is what tells stale requests", change: func(c *manifest.Config) { c.Annotations = map[string]string{"fleetloop.io/generation": "1"} }, says: `"fleetloop.io/generation" is reserved`},
		"Confirmation": {reason: "no Shoot is to be deleted by accident", change: func(c *manifest.Config) {
			c.Annotations = map[string]string{"confirmation.gardener.cloud/deletion": "true"}
		}, says: "is reserved"},
		"Operation": {reason: "Gardener would act anew each time", change: func(c *manifest.Config) { c.Annotations = map[string]string{"gardener.cloud/operation": "retry"} }, says: "is reserved"},
		"Name":      {reason: "no name fits", project: "a-project-of-20-chars", maxName: 21, says: "leaves 0 of 21 characters"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cfg := local()
			if c.change != nil {
				c.change(&cfg)
			}
			_, err := manifest.New(cfg, installation, c.project, max(c.maxName, 12))
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: New gives %v, which should say %q", c.reason, err, c.says)
			}
		})
	}
	if _, err := manifest.New(local(), "", "dev", 21); err == nil {
		t.Error("Shoots without an installation's id would be nobody's")
	}
}

func TestName(t *testing.T) {
	m, c := newMaker(t, local()), claim(`{}`)
	if got := m.DeriveShootName(c, 0); got != "eu-we-oyldub" {
		t.Errorf("the name is %q; the project leaves twelve characters", got)
	}
	if m.DeriveShootName(c, 0) == m.DeriveShootName(c, 1) {
		t.Error("the second choice is the first one")
	}
	c.ShootName = ""
	if _, err := m.BuildManifest(c); err == nil {
		t.Error("a Shoot without a name was made, which nobody would find again")
	}
}

// TestOrderOfPools: the order of the node pools does not matter, and the input is not
// changed.
func TestOrderOfPools(t *testing.T) {
	a := claim(`{}`, "one", `{}`, "two", `{"replicas":2}`)
	b := claim(`{}`, "two", `{"replicas":2}`, "one", `{}`)
	if diff := cmp.Diff(made(t, local(), a), made(t, local(), b)); diff != "" {
		t.Errorf("(-one first +two first):\n%s", diff)
	}
	if b.Pools[0].Name != "two" {
		t.Error("the claim was changed")
	}
}

// TestZonesOfAnotherRegion: the default zones are those of the default region.
func TestZonesOfAnotherRegion(t *testing.T) {
	if got := made(t, aws(), claim(`{}`)); !strings.Contains(got, `"eu-central-1a"`) {
		t.Errorf("the default zone is not in %s", got)
	}
	_, err := newMaker(t, aws()).BuildManifest(claim(`{"region":"us-east-1"}`))
	if err == nil || !strings.Contains(err.Error(), "spec.zones is missing") {
		t.Errorf("the zone of another region was used: %v", err)
	}
}

// TestNull: a key that is null is treated as absent, whatever its type.
func TestNull(t *testing.T) {
	got := made(t, metal(), claim(`{"region":null,"kubernetes":null,"network":{"type":null,"podCIDR":null,"pod_cidr":"10.3.0.0/16"},"provider":{"infrastructureConfig":null}}`,
		"a", `{"machineType":null,"replicas":null,"autoscaling":{"min":null},"image":null,"volume":{"size":null},"zones":null,"labels":null,"taints":null}`))
	want := strings.Replace(made(t, metal(), claim(``, "a", ``)), "10.240.0.0/13", "10.3.0.0/16", 1)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-absent +null):\n%s", diff)
	}
}

// TestVersion: a cluster's version takes precedence over the default, in either place.
func TestVersion(t *testing.T) {
	for _, spec := range []string{`{"version":"1.33"}`, `{"kubernetes":{"version":"1.33"}}`, `{"version":"v1.33","kubernetes":{"version":"v1.33"}}`} {
		if got := made(t, metal(), claim(spec)); !strings.Contains(got, `"version": "1.33"`) {
			t.Errorf("%s becomes %s", spec, got)
		}
	}
}

// TestTenantOfMetal: the operator's annotation takes precedence over the cluster's
// tenant.
func TestTenantOfMetal(t *testing.T) {
	cfg := metal()
	cfg.Annotations = map[string]string{"cluster.metal-stack.io/tenant": "all"}
	if got := made(t, cfg, claim(`{}`)); !strings.Contains(got, `"cluster.metal-stack.io/tenant": "all"`) {
		t.Errorf("the configured tenant is not in %s", got)
	}
}
