package policy_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/policy"
)

var update = flag.Bool("update", false, "write the tables of docs/how-to/write-policies.md anew")

const page = "../../docs/how-to/write-policies.md"

// A block is a fenced part of the page.
type block struct{ kind, title, text string }

func blocks(t *testing.T) []block {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var all []block
	for _, m := range regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		b := block{kind: m[1], text: m[2]}
		if b.kind == "rego" {
			first, _, _ := strings.Cut(b.text, "\n")
			title, ok := strings.CutPrefix(first, "# ")
			if !ok {
				t.Fatalf("a block does not say in its first line what it is:\n%s", b.text)
			}
			b.title = title
		}
		all = append(all, b)
	}
	return all
}

// Every block of the page is compiled and run: files are added to the shipped
// policies, with their tests; decision.rego stands alone; what is refused is
// refused with what the page says; conditions are evaluated.
func TestPage(t *testing.T) {
	files, seen := shipped(t), map[string]int{}
	all := blocks(t)
	for i, b := range all {
		kind, rest, _ := strings.Cut(b.title, ": ")
		switch {
		case b.kind == "text":
		case b.kind != "rego":
			t.Errorf("a block of kind %q is not run", b.kind)
		case kind == "refused", kind == "refused alone":
			seen["refused"]++
			beside := shipped(t)
			if kind == "refused alone" {
				beside = map[string]string{}
			}
			beside[rest] = b.text
			t.Run(rest, func(t *testing.T) { wantRefused(t, beside, all[i+1]) })
		case kind == "condition":
			seen[kind]++
			t.Run(rest, func(t *testing.T) { wantCondition(t, rest, b.text) })
		case b.title == "decision.rego":
			seen["set"]++
			newSet(t, map[string]string{b.title: b.text}, policy.Options{})
		case strings.HasSuffix(b.title, ".rego"):
			seen["file"]++
			if _, ok := files[b.title]; ok {
				t.Errorf("%s is there twice", b.title)
			}
			files[b.title] = b.text
		default:
			t.Errorf("a block is neither a file, nor refused, nor a condition: %s", b.title)
		}
	}
	st := policy.NewStore(time.Minute, nil)
	if err := st.Load(t.Context(), shipped(t), policy.Enforce); err != nil {
		t.Fatal(err)
	}
	without := st.Status().Tests
	if err := st.Load(t.Context(), files, policy.Enforce); err != nil {
		t.Fatal(err)
	}
	if got := st.Status().Tests - without; got < 8 {
		t.Errorf("the page has %d tests, want all of them", got)
	}
	if seen["file"] < 7 || seen["refused"] < 2 || seen["condition"] < 3 || seen["set"] != 1 {
		t.Errorf("the page has %v, want all of it", seen)
	}
}

func wantRefused(t *testing.T, files map[string]string, says block) {
	t.Helper()
	_, err := policy.Compile(t.Context(), files, policy.Options{})
	if says.kind != "text" {
		t.Fatal("the page does not say why")
	}
	wantError(t, err, strings.Split(strings.TrimSpace(says.text), "\n")...)
}

func wantCondition(t *testing.T, want, module string) {
	t.Helper()
	input := changed(t, policy.ExampleInput(), map[string]any{
		"current_replicas": 3, "available_cpu": 14250, "required_cpu": 600, "available_memory": 30064771072, "required_memory": 671088640,
		"ready_pods": 3, "target_replicas": 5,
	})
	passed, message, err := evaluate(t.Context(), module, input)
	got := "holds"
	switch {
	case err != nil:
		got = "is an error"
		wantError(t, err, strings.TrimPrefix(want, "is an error: "))
	case !passed:
		got = "does not hold: " + message
	}
	if !strings.HasPrefix(want, got) {
		t.Errorf("it %s, and the page says that it %s", got, want)
	}
}

// The tables of the page are those of the schemas, and the canaries.
func TestPageTables(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var canaries strings.Builder
	for _, name := range policy.Canaries() {
		fmt.Fprintf(&canaries, "- %s\n", name)
	}
	got := string(text)
	for name, table := range map[string]string{
		"INPUT":    table(t, policy.InputSchema()),
		"ALIASES":  table(t, policy.ConditionsSchema()),
		"CANARIES": canaries.String(),
	} {
		if *update {
			got = strings.Replace(got, "@@"+name+"@@\n", table, 1)
		}
		if !strings.Contains(got, table) {
			t.Errorf("%s does not have this, run the test with -update after putting @@%s@@ in its place:\n%s", page, name, table)
		}
	}
	if *update {
		if err := os.WriteFile(page, []byte(got), 0o600); err != nil { //nolint:gosec // the page is named above
			t.Fatal(err)
		}
	}
}

type schema struct {
	Type        string             `json:"type"`
	Description string             `json:"description"`
	Properties  map[string]*schema `json:"properties"`
	Items       *schema            `json:"items"`
	Additional  json.RawMessage    `json:"additionalProperties"`
}

func table(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	var s schema
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("| `input` | type | |\n|---|---|---|\n")
	s.rows(&b, "")
	return b.String()
}

func (s *schema) rows(b *strings.Builder, prefix string) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		sub := s.Properties[name]
		typ := sub.Type
		switch {
		case sub.Items != nil:
			typ = "list of " + sub.Items.Type + "s"
		case string(sub.Additional) != "" && string(sub.Additional) != "false":
			var of schema
			_ = json.Unmarshal(sub.Additional, &of)
			typ = "map of " + of.Type + "s"
		}
		fmt.Fprintf(b, "| `%s%s` | %s | %s |\n", prefix, name, typ, sub.Description)
		sub.rows(b, prefix+name+".")
		if sub.Items != nil {
			sub.Items.rows(b, prefix+name+"[_].")
		}
	}
}
