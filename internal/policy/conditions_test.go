package policy_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/policy"
)

func newConditions(tb testing.TB, o policy.ConditionOptions) *policy.Conditions {
	tb.Helper()
	c, err := policy.NewConditions(o)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func TestConditions(t *testing.T) {
	aliases := map[string]any{
		"deployment_found": true, "deployment_name": "web", "current_replicas": 3, "new_replicas": 5, "additional_replicas": 2,
		"available_cpu": 14250, "required_cpu": 600, "available_memory": 30064771072, "required_memory": 671088640,
		"invalid_secrets": []any{}, "running_pods": 3, "ready_pods": 3, "target_replicas": 5, "deployment_available": true,
		"conditions": map[string]any{"Available": true}, "pods": []any{map[string]any{"name": "web-1", "status": "Running", "oom_killed": false}},
	}
	cases := map[string]struct {
		reason  string
		module  string
		passed  bool
		message string
		want    string // of the error
	}{
		"Holds":      {reason: "any package", module: "package precondition\nallow if input.available_cpu >= input.required_cpu", passed: true},
		"NotHolding": {reason: "false is an answer", module: "package a.b.c\ndefault allow := false\nallow if input.current_replicas > 3"},
		"Message": {
			reason:  "why it does not hold",
			module:  "package a\ndefault allow := false\nallow if input.ready_pods >= input.target_replicas\nmessage := sprintf(\"%d of %d are ready\", [input.ready_pods, input.target_replicas]) if not allow",
			message: "3 of 5 are ready",
		},
		"NoMessageToday":   {reason: "there is nothing to say when it holds", module: "package a\nallow := true\nmessage := \"no\" if not allow", passed: true},
		"LongMessage":      {reason: "a status has room for so much", module: "package a\nallow := true\nmessage := \"" + strings.Repeat("x", 3000) + "\"", passed: true, message: strings.Repeat("x", 1021) + "…"},
		"SeedStyle":        {reason: "as it was written before version 1, with imports", module: "package precondition.scale_deployment\nimport future.keywords.if\nimport future.keywords.in\ndefault allow = false\nallow if { input.deployment_found; count(input.invalid_secrets) == 0 }", passed: true},
		"Structured":       {reason: "the input of policies is there as well", module: "package a\nallow if { input.target.object.spec.replicas == 3; input.namespace.name == \"shop\" }", passed: true},
		"Pods":             {reason: "every", module: "package a\nallow if every p in input.pods { p.status == \"Running\"; not p.oom_killed }", passed: true},
		"Time":             {reason: "the caller's", module: "package a\nallow if time.now_ns() == 1763805600000000000", passed: true},
		"Undefined":        {reason: "no answer is not yes", module: "package a\nallow if input.current_replicas > 3", want: "evaluate allow: it is undefined"},
		"NotABoolean":      {reason: "text is not yes", module: "package a\nallow := \"true\"", want: "evaluate allow: it is string, want a boolean"},
		"Set":              {reason: "a set of reasons is not yes", module: "package a\nallow contains \"x\"", want: "evaluate allow: it is set, want a boolean"},
		"NoAllow":          {reason: "the rule has a name", module: "package a\nallowed := true", want: "compile condition: package data.a has no rule allow"},
		"MessageNumber":    {reason: "it is for people", module: "package a\nallow := true\nmessage := 7", want: "evaluate message: it is number, want a string"},
		"FunctionFails":    {reason: "a failure is not yes", module: "package a\nallow if not to_number(input.target.name) > 3", want: "to_number"},
		"Conflict":         {reason: "two answers are none", module: "package a\nallow := true\nallow := false if input.now > 0", want: "evaluate allow: "},
		"Syntax":           {reason: "with its line", module: "package a\n\nallow if {", want: "compile condition: condition:3: rego_parse_error"},
		"Empty":            {reason: "nothing is no condition", module: "", want: "compile condition: "},
		"OldSyntax":        {reason: "said so by the compiler", module: "package a\nallow { true }", want: "`if` keyword is required"},
		"Misspelt":         {reason: "and what there is", module: "package a\nallow if input.curent_replicas > 3", want: "undefined ref: input.curent_replicas"},
		"AliasOfNoAction":  {reason: "an alias that is not there today is undefined", module: "package a\nallow if input.expected_baseline > 3", want: "it is undefined"},
		"TooLong":          {reason: "the time to compile is bounded by the text", module: "package a\nallow := true\n#" + strings.Repeat("x", 32<<10), want: "at most 32768 are taken"},
		"ReachesOut":       {reason: "no more than a policy may", module: "package a\nallow if http.send({\"method\": \"get\", \"url\": \"http://example.com\"}).status_code == 200", want: "undefined function http.send"},
		"Range":            {reason: "a short text that makes a long list", module: "package a\nallow if count(numbers.range(1, 1000000000)) > 3", want: "undefined function numbers.range"},
		"Addresses":        {reason: "the same", module: "package a\nallow if count(net.cidr_expand(\"10.0.0.0/8\")) > 3", want: "undefined function net.cidr_expand"},
		"Shift":            {reason: "the same", module: "package a\nallow if bits.lsh(1, 100000000000) > 3", want: "undefined function bits.lsh"},
		"MockedFunctions":  {reason: "another name would get around the bounds", module: "package a\nallow if count([1]) == 1 with count as sum", want: "can replace input and data, and no functions"},
		"MockedInput":      {reason: "data and input can be replaced", module: "package a\nx if input.now == 1\nallow if x with input as {\"now\": 1}", passed: true},
		"Exponent":         {reason: "a number that can not be written out", module: "package a\nallow if 1e999999999 + 1 > 3", want: "number too big"},
		"ExponentFromText": {reason: "the same from elsewhere", module: "package a\nallow if json.unmarshal(\"1e999999999\") + 1 > 3", want: "number too big"},
		"Bounded":          {reason: "what is bounded does the same as ever", module: "package a\nallow if { concat(\",\", [\"a\", \"b\"]) == \"a,b\"; 2 * 3 + 4 == 10; replace(\"abc\", \"b\", \"x\") == \"axc\"; sum([1, 2]) == 3; sprintf(\"%5.2f|%-8s, 100%% of 4294967296\", [1.5, \"a\"]) == \" 1.50|a       , 100% of 4294967296\" }", passed: true},
		"OwnFunction":      {reason: "a function of the module's own has the name it wants", module: "package a\nreplace(x, y, z) := 7\nallow if replace(1, 2, 3) == 7", passed: true},
		"Padding":          {reason: "a width is memory", module: "package a\nallow if count(sprintf(\"%1000000000d\", [1])) > 3", want: "it pads to more than"},
		"PaddingArgument":  {reason: "the same", module: "package a\nallow if count(sprintf(\"%*d\", [1000000000, 1])) > 3", want: "it pads to more than"},
	}
	c := newConditions(t, policy.ConditionOptions{Timeout: 10 * time.Second})
	input := changed(t, policy.ExampleInput(), aliases)
	if err := policy.CheckConditionInput(input); err != nil {
		t.Fatal(err)
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for range 2 { // the second time it is known
				passed, message, err := c.Evaluate(t.Context(), tc.module, input, now)
				if tc.want != "" {
					wantError(t, err, tc.want)
				} else if err != nil {
					t.Fatal(err)
				}
				never := (*policy.CompileError)(nil)
				if errors.As(err, &never) != strings.HasPrefix(fmt.Sprint(err), "compile condition: ") || (never == nil) != (c.Compile(t.Context(), tc.module) == nil) {
					t.Errorf("%s: whether it can ever be evaluated is not known: %T, %v", tc.reason, err, never)
				}
				if passed != tc.passed || message != tc.message {
					t.Errorf("%s: got %v, %q, want %v, %q", tc.reason, passed, message, tc.passed, tc.message)
				}
			}
		})
	}
}

