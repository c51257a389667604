package runner_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/runner"
)

func created() time.Time { return time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC) }

// plan has texts in all places that somebody outside can write to.
func plan(text string) *v1alpha1.Plan {
	quoted := strings.ToValidUTF8(text, "?")
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&metav1.ObjectMeta{Annotations: map[string]string{quoted: quoted}})
	if err != nil {
		panic(err)
	}
	encoded := new(runtime.RawExtension)
	if encoded.Raw, err = json.Marshal(raw); err != nil {
		panic(err)
	}
	p := &v1alpha1.Plan{
		Action: "scale_deployment", Parameters: encoded, Before: encoded,
		Target:    v1alpha1.PlanTarget{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web", UID: "u-1"},
		Steps:     []v1alpha1.PlanStep{{Verb: "patch", Description: quoted, Body: quoted}},
		Diff:      quoted,
		CreatedAt: metav1.NewTime(created()),
	}
	p.Hash = action.HashPlanEffect(p)
	return p
}

// environment is what a container gets: Kubernetes reads $ in values.
func environment(t *rapid.T, in runner.Input) map[string]string {
	variables, err := in.Environment()
	if err != nil {
		t.Fatal(err)
	}
	env := make(map[string]string)
	for _, v := range variables {
		if strings.Contains(v.Value, "$") {
			t.Fatalf("%s has a $: %q", v.Name, v.Value)
		}
		env[v.Name] = v.Value
	}
	return env
}

func lookup(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := env[name]
		return v, ok
	}
}

// TestReadsWhatWasWritten verifies the round trip of texts that are special for a shell, JSON or
// Kubernetes.
func TestReadsWhatWasWritten(t *testing.T) {
	odd := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
		"$(EXECUTION_UID)", "$$(X)", `\$`, `\\$(X)`, "`id`", "'; rm -rf /", "\x00", "\u2028", `"`, "$", "${HOME}", "<&>",
	}))
	rapid.Check(t, func(t *rapid.T) {
		want := runner.Input{
			Plan:    plan(odd.Draw(t, "a") + odd.Draw(t, "b")),
			Subject: action.Subject{UID: types.UID(rapid.StringMatching(`[a-f0-9-]{1,36}`).Draw(t, "uid")), Created: created()},
			Within:  time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "within")),
		}
		env := environment(t, want)
		env[runner.EnvFailures], env[runner.EnvDisruptions] = "2", "1"
		got, err := runner.ReadInput(lookup(env))
		if err != nil {
			t.Fatal(err)
		}
		want.Attempt = 4
		if got.Plan.Hash != want.Plan.Hash || action.HashPlanEffect(got.Plan) != want.Plan.Hash || got.Plan.Steps[0].Body != want.Plan.Steps[0].Body {
			t.Fatalf("another plan came out: %+v", got.Plan)
		}
		got.Plan, want.Plan = nil, nil
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("read (-want +got):\n%s", diff)
		}
	})
}

func TestReadRefuses(t *testing.T) {
	good := func() map[string]string {
		variables, err := runner.Input{Plan: plan("x"), Subject: action.Subject{UID: "u", Created: created()}, Within: time.Minute}.Environment()
		if err != nil {
			t.Fatal(err)
		}
		env := make(map[string]string)
		for _, v := range variables {
			env[v.Name] = v.Value
		}
		return env
	}
	if _, err := runner.ReadInput(lookup(good())); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		reason string
		spoil  func(env map[string]string)
		want   string
	}{
		"Nothing":   {"none of it may be missing", func(env map[string]string) { clear(env) }, runner.EnvPlan + " is not set"},
		"NoHash":    {"the hash says which plan was decided on", func(env map[string]string) { delete(env, runner.EnvPlanHash) }, runner.EnvPlanHash + " is not set"},
		"OtherHash": {"another plan was decided on", func(env map[string]string) { env[runner.EnvPlanHash] = "abc" }, `is "abc"`},
		"ChangedPlan": {"it is not the one that was decided on", func(env map[string]string) {
			env[runner.EnvPlan] = strings.Replace(env[runner.EnvPlan], "shop", "blog", 1)
		}, "the plan was changed"},
		"BrokenPlan": {"it is no JSON", func(env map[string]string) { env[runner.EnvPlan] = "{" }, runner.EnvPlan + ":"},
		"NoDeadline": {"without it the Pod is killed unheard", func(env map[string]string) { env[runner.EnvDeadline] = "-1s" }, "invalid duration"},
		"Created":    {"times in a plan come from it", func(env map[string]string) { env[runner.EnvCreated] = "yesterday" }, runner.EnvCreated + ":"},
		"Failures":   {"the number of the attempt decides what is our own work", func(env map[string]string) { env[runner.EnvFailures] = "-1" }, "invalid number of attempts"},
	} {
		t.Run(name, func(t *testing.T) {
			env := good()
			c.spoil(env)
			_, err := runner.ReadInput(lookup(env))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: got %v, want %q", c.reason, err, c.want)
			}
		})
	}
}

func TestPlanTooLarge(t *testing.T) {
	_, err := runner.Input{Plan: plan(strings.Repeat("x", runner.MaxPlanBytes)), Within: time.Minute}.Environment()
	if err == nil || !strings.Contains(err.Error(), "at most 65536") {
		t.Errorf("got %v, want to be told of the bound", err)
	}
}
