package intake_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
	"github.com/fleetloop/fleetloop/internal/nodefault/intake"
)

func noon() time.Time { return time.Date(2025, 10, 21, 12, 0, 0, 0, time.UTC) }

func newEvent() intake.Event {
	return intake.Event{
		Node: "gpu-node-01", Agent: "syslog-health-monitor", Check: "xid-check", ComponentClass: "GPU",
		Entities: []intake.Entity{{Type: "PCI", Value: "0000:3b:00"}, {Type: "GPU", Value: "3"}}, ErrorCodes: []string{"79", " 48 ", "79", ""},
		Fatal: true, Message: "GPU has fallen off the bus\x00", Action: "RESTART_VM", At: noon().Add(-time.Minute),
		Quarantine: intake.Overrides{Force: true}, Drain: intake.Overrides{Skip: true},
	}
}

func TestReport(t *testing.T) {
	got, err := newEvent().ToReport(noon())
	want := nodefault.Report{Node: "gpu-node-01", Fault: v1alpha1.Fault{
		Source: "syslog-health-monitor", Check: "xid-check", Entity: "GPU/3,PCI/0000:3b:00", ComponentClass: "GPU",
		ErrorCodes: []string{"79", "48"}, Fatal: true, Message: "GPU has fallen off the bus", RecommendedAction: v1alpha1.ActionRestartVM,
		QuarantineOverride: v1alpha1.OverrideForce, DrainOverride: v1alpha1.OverrideSkip, DetectedAt: metav1.NewMicroTime(noon().Add(-time.Minute)),
	}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestReportChecks(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*intake.Event)
		says   string // part of the error; "" means no error
	}{
		"NoNode":        {"a fault is of a node", func(e *intake.Event) { e.Node = "" }, "nodeName missing"},
		"BadNode":       {"it would reach a URL", func(e *intake.Event) { e.Node = "../../x" }, `"../../x"`},
		"UpperCase":     {"no node has such a name", func(e *intake.Event) { e.Node = "Node1" }, `"Node1"`},
		"LongNode":      {"no node has such a name", func(e *intake.Event) { e.Node = strings.Repeat("a", 254) }, "not a valid node name"},
		"NoAgent":       {"it tells faults apart", func(e *intake.Event) { e.Agent = "" }, "agent missing"},
		"NoCheck":       {"it tells faults apart", func(e *intake.Event) { e.Check = "" }, "checkName missing"},
		"LongCheck":     {"to cut it could make two faults one", func(e *intake.Event) { e.Check = strings.Repeat("a", 129) }, "longer than 128"},
		"LineBreak":     {"it would break logs", func(e *intake.Event) { e.Check = "a\nb" }, "unprintable"},
		"NotText":       {"the API server would change it", func(e *intake.Event) { e.Agent = "\xff" }, "unprintable"},
		"BadEntity":     {"as above", func(e *intake.Event) { e.Entities = []intake.Entity{{Type: "GPU", Value: "\x01"}} }, "entitiesImpacted"},
		"NoCustom":      {"an action without a name", func(e *intake.Event) { e.Action = "CUSTOM" }, "customRecommendedAction missing"},
		"Custom":        {"an action of one's own", func(e *intake.Event) { e.Action, e.CustomAction = "CUSTOM", "RESET_NIC" }, ""},
		"LongAction":    {"no action has such a name", func(e *intake.Event) { e.Action = strings.Repeat("A", 65) }, "recommendedAction"},
		"Contradiction": {"force or skip?", func(e *intake.Event) { e.Drain.Force = true }, "drainOverrides"},
		"LongMessage":   {"what is for people is cut", func(e *intake.Event) { e.Message = strings.Repeat("ü", 5000) }, ""},
		"ManyCodes":     {"as above", func(e *intake.Event) { e.ErrorCodes = strings.Split(strings.Repeat("1234567890,", 300), ",") }, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e := newEvent()
			tc.change(&e)
			_, err := e.ToReport(noon())
			switch {
			case tc.says == "" && err != nil:
				t.Errorf("%s: %v", tc.reason, err)
			case tc.says != "" && (!errors.Is(err, intake.ErrInvalid) || !strings.Contains(err.Error(), tc.says)):
				t.Errorf("%s: got %v, want an ErrInvalid that says %q", tc.reason, err, tc.says)
			}
		})
	}
}

