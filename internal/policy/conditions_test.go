package policy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/fleetloop/fleetloop/internal/policy"
)

// evaluate compiles and evaluates a module, without a limit.
func evaluate(ctx context.Context, module string, input json.RawMessage) (passed bool, message string, err error) {
	c, err := policy.CompileCondition(ctx, module)
	if err != nil {
		return false, "", err
	}
	return c.EvaluateInput(ctx, input, now)
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
		"Undefined":        {reason: "no answer is not yes", module: "package a\nallow if input.current_replicas > 3", want: "evaluate allow: undefined"},
		"NotABoolean":      {reason: "text is not yes", module: "package a\nallow := \"true\"", want: "evaluate allow: got string, want a boolean"},
		"Set":              {reason: "a set of reasons is not yes", module: "package a\nallow contains \"x\"", want: "evaluate allow: got set, want a boolean"},
		"NoAllow":          {reason: "the rule has a name", module: "package a\nallowed := true", want: "compile condition: package data.a has no rule allow"},
		"MessageNumber":    {reason: "it is for people", module: "package a\nallow := true\nmessage := 7", want: "evaluate message: got number, want a string"},
		"FunctionFails":    {reason: "a failure is not yes", module: "package a\nallow if not to_number(input.target.name) > 3", want: "to_number"},
		"Conflict":         {reason: "two answers are none", module: "package a\nallow := true\nallow := false if input.now > 0", want: "evaluate allow: "},
		"Syntax":           {reason: "with its line", module: "package a\n\nallow if {", want: "compile condition: condition:3: rego_parse_error"},
		"Empty":            {reason: "nothing is no condition", module: "", want: "compile condition: "},
		"OldSyntax":        {reason: "said so by the compiler", module: "package a\nallow { true }", want: "`if` keyword is required"},
		"Misspelt":         {reason: "and what there is", module: "package a\nallow if input.curent_replicas > 3", want: "undefined ref: input.curent_replicas"},
		"AliasOfNoAction":  {reason: "an alias that is not there today is undefined", module: "package a\nallow if input.expected_baseline > 3", want: "undefined: no rule"},
		"TooLong":          {reason: "the time to compile is bounded by the text", module: "package a\nallow := true\n#" + strings.Repeat("x", 32<<10), want: "at most 32768 are allowed"},
		"ReachesOut":       {reason: "no more than a policy may", module: "package a\nallow if http.send({\"method\": \"get\", \"url\": \"http://example.com\"}).status_code == 200", want: "undefined function http.send"},
		"Range":            {reason: "a short text that makes a long list", module: "package a\nallow if count(numbers.range(1, 1000000000)) > 3", want: "undefined function numbers.range"},
		"Addresses":        {reason: "the same", module: "package a\nallow if count(net.cidr_expand(\"10.0.0.0/8\")) > 3", want: "undefined function net.cidr_expand"},
		"Shift":            {reason: "the same", module: "package a\nallow if bits.lsh(1, 100000000000) > 3", want: "undefined function bits.lsh"},
		"MockedInput":      {reason: "data and input can be replaced", module: "package a\nx if input.now == 1\nallow if x with input as {\"now\": 1}", passed: true},
		"ExponentFromText": {reason: "the same from elsewhere", module: "package a\nallow if json.unmarshal(\"1e999999999\") + 1 > 3", want: "undefined function json.unmarshal"},
		"Bounded":          {reason: "what is bounded does the same as ever", module: "package a\nallow if { concat(\",\", [\"a\", \"b\"]) == \"a,b\"; 2 * 3 + 4 == 10; replace(\"abc\", \"b\", \"x\") == \"axc\"; sum([1, 2]) == 3; sprintf(\"%5.2f|%-8s, 100%% of 4294967296\", [1.5, \"a\"]) == \" 1.50|a       , 100% of 4294967296\" }", passed: true},
		"OwnFunction":      {reason: "a function of the module's own has the name it wants", module: "package a\nreplace(x, y, z) := 7\nallow if replace(1, 2, 3) == 7", passed: true},
	}
	input := changed(t, policy.ExamplePolicyInput(), aliases)
	if err := policy.CheckConditionInput(input); err != nil {
		t.Fatal(err)
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			passed, message, err := evaluate(t.Context(), tc.module, input)
			if tc.want != "" {
				wantError(t, err, tc.want)
			} else if err != nil {
				t.Fatal(err)
			}
			never := (*policy.CompileError)(nil)
			if errors.As(err, &never) != strings.HasPrefix(fmt.Sprint(err), "compile condition: ") {
				t.Errorf("%s: whether it can ever be evaluated is not known: %T, %v", tc.reason, err, never)
			}
			if passed != tc.passed || message != tc.message {
				t.Errorf("%s: got %v, %q, want %v, %q", tc.reason, passed, message, tc.passed, tc.message)
			}
		})
	}
}

