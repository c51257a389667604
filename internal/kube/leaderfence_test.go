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
	mine, released := resourcelock.LeaderElectionRecord{HolderIdentity: "me"}, resourcelock.LeaderElectionRecord{}
	for name, c := range map[string]struct {
		prepare func(t *testing.T, l resourcelock.Interface, inner *testLock)
		refused bool
	}{
		"NeverLed": {func(*testing.T, resourcelock.Interface, *testLock) { time.Sleep(time.Hour) }, false},
		"Elected": {func(t *testing.T, l resourcelock.Interface, _ *testLock) {
			mustRenew(t, l, mine)
			time.Sleep(validFor - 1)
		}, false},
		"Frozen": {func(t *testing.T, l resourcelock.Interface, _ *testLock) { mustRenew(t, l, mine); time.Sleep(validFor) }, true},
		"Renewed": {func(t *testing.T, l resourcelock.Interface, _ *testLock) {
			mustRenew(t, l, mine)
			time.Sleep(validFor - 1)
			mustRenew(t, l, mine)
			time.Sleep(validFor - 1)
		}, false},
		"RenewedAfterwards": {func(t *testing.T, l resourcelock.Interface, _ *testLock) {
			mustRenew(t, l, mine)
			time.Sleep(validFor)
			mustRenew(t, l, mine)
		}, false},
		"RenewalFailed": {func(t *testing.T, l resourcelock.Interface, inner *testLock) {
			mustRenew(t, l, mine)
			time.Sleep(validFor - 1)
			inner.err = errors.New("conflict")
			if err := l.Update(t.Context(), mine); err == nil {
				t.Error("the error of the renewal is lost")
			}
			time.Sleep(1)
		}, true},
		"SlowRenewal": {func(t *testing.T, l resourcelock.Interface, inner *testLock) {
			inner.takes = validFor - 1
			mustRenew(t, l, mine)
			time.Sleep(1)
		}, true},
		"Released": {func(t *testing.T, l resourcelock.Interface, _ *testLock) {
			mustRenew(t, l, mine)
			mustRenew(t, l, released)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				fence, inner, server := &leaderFence{validFor: validFor}, &testLock{}, &countingTransport{}
				c.prepare(t, fencedLock{inner, fence}, inner)
				client := http.Client{Transport: fencedTransport{server, fence}}
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
					if errors.Is(err, errLeadershipExpired) != refused || server.sent == 0 != refused {
						t.Errorf("%s: %d sent, error %v; refused: want %t", method, server.sent, err, refused)
					}
				}
			})
		})
	}
}

func mustRenew(t *testing.T, l resourcelock.Interface, record resourcelock.LeaderElectionRecord) {
	t.Helper()
	if err := l.Update(t.Context(), record); err != nil {
		t.Fatal(err)
	}
}
