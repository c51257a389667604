package policy_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/policy"
)

func TestCompileRefuses(t *testing.T) {
	allowAll := strings.NewReplacer("default allow := false", "default allow := true", "\"violations\": violations", "\"violations\": set()").Replace(smallest)
	cases := map[string]struct {
		reason string
		files  map[string]string
		want   []string
	}{
		"Nothing":      {reason: "no policies are no leave", files: map[string]string{}, want: []string{"no module defines the rule data.fleetloop.safety.decision"}},
		"OtherPackage": {reason: "a policy nobody asks protects nothing", files: map[string]string{"a.rego": strings.Replace(smallest, "fleetloop.safety", "fleetloop.other", 1)}, want: []string{"no module defines the rule data.fleetloop.safety.decision"}},
		"OnlyInTests":  {reason: "tests decide nothing", files: map[string]string{"a_test.rego": smallest}, want: []string{"no module defines"}},
		"Syntax":       {reason: "file and line are named", files: with(map[string]string{"b.rego": "package b\n\nx if {"}), want: []string{"compile policies: b.rego:3: rego_parse_error"}},
		"TwoFiles":     {reason: "all that is wrong is told at once", files: with(map[string]string{"b.rego": "package b\nx if {", "c.rego": "package c\ny if {"}), want: []string{"b.rego:2", "c.rego:2"}},
		"EmptyFile":    {reason: "an empty file is a mistake", files: with(map[string]string{"b.rego": "\n# nothing\n"}), want: []string{"b.rego"}},
		"NoPolicy":     {reason: "a file that is passed over is a rule that is missed", files: with(map[string]string{"data.json": "{}"}), want: []string{`"data.json" is not a policy file`}},
		"TooLong":      {reason: "the time to compile is bounded by the text", files: with(map[string]string{"b.rego": "package b\n#" + strings.Repeat("x", 256<<10)}), want: []string{"b.rego has", "at most"}},
		"OldSyntax":    {reason: "version 0 is asked for by name", files: with(map[string]string{"b.rego": "package b\nx { true }"}), want: []string{"b.rego:2", "`if` keyword is required"}},
		"Misspelt": {
			reason: "a rule about a field that is not there would never speak",
			files:  with(map[string]string{"b.rego": "package fleetloop.safety\nviolations contains \"x\" if input.target.replica > 3"}),
			want:   []string{"b.rego:2: rego_type_error: undefined ref: input.target.replica", `"annotations"`, `"labels"`, `"ownerChain"`},
		},
		"MisspeltAtTheTop": {
			reason: "all fields that there are are told",
			files:  with(map[string]string{"b.rego": "package fleetloop.safety\nviolations contains \"x\" if input.replica > 3"}),
			want:   []string{"undefined ref: input.replica", `"action"`, `"cluster"`, `"target"`},
		},
		"ConditionsField": {
			reason: "what only conditions are told would be missing",
			files:  with(map[string]string{"b.rego": "package fleetloop.safety\nviolations contains \"x\" if input.current_replicas > 3"}),
			want:   []string{"undefined ref: input.current_replicas"},
		},
		"OtherType": {
			reason: "text never equals a number",
			files:  with(map[string]string{"b.rego": "package fleetloop.safety\nviolations contains \"x\" if input.cluster.readyNodes == \"3\""}),
			want:   []string{"b.rego:2: rego_type_error: match error"},
		},
		"SchemaOfItsOwn": {
			reason: "an annotation does not make a field be there",
			files:  with(map[string]string{"b.rego": "# METADATA\n# scope: package\n# schemas:\n# - input: {type: object}\npackage fleetloop.safety\nviolations contains \"x\" if input.replica > 3"}),
			want:   []string{"undefined ref: input.replica"},
		},
		"Unused":     {reason: "strict: a variable that is not used is a rule half written", files: with(map[string]string{"b.rego": "package b\nx if { y := 1 }"}), want: []string{"assigned var y unused"}},
		"Conflict":   {reason: "two decisions are none", files: with(map[string]string{"b.rego": "package fleetloop.safety\ndecision := {\"allow\": true}"}), want: []string{"self-test policies", "no decision", "conflicting values"}},
		"WrongShape": {reason: "found out when it is loaded", files: map[string]string{"a.rego": "package fleetloop.safety\ndecision := {\"allow\": false, \"violations\": []}"}, want: []string{"an empty input: no decision", `the decision lacks "requireDryRun"`}},
		"Undefined":  {reason: "a decision that is there for some requests only", files: map[string]string{"a.rego": strings.Replace(smallest, "\"policyName\": \"smallest\",\n}", "\"policyName\": \"smallest\",\n} if input.target.kind == \"Deployment\"", 1)}, want: []string{"an empty input: no decision", "undefined: no rule"}},
		"AllowsAll": {
			reason: "every canary is named",
			files:  map[string]string{"a.rego": allowAll},
			want: []string{
				"an empty input is allowed, and every policy set must deny it", "an action on kube-system is allowed", "an action on kube-public is", "an action on kube-node-lease is",
				"an object with the protected label is", "a control-plane node is", "an unknown action is", "an unknown risk is", "without the required permissions is", "without a name is",
			},
		},
		"AllowsProtected": {
			reason: "one canary is enough",
			files:  map[string]string{"a.rego": strings.Replace(smallest, "if input.target.protected", "if input.target.namespace == \"nowhere\"", 1)},
			want:   []string{"self-test policies: ", "an action on kube-system is allowed"},
		},
		"TestFails": {
			reason: "file, line and test are named",
			files:  with(map[string]string{"a_test.rego": "package a_test\n\ntest_one if true\n\ntest_two if 1 == 2\n"}),
			want:   []string{"test policies: a_test.rego:5: data.a_test.test_two fails"},
		},
		"TestWithError": {
			reason: "a function that fails does not let a test pass",
			files:  with(map[string]string{"a_test.rego": "package a_test\n\ntest_one if not to_number(\"x\") == 1\n"}),
			want:   []string{"a_test.rego:3: data.a_test.test_one", "to_number"},
		},
		"TestDoesNotCompile": {reason: "the file is named", files: with(map[string]string{"a_test.rego": "package a_test\n\ntest_one if nope(1)\n"}), want: []string{"test policies: a_test.rego:3", "nope"}},
		"ManyTestsFail": {
			reason: "the message is bounded",
			files:  with(map[string]string{"a_test.rego": "package a_test\n" + strings.Repeat("test_one if false\n", 30)}),
			want:   []string{"and 20 more"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := policy.CompileAndTest(t.Context(), tc.files, policy.Options{})
			wantError(t, err, tc.want...)
		})
	}
}

