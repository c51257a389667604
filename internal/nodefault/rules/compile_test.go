package rules_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault/rules"
	"github.com/fleetloop/fleetloop/internal/settings"
)

func TestCompileRefuses(t *testing.T) {
	no, yes := false, true
	ok := `fault.fatal`
	cases := map[string]struct {
		cfg  rules.Config
		want []string
	}{
		"Field":         {cfg: rules.Config{{Name: "gpu", Match: `fault.chek == "x"`}}, want: []string{`rule 1, "gpu": line 1, column 1: undeclared reference to 'fault.chek'; did you mean "fault.check"?`}},
		"Case":          {cfg: rules.Config{{Name: "gpu", Match: `true && fault.errorcodes == []`}}, want: []string{`line 1, column 9`, `did you mean "fault.errorCodes"?`}},
		"Root":          {cfg: rules.Config{{Name: "gpu", Match: `falt.check == "x"`}}, want: []string{`undeclared reference to 'falt.check'; did you mean "fault.check"?`}},
		"SecondLine":    {cfg: rules.Config{{Name: "gpu", Match: "true &&\n  node.lables[\"a\"] == \"b\""}}, want: []string{`line 2, column 3: undeclared reference to 'node.lables'; did you mean "node.labels"?`}},
		"NoIdea":        {cfg: rules.Config{{Name: "gpu", Match: `weather == "x"`}}, want: []string{`line 1, column 1: undeclared reference to 'weather'`}},
		"Whole":         {cfg: rules.Config{{Name: "gpu", Match: `fault == "x"`}}, want: []string{`undeclared reference to 'fault'`}},
		"TwoMistakes":   {cfg: rules.Config{{Name: "gpu", Match: `fault.a == "x" || node.b`}}, want: []string{`column 1: undeclared reference to 'fault.a'`, `column 19: undeclared reference to 'node.b'`}},
		"Syntax":        {cfg: rules.Config{{Name: "gpu", Match: `fault.fatal &&`}}, want: []string{`rule 1, "gpu": line 1, column `}},
		"Empty":         {cfg: rules.Config{{Name: "gpu"}}, want: []string{`rule 1, "gpu": line 1, column `}},
		"NotBool":       {cfg: rules.Config{{Name: "gpu", Match: `fault.check`}}, want: []string{`the expression returns string, want bool`}},
		"Types":         {cfg: rules.Config{{Name: "gpu", Match: `fault.fatal == "yes"`}}, want: []string{`line 1, column 13: found no matching overload`}},
		"HasField":      {cfg: rules.Config{{Name: "gpu", Match: `has(fault.check)`}}, want: []string{`has() works only on labels and annotations`}},
		"Expensive":     {cfg: rules.Config{{Name: "gpu", Match: `node.labels.exists(a, node.labels.exists(b, node.labels.exists(c, a == b && b == c)))`}}, want: []string{`estimated cost `, `exceeds the limit 100000`}},
		"NoName":        {cfg: rules.Config{{Match: ok}}, want: []string{`rule 1, "": name "" is empty`}},
		"SourceName":    {cfg: rules.Config{{Name: "(source)", Match: ok}}, want: []string{`contains parentheses`}},
		"NameTwice":     {cfg: rules.Config{{Name: "a", Match: ok}, {Name: "a", Match: ok}}, want: []string{`rule 2, "a": duplicate name`}},
		"Negative":      {cfg: rules.Config{{Name: "a", Match: ok, For: -time.Second}}, want: []string{`for is -1s: it must not be negative`}},
		"DrainUncordon": {cfg: rules.Config{{Name: "a", Match: ok, Cordon: &no, Drain: &yes}}, want: []string{`drain requires cordon`}},
		"RebootFull":    {cfg: rules.Config{{Name: "a", Match: ok, Remedies: []v1alpha1.Remedy{"reboot"}}}, want: []string{`reboot requires drain`}},
		"RebootGone":    {cfg: rules.Config{{Name: "a", Match: ok, Drain: &yes, Remedies: []v1alpha1.Remedy{"terminate", "reboot"}}}, want: []string{`reboot after terminate`}},
		"Remedy":        {cfg: rules.Config{{Name: "a", Match: ok, Remedies: []v1alpha1.Remedy{"rebot"}}}, want: []string{`unknown remedy "rebot"; did you mean "reboot"?`}},
		"TaintEffect":   {cfg: rules.Config{{Name: "a", Match: ok, Taints: []string{"sick=gpu:NoShedule"}}}, want: []string{`unknown effect "NoShedule"; did you mean "NoSchedule"?`}},
		"TaintNoEffect": {cfg: rules.Config{{Name: "a", Match: ok, Taints: []string{"sick=gpu"}}}, want: []string{`taint "sick=gpu" has no effect`}},
		"TaintKey":      {cfg: rules.Config{{Name: "a", Match: ok, Taints: []string{"si ck:NoExecute"}}}, want: []string{`taint "si ck:NoExecute": key: `}},
		"TaintValue":    {cfg: rules.Config{{Name: "a", Match: ok, Taints: []string{"sick=g u:NoExecute"}}}, want: []string{`taint "sick=g u:NoExecute": value: `}},
		"TaintTheirs":   {cfg: rules.Config{{Name: "a", Match: ok, Taints: []string{"node.kubernetes.io/unschedulable:NoSchedule"}}}, want: []string{`reserved for Kubernetes`}},
		"AllAtOnce":     {cfg: rules.Config{{Name: "a", Match: `x`}, {Name: "b", Match: ok, Taints: []string{"y"}}}, want: []string{`rule 1, "a": line 1`, `rule 2, "b": taint "y"`}},
		"TooMany":       {cfg: slices.Repeat(rules.Config{{Name: "a", Match: ok}}, 129), want: []string{`129 rules exceed the maximum of 128`}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := rules.Compile(tc.cfg)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, want it to contain %q", err, want)
				}
			}
		})
	}
}