// TestConditionBuiltins checks that functions outside the list do not exist, even if Open Policy
// Agent has them.
func TestConditionBuiltins(t *testing.T) {
	allowed := policy.ConditionBuiltins()
	for _, name := range allowed {
		if ast.BuiltinMap[name] == nil {
			t.Errorf("Open Policy Agent has no function %q", name)
		}
	}
	for _, b := range ast.Builtins {
		if slices.Contains(allowed, b.Name) || strings.HasPrefix(b.Name, "internal.") || b.Infix != "" || b.Name == ast.Print.Name { // print has no effect
			continue
		}
		arguments := strings.TrimSuffix(strings.Repeat("input, ", b.Decl.Arity()), ", ")
		_, err := policy.CompileCondition(t.Context(), "package a\nallow if "+b.Name+"("+arguments+")")
		wantError(t, err, "undefined function "+b.Name)
	}
	for _, name := range []string{"indexof", "indexof_n", "json.unmarshal", "numbers.range"} { // each has blocked a controller, or could
		if slices.Contains(allowed, name) {
			t.Errorf("%s is allowed", name)
		}
	}
	// Typical modules work.
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
	some name in object.keys(input.target.labels)
	contains(lower(name), "a")
	{1, 2} & {2, 3} == {2}
	max([1, 2]) - min({1, 2}) == 1
}
`
	if passed, _, err := evaluate(t.Context(), module, policy.ExamplePolicyInput()); !passed || err != nil {
		t.Errorf("got %v, %v", passed, err)
	}
}

// TestConditionStops checks that an evaluation ends with its context.
func TestConditionStops(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("the process ends")
	cancel(stop)
	if _, _, err := evaluate(ctx, enoughCPU, policy.ExamplePolicyInput()); !errors.Is(err, stop) {
		t.Errorf("got %v, want the cause", err)
	}
}

// TestUnits shows why quantities are integers: text is compared by characters, and is greater than
// every number.
func TestUnits(t *testing.T) {
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
		got, _, err := evaluate(t.Context(), "package a\ndefault allow := false\nallow if "+comparison, policy.ExamplePolicyInput())
		if got != want || err != nil {
			t.Errorf("%s: got %v, %v, want %v", comparison, got, err, want)
		}
	}
}

func TestCheckConditionInput(t *testing.T) {
	if err := policy.CheckConditionInput(policy.ExamplePolicyInput()); err != nil {
		t.Errorf("nothing but the input of policies: %v", err)
	}
	for field, value := range map[string]any{"current_replicas": "3", "namespace": "shop", "deployment": "web", "pods": []any{map[string]any{"nam": "x"}}} {
		if err := policy.CheckConditionInput(changed(t, policy.ExamplePolicyInput(), map[string]any{field: value})); err == nil {
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
	place, err := policy.NewEvaluator().ReservePlace("fuzz")
	if err != nil {
		f.Fatal(err)
	}
	defer place.ReleasePlace()
	input := policy.ExamplePolicyInput()
	f.Fuzz(func(t *testing.T, module string) {
		begin := time.Now()
		passed, _, err := place.EvaluateModule(t.Context(), module, input, now)
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
