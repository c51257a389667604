package gardener_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/gardener"
	"github.com/fleetloop/fleetloop/internal/gardener/gardentest"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// status returns a status of an API server. The message may contain double quotes.
func status(reason, message string) string {
	return `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"` + strings.ReplaceAll(message, `"`, `\"`) + `","reason":"` + reason + `","code":1}`
}

func TestAnswersAreToldApartByWhatTheySay(t *testing.T) {
	tests := map[string]struct {
		reason string
		code   int
		body   string
		want   shoot.Class
		says   string // the error, after the action
	}{
		"NoSuchVersion": {
			reason: "admissions answer 403 to whatever they do not like",
			code:   403, body: status("Forbidden", `shoots.core.gardener.cloud "a" is forbidden: spec.kubernetes.version: Unsupported value: "1.99.0": supported values: "1.35.0", "1.34.3"`),
			want: shoot.ClassInvalid, says: `spec.kubernetes.version: Unsupported value: "1.99.0": supported values: "1.35.0", "1.34.3"`,
		},
		"NoSuchBinding": {
			reason: "the same", code: 403, body: status("Forbidden", `shoots.core.gardener.cloud "a" is forbidden: credentialsbinding.security.gardener.cloud "none" not found`),
			want: shoot.ClassInvalid, says: `credentialsbinding.security.gardener.cloud "none" not found`,
		},
		"NoSuchExtension": {
			reason: "a list of errors is one line",
			code:   403, body: status("Forbidden", `shoots.core.gardener.cloud "a" is forbidden: 1 error occurred:\n\t* given Shoot uses non-registered networking type: spec.networking.type ("unheard-of")\n\n`),
			want: shoot.ClassInvalid, says: `given Shoot uses non-registered networking type: spec.networking.type ("unheard-of")`,
		},
		"Quota": {
			reason: "the cluster is too much, not the worker too weak",
			code:   403, body: status("Forbidden", `shoots.core.gardener.cloud "a" is forbidden: quota limits exceeded. Unable to allocate further cpu`),
			want: shoot.ClassInvalid, says: "quota limits exceeded. Unable to allocate further cpu",
		},
		"NoRights": {
			reason: "403 as it is meant",
			code:   403, body: status("Forbidden", `shoots.core.gardener.cloud "a" is forbidden: User "nobody" cannot patch resource "shoots" in API group "core.gardener.cloud" in the namespace "garden-test1"`),
			want: shoot.ClassForbidden, says: `User "nobody" cannot patch resource "shoots" in API group "core.gardener.cloud" in the namespace "garden-test1"`,
		},
		"Anonymous": {
			reason: "the API server has just started and does not know its callers",
			code:   403, body: status("Forbidden", `shoots.core.gardener.cloud is forbidden: User "system:anonymous" cannot list resource "shoots" in API group "core.gardener.cloud" in the namespace "garden-test1"`),
			want: shoot.ClassUnavailable, says: `User "system:anonymous" cannot list resource "shoots" in API group "core.gardener.cloud" in the namespace "garden-test1"`,
		},
		"NoRightToAField": {
			reason: "a right that Gardener invented",
			code:   403, body: status("Forbidden", `shoots.core.gardener.cloud "a" is forbidden: user "nobody" is not allowed to modify-spec-tolerations-whitelist for "projects"`),
			want: shoot.ClassForbidden, says: `user "nobody" is not allowed to modify-spec-tolerations-whitelist for "projects"`,
		},
		"Proxy": {
			reason: "who is no API server knows nothing of Shoots", code: 403, body: "<html>Access denied</html>",
			want: shoot.ClassForbidden, says: "response 403 Forbidden",
		},
		"NotReady": {
			reason: "Gardener has just started",
			code:   403, body: status("Forbidden", `shoots.core.gardener.cloud "a" is forbidden: not yet ready to handle request`),
			want: shoot.ClassUnavailable, says: "not yet ready to handle request",
		},
		"AdmissionCanNotAsk": {
			reason: "what an admission has to ask does not answer",
			code:   403, body: status("Forbidden", `shoots.core.gardener.cloud "a" is forbidden: Get "https://10.0.0.1/x": dial tcp 10.0.0.1:443: connect: connection refused`),
			want: shoot.ClassUnavailable, says: `Get "https://10.0.0.1/x": dial tcp 10.0.0.1:443: connect: connection refused`,
		},
		"ProjectGoes": {
			reason: "nothing can be made there any more",
			code:   403, body: status("Forbidden", `shoots.core.gardener.cloud "a" is forbidden: unable to create new content in namespace garden-x because it is being terminated`),
			want: shoot.ClassForbidden, says: "unable to create new content in namespace garden-x because it is being terminated",
		},
		"NoSuchProfile": {
			reason: "500 although it is the cluster's fault",
			code:   500, body: status("InternalError", `Internal error occurred: could not find referenced cloud profile: cloudprofile.core.gardener.cloud "none" not found`),
			want: shoot.ClassInvalid, says: `could not find referenced cloud profile: cloudprofile.core.gardener.cloud "none" not found`,
		},
		"PoolTwice": {
			reason: "500 although it is the cluster's fault",
			code:   500, body: status("", `failed to create typed patch object (garden-x/a; core.gardener.cloud/v1beta1, Kind=Shoot): .spec.provider.workers: duplicate entries for key [name="default"]`),
			want: shoot.ClassInvalid, says: `failed to create typed patch object (garden-x/a; core.gardener.cloud/v1beta1, Kind=Shoot): .spec.provider.workers: duplicate entries for key [name="default"]`,
		},
		"Field": {
			reason: "a field is not as it should be",
			code:   422, body: status("Invalid", `Shoot.core.gardener.cloud "a" is invalid: spec.provider.workers[0].maximum: Forbidden: maximum value must not be less than minimum value`),
			want: shoot.ClassInvalid, says: "spec.provider.workers[0].maximum: Forbidden: maximum value must not be less than minimum value",
		},
		"UnknownField": {
			reason: "a field is none",
			code:   400, body: status("BadRequest", `strict decoding error: unknown field "spec.x"`), want: shoot.ClassInvalid, says: `strict decoding error: unknown field "spec.x"`,
		},
		"WebhookDenies": {
			reason: "it may choose the code, even one of an outage",
			code:   500, body: status("InternalError", `admission webhook "validation.provider.example" denied the request: networks.vpc: Required value`),
			want: shoot.ClassInvalid, says: `admission webhook "validation.provider.example" denied the request: networks.vpc: Required value`,
		},
		"WebhookDeniesAsThrottling": {
			reason: "it would throttle all other Shoots",
			code:   429, body: status("TooManyRequests", `admission webhook "x" denied the request: no room`),
			want: shoot.ClassInvalid, says: `admission webhook "x" denied the request: no room`,
		},
		"WebhookDoesNotAnswer": {
			reason: "it may be back soon",
			code:   500, body: status("InternalError", `Internal error occurred: failed calling webhook "validation.provider.example": context deadline exceeded`),
			want: shoot.ClassUnavailable, says: `failed calling webhook "validation.provider.example": context deadline exceeded`,
		},
		"Etcd": {
			reason: "the store does not answer",
			code:   500, body: status("InternalError", `etcdserver: request timed out`), want: shoot.ClassUnavailable, says: "etcdserver: request timed out",
		},
		"Aggregator": {
			reason: "that of Kubernetes answers for that of Gardener, and its addresses are nobody's business",
			code:   503, body: "error trying to reach service: dial tcp 127.0.0.1:20638: connect: connection refused", want: shoot.ClassUnavailable, says: "response 503 Service Unavailable",
		},
		"NoNamespace": {
			reason: "it is the worker's configuration",
			code:   404, body: `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"namespaces \"nowhere\" not found","reason":"NotFound","details":{"name":"nowhere","kind":"namespaces"},"code":404}`,
			want: shoot.ClassUnavailable, says: `namespaces "nowhere" not found`,
		},
		"NoGardener": {
			reason: "Shoots are not served", code: 404, body: "404 page not found\n", want: shoot.ClassUnavailable, says: "response 404 Not Found",
		},
		"WhoAreYou": {
			reason: "the token has run out", code: 401, body: status("Unauthorized", "Unauthorized"), want: shoot.ClassUnavailable, says: "Unauthorized",
		},
		"Teapot":  {reason: "something else", code: 418, body: "", want: shoot.ClassUnknown, says: "response 418 I'm a teapot"},
		"NoSense": {reason: "a portal answers", code: 200, body: "<html>Log in!</html>", want: shoot.ClassUnavailable, says: "invalid response: invalid character '<' looking for beginning of value"},
		"Cut":     {reason: "an answer that breaks off", code: 200, body: `{"kind":"Sho`, want: shoot.ClassUnavailable, says: "invalid response: unexpected end of JSON input"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := play(t, map[string]http.HandlerFunc{http.MethodPatch: always(test.code, test.body)})
			_, err := p.client(gardener.Config{}).ApplyShoot(t.Context(), gardentest.NewManifest("a", 1), false)
			if got := shoot.ClassOf(err); got != test.want {
				t.Errorf("%s: got %s, want %s", test.reason, got, test.want)
			}
			if diff := cmp.Diff(`apply Shoot "a": `+test.says, err.Error()); diff != "" {
				t.Errorf("%s (-want +got)", diff)
			}
			got := slices.DeleteFunc(p.requests(), func(what string) bool { return what == "GET /readyz" })
			if len(got) != 1 {
				t.Errorf("it was asked %d times: %q", len(got), got)
			}
		})
	}
}