func TestSettings(t *testing.T) {
	var cfg struct {
		Rules rules.Config `key:"rules" validate:"dive" doc:"Rules."`
	}
	_, err := settings.Load(&cfg, settings.Source{File: "rules.yaml", FileData: []byte(`
rules:
  - name: gpu
    match: fault.componentClass == "GPU" && fault.fatal
    for: 2m
    drain: true
    taints: [sick=gpu:NoSchedule]
    remedies: [reboot, support]
    priority: 3
`)})
	if err != nil {
		t.Fatal(err)
	}
	yes := true
	want := rules.Config{{
		Name: "gpu", Match: `fault.componentClass == "GPU" && fault.fatal`, For: 2 * time.Minute, Drain: &yes,
		Taints: []string{"sick=gpu:NoSchedule"}, Remedies: []v1alpha1.Remedy{"reboot", "support"}, Priority: 3,
	}}
	if diff := cmp.Diff(want, cfg.Rules); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	newSet(t, cfg.Rules)
}

// FuzzCompile verifies that any rule is rejected or evaluated without a panic and within
// its cost limit.
func FuzzCompile(f *testing.F) {
	for _, r := range rules.Defaults() {
		f.Add(r.Match, "sick=gpu:NoSchedule")
	}
	f.Add(`node.labels.exists(k, has(node.labels.x) && node.annotations[k] == "")`, ":")
	f.Add("fault.message.matches('(a*)*b') ||\n fault.errorCodes[9] == 'x'", "a/b=c:NoExecute")
	f.Add(`fault.éa == "x"`, "é=ü:NoExecute")
	f.Add(`fault`, "")
	f.Fuzz(func(t *testing.T, match, taint string) {
		s, err := rules.Compile(rules.Config{{Name: "r", Match: match, Taints: []string{taint}}})
		if err != nil {
			if err.Error() == "" || !strings.Contains(err.Error(), `rule 1, "r": `) {
				t.Fatalf("an error that does not name the rule: %q", err)
			}
			return
		}
		big := fault("x", func(f *v1alpha1.Fault) { f.Message = strings.Repeat("a", 1024) })
		v, err := s.Decide(node(), []v1alpha1.Fault{big}, now())
		if (err != nil) != v.Unsure {
			t.Fatalf("unsure %v, err %v", v.Unsure, err)
		}
	})
}
