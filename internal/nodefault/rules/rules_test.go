package rules_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
	"github.com/fleetloop/fleetloop/internal/nodefault/rules"
)

func now() time.Time { return time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC) }

func newSet(tb testing.TB, cfg rules.Config) *rules.Set {
	tb.Helper()
	s, err := rules.Compile(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func node() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "gpu-1", Labels: map[string]string{"pool": "gpu"}, Annotations: map[string]string{"owner": "ml"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "dedicated", Value: "ml", Effect: corev1.TaintEffectNoSchedule}}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}

func fault(check string, change ...func(*v1alpha1.Fault)) v1alpha1.Fault {
	f := v1alpha1.Fault{
		Source: "agent", Check: check, Entity: "GPU/3", ComponentClass: "GPU", ErrorCodes: []string{"XID-79"},
		Message: "fallen off the bus", RecommendedAction: v1alpha1.ActionRestartVM, DetectedAt: metav1.NewMicroTime(now().Add(-time.Hour)),
	}
	for _, c := range change {
		c(&f)
	}
	return f
}

func fatal(f *v1alpha1.Fault) { f.Fatal = true }

func does(a v1alpha1.RecommendedAction) func(*v1alpha1.Fault) {
	return func(f *v1alpha1.Fault) { f.RecommendedAction = a }
}

func since(ago time.Duration) func(*v1alpha1.Fault) {
	return func(f *v1alpha1.Fault) { f.DetectedAt = metav1.NewMicroTime(now().Add(-ago)) }
}

func sick(value string, effect corev1.TaintEffect) corev1.Taint {
	return corev1.Taint{Key: "sick", Value: value, Effect: effect}
}

func TestMatch(t *testing.T) {
	cases := map[string]struct {
		reason string
		match  string
		want   bool
	}{
		"Source":         {match: `fault.source == "agent"`, want: true},
		"Check":          {match: `fault.check.startsWith("xid")`, want: true},
		"Entity":         {match: `fault.entity == "GPU/3"`, want: true},
		"ComponentClass": {match: `fault.componentClass == "GPU"`, want: true},
		"ErrorCodes":     {match: `fault.errorCodes.exists(c, c.startsWith("XID-"))`, want: true},
		"ErrorCodeIn":    {match: `"XID-48" in fault.errorCodes`},
		"Fatal":          {match: `fault.fatal`},
		"Message":        {match: `fault.message.matches("off the (bus|road)")`, want: true},
		"Action":         {match: `fault.recommendedAction in ["RESTART_VM", "RESTART_BM"]`, want: true},
		"Age":            {match: `fault.ageSeconds == 3600`, want: true},
		"NodeName":       {match: `node.name == "gpu-1"`, want: true},
		"Label":          {match: `node.labels["pool"] == "gpu"`, want: true},
		"LabelField":     {match: `node.labels.pool == "gpu"`, want: true},
		"NoLabel":        {reason: "a label that is not there is empty", match: `node.labels["zone"] == "" && node.labels.zone != "a"`, want: true},
		"HasLabel":       {match: `has(node.labels.pool) && !has(node.labels.zone) && "pool" in node.labels && !("zone" in node.labels)`, want: true},
		"SomeLabel":      {match: `node.labels.exists(k, k == "pool" && node.labels[k] == "gpu")`, want: true},
		"Annotation":     {match: `node.annotations["owner"] == "ml" && !has(node.annotations.other)`, want: true},
		"Taint":          {match: `node.taints.exists(t, t.key == "dedicated" && t["value"] == "ml" && t.effect == "NoSchedule")`, want: true},
		"Ready":          {match: `node.ready`, want: true},
		"Strings":        {match: `fault.source.upperAscii() == "AGENT" && fault.entity.split("/")[1] == "3"`, want: true},
		"Lines":          {match: "true &&\n  node.ready", want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v, err := newSet(t, rules.Config{{Name: "r", Match: tc.match}}).Decide(node(), []v1alpha1.Fault{fault("xid-check")}, now())
			if err != nil || v.DesiredActions.Cordon != tc.want {
				t.Errorf("%s: got %v, err %v, want %v", tc.reason, v.DesiredActions.Cordon, err, tc.want)
			}
		})
	}
}