func TestADeletionThatSomebodyElseHasToConfirm(t *testing.T) {
	said := `shoots.core.gardener.cloud "a" is forbidden: you are not allowed to both confirm the deletion and send the actual DELETE request - another subject must perform the deletion`
	live := `{"metadata":{"name":"a","uid":"u","resourceVersion":"7","labels":{"fleetloop.io/cluster-id":"c","fleetloop.io/installation":"i"}},"spec":{}}`
	p := play(t, map[string]http.HandlerFunc{
		http.MethodGet: always(200, live), http.MethodPatch: always(200, live), http.MethodDelete: always(403, status("Forbidden", said)),
	})
	_, err := p.client(gardener.Config{}).DeleteShoot(t.Context(), shoot.Ref{Name: "a", Cluster: "c", Installation: "i"})
	if got := shoot.ClassOf(err); got != shoot.ClassApproval {
		t.Errorf("got %v (%s)", err, got)
	}
}

func TestWhoIsAskedToWaitIsToldHowLong(t *testing.T) {
	p := play(t, map[string]http.HandlerFunc{http.MethodPatch: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		answer(w, http.StatusTooManyRequests, status("TooManyRequests", "the server has received too many requests"))
	}})
	_, err := p.client(gardener.Config{}).ApplyShoot(t.Context(), gardentest.NewManifest("a", 1), false)
	if shoot.ClassOf(err) != shoot.ClassThrottled || shoot.RetryAfter(err) != 7*time.Second {
		t.Errorf("got %v (%s), after %s", err, shoot.ClassOf(err), shoot.RetryAfter(err))
	}
	if got := p.requests(); len(got) != 1 {
		t.Errorf("it was asked again all the same: %q", got)
	}
}

