package gardener_test

import (
	"encoding/json"
	"errors"
	"fmt"
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

const gone = `{"kind":"Status","status":"Failure","message":"too old resource version: 1 (7)","reason":"Expired","code":410}`

func line(kind, object string) string {
	return fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", kind, object)
}

func named(name, version string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"resourceVersion":%q,"creationTimestamp":null}}`, name, version)
}

// letters returns an event in a few letters.
func letters(e shoot.Event) string {
	return map[shoot.EventType]string{shoot.Seen: "seen ", shoot.Gone: "gone ", shoot.Mark: "mark "}[e.Type] + e.Shoot.Name + e.Shoot.ResourceVersion
}

func TestAWatchGoesOnFromWhereItWas(t *testing.T) {
	var asked []string
	p := play(t, map[string]http.HandlerFunc{"GET " + shoots: func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		asked = append(asked, q.Get("resourceVersion"))
		if q.Get("watch") != "true" || q.Get("allowWatchBookmarks") != "true" || q.Get("labelSelector") != shoot.LabelInstallation+"="+gardentest.Installation || q.Get("timeoutSeconds") == "" {
			t.Errorf("it was asked %v", q)
		}
		switch len(asked) {
		case 1:
			answer(w, 200, line("ADDED", named("a", "3"))+line("MODIFIED", named("b", "4"))+line("BOOKMARK", named("", "9")))
		case 2:
			answer(w, 200, line("DELETED", named("a", "12")))
		default:
			answer(w, 200, line("ERROR", gone))
		}
	}})
	var told []string
	err := p.client(gardener.Config{}).WatchShoots(t.Context(), "1", func(e shoot.Event) error {
		told = append(told, letters(e))
		return nil
	})
	if !errors.Is(err, shoot.ErrExpired) {
		t.Errorf("the watch ended with %v", err)
	}
	if diff := cmp.Diff([]string{"1", "9", "12"}, asked); diff != "" {
		t.Errorf("versions that were asked for: %s (-want +got)", diff)
	}
	if diff := cmp.Diff([]string{"seen a3", "seen b4", "mark 9", "gone a12"}, told); diff != "" {
		t.Errorf("%s (-want +got)", diff)
	}
}

func TestHowAWatchEnds(t *testing.T) {
	tests := map[string]struct {
		reason string
		handle http.HandlerFunc
		want   shoot.Class
		says   string
	}{
		"Forbidden": {
			reason: "the caller polls then", handle: always(403, status("Forbidden", `shoots.core.gardener.cloud is forbidden: User "nobody" cannot watch resource "shoots"`)),
			want: shoot.ClassForbidden, says: `watch Shoots: User "nobody" cannot watch resource "shoots"`,
		},
		"Down": {reason: "the server does not answer", handle: always(503, "no"), want: shoot.ClassUnavailable, says: "503"},
		"Broken": {
			reason: "a connection that breaks off within a message",
			handle: always(200, `{"type":"ADDED","obj`), want: shoot.ClassUnavailable, says: "unexpected EOF",
		},
		"Unknown": {reason: "a message of another kind", handle: always(200, line("SURPRISE", `{}`)), want: shoot.ClassUnavailable, says: "SURPRISE"},
		"ServerError": {
			reason: "it ends with an error", handle: always(200, line("ERROR", `{"kind":"Status","message":"etcdserver: no leader","reason":"InternalError","code":500}`)),
			want: shoot.ClassUnavailable, says: "etcdserver: no leader",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := play(t, map[string]http.HandlerFunc{"GET " + shoots: test.handle})
			err := p.client(gardener.Config{}).WatchShoots(t.Context(), "1", func(shoot.Event) error { return nil })
			if shoot.ClassOf(err) != test.want || err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: got %v (%s)", test.reason, err, shoot.ClassOf(err))
			}
		})
	}
	t.Run("Gone", func(t *testing.T) {
		p := play(t, map[string]http.HandlerFunc{"GET " + shoots: always(410, gone)})
		err := p.client(gardener.Config{}).WatchShoots(t.Context(), "1", func(shoot.Event) error { return nil })
		if !errors.Is(err, shoot.ErrExpired) {
			t.Errorf("got %v", err)
		}
	})
}

func TestADeadConnectionIsNoticed(t *testing.T) {
	over := make(chan struct{})
	p := play(t, map[string]http.HandlerFunc{"GET " + shoots: func(w http.ResponseWriter, r *http.Request) {
		answer(w, 200, line("ADDED", named("a", "3")))
		http.NewResponseController(w).Flush() //nolint:errcheck // the watch says what went wrong
		select {
		case <-over:
		case <-r.Context().Done():
		}
	}})
	defer close(over)
	told := 0
	err := p.client(gardener.Config{Silence: 200 * time.Millisecond}).WatchShoots(t.Context(), "1", func(shoot.Event) error {
		told++
		return nil
	})
	if shoot.ClassOf(err) != shoot.ClassUnavailable || !strings.Contains(err.Error(), "no events received in time") || told != 1 {
		t.Errorf("got %v (%s) after %d events", err, shoot.ClassOf(err), told)
	}
}

