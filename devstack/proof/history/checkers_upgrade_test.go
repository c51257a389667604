package history

import (
	"slices"
	"strings"
	"testing"
)

// newUpgrade returns a history of an upgrade without violations.
func newUpgrade(more ...Record) []Record {
	var list []Record
	for range upgradeSteps {
		list = append(list, Record{Fault: &Fault{Kind: "upgrade", Target: "forward"}})
	}
	return slices.Concat(list, []Record{
		{Request: &Request{Op: Create, Name: "blue-1", ClusterID: "a", Outcome: OK}},
		{Request: &Request{Op: Delete, Name: "blue-1", ClusterID: "a", Outcome: OK}},
		{Request: &Request{Op: Edit, Name: "blue-1", ClusterID: "a", Outcome: Failed, Status: 404}},     // its user deleted it
		{Request: &Request{Op: Trespass, Name: "blue-2", ClusterID: "b", Outcome: Failed, Status: 404}}, // as it must
		{Request: &Request{Op: Edit, Name: "blue-2", ClusterID: "b", Outcome: Unknown}},                 // the connection broke
		{NodeReport: &NodeReport{Node: "machine-1", Acknowledged: true}},
		{Execution: &Execution{Name: "scale-0", Requested: true, Phase: "waiting_approval"}},
		{Execution: &Execution{Name: "scale-1", Requested: true, Wanted: true, Approved: true, Phase: "completed"}},
		{Execution: &Execution{Name: "scale-2", Requested: true, Refused: true, Phase: "failed"}},
	}, more)
}

// TestUpgradeIsUnnoticed holds that each kind of failure during an upgrade is a violation.
func TestUpgradeIsUnnoticed(t *testing.T) {
	t.Parallel()
	if got := CheckUpgrade(Config{Upgrade: true}, newUpgrade()).Violations; len(got) > 0 {
		t.Fatalf("a history without failures: %q", got)
	}
	for name, test := range map[string]struct {
		reason  string
		records []Record
		want    string
	}{
		"ServerError": {
			"a server that does not know the schema answers with an error",
			newUpgrade(Record{Request: &Request{Op: Edit, Name: "blue-2", ClusterID: "b", Outcome: Unknown, Status: 500, Error: "no column"}}), "edit of blue-2",
		},
		"Rejected": {
			"a server of another release rejects a request",
			newUpgrade(Record{Request: &Request{Op: Create, Name: "blue-3", Outcome: Failed, Status: 400, Error: "unknown field"}}), "create of blue-3",
		},
		"Stopped":    {"a step failed, so the rest was not done", newUpgrade()[1:], "3 of 4 steps"},
		"Report":     {"a monitor gave up", newUpgrade(Record{NodeReport: &NodeReport{Node: "machine-2"}}), "machine-2"},
		"Unapproved": {"an approval was not possible", newUpgrade(Record{Execution: &Execution{Name: "scale-4", Wanted: true}}), "scale-4 was not approved"},
		"Ended":      {"an execution that waits ends", newUpgrade(Record{Execution: &Execution{Name: "scale-3", Phase: "failed"}}), "scale-3 is failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := CheckUpgrade(Config{Upgrade: true}, test.records).Violations
			if len(got) != 1 || !strings.Contains(got[0], test.want) {
				t.Errorf("%s: violations %q, want one with %q", test.reason, got, test.want)
			}
		})
	}
}