// judged holds the parts of a verdict that tests compare.
type judged struct {
	Rules    []string
	Cordon   bool
	Drain    bool
	Taints   []corev1.Taint
	Remedies []v1alpha1.Remedy
	DryRun   bool
	Opened   string
	Matched  []string
	After    time.Duration
	Unsure   bool
}

func short(v nodefault.Verdict) judged {
	j := judged{
		Rules: v.DesiredActions.MatchedRules, Cordon: v.DesiredActions.Cordon, Drain: v.DesiredActions.Drain, Taints: v.DesiredActions.Taints, Remedies: v.DesiredActions.Remedies,
		DryRun: v.DesiredActions.DryRun, After: v.After, Unsure: v.Unsure,
	}
	if v.Opened != nil {
		j.Opened = v.Opened.Check
	}
	for _, f := range v.Matched {
		j.Matched = append(j.Matched, f.Check)
	}
	return j
}

func TestDecide(t *testing.T) {
	no, yes := false, true
	cfg := rules.Config{
		{Name: "cordon", Match: `fault.check == "cordon"`},
		{Name: "drain", Match: `fault.check == "drain"`, Drain: &yes, Remedies: []v1alpha1.Remedy{"reboot", "support"}, Priority: 1},
		{Name: "replace", Match: `fault.check in ["replace", "drain-and-replace"]`, Drain: &yes, Remedies: []v1alpha1.Remedy{"terminate"}, Priority: 2},
		{Name: "drain-too", Match: `fault.check == "drain-and-replace"`, Drain: &yes, Remedies: []v1alpha1.Remedy{"reboot"}, Priority: 1},
		{Name: "taint", Match: `fault.check == "taint"`, Cordon: &no, Taints: []string{"sick=gpu:NoSchedule", "sick:NoExecute"}},
		{Name: "taint-else", Match: `fault.check == "taint-else"`, Cordon: &no, Taints: []string{"sick=disk:NoSchedule"}, Priority: 5},
		{Name: "slow", Match: `fault.check == "slow"`, For: 10 * time.Minute},
		{Name: "dry", Match: `fault.check == "dry"`, Drain: &yes, DryRun: true, Priority: 9},
		{Name: "nothing", Match: `fault.check == "nothing"`, Cordon: &no},
		{Name: "broken", Match: `fault.check == "broken" && fault.errorCodes[3] == "x"`},
		{Name: "old", Match: `fault.check == "old" && fault.ageSeconds > 7200`},
	}
	override := func(q, d v1alpha1.Override) func(*v1alpha1.Fault) {
		return func(f *v1alpha1.Fault) { f.QuarantineOverride, f.DrainOverride = q, d }
	}
	observe := func(f *v1alpha1.Fault) { f.ObserveOnly = true }
	cases := map[string]struct {
		reason  string
		faults  []v1alpha1.Fault
		want    judged
		wantErr string
	}{
		"Nothing":  {reason: "no faults, no wish"},
		"NoRule":   {reason: "a fault that no rule is about is only known", faults: []v1alpha1.Fault{fault("other", fatal)}},
		"NoWish":   {reason: "a rule that wants nothing has no say", faults: []v1alpha1.Fault{fault("nothing")}},
		"Cordon":   {reason: "a rule cordons unless it says otherwise", faults: []v1alpha1.Fault{fault("cordon")}, want: judged{Rules: []string{"cordon"}, Cordon: true, Opened: "cordon", Matched: []string{"cordon"}}},
		"Remedies": {reason: "and drains only if it says so", faults: []v1alpha1.Fault{fault("drain")}, want: judged{Rules: []string{"drain"}, Cordon: true, Drain: true, Remedies: []v1alpha1.Remedy{"reboot", "support"}, Opened: "drain", Matched: []string{"drain"}}},
		"Union": {
			reason: "what one rule wants is wanted; remedies are those of the highest priority",
			faults: []v1alpha1.Fault{fault("cordon"), fault("drain"), fault("replace"), fault("taint")},
			want: judged{
				Rules: []string{"replace", "drain", "cordon", "taint"}, Cordon: true, Drain: true, Remedies: []v1alpha1.Remedy{"terminate"},
				Taints: []corev1.Taint{sick("gpu", "NoSchedule"), sick("", "NoExecute")},
				Opened: "replace", Matched: []string{"replace", "drain", "cordon", "taint"},
			},
		},
		"TwoRulesOneFault": {
			reason: "a fault counts once, however many rules are about it",
			faults: []v1alpha1.Fault{fault("drain-and-replace")},
			want: judged{
				Rules: []string{"replace", "drain-too"}, Cordon: true, Drain: true, Remedies: []v1alpha1.Remedy{"terminate"},
				Opened: "drain-and-replace", Matched: []string{"drain-and-replace"},
			},
		},
		"TaintsAtOdds": {
			reason: "a node has one taint of a key and an effect: that of the highest priority",
			faults: []v1alpha1.Fault{fault("taint"), fault("taint-else")},
			want: judged{
				Rules: []string{"taint-else", "taint"}, Taints: []corev1.Taint{sick("disk", "NoSchedule"), sick("", "NoExecute")},
				Opened: "taint-else", Matched: []string{"taint-else", "taint"},
			},
		},
		"FatalOpens": {
			reason: "what is fatal explains best what is done",
			faults: []v1alpha1.Fault{fault("replace"), fault("cordon", fatal)},
			want: judged{
				Rules: []string{"replace", "cordon"}, Cordon: true, Drain: true, Remedies: []v1alpha1.Remedy{"terminate"},
				Opened: "cordon", Matched: []string{"replace", "cordon"},
			},
		},
		"TooYoung":  {reason: "a fault has to last", faults: []v1alpha1.Fault{fault("slow", since(4*time.Minute))}, want: judged{After: 6 * time.Minute}},
		"OldEnough": {reason: "and then counts", faults: []v1alpha1.Fault{fault("slow", since(10*time.Minute))}, want: judged{Rules: []string{"slow"}, Cordon: true, Opened: "slow", Matched: []string{"slow"}}},
		"FromTheFuture": {
			reason: "a source whose clock is ahead waits the whole time",
			faults: []v1alpha1.Fault{fault("slow", since(-time.Hour))}, want: judged{After: 10 * time.Minute},
		},
		"Ages": {reason: "a rule that looks at the age is asked again", faults: []v1alpha1.Fault{fault("old")}, want: judged{After: 15 * time.Second}},
		"DryRun": {
			reason: "rules in dry run have a say where no other has",
			faults: []v1alpha1.Fault{fault("dry")}, want: judged{Rules: []string{"dry"}, Cordon: true, Drain: true, DryRun: true, Opened: "dry", Matched: []string{"dry"}},
		},
		"DryRunAndNot": {
			reason: "and none where another has, whatever its priority",
			faults: []v1alpha1.Fault{fault("dry"), fault("cordon")}, want: judged{Rules: []string{"cordon"}, Cordon: true, Opened: "cordon", Matched: []string{"cordon"}},
		},
		"ObserveOnly": {reason: "a source may want a fault only known", faults: []v1alpha1.Fault{fault("drain", observe, override("force", "force"))}},
		"Skip":        {reason: "or its node left alone", faults: []v1alpha1.Fault{fault("drain", override("skip", ""))}},
		"SkipDrain": {
			reason: "or not drained",
			faults: []v1alpha1.Fault{fault("drain", override("", "skip"))},
			want:   judged{Rules: []string{"drain"}, Cordon: true, Remedies: []v1alpha1.Remedy{"reboot", "support"}, Opened: "drain", Matched: []string{"drain"}},
		},
		"SkipDrainOfOne": {
			reason: "which another fault may want all the same",
			faults: []v1alpha1.Fault{fault("drain", override("", "skip")), fault("replace")},
			want: judged{
				Rules: []string{"replace", "drain"}, Cordon: true, Drain: true, Remedies: []v1alpha1.Remedy{"terminate"},
				Opened: "replace", Matched: []string{"replace", "drain"},
			},
		},
		"Force": {
			reason: "or cordoned, whatever the rules say",
			faults: []v1alpha1.Fault{fault("other", override("force", ""))},
			want:   judged{Rules: []string{"(source)"}, Cordon: true, Opened: "other", Matched: []string{"other"}},
		},
		"ForceBesideDryRun": {
			reason: "what a source wants is no dry run",
			faults: []v1alpha1.Fault{fault("dry", override("force", ""))},
			want:   judged{Rules: []string{"(source)"}, Cordon: true, Opened: "dry", Matched: []string{"dry"}},
		},
		"ForceDrain": {
			reason: "what is drained is cordoned",
			faults: []v1alpha1.Fault{fault("other", override("", "force"))},
			want:   judged{Rules: []string{"(source)"}, Cordon: true, Drain: true, Opened: "other", Matched: []string{"other"}},
		},
		"Broken": {
			reason: "a rule that fails says so, and the others count",
			faults: []v1alpha1.Fault{fault("broken"), fault("cordon")},
			want:   judged{Rules: []string{"cordon"}, Cordon: true, Opened: "cordon", Matched: []string{"cordon"}, Unsure: true}, wantErr: `rule "broken" on fault "agent/broken/GPU/3": index out of bounds`,
		},
	}
	s := newSet(t, cfg)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v, err := s.Decide(node(), tc.faults, now())
			if diff := cmp.Diff(tc.want, short(v), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
			if (err != nil) != (tc.wantErr != "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("%s: err %v, want %q", tc.reason, err, tc.wantErr)
			}
		})
	}
}

