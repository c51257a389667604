package gardener_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fleetloop/fleetloop/internal/gardener"
	"github.com/fleetloop/fleetloop/internal/gardener/gardentest"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// A lateGarden answers every request after some time, with a Shoot.
type lateGarden struct {
	late  time.Duration
	shoot []byte
}

// RoundTrip answers, unless the caller gives up before.
func (g lateGarden) RoundTrip(r *http.Request) (*http.Response, error) {
	timer := time.NewTimer(g.late)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	_, err := w.Write(g.shoot)
	return w.Result(), err
}

// TestEachRequestHasItsOwnLimit: each request of a call has a separate timeout. A probe
// has only that of its caller, since a server that answers late is not down.
func TestEachRequestHasItsOwnLimit(t *testing.T) {
	const limit = 15 * time.Second
	m := gardentest.NewManifest("a", 1)
	m.Metadata.Namespace = namespace
	live, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	ref := shoot.Ref{Name: "a", Cluster: m.Metadata.Labels[shoot.LabelCluster], Installation: gardentest.Installation}
	cases := map[string]struct {
		reason string
		late   time.Duration
		call   func(ctx context.Context, c *gardener.Client) error
		took   time.Duration
		slow   bool // it ends by a timeout
	}{
		"Deletion": {
			reason: "three requests of 6 s are within the limit of each", late: 6 * time.Second, took: 18 * time.Second,
			call: func(ctx context.Context, c *gardener.Client) error { _, err := c.DeleteShoot(ctx, ref); return err },
		},
		"DeletionTooLate": {
			reason: "the first request takes too long", late: 20 * time.Second, took: limit, slow: true,
			call: func(ctx context.Context, c *gardener.Client) error { _, err := c.DeleteShoot(ctx, ref); return err },
		},
		"Probe": {
			reason: "an answer counts, however late it is", late: 20 * time.Second, took: 20 * time.Second,
			call: func(ctx context.Context, c *gardener.Client) error { return c.Probe(ctx) },
		},
		"ProbeWithALimit": {
			reason: "its caller gives up", late: 20 * time.Second, took: 16 * time.Second, slow: true,
			call: func(ctx context.Context, c *gardener.Client) error {
				ctx, cancel := context.WithTimeout(ctx, 16*time.Second)
				defer cancel()
				return c.Probe(ctx)
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, err := gardener.NewForConfig(&rest.Config{Host: "http://garden", Transport: lateGarden{tc.late, live}},
					gardener.Config{Namespace: namespace, Timeout: limit}, gardentest.Installation)
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				err = tc.call(t.Context(), c)
				if took := time.Since(began); took != tc.took || (err != nil) != tc.slow || tc.slow && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %v after %s, want %s", tc.reason, err, took, tc.took)
				}
			})
		})
	}
}