// A few lines that make gigabytes end in an error, and quickly.
func TestConditionsAreBounded(t *testing.T) {
	doubling := func(first, next string) string {
		var b strings.Builder
		fmt.Fprintf(&b, "package a\nallow if {\n\tx0 := %s\n", first)
		for i := range 60 {
			fmt.Fprintf(&b, "\tx%d := %s\n", i+1, strings.ReplaceAll(next, "X", fmt.Sprintf("x%d", i)))
		}
		return b.String() + "\tx60 != null\n}\n"
	}
	for name, module := range map[string]string{
		"Concat":      doubling(`"0123456789"`, `concat("", [X, X])`),
		"Join":        doubling(`"0123456789"`, `concat(X, ["a", "b", "c"])`),
		"Sprintf":     doubling(`"0123456789"`, `sprintf("%s%s%s", [X, X, X])`),
		"Indexed":     doubling(`"0123456789"`, `sprintf("%[1]s%[1]s", [X])`),
		"Replace":     doubling(`"aaaaaaaaaa"`, `replace(X, "a", "aa")`),
		"ReplaceAll":  doubling(`"aaaaaaaaaa"`, `replace(X, "a", X)`),
		"ReplaceN":    doubling(`"aaaaaaaaaa"`, `strings.replace_n({"a": "aa"}, X)`),
		"Regex":       doubling(`"aaaaaaaaaa"`, `regex.replace(X, "(a)", "$1$1")`),
		"Arrays":      doubling(`[1, 2, 3]`, `array.concat(X, X)`),
		"Flatten":     doubling(`[1, 2, 3]`, `array.flatten([X, X])`),
		"Marshal":     doubling(`"a"`, `json.marshal([X, X])`),
		"Base64":      doubling(`"0123456789"`, `base64.encode(X)`),
		"Hex":         doubling(`"0123456789"`, `hex.encode(X)`),
		"Squares":     doubling(`12345678901234567890`, `X * X`),
		"Product":     doubling(`12345678901234567890`, `product([X, X])`),
		"SprintfSelf": doubling(`"%s%s"`, `sprintf(concat("", [X, "%s"]), [X, X, X])`),
	} {
		t.Run(name, func(t *testing.T) {
			c := newConditions(t, policy.ConditionOptions{Timeout: time.Minute})
			_, _, err := c.Evaluate(t.Context(), module, policy.ExampleInput(), now)
			if err == nil || !strings.Contains(err.Error(), "a value has more than 1048576 bytes") && !strings.Contains(err.Error(), "too large together") && !strings.Contains(err.Error(), "contains others more than") {
				t.Errorf("got %v, want a refusal for its size", err)
			}
		})
	}
}

