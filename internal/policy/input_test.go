package policy_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/fleetloop/fleetloop/internal/policy"
)

func TestCheckInput(t *testing.T) {
	cases := map[string]struct {
		set  map[string]any
		want string
	}{
		"Example":       {},
		"NoPlan":        {set: map[string]any{"plan": removed}},
		"NullMap":       {set: map[string]any{"target.labels": nil}},
		"NullList":      {set: map[string]any{"target.ownerChain": nil}},
		"NullObject":    {set: map[string]any{"target.object": nil}},
		"EmptyObject":   {set: map[string]any{"target.object": map[string]any{}}},
		"AnyParameters": {set: map[string]any{"request.parameters": map[string]any{"a": []any{1, "x", nil, map[string]any{"b": true}}}}},
		"ExtraTop":      {set: map[string]any{"extra": 1}, want: `input.extra is unknown: want action, apiVersion, cluster`},
		"ExtraDeep":     {set: map[string]any{"target.managedBy.argo": "x"}, want: `input.target.managedBy.argo is unknown: want gitops, hpa, operator`},
		"Missing":       {set: map[string]any{"target.protected": removed}, want: `input.target lacks "protected"`},
		"MissingPart":   {set: map[string]any{"history": map[string]any{}}, want: `input.history lacks "sameActionTarget"`},
		"NullPart":      {set: map[string]any{"history": nil}, want: `input.history lacks "sameActionTarget"`},
		"TextForBool":   {set: map[string]any{"target.protected": "false"}, want: `input.target.protected is a string, want boolean`},
		"BoolForText":   {set: map[string]any{"target.name": true}, want: `input.target.name is a boolean, want string`},
		"TextForNumber": {set: map[string]any{"cluster.availableCPU": "14250m"}, want: `input.cluster.availableCPU is a string, want integer`},
		"Fraction":      {set: map[string]any{"cluster.availableCPU": 0.5}, want: `input.cluster.availableCPU is the number 0.5, want integer`},
		"NumberForText": {set: map[string]any{"request.name": 7}, want: `input.request.name is the number 7, want string`},
		"LabelNumber":   {set: map[string]any{"target.labels": map[string]any{"a": 1}}, want: `input.target.labels.a is the number 1, want string`},
		"ListForObject": {set: map[string]any{"target": []any{}}, want: `is a list, want object`},
		"ObjectForList": {set: map[string]any{"target.ownerChain": map[string]any{}}, want: `is an object, want array`},
		"ListOfNumbers": {set: map[string]any{"target.ownerChain": []any{"a", 2}}, want: `input.target.ownerChain[1] is the number 2, want string`},
		"NullText":      {set: map[string]any{"target.name": nil}, want: `input.target.name is null, want string`},
		"OtherVersion":  {set: map[string]any{"apiVersion": "fleetloop.io/policy/v2"}, want: `input.apiVersion is "fleetloop.io/policy/v2", want "fleetloop.io/policy/v1"`},
		"Alias":         {set: map[string]any{"current_replicas": 3}, want: `input.current_replicas is unknown`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := policy.CheckPolicyInput(example(t, tc.set))
			if tc.want != "" {
				wantError(t, err, "read input: ", tc.want)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCheckInputRefusesText(t *testing.T) {
	with := func(old, text string) string {
		return strings.Replace(string(policy.ExamplePolicyInput()), old, text, 1)
	}
	deep := strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200)
	for name, tc := range map[string]struct{ input, want string }{
		"Nothing":      {"", "read input"},
		"Null":         {"null", `input lacks "apiVersion"`},
		"List":         {"[]", "input is a list, want object"},
		"Cut":          {string(policy.ExamplePolicyInput()[:500]), "read input"},
		"Behind":       {string(policy.ExamplePolicyInput()) + "{}", "trailing data"},
		"Twice":        {with(`"protected": false`, `"protected": true, "protected": false`), "duplicate object member name"},
		"TwiceEscaped": {with(`"protected": false`, `"protected": true, "\u0070rotected": false`), "duplicate object member name"},
		"NotUTF8":      {with(`"web"`, "\"\xff\""), "invalid UTF-8"},
		"Deep":         {with(`"parameters": {`, `"parameters": {"deep": `+deep+`, `), "nested deeper than 128"},
		"Exponent":     {with(`"replicas": 5`, `"replicas": 1e999999999`), "input.request.parameters.replicas is 1e999999999, which is out of range"},
		"TinyExponent": {with(`"replicas": 5`, `"replicas": 1e-999999999`), "out of range"},
		"HugeExponent": {with(`"replicas": 5`, `"replicas": 1e99999999999999999999`), "out of range"},
		"Large":        {with(`"web"`, `"`+strings.Repeat("x", 1<<20)+`"`), "at most 1048576 are allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			wantError(t, policy.CheckPolicyInput(json.RawMessage(tc.input)), tc.want)
		})
	}
	if err := policy.CheckPolicyInput(json.RawMessage(with(`"web"`, `"w\u0065b \"\\ \ud83d\ude00"`))); err != nil {
		t.Error(err)
	}
}

// TestDecideChecksItsInput checks that Decide refuses the same inputs as CheckPolicyInput.
func TestDecideChecksItsInput(t *testing.T) {
	s := newSet(t, with(nil), policy.Options{Mode: policy.Audit})
	d, err := s.Decide(t.Context(), example(t, map[string]any{"target.labels": 3}), now)
	wantError(t, err, "read input: input.target.labels is the number 3, want object")
	if d.Allow {
		t.Error("allowed")
	}
	// Also in the part without references.
	broken := strings.Replace(string(policy.ExamplePolicyInput()), `"revisionHistoryLimit": 10`, `"revisionHistoryLimit": 1 0`, 1)
	if _, err := s.Decide(t.Context(), json.RawMessage(broken), now); err == nil {
		t.Error("what is no JSON was decided about")
	}
}

// TestSchemaSaysTheSame checks that the reader here and other implementations of the schema refuse
// the same inputs.
func TestSchemaSaysTheSame(t *testing.T) {
	oracle, err := policy.NewOracle()
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	var doc map[string]any
	if err := json.Unmarshal(policy.ExamplePolicyInput(), &doc); err != nil {
		t.Fatal(err)
	}
	walk(doc, "", func(path string) { paths = append(paths, path) })
	values := []any{removed, true, "x", 7, 1.5, []any{}, []any{"a"}, []any{1}, map[string]any{}, map[string]any{"a": "b"}, map[string]any{"a": 1}}
	rng := rand.New(rand.NewPCG(1, 2))
	rng.Shuffle(len(paths), func(i, j int) { paths[i], paths[j] = paths[j], paths[i] })
	refused := 0
	for _, path := range paths {
		for _, value := range values {
			for _, at := range []string{path, path + "X"} {
				input := example(t, map[string]any{at: value})
				ours := policy.CheckPolicyInput(input)
				theirs, err := oracle(t.Context(), input)
				if err != nil {
					t.Fatal(err)
				}
				if (ours == nil) != (theirs == "") {
					t.Fatalf("%s = %v: we say %v, the schema says %s", at, value, ours, theirs)
				}
				if ours != nil {
					refused++
				}
			}
		}
	}
	if refused < 500 {
		t.Errorf("%d of %d inputs were refused", refused, 2*len(paths)*len(values))
	}
}

// walk visits the paths of all fields in the schema.
func walk(doc map[string]any, prefix string, see func(string)) {
	free := []string{"request.parameters.", "target.object.", "target.labels.", "namespace.labels.", "plan.before.", "inflight.byAction.", "inflight.byNamespace."}
	for key, value := range doc {
		path := prefix + key
		if strings.Contains(key, "/") || strings.Contains(key, ".") || slices.ContainsFunc(free, func(f string) bool { return strings.HasPrefix(path, f) }) {
			continue
		}
		see(path)
		if sub, ok := value.(map[string]any); ok {
			walk(sub, path+".", see)
		}
	}
}

func FuzzCheckInput(f *testing.F) {
	f.Add([]byte(policy.ExamplePolicyInput()))
	f.Add([]byte(`{"apiVersion":"fleetloop.io/policy/v1","target":{"labels":null}}`))
	f.Add([]byte(fmt.Sprintf(`{"now":%s}`, strings.Repeat("9", 400))))
	f.Fuzz(func(t *testing.T, input []byte) {
		if policy.CheckPolicyInput(input) == nil && !json.Valid(input) {
			t.Error("what is no JSON was taken")
		}
	})
}
