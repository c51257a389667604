package action

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestWarnings are those of the API server, in results and in dry runs.
func TestWarnings(t *testing.T) {
	s := newStage(t)
	s.create(deployment("web", 3))
	p := s.plan(s.admin, s.request("scale_deployment", asked(map[string]any{"replicas": 5})), newSubject("uid"))
	w := &wire{}
	w.after = func(_ int, r *http.Response) *http.Response {
		r.Header.Add("Warning", `299 - "replicas above 4 are expensive"`) // as the API server words it
		return r
	}
	c := connect(t, w)
	run := Run{Subject: newSubject("uid")}
	for _, r := range []Result{DryRun(t.Context(), c, p, run), Execute(t.Context(), c, p, run)} {
		wantCode(t, r, CodeOK)
		if len(r.Warnings) != 1 || r.Warnings[0] != "replicas above 4 are expensive" {
			t.Errorf("warnings %q", r.Warnings)
		}
		if r.DryRun != nil && len(r.DryRun.Warnings) != 1 {
			t.Errorf("dry run %+v", r.DryRun)
		}
	}
	if left := c.Warnings(); len(left) > 0 {
		t.Errorf("left over: %q", left)
	}
}

// TestWarningsApart has several executions with one client, each with its own.
func TestWarningsApart(t *testing.T) {
	s := newStage(t)
	w := &wire{}
	w.after = func(_ int, r *http.Response) *http.Response {
		name := r.Request.URL.Path[strings.Index(r.Request.URL.Path, "web-"):]
		r.Header.Add("Warning", fmt.Sprintf(`299 - %q`, strings.TrimSuffix(name, "/scale")))
		return r
	}
	c := connect(t, w)
	var all sync.WaitGroup
	for i := range 8 {
		name := fmt.Sprintf("web-%d", i)
		s.create(deployment(name, 1))
		p := s.plan(s.admin, s.request("scale_deployment", map[string]any{"deployment": name, "replicas": 2}), newSubject("uid"))
		all.Go(func() {
			r := Execute(t.Context(), c, p, Run{Subject: newSubject("uid")})
			if r.Code != CodeOK || len(r.Warnings) != 1 || r.Warnings[0] != name {
				t.Errorf("%s: code %d with the warnings %q", name, r.Code, r.Warnings)
			}
		})
	}
	all.Wait()
}

// TestWarningsClaimed verifies that warnings go to the collector in the context of their request,
// and to the client without one.
func TestWarningsClaimed(t *testing.T) {
	s := newStage(t)
	o := s.create(deployment("web", 1))
	w := &wire{}
	var n int
	w.after = func(_ int, r *http.Response) *http.Response {
		n++
		r.Header.Add("Warning", fmt.Sprintf(`299 - "warning %d"`, n))
		return r
	}
	c := connect(t, w)
	patch := func(ctx context.Context) {
		k, _ := findKind("", kindDeployment)
		if _, err := c.resourceClient(k.GroupVersionResource, s.namespace).Patch(ctx, o.GetName(), types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	first, heardFirst := withWarningCollector(t.Context())
	second, heardSecond := withWarningCollector(t.Context())
	for _, ctx := range []context.Context{first, second, t.Context(), first} {
		patch(ctx)
	}
	got := [][]string{heardFirst.takeWarnings(), heardSecond.takeWarnings(), c.Warnings(), c.Warnings()}
	if diff := cmp.Diff([][]string{{"warning 1", "warning 4"}, {"warning 2"}, {"warning 3"}, nil}, got); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

// TestLogs reads a log, which a Pod without a node has not, and no other path.
func TestLogs(t *testing.T) {
	s := newStage(t)
	s.create(pod("web-1"))
	if text, err := s.admin.Logs(t.Context(), s.namespace, "web-1", "app", 10); err != nil || text != "" {
		t.Errorf("Logs() = %q, %v", text, err)
	}
	if _, err := s.admin.Logs(t.Context(), s.namespace, "web-2", "app", 10); !apierrors.IsNotFound(err) {
		t.Errorf("Logs() of no Pod = %v", err)
	}
	if _, err := s.admin.Logs(t.Context(), s.namespace, "../../secrets", "app", 10); err == nil || !strings.Contains(err.Error(), "invalid resource name") {
		t.Errorf("Logs() of a path = %v", err)
	}
}
