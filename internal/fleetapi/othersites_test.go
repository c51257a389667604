package fleetapi_test

import (
	"net/http"
	"strings"
	"testing"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// TestOtherSites checks that a web page cannot use an API without authentication, neither by a name of its own that
// resolves to this machine nor by a request without a body.
func TestOtherSites(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := f.create("clusters", "c-one", nil)
	pause := v1.BasePath + "/clusters/" + c.ID + "/sync/pause"
	send := func(f *fixture, method, path, host, site string) *answer {
		r, err := http.NewRequestWithContext(t.Context(), method, f.url+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		if site != "" {
			r.Header.Set("Sec-Fetch-Site", site)
		}
		if f.token != "" {
			r.Header.Set("Authorization", "Bearer "+f.token)
		}
		return f.send(r, nil)
	}
	send(f, "GET", v1.BasePath+"/clusters", "evil.example", "same-origin").problem(http.StatusForbidden, "forbidden", `"evil.example"; call it by localhost`)
	send(f, "GET", v1.ChangesPath, "evil.example:8000", "").problem(http.StatusForbidden, "forbidden", "call it by localhost")
	send(f, "POST", pause, "evil.example", "").problem(http.StatusForbidden, "forbidden", "call it by localhost")
	send(f, "POST", pause, "localhost", "cross-site").problem(http.StatusForbidden, "forbidden", "another web site")
	if state := read[v1.ClusterSync](f.do("GET", "clusters/"+c.ID+"/sync", nil).want(http.StatusOK)).State; state == v1.SyncPaused {
		t.Error("the sync is paused")
	}
	for _, host := range []string{"", "localhost:1", "LOCALHOST", "127.0.0.1", "[::1]:8000"} {
		send(f, "GET", v1.BasePath+"/clusters", host, "").want(http.StatusOK)
	}
	send(f, "POST", pause, "", "").want(http.StatusOK)

	withTokens := newFixtureWith(t, options{cfg: defaults(), tokens: tokensOfRoles}).as("red")
	c = withTokens.create("clusters", "c-one", nil)
	send(withTokens, "POST", strings.Replace(pause, f.list("clusters").Items[0].ID, c.ID, 1), "fleet.example", "cross-site").want(http.StatusOK)
}