// What can not be interrupted ends by itself, and soon: each of these would hold
// up whoever evaluates it for minutes, or fill the memory.
func TestConditionsEnd(t *testing.T) {
	var long strings.Builder // a list of a thousand words, as one text
	long.WriteString("package a\nx0 := \"10.0.0.0/8,\"\n")
	for i := range 10 {
		fmt.Fprintf(&long, "x%d := concat(\"\", [x%d, x%d])\n", i+1, i, i)
	}
	long.WriteString("words := split(trim_suffix(x10, \",\"), \",\")\n")
	for name, tc := range map[string]struct{ reason, allow, want string }{
		"Pairs":       {"each is compared with each", "count(net.cidr_contains_matches(words, words)) > 3", "undefined function net.cidr_contains_matches"},
		"Repetition":  {"a short expression is a long program", `regex.match("` + strings.Repeat("([0-9./,]?){1000}", 10) + `x", x10)`, "too large together"},
		"Replacement": {"the expression stands elsewhere", `regex.replace(x10, "` + strings.Repeat("([0-9./,]?){1000}", 10) + `x", "") != ""`, "too large together"},
		"Groups":      {"as many values as there are groups, at each place", `count(regex.find_all_string_submatch_n("` + strings.Repeat("()", 200) + `", x10, -1)) > 3`, "too large together"},
		"Split":       {"the same", `count(regex.split("` + strings.Repeat("()", 200) + `", x10)) > 3`, "too large together"},
		"Found":       {"the same", `count(regex.find_n("` + strings.Repeat("()", 200) + `", x10, -1)) > 3`, "too large together"},
		"Long":        {"to compile it takes long, too", `regex.is_valid("` + strings.Repeat("x{1000}", 100) + `")`, "at most 512 are taken"},
		"Nested":      {"alternatives within alternatives", `glob.match("` + strings.Repeat("{1,*", 100) + strings.Repeat("}", 100) + `", [], x10)`, "at most 64 are taken"},
		"Stars":       {"each is tried at each place behind the one before", `glob.match("` + strings.Repeat("*a", 12) + `*b*c*", [], "c` + strings.Repeat("a", 200) + `b")`, "would take too long"},
		"Lists":       {"the same, of what is tried at each place", `glob.match("*{a,aa,aaa,aaaa,aaaaa}*{a,aa,aaa,aaaa,aaaaa}*b*c*", [], "c` + strings.Repeat("a", 60) + `b")`, "would take too long"},
		"Quantity":    {"it is written out", `units.parse("1e999999") > 3`, "the exponent has 6 digits, at most 3 are taken"},
		"Bytes":       {"the same", `units.parse_bytes("1E+999999Ei") > 3`, "the exponent has 6 digits, at most 3 are taken"},
		"Digits":      {"the same", `units.parse(x10) > 3`, "the number has 11264 bytes, at most 64 are taken"},
		"Trimmed":     {"each character is looked for among all others", `trim(replace(x10, ",", x3), concat("é", split(x10, ","))) != ""`, "too large together"},
		"Template":    {"conditions do without", `regex.template_match("{x{1000}}", x10, "{", "}")`, "undefined function regex.template_match"},
		"Merged":      {"conditions do without", "count(net.cidr_merge(words)) > 3", "undefined function net.cidr_merge"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := newConditions(t, policy.ConditionOptions{Timeout: time.Minute}).Evaluate(t.Context(), long.String()+"allow if "+tc.allow+"\n", policy.ExampleInput(), now)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
	for name, module := range map[string]string{
		"Comprehensions": "package a\nallow if { x := " + strings.Repeat("[y | y := ", 40) + "1" + strings.Repeat("]", 40) + "; x }",
		"Calls":          "package a\nallow if { x := " + strings.Repeat("(1 + ", 2000) + "1" + strings.Repeat(")", 2000) + "; x }",
	} {
		_, _, err := newConditions(t, policy.ConditionOptions{}).Evaluate(t.Context(), module, policy.ExampleInput(), now)
		if err == nil || !strings.Contains(err.Error(), "nested too deeply") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	// What one writes goes on to work.
	module := `package a
allow if {
	regex.match("^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", input.target.name)
	regex.find_all_string_submatch_n("v([0-9]+)[.]([0-9]+)", "app:v1.27", -1)[0][2] == "27"
	regex.replace("web-1", "-[0-9]+$", "") == "web"
	glob.match("web*", [], input.target.name)
	glob.match("*.example.com/*/*:v*", ["/"], "registry.example.com/shop/frontend-of-the-shop:v1.27.3-build.20261122")
	glob.match("{web,api,admin}-*-{blue,green}", [], "api-7-green")
	units.parse_bytes("1.5e2Mi") > units.parse("100M")
	units.parse("2E") == 2000000000000000000
	trim("--web--", "-") == "web"
	object.subset(input.target, {"kind": "Deployment"})
	net.cidr_contains("10.0.0.0/8", "10.1.2.3")
}
`
	if passed, _, err := newConditions(t, policy.ConditionOptions{Timeout: time.Minute}).Evaluate(t.Context(), module, policy.ExampleInput(), now); !passed || err != nil {
		t.Errorf("got %v, %v", passed, err)
	}
}

// Two values that are each within their bounds can be too much together.
func TestConditionsAreBoundedTogether(t *testing.T) {
	long := "x := replace(replace(replace(replace(input.target.name, \"w\", y), \"e\", y), \"b\", y), \"z\", y)\n"
	module := "package a\ny := \"" + strings.Repeat("z", 500) + "\"\n" + long + "allow if replace(x, \"z\", x) != \"\"\n"
	_, _, err := newConditions(t, policy.ConditionOptions{Timeout: time.Minute}).Evaluate(t.Context(), module, policy.ExampleInput(), now)
	wantError(t, err, "bounded.replace: its arguments are too large together")
}

// Values that have each other in them twice, forty times over, would be written
// out in one go: they are not compiled.
func TestConditionsDoNotNest(t *testing.T) {
	body := func(lines string) string { return "package a\nallow if {\n" + lines + "}\n" }
	rules := func(first, next string) string {
		var b strings.Builder
		fmt.Fprintf(&b, "package a\nx0 := %s\n", first)
		for i := range 40 {
			fmt.Fprintf(&b, "%s\n", strings.NewReplacer("Y", fmt.Sprintf("x%d", i+1), "X", fmt.Sprintf("x%d", i)).Replace(next))
		}
		return b.String()
	}
	lines := func(first, next string) string {
		return body(strings.TrimPrefix(rules(first, next), "package a\n") + "x40 != null\n")
	}
	for name, module := range map[string]string{
		"Lines":          lines(`"a"`, "Y := [X, X]"),
		"Objects":        lines(`"a"`, `Y := {"a": X, "b": {"c": X}}`),
		"Sets":           lines(`"a"`, `Y := {[1, X], [2, X]}`),
		"Unified":        lines(`"a"`, `[X, X] = Y`),
		"Comprehensions": lines(`"a"`, `Y := [z | some z in [X, X]]`),
		"Functions":      lines(`["a"]`, `Y := array.concat([X], [X])`),
		"Parts":          lines(`["a"]`, `Y := [X[0], X[0], X]`),
		"Rules":          rules(`"a"`, "Y := [X, X]") + "allow if x40 != null\n",
		"Else":           rules(`"a"`, "Y := 1 if input.now == 1\nelse := [X, X]") + "allow if x40 != null\n",
		"PartialSets":    rules(`{"a"}`, "Y contains [1, X]\nY contains [2, X]") + "allow if x40 != null\n",
		"PartialObjects": rules(`{"a": 1}`, "Y[1] := X\nY[2] := X") + "allow if x40 != null\n",
		"OwnFunctions":   "package a\nf(x) := [x, x]\n" + strings.TrimPrefix(rules(`"a"`, "Y := f(X)"), "package a\n") + "allow if x40 != null\n",
		"OwnFunction":    "package a\nf(x) := [x, x]\nallow if " + strings.Repeat("f(", 40) + "1" + strings.Repeat(")", 40) + " != null\n",
		"Results":        "package a\nf(x) := y if { y := [x, x] }\n" + strings.TrimPrefix(rules(`"a"`, "Y := f(X)"), "package a\n") + "allow if x40 != null\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := newConditions(t, policy.ConditionOptions{Timeout: time.Minute})
			_, _, err := c.Evaluate(t.Context(), module, policy.ExampleInput(), now)
			wantError(t, err, "compile condition: ", "contains others more than")
		})
	}
	// As far as it goes without harm.
	module := rules(`"a"`, "Y := [X]") + "allow if x40 != null\n"
	if passed, _, err := newConditions(t, policy.ConditionOptions{Timeout: time.Minute}).Evaluate(t.Context(), module, policy.ExampleInput(), now); !passed || err != nil {
		t.Errorf("got %v, %v", passed, err)
	}
}

func TestConditionDeadline(t *testing.T) {
	module := "package a\nl := [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]\nallow if count([1 | some a in l; some b in l; some c in l; some d in l; some e in l; some f in l; some g in l; a + b + c + d + e + f + g == 0]) == 0"
	c := newConditions(t, policy.ConditionOptions{Timeout: 20 * time.Millisecond})
	passed, _, err := c.Evaluate(t.Context(), module, policy.ExampleInput(), now)
	wantError(t, err, "evaluate allow: it took too long, which is more than 20ms")
	if passed {
		t.Error("what took too long counts as holding")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("the process ends")
	cancel(stop)
	_, _, err = newConditions(t, policy.ConditionOptions{Timeout: time.Hour}).Evaluate(ctx, module, policy.ExampleInput(), now)
	if !errors.Is(err, stop) {
		t.Errorf("got %v, want the cause", err)
	}
	// One who has gone away does not spoil it for the next.
	if _, _, err := c.Evaluate(ctx, enoughCPU, policy.ExampleInput(), now); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
	if passed, _, err := newConditions(t, policy.ConditionOptions{Timeout: time.Minute}).Evaluate(t.Context(), enoughCPU, policy.ExampleInput(), now); !passed || err != nil {
		t.Errorf("got %v, %v", passed, err)
	}
}

// The ones used last are kept, as many as there is room for.
func TestConditionsAreKept(t *testing.T) {
	c := newConditions(t, policy.ConditionOptions{Timeout: 10 * time.Second, Modules: 3})
	module := func(i int) string { return fmt.Sprintf("package a\nallow if %d >= 0", i) }
	ask := func(i int) {
		if passed, _, err := c.Evaluate(t.Context(), module(i), policy.ExampleInput(), now); !passed || err != nil {
			t.Fatalf("got %v, %v", passed, err)
		}
	}
	for _, i := range []int{1, 2, 3, 1, 4} {
		ask(i)
	}
	for i, want := range map[int]bool{1: true, 2: false, 3: true, 4: true} {
		if got := c.Keeps(module(i)); got != want {
			t.Errorf("module %d is kept: %v, want %v", i, got, want)
		}
	}
	// Long ones need more room.
	long := newConditions(t, policy.ConditionOptions{Timeout: 10 * time.Second})
	for i := range 80 {
		if _, _, err := long.Evaluate(t.Context(), module(i)+"\n#"+strings.Repeat("x", 31<<10), policy.ExampleInput(), now); err != nil {
			t.Fatal(err)
		}
	}
	if n := long.Kept(); n < 60 || n > 66 {
		t.Errorf("%d long modules are kept, want as many as go into 2 MiB", n)
	}
}

func TestConditionsConcurrently(t *testing.T) {
	c := newConditions(t, policy.ConditionOptions{Timeout: time.Minute, Modules: 4})
	input := policy.ExampleInput()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 30 {
				n := (i + j) % 8
				passed, message, err := c.Evaluate(t.Context(), fmt.Sprintf("package a\nallow if %d >= 4\nmessage := \"is %d\"\ndefault allow := false", n, n), input, now)
				if passed != (n >= 4) || message != fmt.Sprintf("is %d", n) || err != nil {
					t.Errorf("%d: got %v, %q, %v", n, passed, message, err)
				}
			}
		})
	}
	wg.Wait()
}

