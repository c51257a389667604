package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

// startBinary starts a server of the product, and waits until it is ready.
func (s *system) startBinary(t *testing.T, name, address string, env map[string]string, args ...string) *kubebedtest.Process {
	t.Helper()
	const anyPort = "127.0.0.1:0"
	env["LISTEN_ADDRESS"], env["METRICS_BIND_ADDRESS"], env["HEALTH_PROBE_BIND_ADDRESS"] = address, anyPort, anyPort
	p := kubebedtest.StartProcess(t, filepath.Join(s.binaries, name), env, args...)
	p.WantReady()
	return p
}

// testFleetAPIKilled kills the fleet API to which the console is connected. Open pages say so and keep
// what they know, with its age. Afterwards they have missed nothing of what another replica changed.
func testFleetAPIKilled(r run) {
	t, s, b := r.T, r.system, r.browser
	database := pgtest.NewMigratedDatabaseURL(t)
	start := func(address string) *kubebedtest.Process {
		return s.startBinary(t, "fleet-api", address, map[string]string{"DATABASE_URL": database})
	}
	address, other, console := freeAddress(t), freeAddress(t), freeAddress(t)
	first := start(address)
	start(other)
	fleet, err := fleetclient.New(fleetclient.Config{Endpoint: "http://" + other})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fleet.CloseIdle)
	create := func(name string) v1.Resource {
		t.Helper()
		cluster, err := fleet.Clusters().Create(t.Context(), v1.CreateRequest{Name: name, Spec: json.RawMessage(`{"n":1}`)})
		if err != nil {
			t.Fatal(err)
		}
		return cluster
	}
	kept, gone := create("kept"), create("gone")
	s.startBinary(t, "console", console, map[string]string{"FLEET_API_URL": "http://" + address})

	list, one := b.newPage(t, "http://"+console+"/"), b.newPage(t, "http://"+console+"/")
	pages := []*page{list, one}
	list.open("clusters")
	list.sees("kept", "gone", "2 in all")
	one.open("clusters/" + kept.ID)
	one.sees("kept", "Generations Desired 1")
	for _, p := range pages {
		p.expectErrors(fmt.Sprint(http.StatusBadGateway), fmt.Sprint(http.StatusServiceUnavailable))
		p.eventually(`return document.querySelector('.freshness .dot:not(.off)') ? '' : 'it does not follow the server'`)
		evaluate[bool](p, `window.stays = true`)
	}

	first.Kill()
	list.sees("no news of clusters, trying again", "kept", "gone")
	one.sees("no news of clusters, changes, trying again", "Generations Desired 1")
	for _, p := range pages {
		p.eventually(`
const age = Number(/as of (\d+) s ago/.exec(document.querySelector('.freshness').innerText)?.[1])
return age >= 5 ? '' : 'the data is said to be ' + age + ' s old'`)
	}
	if _, err := fleet.Clusters().Patch(t.Context(), kept.ID, v1.PatchRequest{Spec: json.RawMessage(`{"n":2}`)}); err != nil {
		t.Fatal(err)
	}
	if _, err := fleet.Clusters().Delete(t.Context(), gone.ID); err != nil {
		t.Fatal(err)
	}
	create("new")

	start(address)
	one.sees("Generations Desired 2")
	list.sees("kept", "new", "Deleting")
	for _, p := range pages {
		p.seesNot("no news of")
		p.eventually(`return document.querySelector('.freshness .dot:not(.off)') ? '' : 'it does not follow the server'`)
		if !evaluate[bool](p, `window.stays === true`) {
			t.Error("the page was loaded again")
		}
	}
}
