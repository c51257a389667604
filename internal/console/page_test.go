package console_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/fleetloop/fleetloop/internal/console"
)

// TestBasePath covers pages, assets and the fleet API below a base path.
func TestBasePath(t *testing.T) {
	f := newFixture(t, console.ModeNone, func(c *console.Config, _ *console.Deps) { c.PublicURL = "http://127.0.0.1:8082/ops/console/" })
	for _, path := range []string{"", "clusters/1", "executions/demo/ns/name"} {
		if a := f.want(http.StatusOK, f.send("GET", path, "")); !strings.Contains(a.body, `<meta name="fleetloop-base" content="/ops/console/">`) {
			t.Errorf("%q: the page does not know its base path: %s", path, a.body)
		}
	}
	f.want(http.StatusOK, f.send("GET", "api/hyperfleet/v1/clusters", ""))
	if got := <-f.api.last; got.URL.Path != "/api/hyperfleet/v1/clusters" || got.Header.Get("Authorization") != "" {
		t.Errorf("the fleet API got %s %v", got.URL.Path, got.Header)
	}
	f.want(http.StatusNotFound, f.send("GET", "assets/none.js", ""))
	f.want(http.StatusNotFound, f.send("GET", "console/none", ""))
	f.base = f.server.URL + "/"
	f.want(http.StatusNotFound, f.send("GET", "console/session", ""))
}

// TestAssetsAreCompressed covers that a browser gets the built files with gzip, another client as they are, and that
// nothing with a person's data is compressed.
func TestAssetsAreCompressed(t *testing.T) {
	f := newFixture(t, console.ModeNone)
	script := regexp.MustCompile(`assets/[^"]+\.js`).FindString(f.send("GET", "", "").body)
	plain := f.want(http.StatusOK, f.send("GET", script, "", "Accept-Encoding", "identity"))
	packed := f.want(http.StatusOK, f.send("GET", script, "", "Accept-Encoding", "gzip"))
	if got := packed.header.Get("Content-Encoding"); got != "gzip" || len(packed.body) > len(plain.body)/2 {
		t.Errorf("%s: encoding %q, %d bytes of %d", script, got, len(packed.body), len(plain.body))
	}
	r, err := gzip.NewReader(strings.NewReader(packed.body))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(r); err != nil || string(text) != plain.body {
		t.Errorf("%s differs after decompression: %v", script, err)
	}
	for _, a := range []answer{plain, packed} {
		if !strings.Contains(a.header.Get("Vary"), "Accept-Encoding") || !strings.Contains(a.header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: headers %v", script, a.header)
		}
	}
	for _, path := range []string{"console/session", "api/x"} {
		if got := f.send("GET", path, "", "Accept-Encoding", "gzip").header.Get("Content-Encoding"); got != "" {
			t.Errorf("%s is sent with encoding %s", path, got)
		}
	}
}