// TestCapabilities checks that functions that reach out of the process or are not deterministic do
// not exist.
func TestCapabilities(t *testing.T) {
	for _, call := range []string{
		`http.send({"method": "get", "url": "http://example.com"})`, `net.lookup_ip_addr("example.com")`, `opa.runtime()`,
		`rego.parse_module("a.rego", "package a")`, `trace("x")`, `rand.intn("x", 2)`, `uuid.rfc4122("x")`, `io.jwt.decode_verify("x", {})`,
		`json.match_schema({}, {"$ref": "http://example.com"})`, `json.verify_schema({"$ref": "http://example.com"})`,
	} {
		name, _, _ := strings.Cut(call, "(")
		t.Run(name, func(t *testing.T) {
			_, err := policy.CompileAndTest(t.Context(), with(map[string]string{"b.rego": "package b\nx := " + call}), policy.Options{})
			wantError(t, err, "b.rego:2", "undefined function "+name)
		})
	}
	for name, text := range map[string]string{
		"Version2":  "package b\nimport rego.v2\nx := 1",
		"Templates": "package b\nx := $\"a {input.now}\"",
		"And":       "package b\nimport future.keywords.and\nx := 1",
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := policy.CompileAndTest(t.Context(), with(map[string]string{"b.rego": text}), policy.Options{}); err == nil {
				t.Error("a syntax of later versions was taken without thought")
			}
		})
	}
}

func TestSyntaxBeforeVersion1(t *testing.T) {
	files := with(map[string]string{
		"old.v0.rego":      "package fleetloop.safety\nviolations[msg] { input.request.labels.old == \"true\"; msg := \"old\" }",
		"old_test.v0.rego": "package old_test\ntest_old { data.fleetloop.safety.violations[\"old\"] with input as {\"request\": {\"labels\": {\"old\": \"true\"}}} }",
	})
	s := newSet(t, files, policy.Options{})
	d, err := s.Decide(t.Context(), example(t, map[string]any{"request.labels": map[string]any{"old": "true"}}), now)
	if err != nil || !cmp.Equal(d.Violations, []string{"old"}) {
		t.Errorf("got %+v, %v", d, err)
	}
	files["old_test.v0.rego"] = "package old_test\ntest_old { false }"
	_, err = policy.CompileAndTest(t.Context(), files, policy.Options{})
	wantError(t, err, "old_test.v0.rego:2: data.old_test.test_old fails")
}