func TestReportTimes(t *testing.T) {
	cases := map[string]struct {
		reason   string
		at, want time.Time
	}{
		"None":    {"it was found when it came", time.Time{}, noon()},
		"Future":  {"it does not begin tomorrow", noon().Add(time.Hour), noon()},
		"Ancient": {"the year 1 is no time", time.Date(1, 2, 3, 0, 0, 0, 0, time.UTC), noon()},
		"Fine":    {"what can be stored is kept", noon().Add(-1234567 * time.Nanosecond), noon().Add(-1235 * time.Microsecond)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e := newEvent()
			e.At = tc.at
			got, err := e.ToReport(noon())
			if err != nil || !got.Fault.DetectedAt.Time.Equal(tc.want) {
				t.Errorf("%s: got %v, %v, want %v", tc.reason, got.Fault.DetectedAt, err, tc.want)
			}
		})
	}
}

// TestReportsFit verifies that reports can be stored, and that the order of entities has
// no effect.
func TestReportsFit(t *testing.T) {
	text := rapid.StringOfN(rapid.RuneFrom([]rune("ab,/: é日\U0001F680\x00\n")), 0, 60, -1)
	rapid.Check(t, func(t *rapid.T) {
		e := newEvent()
		e.ComponentClass, e.Message = text.Draw(t, "class"), strings.Repeat(text.Draw(t, "message"), 40)
		e.ErrorCodes = rapid.SliceOf(text).Draw(t, "codes")
		e.Entities = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) intake.Entity {
			return intake.Entity{Type: text.Draw(t, "type"), Value: text.Draw(t, "value")}
		}), 0, 12).Draw(t, "entities")
		r, err := e.ToReport(noon())
		if err != nil {
			if !errors.Is(err, intake.ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		f := r.Fault
		for what, length := range map[string][2]int{
			"entity": {utf8.RuneCountInString(f.Entity), 256}, "class": {utf8.RuneCountInString(f.ComponentClass), 64},
			"message": {utf8.RuneCountInString(f.Message), 1024}, "codes": {len(f.ErrorCodes), 16},
		} {
			if length[0] > length[1] {
				t.Fatalf("%s has a length of %d, %d is the most", what, length[0], length[1])
			}
		}
		for _, c := range f.ErrorCodes {
			if c == "" || utf8.RuneCountInString(c) > 64 {
				t.Fatalf("code %q", c)
			}
		}
		e.Entities = rapid.Permutation(e.Entities).Draw(t, "order")
		if again, err := e.ToReport(noon()); err != nil || again.Fault.Entity != f.Entity {
			t.Fatalf("entities in another order are %q, were %q (%v)", again.Fault.Entity, f.Entity, err)
		}
		if !intake.CoversEntities(f.Entity, f.Entity) {
			t.Fatal("an entity does not cover itself")
		}
	})
}

func TestManyEntitiesAreToldApart(t *testing.T) {
	entity := func(n int) string {
		e := newEvent()
		e.Entities = nil
		for i := range n {
			e.Entities = append(e.Entities, intake.Entity{Type: "GPU_UUID", Value: fmt.Sprintf("GPU-%032d", i)})
		}
		r, err := e.ToReport(noon())
		if err != nil {
			t.Fatal(err)
		}
		return r.Fault.Entity
	}
	if eight, nine := entity(8), entity(9); eight == nine || !strings.Contains(eight, "#") {
		t.Errorf("8 and 9 entities are %q and %q", eight, nine)
	}
}

func TestCovers(t *testing.T) {
	cases := map[string]struct {
		healthy, entity string
		want            bool
	}{
		"All":       {"", "GPU/3", true},
		"TheNode":   {"", "", true},
		"Same":      {"GPU/3,PCI/1", "GPU/3,PCI/1", true},
		"One":       {"GPU/3,PCI/1", "PCI/1", true},
		"NotAll":    {"GPU/3", "GPU/3,PCI/1", false},
		"Another":   {"GPU/3", "GPU/33", false},
		"APartOnly": {"GPU/3", "", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := intake.CoversEntities(tc.healthy, tc.entity); got != tc.want {
				t.Errorf("Covers(%q, %q) = %v, want %v", tc.healthy, tc.entity, got, tc.want)
			}
		})
	}
}

func TestErrorsGoThereAndBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.SampledFrom([]error{nil, intake.ErrUnknownNode, intake.ErrBusy}), 1, 9).Draw(t, "errors")
		err := intake.JoinReportErrors(want)
		got := intake.SplitReportErrors(err, len(want))
		for i := range want {
			if !errors.Is(got[i], want[i]) {
				t.Fatalf("%v came back as %v", want, got)
			}
			if (want[i] != nil) != errors.Is(err, want[i]) && want[i] != nil {
				t.Fatalf("%v is not in %v", want[i], err)
			}
		}
		for _, e := range intake.SplitReportErrors(intake.ErrUnavailable, len(want)) {
			if !intake.Transient(e) {
				t.Fatal("an error of all is not one of each")
			}
		}
	})
}
