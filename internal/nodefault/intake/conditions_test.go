package intake_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
	"github.com/fleetloop/fleetloop/internal/nodefault/intake"
)

const gpu corev1.ResourceName = "nvidia.com/gpu"

func newConditionSet(t interface {
	Helper()
	Fatal(args ...any)
}, cfg intake.ConditionConfig,
) *intake.ConditionSet {
	t.Helper()
	s, err := intake.NewConditionSet(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func nodeWithConditions(list ...corev1.NodeCondition) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Conditions: list}}
}

func newCondition(kind string, status corev1.ConditionStatus, age time.Duration) corev1.NodeCondition {
	return corev1.NodeCondition{
		Type: corev1.NodeConditionType(kind), Status: status, Reason: "SomeReason", Message: "some message",
		LastTransitionTime: metav1.NewTime(noon().Add(-age)),
	}
}

func conditionReport(check string, age time.Duration, fatal bool, action v1alpha1.RecommendedAction, class string) nodefault.Report {
	return nodefault.Report{Node: "n1", Fault: v1alpha1.Fault{
		Source: "node-conditions", Check: check, ErrorCodes: []string{"SomeReason"}, Fatal: fatal, Message: "some message",
		RecommendedAction: action, ComponentClass: class, DetectedAt: metav1.NewMicroTime(noon().Add(-age)),
	}}
}

// unhealthyReports returns the unhealthy reports.
func unhealthyReports(reports []nodefault.Report) []nodefault.Report {
	var out []nodefault.Report
	for _, r := range reports {
		if !r.Healthy {
			out = append(out, r)
		}
	}
	return out
}

// healthyChecks returns the checks of the healthy reports.
func healthyChecks(reports []nodefault.Report) string {
	var out []string
	for _, r := range reports {
		if r.Healthy {
			out = append(out, r.Fault.Check)
		}
	}
	return strings.Join(out, ",")
}

func TestLookAtConditions(t *testing.T) {
	own := intake.ConditionConfig{Conditions: []intake.NodeCondition{{Type: "A", UnhealthyStatus: []corev1.ConditionStatus{"False"}, For: time.Minute, RecommendedAction: "RESTART_BM"}}}
	preset := func(name string) intake.ConditionConfig { return intake.ConditionConfig{Presets: []string{name}} }
	cases := map[string]struct {
		reason string
		cfg    intake.ConditionConfig
		cond   corev1.NodeCondition
		want   []nodefault.Report
		after  time.Duration
		well   bool
	}{
		"BadWhenTrue":      {reason: "node problem detector's are bad when True", cfg: preset("npd"), cond: newCondition("KernelDeadlock", "True", time.Hour), want: []nodefault.Report{conditionReport("KernelDeadlock", time.Hour, true, "RESTART_VM", "Kernel")}},
		"GoodWhenFalse":    {reason: "and good when False", cfg: preset("npd"), cond: newCondition("KernelDeadlock", "False", 0), well: true},
		"BadWhenFalse":     {reason: "those of EKS the other way about", cfg: preset("eks"), cond: newCondition("KernelReady", "False", time.Hour), want: []nodefault.Report{conditionReport("KernelReady", time.Hour, true, "RESTART_VM", "Kernel")}},
		"GoodWhenTrue":     {reason: "those of EKS the other way about", cfg: preset("eks"), cond: newCondition("KernelReady", "True", 0), well: true},
		"NotReady":         {reason: "a kubelet that says so", cfg: preset("kubelet"), cond: newCondition("Ready", "False", time.Hour), want: []nodefault.Report{conditionReport("Ready", time.Hour, true, "RESTART_VM", "")}},
		"Silent":           {reason: "a kubelet that says nothing", cfg: preset("kubelet"), cond: newCondition("Ready", "Unknown", time.Hour), want: []nodefault.Report{conditionReport("Ready", time.Hour, true, "RESTART_VM", "")}},
		"Pressure":         {reason: "to be known, not to be repaired", cfg: preset("kubelet"), cond: newCondition("DiskPressure", "True", time.Hour), want: []nodefault.Report{conditionReport("DiskPressure", time.Hour, false, "NONE", "Storage")}},
		"NeitherNorUnsaid": {reason: "an Unknown that is not bad proves nothing", cfg: preset("npd"), cond: newCondition("KernelDeadlock", "Unknown", time.Hour)},
		"NotLongEnough":    {reason: "it waits for the rest of its time", cfg: own, cond: newCondition("A", "False", 20*time.Second), after: 40 * time.Second},
		"JustLongEnough":   {reason: "due means that the time has come", cfg: own, cond: newCondition("A", "False", time.Minute), want: []nodefault.Report{conditionReport("A", time.Minute, false, "RESTART_BM", "")}},
		"SlightlyAhead":    {reason: "clocks differ", cfg: own, cond: newCondition("A", "False", -30*time.Second), after: 90 * time.Second},
		"FarAhead":         {reason: "a clock that is wrong must not hide a fault", cfg: own, cond: newCondition("A", "False", -time.Hour), want: []nodefault.Report{conditionReport("A", 0, false, "RESTART_BM", "")}},
		"Unconfigured":     {reason: "polarity is never guessed", cfg: own, cond: newCondition("B", "True", time.Hour)},
		"OwnInPlaceOfPreset": {
			reason: "one's own list wins",
			cfg:    intake.ConditionConfig{Presets: []string{"npd"}, Conditions: []intake.NodeCondition{{Type: "KernelDeadlock", UnhealthyStatus: []corev1.ConditionStatus{"True"}}}},
			cond:   newCondition("KernelDeadlock", "True", time.Hour), want: []nodefault.Report{conditionReport("KernelDeadlock", time.Hour, false, "NONE", "")},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			reports, after := newConditionSet(t, tc.cfg).CheckNode(nodeWithConditions(tc.cond), noon(), nil)
			if diff := cmp.Diff(tc.want, unhealthyReports(reports)); diff != "" {
				t.Errorf("%s: faults (-want +got):\n%s", tc.reason, diff)
			}
			if after != tc.after {
				t.Errorf("%s: looks again after %s, want %s", tc.reason, after, tc.after)
			}
			if got := strings.Contains(","+healthyChecks(reports)+",", ","+string(tc.cond.Type)+","); got != tc.well {
				t.Errorf("%s: said to be well: %v, want %v", tc.reason, got, tc.well)
			}
		})
	}
}

