package console

import (
	"encoding/json"
	"net"
	"strings"
	"testing"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
)

// testServerKilled kills the server under an open page. The page says that it is cut off, and shows
// afterwards what it has missed, without being loaded again.
func testServerKilled(r run) {
	t, s, b := r.T, r.system, r.browser
	cluster := s.createCluster(t, v1.CreateRequest{Name: "survivor", Spec: json.RawMessage(`{"n":1}`)})
	address := freeAddress(t)
	start := func() *kubebedtest.Process {
		return s.startBinary(t, "console", address, map[string]string{"FLEET_API_URL": strings.TrimSuffix(s.fleet.Endpoint(), "/api/hyperfleet/v1")})
	}
	first := start()
	list, one := b.newPage(t, "http://"+address+"/"), b.newPage(t, "http://"+address+"/")
	for _, p := range []*page{list, one} {
		p.expectErrors("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE", "ERR_NETWORK_IO_SUSPENDED")
	}
	list.open("clusters?text=survivor")
	list.sees("survivor", "1 match")
	one.open("clusters/" + cluster.ID)
	one.sees("survivor", "Generations Desired 1")
	for _, p := range []*page{list, one} {
		p.eventually(`return document.querySelector('.freshness .dot:not(.off)') ? '' : 'it does not follow the server'`)
		evaluate[bool](p, `window.stays = true`)
	}

	first.Kill()
	list.sees("connection lost")
	one.sees("connection lost")
	if _, err := s.fleet.Clusters().Patch(t.Context(), cluster.ID, v1.PatchRequest{Spec: json.RawMessage(`{"n":2}`)}); err != nil {
		t.Fatal(err)
	}
	s.createCluster(t, v1.CreateRequest{Name: "survivor-2", Spec: json.RawMessage(`{}`)})

	start()
	one.sees("Generations Desired 2")
	list.sees("survivor-2", "2 match")
	for _, p := range []*page{list, one} {
		p.seesNot("connection lost")
		if !evaluate[bool](p, `window.stays === true`) {
			t.Error("the page was loaded again")
		}
	}
}

// freeAddress returns an address on which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}
