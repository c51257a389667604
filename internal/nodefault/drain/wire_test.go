package drain

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/kube/eviction"
)

// TestAListThatLagsEndsNoDrain verifies that a stale list does not end a drain.
func TestAListThatLagsEndsNoDrain(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	r.pod("a", slow)
	r.wire.answers(func(req *http.Request) *http.Response {
		if !strings.Contains(req.URL.RawQuery, "resourceVersion=0") || !strings.HasSuffix(req.URL.Path, "/pods") {
			return nil
		}
		return answer(req, http.StatusOK, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`)
	})
	r.begin()
	r.step(later)
	r.want(v1alpha1.DrainRunning, "drain-started")
	r.kill("a")
	r.step(Never)
	r.want(v1alpha1.DrainCompleted, "drain-started", "drain-completed")
}

func answer(req *http.Request, code int, body string) *http.Response {
	return &http.Response{StatusCode: code, Status: http.StatusText(code), Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: req, ProtoMajor: 1, ProtoMinor: 1}
}

// TestRetryAfterIsHonoured verifies that Retry-After delays the next request without
// blocking.
func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	r.pod("a")
	r.begin()
	r.wire.answers(func(req *http.Request) *http.Response {
		if !strings.HasSuffix(req.URL.Path, "/eviction") {
			return nil
		}
		busy := answer(req, http.StatusTooManyRequests,
			`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"busy","reason":"TooManyRequests","details":{"retryAfterSeconds":100},"code":429}`)
		busy.Header.Set("Retry-After", "1") // a client that retries by itself would do so soon
		return busy
	})
	r.step(later)
	if r.wire.evictions() != 1 {
		t.Errorf("the client asked %d times by itself", r.wire.evictions())
	}
	r.wantBlockers("a by api-error")
	r.now = r.now.Add(99 * time.Second)
	r.step(time.Second)
	if r.wire.evictions() != 1 {
		t.Error("it was asked again before the time that the API server wants")
	}
	r.wire.answers(nil)
	r.now = r.now.Add(time.Second)
	r.step(later)
	r.wantPods()
}

func TestTheAPIServerIsAway(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	r.pod("a")
	away := func(req *http.Request) *http.Response {
		return answer(req, http.StatusForbidden, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"Forbidden","code":403}`)
	}
	r.wire.answers(away)
	if _, err := r.d.Step(t.Context(), r.node, r.st, r.now); err == nil || r.st.Drain != nil {
		t.Errorf("without the pods of the node it begins: %v, %+v", err, r.st.Drain)
	}
	r.wire.answers(nil)
	r.begin()
	r.wire.answers(func(req *http.Request) *http.Response {
		if req.Method == http.MethodPost {
			return away(req)
		}
		return nil
	})
	r.step(later)
	r.wantBlockers("a by rejected")
	r.wire.answers(away)
	if _, err := r.d.Step(t.Context(), r.node, r.st, r.st.Drain.Deadline.Time); err == nil {
		t.Error("a drain ends although nobody can say whether the pods are gone")
	}
	r.want(v1alpha1.DrainRunning, "drain-started")
	r.wire.answers(nil)
}

// TestAnotherPodOfTheName verifies that another pod of the same name is not evicted.
func TestAnotherPodOfTheName(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	old := r.pod("web-0")
	r.kill("web-0")
	for _, how := range allRemovalMethods() {
		if err := r.d.evictor.evictOrDeletePod(t.Context(), &removalRequest{pod: old, method: how}); eviction.Classify(err) != eviction.NotFound {
			t.Errorf("%s, a pod that is no more: %v", how, err)
		}
	}
	r.pod("web-0")
	for _, how := range allRemovalMethods() {
		if err := r.d.evictor.evictOrDeletePod(t.Context(), &removalRequest{pod: old, method: how}); eviction.Classify(err) != eviction.NotFound {
			t.Errorf("%s, a pod of which another has the name: %v", how, err)
		}
	}
	r.wantPods("web-0")
}