func TestAConditionThatIsGoneIsWell(t *testing.T) {
	set := newConditionSet(t, intake.ConditionConfig{Presets: []string{"eks"}})
	reports, _ := set.CheckNode(nodeWithConditions(newCondition("KernelReady", "Unknown", 0)), noon(), nil)
	if diff := cmp.Diff("AcceleratedHardwareReady,ContainerRuntimeReady,NetworkingReady,StorageReady", healthyChecks(reports)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestConnectorOfNVSentinel(t *testing.T) {
	const message = "ErrorCode:119 PCI:0002:00:00 GPU_UUID:GPU-2 NVRM: Xid (PCI:0002:00:00): 119 Recommended Action=COMPONENT_RESET;" +
		"ErrorCode:GPU_RESET_FAILURE,119 GPU reset failed Recommended Action=RESTART_VM;"
	cases := map[string]struct {
		reason                   string
		status                   corev1.ConditionStatus
		conditionReason, message string
		codes                    []string
		action                   v1alpha1.RecommendedAction
		well                     string
	}{
		"Two":      {"what helps with the worst of them", "True", "SysLogsXIDErrorIsNotHealthy", message, []string{"119", "GPU_RESET_FAILURE"}, "RESTART_VM", ""},
		"Custom":   {"a monitor may have actions of its own", "True", "SysLogsXIDErrorIsNotHealthy", "Recommended Action=RESET_NIC;", nil, "RESET_NIC", ""},
		"NoAction": {"what to do is not known", "True", "SysLogsXIDErrorIsNotHealthy", "ErrorCode:79 gone", []string{"79"}, "UNKNOWN", ""},
		"Well":     {"it says so, too", "False", "SysLogsXIDErrorIsHealthy", "No Health Failures", nil, "", "SysLogsXIDError"},
		"Another":  {"a condition of somebody else", "True", "Whatever", message, nil, "", ""},
	}
	set := newConditionSet(t, intake.ConditionConfig{Presets: []string{"nvsentinel"}})
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newCondition("SysLogsXIDError", tc.status, time.Minute)
			c.Reason, c.Message = tc.conditionReason, tc.message
			reports, _ := set.CheckNode(nodeWithConditions(c), noon(), nil)
			var want []nodefault.Report
			if tc.action != "" {
				r := conditionReport("SysLogsXIDError", time.Minute, true, tc.action, "")
				r.Fault.ErrorCodes, r.Fault.Message = tc.codes, tc.message
				want = append(want, r)
			}
			if diff := cmp.Diff(want, unhealthyReports(reports)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if healthyChecks(reports) != tc.well {
				t.Errorf("%s: %q is well, want %q", tc.reason, healthyChecks(reports), tc.well)
			}
		})
	}
}

func withGPUs(allocatable, capacity string) *corev1.Node {
	n := nodeWithConditions()
	list := func(q string) corev1.ResourceList {
		if q == "" {
			return nil
		}
		return corev1.ResourceList{gpu: resource.MustParse(q)}
	}
	n.Status.Allocatable, n.Status.Capacity = list(allocatable), list(capacity)
	return n
}