func TestAListComesInPages(t *testing.T) {
	page := func(next string, names ...string) string {
		items := []string{}
		for _, n := range names {
			items = append(items, named(n, "3"))
		}
		return fmt.Sprintf(`{"metadata":{"resourceVersion":"42","continue":%q},"items":[%s]}`, next, strings.Join(items, ","))
	}
	expired := 0
	p := play(t, map[string]http.HandlerFunc{"GET " + shoots: func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if q.Get("limit") != "500" || q.Get("labelSelector") == "" || q.Has("resourceVersion") {
			t.Errorf("it was asked %v", q)
		}
		switch q.Get("continue") {
		case "":
			answer(w, 200, page("more", "a", "b"))
		case "more":
			if expired++; expired == 1 {
				answer(w, 410, gone)
				return
			}
			answer(w, 200, page("", "c"))
		}
	}})
	l, err := p.client(gardener.Config{}).ListShoots(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := []string{l.ResourceVersion}
	for _, o := range l.Shoots {
		got = append(got, o.Name)
	}
	if diff := cmp.Diff([]string{"42", "a", "b", "c"}, got); diff != "" {
		t.Errorf("%s (-want +got)", diff)
	}
	if got := len(p.requests()); got != 4 {
		t.Errorf("%d requests, want 4: the list began again", got)
	}
}

func TestAListWithoutSenseIsNoEmptyList(t *testing.T) {
	for _, body := range []string{`{}`, `null`, `[]`, ``} {
		p := play(t, map[string]http.HandlerFunc{"GET " + shoots: always(200, body)})
		if _, err := p.client(gardener.Config{}).ListShoots(t.Context()); shoot.ClassOf(err) != shoot.ClassUnavailable || err == nil {
			t.Errorf("%q: got %v", body, err)
		}
	}
}

func TestTheProjectOfANamespace(t *testing.T) {
	projects := `{"items":[{"metadata":{"name":"other"},"spec":{"namespace":"garden-other"}},{"metadata":{"name":"ours"},"spec":{"namespace":"garden-played"}}]}`
	labelled := `{"metadata":{"name":"garden-played","labels":{"project.gardener.cloud/name":"labelled"}}}`
	forbidden := always(403, status("Forbidden", "User \"x\" cannot"))
	tests := map[string]struct {
		reason              string
		namespace, projects http.HandlerFunc
		want                string
	}{
		"Label":    {reason: "the namespace says so", namespace: always(200, labelled), projects: forbidden, want: "labelled"},
		"Project":  {reason: "a project says so", namespace: always(200, there), projects: always(200, projects), want: "ours"},
		"Guess":    {reason: "we may ask nobody", namespace: forbidden, projects: forbidden, want: "played"},
		"NoAnswer": {reason: "who does not answer may know", namespace: forbidden, projects: always(503, "no")},
		"Wrong":    {reason: "there is no such namespace", namespace: always(404, `{"kind":"Status","reason":"NotFound","message":"none","details":{"name":"garden-played","kind":"namespaces"},"code":404}`), projects: forbidden},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := play(t, map[string]http.HandlerFunc{"GET /api/v1/namespaces/" + namespace: test.namespace, "GET /apis/core.gardener.cloud/v1beta1/projects": test.projects})
			got, err := p.client(gardener.Config{}).FindProjectName(t.Context())
			if got != test.want || (err == nil) != (test.want != "") {
				t.Errorf("%s: got %q, %v", test.reason, got, err)
			}
		})
	}
}

// TestTheNameOfAGarden covers that only a permission that is denied for good makes the address
// the identity. A refusal that may end is an error, and the worker asks again.
func TestTheNameOfAGarden(t *testing.T) {
	refused := always(403, status("Forbidden", "User \"x\" cannot"))
	// review allows the resources that it names.
	review := func(allowed ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			text, _ := io.ReadAll(r.Body)
			var asked struct {
				Spec struct {
					ResourceAttributes struct{ Resource string }
				}
			}
			if err := json.Unmarshal(text, &asked); err != nil {
				t.Error(err)
			}
			always(201, fmt.Sprintf(`{"status":{"allowed":%t}}`, slices.Contains(allowed, asked.Spec.ResourceAttributes.Resource)))(w, r)
		}
	}
	tests := map[string]struct {
		reason            string
		namespace, review http.HandlerFunc
		want              string
	}{
		"UID":       {reason: "whatever the server is called", namespace: always(200, `{"metadata":{"name":"garden-played","uid":"u-1"}}`), want: "garden-played (u-1)"},
		"Forbidden": {reason: "the address is all that is known", namespace: refused, review: review("shoots"), want: "/garden-played"},
		"Passing":   {reason: "the permission exists, so the refusal ends", namespace: refused, review: review("namespaces", "shoots")},
		"NoRoles":   {reason: "nothing is permitted, as while the server reads its roles", namespace: refused, review: review()},
		"NoReview":  {reason: "the permission is unknown", namespace: refused, review: always(503, "no")},
		"NoAnswer":  {reason: "it may be any", namespace: always(503, "no")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			handlers := map[string]http.HandlerFunc{"GET /api/v1/namespaces/" + namespace: test.namespace}
			if test.review != nil {
				handlers["POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews"] = test.review
			}
			got, err := play(t, handlers).client(gardener.Config{}).GetShootNamespaceIdentity(t.Context())
			if !strings.HasSuffix(got, test.want) || (err == nil) != (test.want != "") {
				t.Errorf("%s: got %q, %v", test.reason, got, err)
			}
		})
	}
}
