package client

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// TestImpersonation covers the headers of each request, and that the server is asked once whether it knows them.
func TestImpersonation(t *testing.T) {
	t.Parallel()
	var asked, sent atomic.Int32
	c := newClient(t, Config{Token: StaticToken("t"), Impersonate: Impersonation{User: "alice", Tenant: "blue", Roles: []string{"viewer", "operator"}}}, func(w http.ResponseWriter, r *http.Request) {
		got := []string{r.Header.Get("Impersonate-User"), r.Header.Get("Impersonate-Tenant"), strings.Join(r.Header["Impersonate-Role"], "+"), r.Header.Get("Authorization")}
		if diff := cmp.Diff([]string{"alice", "blue", "viewer+operator", "Bearer t"}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", r.URL, diff)
		}
		if r.URL.Path == v1.WhoAmIPath {
			asked.Add(1)
			writeJSON(w, http.StatusOK, v1.Identity{Subject: "alice", Tenant: "blue", ImpersonatedBy: "root"})
			return
		}
		sent.Add(1)
		writeJSON(w, http.StatusOK, v1.Resource{ID: "x"})
	})
	wantGet(t, c, "the first")
	wantGet(t, c, "the second")
	if asked.Load() != 1 || sent.Load() != 2 {
		t.Errorf("asked %d times, sent %d requests", asked.Load(), sent.Load())
	}
	if who, err := c.WhoAmI(t.Context()); err != nil || who.ImpersonatedBy != "root" {
		t.Errorf("got %+v, %v", who, err)
	}
}

// TestImpersonationIsNeverIgnored covers servers that do not know the headers, or do not permit them: no other request is sent, because it would
// have the rights of the token.
func TestImpersonationIsNeverIgnored(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		status int
		answer any
		want   func(error) bool
	}{
		"Older":        {"it ignores the headers", 200, v1.Identity{Subject: "root", Roles: []string{"operator"}}, isNotImpersonated},
		"OlderOneself": {"it ignores the headers", 200, v1.Identity{Subject: "alice", Tenant: "blue"}, isNotImpersonated},
		"OtherTenant":  {"a proxy removes one header", 200, v1.Identity{Subject: "alice", ImpersonatedBy: "root"}, isNotImpersonated},
		"Oldest":       {"it has no whoami", 404, v1.Problem{}, isNotImpersonated},
		"Forbidden":    {"the token is not that of an operator", 403, v1.Problem{Detail: "no"}, func(err error) bool { return hasStatus(err, 403) }},
		"Foreign":      {"it is no fleet API", 200, "text", func(err error) bool { return errors.Is(err, ErrInvalidResponse) }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClient(t, Config{Impersonate: Impersonation{User: "alice", Tenant: "blue"}}, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != v1.WhoAmIPath {
					t.Errorf("%s: sent %s %s", tc.reason, r.Method, r.URL)
				}
				writeJSON(w, tc.status, tc.answer)
			})
			other, err := c.WithToken(StaticToken("other"))
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range []*Client{c, other} {
				for what, send := range map[string]func(context.Context) error{
					"get": func(ctx context.Context) error { _, err := c.Clusters().Get(ctx, "x"); return err },
					"create": func(ctx context.Context) error {
						_, err := c.Clusters().Create(ctx, v1.CreateRequest{Name: "x"})
						return err
					},
					"load": func(ctx context.Context) error {
						_, err := c.Clusters().Load(ctx, strings.NewReader("{}\n"), LoadOptions{})
						return err
					},
					"watch": func(ctx context.Context) error {
						return c.Raw().Watch(ctx, "clusters", nil, func(v1.WatchEvent) error { return nil })
					},
					"can-i": func(ctx context.Context) error { _, err := c.CanI(ctx, v1.VerbGet, "clusters", ""); return err },
				} {
					if err := send(t.Context()); !tc.want(err) || errors.Is(err, ErrUnreachable) {
						t.Errorf("%s: %s: got %v", tc.reason, what, err)
					}
				}
			}
			if _, err := c.WhoAmI(t.Context()); err == nil {
				t.Errorf("%s: whoami: no error", tc.reason)
			}
		})
	}
}

func isNotImpersonated(err error) bool { return errors.Is(err, ErrNotImpersonated) }

func TestImpersonationIsChecked(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"NoUser":     {Impersonate: Impersonation{Tenant: "blue"}},
		"NoRights":   {Impersonate: Impersonation{User: "alice"}},
		"Control":    {Impersonate: Impersonation{User: "alice\n", Tenant: "blue"}},
		"Header":     {Header: http.Header{"Impersonate-User": {"alice"}}},
		"LowerCase":  {Header: http.Header{"impersonate-user": {"alice"}}},
		"Underscore": {Header: http.Header{"Impersonate_User": {"alice"}}},
	} {
		cfg.Endpoint = "http://h"
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
