package client

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// TestReadTokens checks which token each read sends after the tokens of writes.
func TestReadTokens(t *testing.T) {
	const earlier, later, failover = "00000001000000000000A000", "00000001000000000000B000", "000000020000000000000100"
	type step struct {
		write string        // the token of a write, "" for a read
		after time.Duration // before the step
		want  string        // of a read
	}
	cases := map[string]struct {
		reason string
		steps  []step
	}{
		"None":       {"nothing was written", []step{{want: ""}}},
		"Latest":     {"the second write is later", []step{{write: earlier}, {write: later}, {want: later}}},
		"OutOfOrder": {"the response to an earlier write may arrive last", []step{{write: later}, {write: earlier}, {want: later}}},
		"Expired":    {"every standby has the write by then", []step{{write: later}, {after: 3 * time.Minute, want: ""}}},
		"Remaining": {
			"each token has its own time",
			[]step{{write: later}, {after: time.Minute, write: earlier}, {after: 90 * time.Second, want: earlier}},
		},
		"Failover": {"a later timeline begins at lower positions", []step{{write: later}, {write: failover}, {want: failover}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var token string
				var sent []string
				c, err := New(Config{Endpoint: "http://fleet.test", WrapTransport: func(http.RoundTripper) http.RoundTripper {
					return roundTrip(func(r *http.Request) (*http.Response, error) {
						w := httptest.NewRecorder()
						w.Header().Set("Content-Type", "application/json")
						if r.Method == http.MethodGet {
							sent = append(sent, r.Header.Get(v1.ReadAfterHeader))
						} else {
							w.Header().Set(v1.ReadAfterHeader, token)
						}
						_, _ = w.WriteString(`{}`)
						return w.Result(), nil
					})
				}})
				if err != nil {
					t.Fatal(err)
				}
				var want []string
				for _, s := range tc.steps {
					time.Sleep(s.after)
					if token = s.write; token == "" {
						want = append(want, s.want)
						_, err = c.Clusters().Get(t.Context(), "one")
					} else {
						_, err = c.Clusters().Create(t.Context(), v1.CreateRequest{Name: "one"})
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				if diff := cmp.Diff(want, sent); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
			})
		})
	}
}

// TestReadLatest checks that each read finds all writes, whatever the client wrote.
func TestReadLatest(t *testing.T) {
	var sent []string
	c, err := New(Config{Endpoint: "http://fleet.test", ReadLatest: true, WrapTransport: func(http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			sent = append(sent, r.Header.Get(v1.ReadAfterHeader))
			w := httptest.NewRecorder()
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set(v1.ReadAfterHeader, "00000001000000000000A000")
			_, _ = w.WriteString(`{}`)
			return w.Result(), nil
		})
	}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := c.Clusters().Get(t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Clusters().Create(t.Context(), v1.CreateRequest{Name: "one"}); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{v1.ReadAfterAll, "", v1.ReadAfterAll, ""}, sent); diff != "" {
		t.Errorf("tokens of a read, a write and so on (-want +got):\n%s", diff)
	}
}
