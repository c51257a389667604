package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/devstack/gardenbed"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/internal/nodefault"
	"github.com/fleetloop/fleetloop/internal/sentinel/operator"
)

const (
	// The names of the manifests in deploy/rbac.
	hostNamespace = operator.SentinelNamespace
	tokenSecret   = "hyperfleet-sentinel-api"

	workerAccount = "fleetloop-cluster-worker"

	// gardenletWatch is how long the simulated Gardener trusts a watch.
	gardenletWatch = 30 * time.Second
)

// auditPolicy records all requests that write Shoots, with the Shoots.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: RequestResponse
    omitManagedFields: true
    verbs: [create, update, patch, delete]
    users: ["` + workerUser + `"]
    resources: [{group: core.gardener.cloud, resources: [shoots]}]
  - level: None
`

const workerUser = "system:serviceaccount:garden-" + gardenbed.DefaultProject + ":" + workerAccount

// namespaces are those that the manifests need. In a production namespace changes need an approval.
const namespaces = `
{apiVersion: v1, kind: Namespace, metadata: {name: ` + hostNamespace + `}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: ` + executorNamespace + `}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: ` + nodefault.DefaultNamespace + `}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: ` + targetNamespace + `, labels: {environment: production}}}
`

// sentinelConfig is the SentinelConfig of a collection with the defaults of the chart, except for the profile: the default
// profile never announces a new generation as such, and without the message data no reader of an event
// knows which generation it is about.
const sentinelConfig = `apiVersion: hyperfleet.redhat.com/v1alpha1
kind: SentinelConfig
metadata: {name: COLLECTION}
spec:
  resourceType: COLLECTION
  hyperfleetAPI: {url: "URL", tokenSecretRef: {name: ` + tokenSecret + `}}
  broker: {type: KIND, topic: TOPIC, url: "BROKER"}
  decision: {profile: generation-then-age}
  sharding: {mode: auto}
  messageData: {collection: COLLECTION, resource_id: .id, generation: .generation, reason: "cel:reason", updated: .updated_time}