func TestShortfall(t *testing.T) {
	set := newConditionSet(t, intake.ConditionConfig{Resources: []intake.NodeResource{{Resource: gpu, For: 5 * time.Minute, ErrorCode: "GPULost", RecommendedAction: "RESTART_BM", Fatal: true, ComponentClass: "GPU"}}})
	short := set.FindShortages(withGPUs("7", "8"), nil, noon())
	if reports, after := set.CheckNode(withGPUs("7", "8"), noon(), short); len(reports) != 0 || after != 5*time.Minute {
		t.Errorf("at once: %v, again after %s, want nothing yet and 5m", reports, after)
	}
	later := noon().Add(5 * time.Minute)
	short = set.FindShortages(withGPUs("6", "8"), short, later)
	reports, _ := set.CheckNode(withGPUs("6", "8"), later, short)
	want := []nodefault.Report{{Node: "n1", Fault: v1alpha1.Fault{
		Source: "node-resources", Check: "nvidia.com/gpu", ErrorCodes: []string{"GPULost"}, Fatal: true, ComponentClass: "GPU",
		Message: "6 of 8 nvidia.com/gpu allocatable", RecommendedAction: "RESTART_BM", DetectedAt: metav1.NewMicroTime(noon()),
	}}}
	if diff := cmp.Diff(want, reports); diff != "" {
		t.Errorf("later (-want +got):\n%s", diff)
	}
	for _, away := range []*corev1.Node{withGPUs("", ""), withGPUs("0", "0")} {
		if reports, after := set.CheckNode(away, later, set.FindShortages(away, short, later)); len(reports) != 0 || after != 0 {
			t.Errorf("without its device plugin: %v, %s, want that nothing is known", reports, after)
		}
	}
	if reports, _ := set.CheckNode(withGPUs("8", "8"), later, set.FindShortages(withGPUs("8", "8"), short, later)); healthyChecks(reports) != string(gpu) {
		t.Errorf("with all of them: %v, want it to be well", reports)
	}
	if reports, after := set.CheckNode(withGPUs("", "8"), later, set.FindShortages(withGPUs("", "8"), nil, later)); len(reports) != 0 || after != 5*time.Minute {
		t.Errorf("with none allocatable: %v, %s, want a shortfall that begins", reports, after)
	}
}

func TestNewConditionSetRefuses(t *testing.T) {
	bad := []corev1.ConditionStatus{"True"}
	cases := map[string]struct {
		reason string
		cfg    intake.ConditionConfig
		says   string
	}{
		"UnknownPreset":   {"a list that is not shipped", intake.ConditionConfig{Presets: []string{"gke"}}, `"gke"`},
		"NoPolarity":      {"it is never guessed", intake.ConditionConfig{Conditions: []intake.NodeCondition{{Type: "A"}}}, "unhealthy_status"},
		"UnknownPolarity": {"the set is closed", intake.ConditionConfig{Conditions: []intake.NodeCondition{{Type: "A", UnhealthyStatus: []corev1.ConditionStatus{"true"}}}}, `"true"`},
		"NoType":          {"a condition has a name", intake.ConditionConfig{Conditions: []intake.NodeCondition{{UnhealthyStatus: bad}}}, "type missing"},
		"TypeTwice":       {"which of the two would count?", intake.ConditionConfig{Conditions: []intake.NodeCondition{{Type: "A", UnhealthyStatus: bad}, {Type: "A", UnhealthyStatus: bad}}}, "conditions[1]"},
		"ResourceTwice":   {"which of the two would count?", intake.ConditionConfig{Resources: []intake.NodeResource{{Resource: gpu}, {Resource: gpu}}}, "resources[1]"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := intake.NewConditionSet(tc.cfg); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s: got %v, want an error that says %q", tc.reason, err, tc.says)
			}
		})
	}
}

// TestWhatIsPendingIsReportedWhenLookedAtAgain verifies that a look after the returned
// delay finds pending faults, and that no check is both healthy and unhealthy.
func TestWhatIsPendingIsReportedWhenLookedAtAgain(t *testing.T) {
	set := newConditionSet(t, intake.DefaultConditionConfig())
	types := []string{"Ready", "MemoryPressure", "KernelDeadlock", "KubeletUnhealthy", "StorageReady", "AcceleratedHardwareReady"}
	rapid.Check(t, func(t *rapid.T) {
		var list []corev1.NodeCondition
		for _, kind := range types {
			status := rapid.SampledFrom([]corev1.ConditionStatus{"True", "False", "Unknown"}).Draw(t, kind)
			list = append(list, newCondition(kind, status, time.Duration(rapid.IntRange(-60, 4000).Draw(t, "age"))*time.Second))
		}
		node := nodeWithConditions(list...)
		now := noon()
		reports, after := set.CheckNode(node, now, nil)
		for range types {
			seen := map[string]bool{}
			for _, r := range reports {
				if seen[r.Fault.Check] {
					t.Fatalf("two reports about %s", r.Fault.Check)
				}
				seen[r.Fault.Check] = true
			}
			if after == 0 {
				return
			}
			now = now.Add(after)
			next, later := set.CheckNode(node, now, nil)
			if len(unhealthyReports(next)) <= len(unhealthyReports(reports)) {
				t.Fatalf("looking again after %s finds nothing new", after)
			}
			reports, after = next, later
		}
		if after != 0 {
			t.Fatal("it looks again for ever")
		}
	})
}