func TestOurOwnLimitIsThrottlingToo(t *testing.T) {
	p := play(t, map[string]http.HandlerFunc{http.MethodGet: always(404, absent), "GET /api/v1/namespaces/" + namespace: always(200, there)})
	c := p.client(gardener.Config{QPS: 0.001, Burst: 1, Timeout: 10 * time.Second})
	if _, err := c.GetShoot(t.Context(), "a"); !errors.Is(err, shoot.ErrNotFound) {
		t.Fatal(err)
	}
	_, err := c.GetShoot(t.Context(), "a")
	if shoot.ClassOf(err) != shoot.ClassThrottled || shoot.RetryAfter(err) < time.Minute {
		t.Errorf("got %v (%s), after %s", err, shoot.ClassOf(err), shoot.RetryAfter(err))
	}
	if err := c.Probe(t.Context()); err != nil {
		t.Errorf("a probe is not limited, but: %v", err)
	}
}

func TestAServerThatHangs(t *testing.T) {
	over := make(chan struct{})
	p := play(t, map[string]http.HandlerFunc{http.MethodPatch: func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-over:
		case <-r.Context().Done():
		}
	}})
	defer close(over)
	c := p.client(gardener.Config{Timeout: 50 * time.Millisecond})
	_, err := c.ApplyShoot(t.Context(), gardentest.NewManifest("a", 1), false)
	if shoot.ClassOf(err) != shoot.ClassUnavailable || !strings.Contains(err.Error(), "no data received for 50ms") {
		t.Errorf("got %v (%s)", err, shoot.ClassOf(err))
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v does not say that it was a time limit", err)
	}
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stopped)
	if _, err := c.ApplyShoot(ctx, gardentest.NewManifest("a", 1), false); !errors.Is(err, stopped) {
		t.Errorf("got %v, want that we stopped", err)
	}
}

func TestAServerThatIsNotThere(t *testing.T) {
	p := play(t, nil)
	c := p.client(gardener.Config{})
	p.server.Close()
	_, err := c.ApplyShoot(t.Context(), gardentest.NewManifest("a", 1), false)
	if shoot.ClassOf(err) != shoot.ClassUnavailable || strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("got %v (%s)", err, shoot.ClassOf(err))
	}
	if err := c.Probe(t.Context()); shoot.ClassOf(err) != shoot.ClassUnavailable || err == nil {
		t.Errorf("probe: got %v", err)
	}
}

