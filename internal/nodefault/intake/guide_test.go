package intake_test

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/fleetloop/fleetloop/internal/nodefault/intake"
)

// TestReportingGuide sends the examples of the documentation, and verifies its paths.
func TestReportingGuide(t *testing.T) {
	text, err := os.ReadFile("../../../docs/how-to/report-node-faults.md")
	if err != nil {
		t.Fatal(err)
	}
	paths := map[string]string{"health-event": intake.PathHealthEvents, "alertmanager": intake.PathAlertmanager}
	for _, path := range paths {
		if !strings.Contains(string(text), "`POST "+path+"`") {
			t.Errorf("the page does not tell of %s", path)
		}
	}
	examples := regexp.MustCompile("(?s)```json ([a-z-]+)\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(examples) != 3 {
		t.Fatalf("%d examples, want 3", len(examples))
	}
	for _, e := range examples {
		var m memoryStore
		if w := postReport(t, newHTTPHandler(t, &m), paths[e[1]], e[2]); w.Code != http.StatusAccepted || len(m.reports) == 0 {
			t.Errorf("%s: %d %s, want 202:\n%s", e[1], w.Code, w.Body, e[2])
		}
	}
}