// Why quantities are integers: text is compared by its letters, and is greater
// than every number.
func TestUnits(t *testing.T) {
	c := newConditions(t, policy.ConditionOptions{Timeout: 10 * time.Second})
	for comparison, want := range map[string]bool{
		`"2000m" >= "500m"`: false,
		`"10Gi" >= "4Gi"`:   false,
		`"1" >= 500`:        true,
		`2000 >= 500`:       true,
		`units.parse_bytes("10Gi") >= 4294967296`:       true,
		`units.parse("2000m") * 1000 >= 500`:            true,
		`input.cluster.availableCPU >= 500`:             true,
		`input.cluster.availableMemory >= 4 * 10737418`: true,
	} {
		got, _, err := c.Evaluate(t.Context(), "package a\ndefault allow := false\nallow if "+comparison, policy.ExampleInput(), now)
		if got != want || err != nil {
			t.Errorf("%s: got %v, %v, want %v", comparison, got, err, want)
		}
	}
}

func TestCheckConditionInput(t *testing.T) {
	if err := policy.CheckConditionInput(policy.ExampleInput()); err != nil {
		t.Errorf("nothing but the input of policies: %v", err)
	}
	for field, value := range map[string]any{"current_replicas": "3", "namespace": "shop", "deployment": "web", "pods": []any{map[string]any{"nam": "x"}}} {
		if err := policy.CheckConditionInput(changed(t, policy.ExampleInput(), map[string]any{field: value})); err == nil {
			t.Errorf("%s = %v was taken", field, value)
		}
	}
}

func FuzzCondition(f *testing.F) {
	f.Add(enoughCPU)
	f.Add("package a\nallow if { x := concat(\"\", [input.target.name]); x * 2 > 3 }")
	f.Add("package a\nimport input.target as t\nallow if walk(t, [p, v])\nmessage contains \"x\"")
	f.Add("package a\nallow { deny[x] }")
	f.Add("package a\nallow := " + strings.Repeat("[", 5000))
	f.Add("package a\nallow := [x | some x in input.target.ownerChain][_]")
	c := newConditions(f, policy.ConditionOptions{Modules: 1})
	input := policy.ExampleInput()
	f.Fuzz(func(t *testing.T, module string) {
		begin := time.Now()
		passed, _, err := c.Evaluate(t.Context(), module, input, now)
		if passed && err != nil {
			t.Errorf("it holds, and %v", err)
		}
		if err != nil && strings.Contains(err.Error(), "panic") {
			t.Error(err)
		}
		if took := time.Since(begin); took > 20*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}