// TestTestsDecideNothing checks that a rule in a test file does not affect decisions, whatever its
// package.
func TestTestsDecideNothing(t *testing.T) {
	s := newSet(t, with(map[string]string{"a_test.rego": "package fleetloop.safety\nviolations contains \"from a test\" if input.now > 0"}), policy.Options{})
	d, err := s.Decide(t.Context(), policy.ExamplePolicyInput(), now)
	if err != nil || !d.Allow {
		t.Errorf("got %+v, %v", d, err)
	}
}

func TestHash(t *testing.T) {
	one := newSet(t, smallestAnd("a.rego", "package a\n"), policy.Options{}).ContentHash()
	seen := map[string]string{one: "a"}
	for name, files := range map[string]map[string]string{
		"other text":       smallestAnd("a.rego", "package a\n\n"),
		"other name":       smallestAnd("b.rego", "package a\n"),
		"a test":           smallestAnd("a_test.rego", "package a\n"),
		"no other file":    with(nil),
		"moved characters": smallestAnd("a.regopackage a.rego", "package a\n"),
	} {
		h := newSet(t, files, policy.Options{}).ContentHash()
		if other, ok := seen[h]; ok {
			t.Errorf("%s has the hash of %s", name, other)
		}
		seen[h] = name
	}
	if again := newSet(t, smallestAnd("a.rego", "package a\n"), policy.Options{Mode: policy.Warn}).ContentHash(); again != one || len(one) != 64 {
		t.Errorf("got %s and %s, want the same", one, again)
	}
}

func smallestAnd(name, text string) map[string]string { return with(map[string]string{name: text}) }

func TestTooManyFiles(t *testing.T) {
	files := with(nil)
	for i := range 200 {
		files[fmt.Sprintf("f%d.rego", i)] = fmt.Sprintf("package f%d", i)
	}
	_, err := policy.CompileAndTest(t.Context(), files, policy.Options{})
	wantError(t, err, "there are 201 files")
	files = with(nil)
	for i := range 8 {
		files[fmt.Sprintf("f%d.rego", i)] = "package f\n#" + strings.Repeat("x", 200<<10)
	}
	_, err = policy.CompileAndTest(t.Context(), files, policy.Options{})
	wantError(t, err, "all files together have more than")
}

const runaway = `violations contains "x" if {
	n := count([1 | some a in l; some b in l; some c in l; some d in l; some e in l; some f in l; a + b + c + d + e + f == input.now])
	n > 0
	input.request.labels.run == "away"
}

l := numbers.range(1, 100)
`

