package gardener_test

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/fleetloop/fleetloop/internal/gardener"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// TestRefusalsOfAStartingServer holds that a refusal for lack of a permission counts as an outage while the API
// server is not ready.
func TestRefusalsOfAStartingServer(t *testing.T) {
	denied := always(http.StatusForbidden, status("Forbidden", `shoots.core.gardener.cloud "a" is forbidden: User "worker" cannot get resource "shoots" in API group "core.gardener.cloud"`))
	readyzDenied := always(http.StatusForbidden, status("Forbidden", `forbidden: User "worker" cannot get path "/readyz"`))
	good := always(http.StatusOK, `{"kind":"Shoot","metadata":{"name":"a"}}`)
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
		"ReadyInBetween":  {ready, ready, []http.HandlerFunc{denied, good}, ""},
		"NoPermission":    {ready, ready, []http.HandlerFunc{denied}, shoot.ClassForbidden},
		"NeverReadable":   {readyzDenied, readyzDenied, []http.HandlerFunc{denied}, shoot.ClassForbidden},
		"NoSuchPath":      {always(http.StatusNotFound, ""), notReady, []http.HandlerFunc{denied}, shoot.ClassForbidden},
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
			}
		})
	}
}
