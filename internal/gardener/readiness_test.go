package gardener_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fleetloop/fleetloop/internal/gardener"
	"github.com/fleetloop/fleetloop/internal/gardener/gardentest"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// TestRefusalsOfAStartingServer holds that a refusal for lack of a permission counts as an outage while the API
// server is not ready.
func TestRefusalsOfAStartingServer(t *testing.T) {
	denied := always(http.StatusForbidden, status("Forbidden", `shoots.core.gardener.cloud "a" is forbidden: User "worker" cannot get resource "shoots" in API group "core.gardener.cloud"`))
	readyzDenied := always(http.StatusForbidden, status("Forbidden", `forbidden: User "worker" cannot get path "/readyz"`))
	good := always(http.StatusOK, `{"kind":"Shoot","metadata":{"name":"a"}}`)
	hangUp := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	ready, notReady := always(http.StatusOK, "ok"), always(http.StatusInternalServerError, "[-]informer-sync failed")
	for name, test := range map[string]struct {
		before  http.HandlerFunc   // answer of /readyz while the server accepts requests
		readyz  http.HandlerFunc   // later answer
		answers []http.HandlerFunc // later answers to requests; the last one is repeated
		want    shoot.Class        // empty means success
	}{
		"Starting":        {ready, readyzDenied, []http.HandlerFunc{denied}, shoot.ClassUnavailable},
		"NotReady":        {ready, notReady, []http.HandlerFunc{denied}, shoot.ClassUnavailable},
		"WasNotReady":     {notReady, readyzDenied, []http.HandlerFunc{denied}, shoot.ClassUnavailable},
		"NoAnswer":        {ready, hangUp, []http.HandlerFunc{denied}, shoot.ClassUnavailable},
		"ProxyWasDown":    {always(http.StatusServiceUnavailable, "no backend"), readyzDenied, []http.HandlerFunc{denied}, shoot.ClassForbidden},
		"ReadyInBetween":  {ready, ready, []http.HandlerFunc{denied, good}, ""},
		"NoPermission":    {ready, ready, []http.HandlerFunc{denied}, shoot.ClassForbidden},
		"NeverReadable":   {readyzDenied, readyzDenied, []http.HandlerFunc{denied}, shoot.ClassForbidden},
		"NoSuchPath":      {always(http.StatusNotFound, ""), always(http.StatusNotFound, ""), []http.HandlerFunc{denied}, shoot.ClassForbidden},
		"AnotherRefusal":  {ready, notReady, []http.HandlerFunc{always(http.StatusForbidden, status("Forbidden", "quota limits exceeded"))}, shoot.ClassInvalid},
		"AcceptsRequests": {ready, notReady, []http.HandlerFunc{good}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var readyz atomic.Pointer[http.HandlerFunc]
			readyz.Store(&test.before)
			var asked atomic.Int32
			p := play(t, map[string]http.HandlerFunc{
				"GET /api/v1/namespaces/" + namespace: always(http.StatusOK, there),
				"GET /readyz":                         func(w http.ResponseWriter, r *http.Request) { (*readyz.Load())(w, r) },
				"GET " + shoots + "/a": func(w http.ResponseWriter, r *http.Request) {
					n := int(asked.Add(1))
					test.answers[min(n, len(test.answers))-1](w, r)
				},
			})
			c := p.client(gardener.Config{})
			if _, err := c.FindProjectName(patient(t)); err != nil {
				t.Fatal(err)
			}
			readyz.Store(&test.readyz)
			_, err := c.GetShoot(patient(t), "a")
			switch {
			case test.want == "" && err != nil:
				t.Errorf("error %v, want none", err)
			case test.want != "" && (err == nil || shoot.ClassOf(err) != test.want):
				t.Errorf("error %v of class %q, want %q", err, shoot.ClassOf(err), test.want)
			case test.want == shoot.ClassUnavailable && (!strings.Contains(err.Error(), `User "worker" cannot get resource`) || strings.Contains(err.Error(), "127.0.0.1")):
				t.Errorf("error %v, want the refusal and no address", err)
			}
		})
	}
}

// A handlerTransport answers requests with a handler, without a network.
type handlerTransport struct{ handler http.Handler }

// RoundTrip returns the answer of the handler.
func (h handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	h.handler.ServeHTTP(w, r)
	return w.Result(), nil
}

// TestRefusalsOfAServerThatNeverGetsReady holds that refusals count as a missing permission five minutes after the
// first one, and as an outage again after the server was ready or has answered.
func TestRefusalsOfAServerThatNeverGetsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		denied := always(http.StatusForbidden, status("Forbidden", `forbidden: User "worker" cannot get it`))
		ready, allowed := true, false
		server := http.NewServeMux()
		server.HandleFunc("/api/v1/namespaces/"+namespace, always(http.StatusOK, there))
		server.HandleFunc(shoots+"/a", func(w http.ResponseWriter, r *http.Request) {
			if allowed {
				answer(w, http.StatusOK, `{"kind":"Shoot","metadata":{"name":"a"}}`)
				return
			}
			denied(w, r)
		})
		server.HandleFunc("/readyz", func(w http.ResponseWriter, r *http.Request) {
			if ready {
				answer(w, http.StatusOK, "ok")
				return
			}
			denied(w, r)
		})
		server.HandleFunc("/", always(http.StatusNotFound, "404 page not found\n"))
		c, err := gardener.NewForConfig(&rest.Config{Host: "http://garden", Transport: handlerTransport{server}}, gardener.Config{Namespace: namespace}, gardentest.Installation)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.FindProjectName(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			ready, allowed bool
			after          time.Duration
			want           shoot.Class // empty means success
		}{
			{false, false, 0, shoot.ClassUnavailable},
			{false, false, 4 * time.Minute, shoot.ClassUnavailable},
			{false, false, 2 * time.Minute, shoot.ClassForbidden},
			{true, false, time.Minute, shoot.ClassForbidden},
			{false, false, time.Minute, shoot.ClassUnavailable},
			{false, true, time.Minute, ""},
			{false, false, 31 * time.Minute, shoot.ClassUnavailable},
			{false, false, 6 * time.Minute, shoot.ClassForbidden},
			{false, true, time.Minute, ""}, // it allows this, and refuses other requests for good
			{false, false, time.Minute, shoot.ClassForbidden},
			{false, true, time.Minute, ""},
			{false, false, 15 * time.Minute, shoot.ClassForbidden},
		} {
			time.Sleep(step.after)
			ready, allowed = step.ready, step.allowed
			_, err := c.GetShoot(t.Context(), "a")
			if (err == nil) != (step.want == "") || err != nil && shoot.ClassOf(err) != step.want {
				t.Errorf("%+v: error %v of class %q", step, err, shoot.ClassOf(err))
			}
		}
	})
}