`

// startKubernetes starts the host cluster.
func (t *topology) startKubernetes(ctx context.Context) (err error) {
	t.kube, err = kubebed.Start(ctx, kubebed.Options{
		CRDs: []string{t.first.crds()}, Controllers: hostControllers(), Scheduler: true, Log: t.log,
	})
	return err
}

// startGarden starts the API server of Gardener, and what plays its controllers.
func (t *topology) startGarden(ctx context.Context) (err error) {
	policy := filepath.Join(t.dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o644); err != nil { //nolint:gosec // no secret
		return err
	}
	t.garden, err = gardenbed.Start(ctx, gardenbed.Options{On: t.kube, Args: []string{
		"--audit-policy-file=" + policy, "--audit-log-path=" + t.auditPath(), "--audit-log-maxsize=100000",
	}})
	if err != nil {
		return err
	}
	gardenlet, err := gardenbed.NewGardenlet(
		t.garden.Config(),
		gardenbed.GardenletOptions{Namespace: t.garden.Namespace(), WatchLimit: gardenletWatch},
	)
	if err != nil {
		return err
	}
	t.simulated.Go(func() { _ = gardenlet.Run(ctx) }) // ends only with ctx
	return nil
}

// installManifests installs what an administrator installs.
func (t *topology) installManifests(ctx context.Context) error {
	if err := t.applyManifestText(ctx, namespaces); err != nil {
		return err
	}
	if err := t.applyManifests(ctx, t.first); err != nil {
		return err
	}
	return t.installSentinel(ctx)
}

func (t *topology) auditPath() string { return filepath.Join(t.dir, "audit.jsonl") }

// installSentinel applies the token and the configuration of the sentinels.
func (t *topology) installSentinel(ctx context.Context) error {
	_, err := t.kube.Kubectl(ctx, "--namespace", hostNamespace, "create", "secret", "generic", tokenSecret, "--from-file=token="+tokenPath(t.dir, "sentinel"))
	if err != nil {
		return err
	}
	for _, collection := range collections() {
		config := strings.NewReplacer("COLLECTION", collection, "URL", t.apiURL(), "TOPIC", brokerTopic, "KIND", t.broker, "BROKER", t.brokerURL).
			Replace(sentinelConfig)
		if err := t.applyManifestText(ctx, config); err != nil {
			return err
		}
	}
	return nil
}

// applyManifestText applies a manifest in the namespace of the sentinels.
func (t *topology) applyManifestText(ctx context.Context, manifest string) error {
	path := filepath.Join(t.dir, "manifest.yaml")
	if err := os.WriteFile(path, []byte(manifest), 0o600); err != nil {
		return err
	}
	_, err := t.kube.Kubectl(ctx, "--namespace", hostNamespace, "apply", "--filename", path)
	return err
}

// collections are those that the sentinels watch, and also the names of their SentinelConfigs.
func collections() []string { return []string{v1.CollectionClusters, v1.CollectionNodePools} }

// startSentinels starts sentinels that share the SentinelConfigs.
func (t *topology) startSentinels(ctx context.Context) error {
	// A certificate with the name of the ServiceAccount has its rights and outlives a token.
	kubeconfig, err := t.kube.WriteUserKubeconfig(
		"system:serviceaccount:"+hostNamespace+":"+operator.SentinelAccount,
		"system:serviceaccounts",
		"system:authenticated",
	)
	if err != nil {
		return err
	}
	return t.startReplicas(ctx, "sentinel", sentinelReplicas, func(p *process, _ string) {
		p.args = []string{"--all", "--namespace=" + hostNamespace}
		p.env["KUBECONFIG"] = kubeconfig
		p.env["POD_NAME"] = p.name
		p.env["HYPERFLEET_API_CA_FILE"] = caPath(t.dir)
		p.env["SENTINEL_PUBLISH_MAX_PER_SECOND"] = strconv.FormatFloat(t.eventRate, 'f', 3, 64)
		if t.publishedCache > 0 {
			p.env["SENTINEL_PUBLISHED_CACHE_SIZE"] = strconv.Itoa(t.publishedCache)
		}
	})
}

// startClusterWorkers starts cluster-workers on the database and the garden.
func (t *topology) startClusterWorkers(ctx context.Context) error {
	kubeconfig, err := t.garden.WriteUserKubeconfig(workerUser, "system:serviceaccounts", "system:authenticated")
	if err != nil {
		return err
	}
	return t.startReplicas(ctx, "cluster-worker", workerReplicas, func(p *process, _ string) {
		p.env["DATABASE_URL"] = t.database.clientURL()
		p.env["GARDENER_MODE"] = "real"
		p.env["GARDENER_KUBECONFIG"] = kubeconfig
		p.env["GARDENER_NAMESPACE"] = t.garden.Namespace()
		p.env["GARDENER_CREDENTIALS_BINDING_NAME"] = "local"
		if t.restores {
			maps.Copy(p.env, t.orphanEnv)
		}
		maps.Copy(p.env, t.apiEnv("cluster-worker"))
		maps.Copy(p.env, t.sink.env())
	})
}

// readOwnedPerSentinel returns the replicas of the SentinelConfig of a collection.
func (t *topology) readOwnedPerSentinel(ctx context.Context, collection string) (owned map[string]int, err error) {
	out, err := t.kube.Kubectl(ctx, "--namespace", hostNamespace, "get", "sentinelconfigs", collection, "--output=jsonpath={.status.replicas}")
	if err != nil {
		return nil, err
	}
	var replicas []struct {
		Name           string `json:"name"`
		ResourcesOwned int    `json:"resourcesOwned"`
	}
	if out != "" {
		if err := json.Unmarshal([]byte(out), &replicas); err != nil {
			return nil, fmt.Errorf("read the status of the SentinelConfig: %w", err)
		}
	}
	owned = map[string]int{}
	for _, r := range replicas {
		owned[r.Name] += r.ResourcesOwned
	}
	return owned, nil
}
