package kube

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// testLock is a Lease whose requests take some time and can fail.
type testLock struct {
	resourcelock.Interface

	takes time.Duration
	err   error
}

func (l *testLock) Create(context.Context, resourcelock.LeaderElectionRecord) error {
	time.Sleep(l.takes)
	return l.err
}

func (l *testLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.Create(ctx, record)
}

func (*testLock) Identity() string { return "me" }

type countingTransport struct{ sent int }

func (c *countingTransport) RoundTrip(*http.Request) (*http.Response, error) {
	c.sent++
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// TestLeaderFence covers that a leader writes only while its last renewal is recent, counted from its start, and that reads
// and replicas that never led are not restricted.
func TestLeaderFence(t *testing.T) {
	t.Parallel()
	const validFor = 10 * time.Second
	const mine = "me"
	type renewal struct {
		holder string
		takes  time.Duration
		err    error
		then   time.Duration // time until the next one, or until the writes
	}
	errConflict := errors.New("conflict")
	for name, c := range map[string]struct {
		renewals []renewal
		refused  bool
	}{
		"NeverLed":          {nil, false},
		"Elected":           {[]renewal{{holder: mine, then: validFor - 1}}, false},
		"Frozen":            {[]renewal{{holder: mine, then: validFor}}, true},
		"Renewed":           {[]renewal{{holder: mine, then: validFor - 1}, {holder: mine, then: validFor - 1}}, false},
		"RenewedAfterwards": {[]renewal{{holder: mine, then: validFor}, {holder: mine}}, false},
		"RenewalFailed":     {[]renewal{{holder: mine, then: validFor - 1}, {holder: mine, err: errConflict, then: 1}}, true},
		"SlowRenewal":       {[]renewal{{holder: mine, takes: validFor - 1, then: 1}}, true},
		"Released":          {[]renewal{{holder: mine}, {holder: ""}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				fence, lock, server := &leaderFence{validFor: validFor}, &testLock{}, &countingTransport{}
				for _, r := range c.renewals {
					lock.takes, lock.err = r.takes, r.err
					if err := (fencedLock{lock, fence}).Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: r.holder}); !errors.Is(err, r.err) {
						t.Errorf("renewal: %v, want %v", err, r.err)
					}
					time.Sleep(r.then)
				}
				client := http.Client{Transport: writeFencedTransport{server, fence}}
				for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodGet} {
					server.sent = 0
					req, err := http.NewRequestWithContext(t.Context(), method, "http://api/nodes", strings.NewReader("{}"))
					if err != nil {
						t.Fatal(err)
					}
					resp, err := client.Do(req)
					if err == nil {
						_ = resp.Body.Close()
					}
					refused := c.refused && method != http.MethodGet
					if errors.Is(err, errLeadershipExpired) != refused || (server.sent == 0) != refused {
						t.Errorf("%s: %d sent, error %v; refused: want %t", method, server.sent, err, refused)
					}
				}
			})
		})
	}
}
