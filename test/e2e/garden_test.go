package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/devstack/gardenbed"
	"github.com/fleetloop/fleetloop/internal/gardener"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// A garden is a project of a real Gardener API server whose Shoots come to
// life.
type garden struct {
	namespace  string
	kubeconfig string
	bed        *gardenbed.Bed
}

func newGarden(t *testing.T, project string) *garden {
	t.Helper()
	server, err := bed.garden()
	if err != nil {
		t.Fatal(err)
	}
	namespace, err := server.ApplyProjectAndWait(t.Context(), project)
	if err != nil {
		t.Fatal(err)
	}
	lively, err := gardenbed.NewGardenlet(server.Config(), gardenbed.GardenletOptions{Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := lively.Run(ctx); err != nil && ctx.Err() == nil {
			t.Errorf("the gardenlet ended: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return &garden{namespace: namespace, kubeconfig: server.AdminKubeconfig(), bed: server}
}

// env has a worker sync clusters to the garden.
func (g *garden) env() map[string]string {
	return map[string]string{
		"GARDENER_MODE": "real", "GARDENER_KUBECONFIG": g.kubeconfig, "GARDENER_NAMESPACE": g.namespace, "GARDENER_CREDENTIALS_BINDING_NAME": "local",
		"METRICS_BIND_ADDRESS": "127.0.0.1:0", "HEALTH_PROBE_BIND_ADDRESS": "localhost:0",
	}
}

// worker starts a worker on a database, whose fleet API it reports to.
func (g *garden) worker(t *testing.T, database, api string) *process {
	t.Helper()
	env := g.env()
	maps.Copy(env, map[string]string{"DATABASE_URL": database, "HYPERFLEET_API_ENDPOINT": api})
	return start(t, "cluster-worker", env)
}

// shoot is a cluster's Shoot, as Gardener has it.
func (g *garden) shoot(t *testing.T, f *fleet, cluster string) shoot.Observed {
	t.Helper()
	row, err := f.api.Syncs().Get(t.Context(), cluster)
	if err != nil {
		t.Fatal(err)
	}
	c, err := gardener.NewForConfig(g.bed.Config(), gardener.Config{Namespace: g.namespace}, "anybody")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.GetShoot(t.Context(), row.ShootName)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestClustersBecomeShoots holds the main path of the worker with two of them, on
// a real Gardener API server: what is created, changed and deleted by the fleet
// API is so in Gardener, and what Gardener makes of it is seen in the fleet API.
func TestClustersBecomeShoots(t *testing.T) {
	t.Parallel()
	g := newGarden(t, "e2e")
	database := pgtest.NewMigratedDatabaseURL(t)
	f := newFleet(t, map[string]string{"DATABASE_URL": database, "FLEET_API_REQUIRED_ADAPTERS_CLUSTERS": "gardener", "FLEET_API_REQUIRED_ADAPTERS_NODEPOOLS": "gardener"})
	first, second := g.worker(t, database, f.url), g.worker(t, database, f.url)
	first.wantReady(t)
	second.wantReady(t)

	created, err := f.api.Clusters().Create(t.Context(), v1.CreateRequest{Name: "payments", Spec: json.RawMessage(`{"version": "1.34.1"}`)})
	if err != nil {
		t.Fatal(err)
	}
	pool := fleetclient.Nested(v1.CollectionClusters, created.ID, v1.CollectionNodePools)
	if _, err := f.api.Collection(pool).Create(t.Context(), v1.CreateRequest{Name: "workers", Spec: json.RawMessage(`{"replicas": 3}`)}); err != nil {
		t.Fatal(err)
	}
	f.wantPhase(t, created.ID, v1.PhaseReady)
	before := g.shoot(t, f, created.ID)
	if before.Cluster != created.ID || before.Version != "1.34.1" {
		t.Errorf("Gardener has %+v, want the cluster of version 1.34.1", before)
	}

	changed, err := f.api.Clusters().Patch(t.Context(), created.ID, v1.PatchRequest{Spec: json.RawMessage(`{"version": "1.34.2"}`)})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func() error {
		r := f.get(t, created.ID)
		if r.Status.Phase != v1.PhaseReady || r.Status.ObservedGeneration < changed.Generation {
			return fmt.Errorf("the changed cluster is %s at generation %d of %d", r.Status.Phase, r.Status.ObservedGeneration, changed.Generation)
		}
		return nil
	})
	after := g.shoot(t, f, created.ID)
	if after.Version != "1.34.2" || after.UID != before.UID {
		t.Errorf("Gardener has %s %s, want %s at version 1.34.2", after.UID, after.Version, before.UID)
	}

	// Gardener refuses, and the user is told why where they look.
	refused, err := f.api.Clusters().Create(t.Context(), v1.CreateRequest{Name: "ancient", Spec: json.RawMessage(`{"version": "1.2.3"}`)})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func() error {
		row, err := f.api.Syncs().Get(t.Context(), refused.ID)
		if err != nil {
			return err
		}
		if row.State != v1.SyncBackingOff || row.ErrorClass != string(shoot.ClassInvalid) || row.Attempts != 1 || row.NextAttempt == nil {
			return fmt.Errorf("the cluster that Gardener refuses: %+v", row)
		}
		return nil
	})

	if _, err := f.api.Clusters().Delete(t.Context(), created.ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func() error {
		_, err := f.api.Clusters().Get(t.Context(), created.ID)
		if err == nil {
			return errors.New("the cluster that was deleted is still there")
		}
		if !fleetclient.IsNotFound(err) {
			return err
		}
		return nil
	})
	for _, p := range []*process{first, second} {
		if code := p.stop(t, syscall.SIGTERM, 30*time.Second); code != 0 {
			t.Errorf("a worker ended with %d", code)
		}
	}
}

// TestPreflight holds that what would not work is found without changing
// anything.
func TestPreflight(t *testing.T) {
	t.Parallel()
	g := newGarden(t, "flight")
	database := pgtest.NewMigratedDatabaseURL(t)
	f := newFleet(t, map[string]string{"DATABASE_URL": database})
	f.create(t, "fine", "")
	env := g.env()
	env["DATABASE_URL"] = database
	good := start(t, "cluster-worker", env, "preflight")
	<-good.done
	if code := good.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
	for _, want := range []string{"ok", "clusters checked: 1, would be rejected: 0"} {
		if err := good.log.mentions(want); err != nil {
			t.Error(err)
		}
	}
	env["GARDENER_CREDENTIALS_BINDING_NAME"] = "none"
	bad := start(t, "cluster-worker", env, "preflight")
	<-bad.done
	if code := bad.cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("without credentials it ended with %d, want 1", code)
	}
	if err := bad.log.mentions("none"); err != nil {
		t.Error(err)
	}
}

// wantPhase waits until a cluster is in a phase.
func (f *fleet) wantPhase(t *testing.T, id string, want v1.Phase) {
	t.Helper()
	eventually(t, patience, func() error {
		if r := f.get(t, id); r.Status.Phase != want {
			return fmt.Errorf("cluster %s is %s, want %s: %+v", r.Name, r.Status.Phase, want, r.Status.Conditions)
		}
		return nil
	})
}