func TestNoNode(t *testing.T) {
	v, err := newSet(t, rules.Defaults()).Decide(nil, []v1alpha1.Fault{fault("x", fatal)}, now())
	if diff := cmp.Diff(nodefault.Verdict{}, v); diff != "" || err != nil {
		t.Errorf("something is wished for a node that is no more: %s, err %v", diff, err)
	}
}

func TestDefaults(t *testing.T) {
	allowed := node()
	allowed.Labels[rules.LabelTerminate] = "allowed"
	cases := map[string]struct {
		node *corev1.Node
		f    v1alpha1.Fault
		want judged
	}{
		"NotFatal":         {f: fault("x")},
		"NoAction":         {f: fault("x", fatal, does("")), want: judged{Rules: []string{"fatal"}}},
		"None":             {f: fault("x", fatal, does(v1alpha1.ActionNone)), want: judged{Rules: []string{"fatal"}}},
		"RestartVM":        {f: fault("x", fatal, does(v1alpha1.ActionRestartVM)), want: judged{Rules: []string{"restart", "fatal"}, Remedies: []v1alpha1.Remedy{"reboot", "support"}}},
		"RestartBM":        {f: fault("x", fatal, does(v1alpha1.ActionRestartBM)), want: judged{Rules: []string{"restart", "fatal"}, Remedies: []v1alpha1.Remedy{"reboot", "support"}}},
		"Reset":            {f: fault("x", fatal, does(v1alpha1.ActionComponentReset)), want: judged{Rules: []string{"restart", "fatal"}, Remedies: []v1alpha1.Remedy{"reboot", "support"}}},
		"Replace":          {f: fault("x", fatal, does(v1alpha1.ActionReplaceVM)), want: judged{Rules: []string{"replace", "fatal"}, Remedies: []v1alpha1.Remedy{"support"}}},
		"ReplaceIfAllowed": {node: allowed, f: fault("x", fatal, does(v1alpha1.ActionReplaceVM)), want: judged{Rules: []string{"terminate", "replace", "fatal"}, Remedies: []v1alpha1.Remedy{"terminate", "support"}}},
		"Support":          {f: fault("x", fatal, does(v1alpha1.ActionContactSupport)), want: judged{Rules: []string{"support", "fatal"}, Remedies: []v1alpha1.Remedy{"support"}}},
		"Diagnose":         {f: fault("x", fatal, does(v1alpha1.ActionRunFieldDiag)), want: judged{Rules: []string{"support", "fatal"}, Remedies: []v1alpha1.Remedy{"support"}}},
		"Unknown":          {f: fault("x", fatal, does(v1alpha1.ActionUnknown)), want: judged{Rules: []string{"support", "fatal"}, Remedies: []v1alpha1.Remedy{"support"}}},
		"OfItsOwn":         {f: fault("x", fatal, does("POLISH_THE_FANS")), want: judged{Rules: []string{"support", "fatal"}, Remedies: []v1alpha1.Remedy{"support"}}},
	}
	s := newSet(t, rules.Defaults())
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			on := tc.node
			if on == nil {
				on = node()
			}
			v, err := s.Decide(on, []v1alpha1.Fault{tc.f}, now())
			if err != nil {
				t.Fatal(err)
			}
			want := tc.want
			if len(want.Rules) > 0 {
				want.Cordon, want.Drain, want.Opened, want.Matched = true, true, "x", []string{"x"}
			}
			if diff := cmp.Diff(want, short(v), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// TestOrderOfFaults verifies that the order of faults has no effect.
func TestOrderOfFaults(t *testing.T) {
	s := newSet(t, rules.Defaults())
	rapid.Check(t, func(t *rapid.T) {
		actions := []v1alpha1.RecommendedAction{"", "NONE", "RESTART_VM", "REPLACE_VM", "CONTACT_SUPPORT", "X"}
		var faults []v1alpha1.Fault
		for i := range rapid.IntRange(0, 6).Draw(t, "faults") {
			f := fault(string(rune('a'+i)), since(time.Duration(rapid.IntRange(0, 3).Draw(t, "age"))*time.Minute), does(rapid.SampledFrom(actions).Draw(t, "action")))
			f.Fatal = rapid.Bool().Draw(t, "fatal")
			f.QuarantineOverride = rapid.SampledFrom([]v1alpha1.Override{"", "force", "skip"}).Draw(t, "quarantine")
			f.DrainOverride = rapid.SampledFrom([]v1alpha1.Override{"", "force", "skip"}).Draw(t, "drain")
			faults = append(faults, f)
		}
		first, err := s.Decide(node(), faults, now())
		if err != nil {
			t.Fatal(err)
		}
		shuffled := slices.Clone(faults)
		rand.New(rand.NewPCG(1, rapid.Uint64().Draw(t, "seed"))).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		second, err := s.Decide(node(), shuffled, now())
		if err != nil {
			t.Fatal(err)
		}
		sorted := cmpopts.SortSlices(func(a, b v1alpha1.Fault) int { return strings.Compare(a.Check, b.Check) })
		if diff := cmp.Diff(first, second, sorted); diff != "" {
			t.Fatalf("another order of faults, another verdict:\n%s", diff)
		}
		if (first.Opened == nil) != !nodefault.RequiresAction(first.DesiredActions) || (first.Opened == nil) != (len(first.Matched) == 0) {
			t.Fatalf("a wish without a fault, or a fault without a wish: %+v", first)
		}
	})
}

func BenchmarkDecide(b *testing.B) {
	s := newSet(b, rules.Defaults())
	faults := []v1alpha1.Fault{fault("a", fatal), fault("b")}
	on := node()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Decide(on, faults, now()); err != nil {
			b.Fatal(err)
		}
	}
}
