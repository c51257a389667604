package clusterworker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/apiapp"
	"github.com/fleetloop/fleetloop/internal/processtest"
)

// An apiWriter calls a fleet API as the owners of clusters do, each of whom has a
// token of a tenant.
type apiWriter struct {
	clients map[string]*fleetclient.Client // by tenant
}

// newAPIWriter starts a fleet API on a database. No adapter but gardener is required,
// so that a deleted cluster waits for its Shoot alone.
func newAPIWriter(t *testing.T, database string) *apiWriter {
	t.Helper()
	tenants := []string{"a", "b", "c"}
	tokens := "tokens:\n"
	for _, tenant := range tenants {
		tokens += fmt.Sprintf("- {token: token-of-%s, subject: owner-%s, tenant: %s}\n", tenant, tenant, tenant)
	}
	dir := t.TempDir()
	tokenFile, config := filepath.Join(dir, "tokens.yaml"), filepath.Join(dir, "fleet-api.yaml")
	if err := os.WriteFile(tokenFile, []byte(tokens), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, []byte("required_adapters: {clusters: [], nodepools: []}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	call := processtest.StartCommandInGoroutine(t, apiapp.NewCommand, map[string]string{
		"DATABASE_URL": database, "DATABASE_APPLICATION_NAME": "fleet-api",
		"FLEET_API_AUTH_MODE": "bearer", "FLEET_API_TOKEN_FILE": tokenFile,
	}, "--config", config)
	processtest.EventuallyStatus(t, call.WaitForURLInLog(t, "metrics and health")+"/readyz", http.StatusOK)
	w := &apiWriter{clients: map[string]*fleetclient.Client{}}
	for _, tenant := range tenants {
		client, err := fleetclient.New(fleetclient.Config{
			Endpoint: call.WaitForURLInLog(t, "fleet API"), Token: fleetclient.StaticToken("token-of-" + tenant),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.CloseIdle)
		w.clients[tenant] = client
	}
	return w
}

// write makes a request again until the fleet API has carried it out or refused it.
func (w *apiWriter) write(ctx context.Context, c *cluster, do func(context.Context, *fleetclient.Client) error) error {
	var refusal error
	err := retrying(ctx, func(ctx context.Context) error {
		err := do(ctx, w.clients[c.tenant])
		answer, ok := errors.AsType[*fleetclient.Error](err)
		if ok && answer.Status < http.StatusInternalServerError && answer.Status != http.StatusTooManyRequests {
			refusal = err
			return nil
		}
		return err
	})
	return errors.Join(refusal, err)
}

// create creates a resource and gives its id. One that has the name already was created
// by an earlier request, of which the answer was lost.
func (w *apiWriter) create(ctx context.Context, c *cluster, collection, name, spec string) (id string, err error) {
	err = w.write(ctx, c, func(ctx context.Context, client *fleetclient.Client) error {
		made, err := client.Collection(collection).Create(ctx, v1.CreateRequest{Name: name, Spec: json.RawMessage(spec)})
		if fleetclient.IsConflict(err) {
			for found, listErr := range client.Collection(collection).List(ctx, fleetclient.ListOptions{Search: fmt.Sprintf("name = '%s'", name)}) {
				if listErr != nil {
					return listErr
				}
				made, err = found, nil
			}
		}
		id = made.ID
		return err
	})
	return id, err
}

func (w *apiWriter) update(ctx context.Context, c *cluster, p *pool) error {
	collection, id, spec := v1.CollectionClusters, c.id, c.spec()
	if p != nil {
		collection, id, spec = poolsOf(c), p.id, p.spec()
	}
	return w.write(ctx, c, func(ctx context.Context, client *fleetclient.Client) error {
		_, err := client.Collection(collection).Patch(ctx, id, v1.PatchRequest{Spec: json.RawMessage(spec)})
		return err
	})
}

func (w *apiWriter) delete(ctx context.Context, c *cluster, p *pool) error {
	collection, id := v1.CollectionClusters, c.id
	if p != nil {
		collection, id = poolsOf(c), p.id
	}
	return w.write(ctx, c, func(ctx context.Context, client *fleetclient.Client) error {
		_, err := client.Collection(collection).Delete(ctx, id)
		if fleetclient.IsNotFound(err) {
			return nil // by an earlier request
		}
		return err
	})
}

func (w *apiWriter) createCluster(ctx context.Context, c *cluster) (err error) {
	if c.id, err = w.create(ctx, c, v1.CollectionClusters, c.name, c.spec()); err != nil {
		return err
	}
	for _, name := range c.poolNames() {
		if err := w.createPool(ctx, c, name); err != nil {
			return err
		}
	}
	return nil
}

func (w *apiWriter) createPool(ctx context.Context, c *cluster, name string) (err error) {
	p := c.pools[name]
	p.id, err = w.create(ctx, c, poolsOf(c), name, p.spec())
	return err
}

// poolsOf is the collection of a cluster's node pools.
func poolsOf(c *cluster) string {
	return fleetclient.Nested(v1.CollectionClusters, c.id, v1.CollectionNodePools)
}
