package fleetapi

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/timeline"
)

// Defaults of the configuration.
const (
	// DefaultMaxBody is the maximum size of a request body in bytes.
	DefaultMaxBody = 1 << 20
	// DefaultChangeRetention is the retention of changes.
	DefaultChangeRetention = time.Hour
	// DefaultRevisionLimit is the number of kept generations of a resource.
	DefaultRevisionLimit = 20
)

// Config is the configuration of the API.
type Config struct {
	Auth auth.Config `key:"auth"`

	Timeline timeline.Config `key:"timeline"`

	RequiredAdapters RequiredAdapters `key:"required_adapters"`

	NodePoolsOnClusterDelete ParentPolicy `key:"nodepools_on_cluster_delete" env:"FLEET_API_NODEPOOLS_ON_CLUSTER_DELETE" flag:"nodepools-on-cluster-delete" default:"cascade" validate:"oneof=cascade restrict" doc:"How deleting a cluster affects its node pools: cascade (deletes them too) or restrict (rejects the request while node pools exist)."`

	MaxWatches int `key:"max_watches" env:"FLEET_API_MAX_WATCHES" flag:"max-watches" default:"1000" validate:"min=1" doc:"Maximum number of open watches. One tenant may have half of them."`

	MaxBodyBytes int64 `key:"max_body_bytes" env:"FLEET_API_MAX_BODY_BYTES" flag:"max-body-bytes" default:"1048576" validate:"min=1024,max=67108864" doc:"Maximum size of a request body in bytes."`

	RevisionLimit int `key:"revision_limit" env:"FLEET_API_REVISION_LIMIT" flag:"revision-limit" default:"20" validate:"min=1,max=1000" doc:"Number of generations of each cluster and node pool whose spec is kept. A change removes the oldest ones beyond it."`

	ChangeRetention time.Duration `key:"change_retention" env:"FLEET_API_CHANGE_RETENTION" flag:"change-retention" default:"1h" validate:"gt=0" doc:"Retention of changes for watches and changed_since. A client whose cursor is older must list everything again."`

	SummaryLabels []string `key:"summary_labels" env:"FLEET_API_SUMMARY_LABELS" flag:"summary-labels" default:"region,environment" doc:"Labels with few values by which GET /summary counts clusters; at most 8. After a change, all resources are counted again."`
}

// RequiredAdapters lists, for each kind, the adapters whose reports make up the status. A deleted
// resource is removed only after these adapters have finalised. If the list changes, the status of
// a resource is computed again with its next report.
type RequiredAdapters struct {
	Clusters  []string `key:"clusters" env:"FLEET_API_REQUIRED_ADAPTERS_CLUSTERS" flag:"required-adapters-clusters" default:"validation,dns,provisioning" doc:"Adapters required to report on a cluster."`
	NodePools []string `key:"nodepools" env:"FLEET_API_REQUIRED_ADAPTERS_NODEPOOLS" flag:"required-adapters-nodepools" default:"validation,provisioning" doc:"Adapters required to report on a node pool."`
	Manifests []string `key:"manifests" env:"FLEET_API_REQUIRED_ADAPTERS_MANIFESTS" flag:"required-adapters-manifests" doc:"Adapters required to report on a manifest."`
	Workloads []string `key:"workloads" env:"FLEET_API_REQUIRED_ADAPTERS_WORKLOADS" flag:"required-adapters-workloads" doc:"Adapters required to report on a workload."`
}

// A ParentPolicy defines how deleting a resource affects its children.
type ParentPolicy string

// The policies.
const (
	// Cascade deletes the children, too.
	Cascade ParentPolicy = "cascade"
	// Restrict refuses the deletion while there are children.
	Restrict ParentPolicy = "restrict"
)

// A kind is one kind of resource, as the API serves it.
type kind struct {
	name       string // Cluster
	collection string // clusters
	required   []string
	// parent is nil for a top-level kind.
	parent         *kind
	onParentDelete ParentPolicy
	// children reports whether other kinds have this one as their parent.
	children bool
	// synced reports whether resources of this kind are synced to Gardener.
	synced bool

	minName, maxName int
}

func (c Config) buildKinds() ([]*kind, error) {
	nodePoolPolicy := cmp.Or(c.NodePoolsOnClusterDelete, Cascade)
	clusters := &kind{
		name: v1.KindCluster, collection: v1.CollectionClusters, required: c.RequiredAdapters.Clusters,
		children: true, synced: true, minName: 3, maxName: 53,
	}
	kinds := []*kind{
		clusters,
		{
			name: v1.KindNodePool, collection: v1.CollectionNodePools, required: c.RequiredAdapters.NodePools,
			parent: clusters, onParentDelete: nodePoolPolicy, minName: 3, maxName: 15,
		},
		{
			name: v1.KindManifest, collection: v1.CollectionManifests, required: c.RequiredAdapters.Manifests,
			minName: 3, maxName: 63,
		},
		{
			name: v1.KindWorkload, collection: v1.CollectionWorkloads, required: c.RequiredAdapters.Workloads,
			minName: 3, maxName: 63,
		},
	}
	var errs []error
	for _, k := range kinds {
		if err := checkRequiredAdapters(k.required); err != nil {
			errs = append(errs, fmt.Errorf("required adapters of %s: %w", k.collection, err))
		}
	}
	if nodePoolPolicy != Cascade && nodePoolPolicy != Restrict {
		errs = append(
			errs,
			fmt.Errorf("unknown policy %q for the node pools of a deleted cluster; use %s or %s", nodePoolPolicy, Cascade, Restrict),
		)
	}
	return kinds, errors.Join(errs...)
}

func checkRequiredAdapters(names []string) error {
	adapterOfCondition := make(map[string]string, len(names))
	for i, name := range names {
		if !IsValidAdapterName(name) {
			return fmt.Errorf("%q is not an adapter name; use a lower-case DNS label", name)
		}
		if slices.Contains(names[:i], name) {
			return fmt.Errorf("%q is listed twice", name)
		}
		conditionType := FormatSuccessfulConditionType(name)
		if other, ok := adapterOfCondition[conditionType]; ok {
			return fmt.Errorf("%q and %q would both set the condition %s; rename one", other, name, conditionType)
		}
		adapterOfCondition[conditionType] = name
	}
	if len(names) > maxAdapters {
		return fmt.Errorf("%d adapters are listed; at most %d are allowed", len(names), maxAdapters)
	}
	return nil
}
