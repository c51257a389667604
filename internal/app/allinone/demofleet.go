package allinone

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/backoff"
)

// DemoFleet is the size of a demo fleet.
type DemoFleet struct {
	// Clusters is the number of clusters to create, each with two node pools.
	Clusters int

	// Pace is the pause between two clusters, so that users can watch.
	Pace time.Duration
}

// Size returns the number of resources of the complete fleet.
func (c DemoFleet) Size() int { return 3 * c.Clusters }

// demoPlace is the location of a demo cluster.
type demoPlace struct{ region, environment string }

// demoPlaceAt spreads clusters over regions and environments.
func demoPlaceAt(i int) demoPlace {
	regions := []string{"us-east", "us-west", "eu-west"}
	environments := []string{"production", "staging", "development", "production"}
	return demoPlace{regions[i%len(regions)], environments[(i/len(regions))%len(environments)]}
}

// Labels that mark the resources of the demo.
const (
	demoLabel = "demo"
	demoValue = "true"
)

func (p demoPlace) toLabels() map[string]string {
	return map[string]string{"region": p.region, "environment": p.environment, demoLabel: demoValue}
}

// CreateDemoFleet fills an empty fleet, as an ordinary client of the fleet API. It is idempotent:
// existing resources stay unchanged. It retries while the API is unavailable, and ends with ctx.
func CreateDemoFleet(ctx context.Context, api *fleetclient.Client, cfg DemoFleet) error {
	for i := range cfg.Clusters {
		if err := createDemoClusterWithPools(ctx, api, i); err != nil {
			return err
		}
		if err := backoff.Sleep(ctx, cfg.Pace); err != nil {
			return err
		}
	}
	return nil
}

func createDemoClusterWithPools(ctx context.Context, api *fleetclient.Client, index int) error {
	place := demoPlaceAt(index)
	name := fmt.Sprintf("%s-%02d", place.region, index+1)
	cluster, err := createWithRetryUnlessNameTaken(ctx, api, v1.CollectionClusters, v1.CreateRequest{
		Kind:   v1.KindCluster,
		Name:   name,
		Labels: place.toLabels(),
		Spec:   json.RawMessage(`{"version":"1.34","network":{"podCIDR":"10.128.0.0/14"}}`),
	})
	if err == nil && cluster.ID == "" {
		cluster, err = findCluster(ctx, api, name) // an earlier run may have ended before it created its pools
	}
	if err != nil {
		return err
	}
	pools := []struct {
		name     string
		replicas int
	}{
		{"system", 3},
		{"workers", 5 + index%4},
	}
	poolsOfCluster := fleetclient.Nested(v1.CollectionClusters, cluster.ID, v1.CollectionNodePools)
	for _, pool := range pools {
		_, err := createWithRetryUnlessNameTaken(ctx, api, poolsOfCluster, v1.CreateRequest{
			Kind:   v1.KindNodePool,
			Name:   pool.name,
			Labels: place.toLabels(),
			Spec:   json.RawMessage(fmt.Sprintf(`{"replicas":%d,"machineType":"m6i.xlarge"}`, pool.replicas)),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func findCluster(ctx context.Context, api *fleetclient.Client, name string) (v1.Resource, error) {
	for r, err := range api.Clusters().List(ctx, fleetclient.ListOptions{Search: "name = '" + name + "'"}) {
		if err != nil {
			return v1.Resource{}, fmt.Errorf("find demo cluster %q: %w", name, err)
		}
		return r, nil
	}
	return v1.Resource{}, fmt.Errorf("find demo cluster %q: create failed because the name exists, but the cluster is not in the list", name)
}

// createWithRetryUnlessNameTaken creates one resource, or returns an empty one if its name is taken. It retries
// while the API does not respond.
func createWithRetryUnlessNameTaken(
	ctx context.Context,
	api *fleetclient.Client,
	collection string,
	request v1.CreateRequest,
) (v1.Resource, error) {
	var out v1.Resource
	err := backoff.Retry(ctx, backoff.Policy{Initial: 50 * time.Millisecond, Max: time.Second}, func(ctx context.Context) error {
		var err error
		out, err = api.Collection(collection).Create(ctx, request)
		switch {
		case fleetclient.IsConflict(err):
			out = v1.Resource{}
			return nil
		case isRefused(err):
			return backoff.Permanent(err)
		}
		return err
	})
	if err != nil {
		return v1.Resource{}, fmt.Errorf("create demo %s %q: %w", collection, request.Name, err)
	}
	return out, nil
}

// isRefused reports whether the API responded with an error that a retry cannot change.
func isRefused(err error) bool {
	var answer *fleetclient.Error
	return errors.As(err, &answer) && answer.Status < http.StatusInternalServerError && answer.Status != http.StatusTooManyRequests
}