// TestOnlyAMissingShootIsMissing: taking another 404 for a completed deletion would
// mean to forget running clusters.
func TestOnlyAMissingShootIsMissing(t *testing.T) {
	tests := map[string]struct {
		reason   string
		handlers map[string]http.HandlerFunc
		absent   bool
	}{
		"Gone":        {reason: "the API server knows of none", handlers: map[string]http.HandlerFunc{http.MethodGet: always(404, absent), "GET /api/v1/namespaces/" + namespace: always(200, there)}, absent: true},
		"MayNotLook":  {reason: "we may not look at the namespace", handlers: map[string]http.HandlerFunc{http.MethodGet: always(404, absent), "GET /api/v1/namespaces/" + namespace: always(403, status("Forbidden", "no"))}, absent: true},
		"Starting":    {reason: "an API server that does not know us yet says nothing of the namespace", handlers: map[string]http.HandlerFunc{http.MethodGet: always(404, absent), "GET /api/v1/namespaces/" + namespace: always(403, status("Forbidden", `User "system:anonymous" cannot get resource "namespaces"`))}},
		"NoNamespace": {reason: "the namespace is wrong", handlers: map[string]http.HandlerFunc{http.MethodGet: always(404, absent), "GET /api/v1/namespaces/" + namespace: always(404, `{"kind":"Status","reason":"NotFound","message":"none","details":{"name":"garden-played","kind":"namespaces"},"code":404}`)}},
		"NotServed":   {reason: "Gardener is not installed", handlers: map[string]http.HandlerFunc{http.MethodGet: always(404, "404 page not found\n")}},
		"Unknown":     {reason: "an API server that knows no Shoots", handlers: map[string]http.HandlerFunc{http.MethodGet: always(404, `{"kind":"Status","reason":"NotFound","message":"the server could not find the requested resource","details":{},"code":404}`)}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := play(t, test.handlers).client(gardener.Config{})
			d, err := c.DeleteShoot(t.Context(), shoot.Ref{Name: "a", Cluster: "c", Installation: "i"})
			if d.Absent != test.absent || (err == nil) != test.absent {
				t.Errorf("%s: got %+v, %v", test.reason, d, err)
			}
			_, err = c.GetShoot(t.Context(), "a")
			if errors.Is(err, shoot.ErrNotFound) != test.absent {
				t.Errorf("%s: got %v", test.reason, err)
			}
			if !test.absent && shoot.ClassOf(err) != shoot.ClassUnavailable {
				t.Errorf("%s: got class %s", test.reason, shoot.ClassOf(err))
			}
			if err := c.Probe(t.Context()); (err == nil) != test.absent {
				t.Errorf("%s: a probe says %v", test.reason, err)
			}
		})
	}
}

func TestAShootThatAlwaysChangesIsAConflict(t *testing.T) {
	live := `{"metadata":{"name":"a","uid":"u","resourceVersion":"7","labels":{"fleetloop.io/cluster-id":"cluster-of-a","fleetloop.io/installation":"` + gardentest.Installation + `"}},"spec":{}}`
	conflict := always(409, status("Conflict", `Operation cannot be fulfilled on shoots.core.gardener.cloud "a": the object has been modified`))
	p := play(t, map[string]http.HandlerFunc{http.MethodGet: always(200, live), http.MethodPatch: conflict})
	_, err := p.client(gardener.Config{}).ApplyShoot(t.Context(), gardentest.NewManifest("a", 1), true)
	if shoot.ClassOf(err) != shoot.ClassConflict {
		t.Errorf("got %v (%s)", err, shoot.ClassOf(err))
	}
	if got := len(p.requests()); got != 16 {
		t.Errorf("%d requests, want 8 looks and 8 writes", got)
	}
}

// TestAServerThatMakesNoObjectsWithVersions: current servers create an object despite a
// given version, which may change.
func TestAServerThatMakesNoObjectsWithVersions(t *testing.T) {
	conflict := status("Conflict", `Operation cannot be fulfilled on shoots.core.gardener.cloud "a": the object has been modified`)
	p := play(t, map[string]http.HandlerFunc{
		http.MethodGet: always(404, absent), "GET /api/v1/namespaces/" + namespace: always(200, there),
		http.MethodPatch: func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil || strings.Contains(string(body), "resourceVersion") {
				answer(w, 409, conflict)
				return
			}
			answer(w, 201, `{"metadata":{"name":"a","uid":"u","generation":1,"resourceVersion":"7"},"spec":{}}`)
		},
	})
	got, err := p.client(gardener.Config{}).ApplyShoot(t.Context(), gardentest.NewManifest("a", 1), false)
	if diff := cmp.Diff(shoot.Applied{UID: "u", Generation: 1, Created: true, Changed: true}, got); diff != "" || err != nil {
		t.Errorf("%s (-want +got), %v", diff, err)
	}
}
