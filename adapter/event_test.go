package adapter

import (
	"strings"
	"testing"
	"unicode/utf8"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

func TestSubjects(t *testing.T) {
	t.Parallel()
	all := []string{v1.CollectionClusters, v1.CollectionNodePools, v1.CollectionManifests, v1.CollectionWorkloads}
	cases := map[string]struct {
		reason     string
		kind, data string
		want       string
		generation int64
	}{
		"Cluster":    {"the short form", "cluster", `{"id":"r1"}`, "clusters/r1", 0},
		"NodePool":   {"the file's form", "nodepool", `{"resource_id":"r2","id":"no"}`, "nodepools/r2", 0},
		"Manifest":   {"the custom resource's form", "manifest", `{"resourceId":"r3"}`, "manifests/r3", 0},
		"Workload":   {"the last kind", "workload", `{"id":"r4"}`, "workloads/r4", 0},
		"Generation": {"a number", "cluster", `{"id":"r1","generation":3}`, "clusters/r1", 3},
		"Text":       {"a template makes text of it", "cluster", `{"id":"r1","generation":"4"}`, "clusters/r1", 4},
		"NoNumber":   {"something else counts as not given", "cluster", `{"id":"r1","generation":"none"}`, "clusters/r1", 0},
		"Null":       {"null, too", "cluster", `{"id":"r1","generation":null}`, "clusters/r1", 0},
	}
	for name, tc := range cases {
		s, generation, err := parseResourceAndGeneration(Event{Type: "com.redhat.hyperfleet." + tc.kind + ".reconcile", Data: []byte(tc.data)}, all)
		if got := s.collection + "/" + s.id; err != nil || got != tc.want || generation != tc.generation {
			t.Errorf("%s: %s: got %s at generation %d, err %v; want %s at %d", name, tc.reason, got, generation, err, tc.want, tc.generation)
		}
	}
}

func TestCutText(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "short", strings.Repeat("é", maxMessage), "x" + strings.Repeat("日本", maxMessage)} {
		got := truncateMessage(s)
		if !strings.HasPrefix(s, got) || !utf8.ValidString(got) || len(got) > maxMessage || len(s) > maxMessage && len(got) < maxMessage-4 {
			t.Errorf("cutText of %d bytes has %d bytes", len(s), len(got))
		}
	}
}
