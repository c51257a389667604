package cli

import (
	"net/http"
	"testing"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// listRevisions lists four generations of any resource, two on a page.
func (*fakeAPI) listRevisions(r *http.Request) (int, any) {
	made := func(n int64, actor, spec string, labels map[string]string) v1.Revision {
		return v1.Revision{Generation: n, CreatedTime: now.Add(-time.Duration(10-n) * time.Hour), Actor: actor, Spec: []byte(spec), Labels: labels}
	}
	all := []v1.Revision{
		made(5, "dave", `{"version":"1.35","pods":"10.0.0.0/8"}`, map[string]string{"tier": "gold"}),
		made(4, "carol", `{"version":"1.35","pods":"10.0.0.0/8"}`, map[string]string{"tier": "gold"}),
		made(3, "bob\x1b[31m", `{"version":"1.34","workers":[{"max":1,"min":1}],"region":"eu","a":1}`, nil),
		made(2, "alice", `{"version":"1.34","workers":[{"max":2,"min":1}],"region":"eu","a":1}`, nil),
	}
	all[0].Deleting = true
	if r.URL.Query().Get("continue") == "" {
		return http.StatusOK, v1.RevisionList{Items: all[:2], Continue: "more"}
	}
	return http.StatusOK, v1.RevisionList{Items: all[2:]}
}

func TestHistoryAndDiff(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason string
		args   []string
	}{
		"history":          {"from the newest", []string{"history", "cluster", "c-stuck"}},
		"history-yaml":     {"all of each", []string{"history", "cluster/c-stuck", "-o", "yaml"}},
		"history-missing":  {"no such cluster", []string{"history", "cluster", "nope"}},
		"history-two":      {"one at a time", []string{"history", "cluster", "c-stuck", "c-synced"}},
		"history-format":   {"", []string{"history", "cluster", "c-stuck", "-o", "wide"}},
		"diff":             {"with the newest", []string{"diff", "cluster", "c-stuck", "--revision", "2"}},
		"diff-to":          {"with another", []string{"diff", "cluster", "c-stuck", "--revision", "2", "--to", "3"}},
		"diff-json":        {"for programs", []string{"diff", "cluster", "c-stuck", "--revision", "2", "--to", "3", "-o", "json"}},
		"diff-same":        {"data stays clean", []string{"diff", "cluster", "c-stuck", "--revision", "4"}},
		"diff-unkept":      {"what there is is said", []string{"diff", "cluster", "c-stuck", "--revision", "1"}},
		"diff-no-revision": {"", []string{"diff", "cluster", "c-stuck"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantGolden(t, name, run{args: c.args}.runCLI(t, newSyncs()).outputText())
		})
	}
}