// TestDeadline checks that an endless evaluation is stopped, and is not a permission. The label
// guards the first rule, because otherwise the canaries would not end either.
func TestDeadline(t *testing.T) {
	text := strings.Replace(runaway, "violations contains \"x\" if {", "violations contains \"x\" if {\n\tinput.request.labels.run == \"away\"", 1)
	s := newSet(t, smallestAnd("b.rego", "package fleetloop.safety\n"+text), policy.Options{Timeout: time.Second}) // the canaries have the same limit on every machine
	away := example(t, map[string]any{"request.labels": map[string]any{"run": "away"}})
	d, err := s.Decide(t.Context(), away, now)
	wantError(t, err, "evaluate data.fleetloop.safety.decision", "evaluation timed out after 1s")
	if d.Allow {
		t.Error("what took too long was allowed")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(fmt.Errorf("the process ends"))
	_, err = newSet(t, smallestAnd("b.rego", "package fleetloop.safety\n"+text), policy.Options{Timeout: time.Hour}).Decide(ctx, away, now)
	wantError(t, err, "evaluation was stopped: the process ends", "the process ends")
}

// TestDeadlineOfTests checks that a set with endless tests does not block other sets.
func TestDeadlineOfTests(t *testing.T) {
	text := strings.Replace(runaway, "\tinput.request.labels.run == \"away\"\n", "", 1)
	_, err := policy.CompileAndTest(t.Context(), smallestAnd("b_test.rego", "package b_test\n"+strings.Replace(text, `violations contains "x"`, "test_x", 1)), policy.Options{TrialCPUTime: 3 * time.Second})
	wantError(t, err, "test policies: not finished within 3s of CPU time: b_test.rego:2: data.b_test.test_x does not end")
}

// TestTimeIsTheCallers checks that the same set, input and time give the same answer.
func TestTimeIsTheCallers(t *testing.T) {
	s := newSet(t, smallestAnd("b.rego", "package fleetloop.safety\nviolations contains msg if { time.now_ns() != 0; msg := sprintf(\"at %d\", [time.now_ns()]) }"), policy.Options{})
	for _, at := range []time.Time{now, now.Add(time.Nanosecond)} {
		d, err := s.Decide(t.Context(), policy.ExamplePolicyInput(), at)
		if err != nil || !cmp.Equal(d.Violations, []string{fmt.Sprintf("at %d", at.UnixNano())}) {
			t.Errorf("got %+v, %v", d, err)
		}
	}
}

// TestFunctionsFailLoudly checks that a failing function is an error and not a silent rule.
func TestFunctionsFailLoudly(t *testing.T) {
	s := newSet(t, smallestAnd("b.rego", "package fleetloop.safety\nviolations contains \"x\" if to_number(input.request.labels.cores) > 3"), policy.Options{})
	d, err := s.Decide(t.Context(), example(t, map[string]any{"request.labels": map[string]any{"cores": "four"}}), now)
	wantError(t, err, "b.rego:2", "to_number")
	if d.Allow {
		t.Error("allowed")
	}
}

// TestObjectIsSeen checks that a part of the input without references is not read, and that every
// form of reference is detected.
func TestObjectIsSeen(t *testing.T) {
	for name, body := range map[string]string{
		"ByName":       `input.target.object.spec.replicas == 3`,
		"ByQuotedName": `input["target"]["object"].spec.replicas == 3`,
		"ByPrefix":     `t := input.target; t.object.spec.replicas == 3`,
		"ByInput":      `i := input; i.target.object.spec.replicas == 3`,
		"ByAnyField":   `some k; k != ""; input.target[k].spec.replicas == 3`,
		"ByAnyTop":     `some k; input[k].object.spec.replicas == 3`,
		"ByIteration":  `some k, v in input.target; k == "object"; v.spec.replicas == 3`,
		"ByWalk":       `walk(input, [p, 3]); p[minus(count(p), 1)] == "replicas"; p[0] == "target"`,
		"ByArgument":   `f(input.target) == 3`,
		"ByGet":        `object.get(input, ["target", "object", "spec", "replicas"], 0) == 3`,
		"ByImport":     `o.spec.replicas == 3`,
		"ByVariable":   `k := concat("", ["o", "bject"]); input.target[k].spec.replicas == 3`,
		"Within":       `input.request.labels[input.target.object.spec.template.spec.containers[0].env[0].name] == "x"`,
		"ByComparison": `input.target != {}; count([v | some v in input.target; is_object(v); v.spec]) == 1`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newSet(t, smallestAnd("b.rego", "package fleetloop.safety\nimport input.target.object as o\nf(t) := t.object.spec.replicas\nused := [o, f({})]\nviolations contains \"seen\" if { "+body+" }"), policy.Options{})
			bare := newSet(t, smallestAnd("b.rego", "package fleetloop.safety\n"+usesOf(body)+"violations contains \"seen\" if { "+body+" }"), policy.Options{})
			input := example(t, map[string]any{"request.labels": map[string]any{"LOG_LEVEL": "x"}})
			for _, s := range []*policy.Set{s, bare} {
				d, err := s.Decide(t.Context(), input, now)
				if err != nil || !cmp.Equal(d.Violations, []string{"seen"}) {
					t.Errorf("got %+v, %v", d, err)
				}
			}
		})
	}
}

// usesOf returns the lines that a body needs, so that nothing else refers to the object.
func usesOf(body string) string {
	switch {
	case strings.HasPrefix(body, "o."):
		return "import input.target.object as o\n"
	case strings.HasPrefix(body, "f("):
		return "f(t) := t.object.spec.replicas\n"
	}
	return ""
}

func TestCompileLeavesFilesAlone(t *testing.T) {
	files := shipped(t)
	before := maps.Clone(files)
	newSet(t, files, policy.Options{})
	if diff := cmp.Diff(before, files); diff != "" {
		t.Error(diff)
	}
}
