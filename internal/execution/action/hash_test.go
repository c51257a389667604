package action

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// text is any text that JSON can have.
func text() *rapid.Generator[string] { return rapid.String() }

func rawJSON() *rapid.Generator[*runtime.RawExtension] {
	return rapid.Custom(func(t *rapid.T) *runtime.RawExtension {
		raw, err := json.Marshal(rapid.MapOfN(text(), rapid.OneOf(
			rapid.Map(rapid.Int64Range(-1<<40, 1<<40), func(n int64) any { return n }),
			rapid.Map(text(), func(s string) any { return s }),
			rapid.Map(rapid.Bool(), func(b bool) any { return b }),
			rapid.Map(rapid.SliceOfN(text(), 0, 3), func(s []string) any { return s }),
		), 0, 4).Draw(t, "values"))
		if err != nil {
			t.Fatal(err)
		}
		return &runtime.RawExtension{Raw: raw}
	})
}

func plans() *rapid.Generator[*v1alpha1.Plan] {
	return rapid.Custom(func(t *rapid.T) *v1alpha1.Plan {
		step := rapid.Custom(func(t *rapid.T) v1alpha1.PlanStep {
			return v1alpha1.PlanStep{
				Description: text().Draw(t, "description"), Verb: text().Draw(t, "verb"), Resource: text().Draw(t, "resource"),
				Name: text().Draw(t, "name"), Body: text().Draw(t, "body"),
			}
		})
		p := &v1alpha1.Plan{
			Action: text().Draw(t, "action"), Parameters: rawJSON().Draw(t, "parameters"), Before: rawJSON().Draw(t, "before"),
			Target: v1alpha1.PlanTarget{
				APIVersion: text().Draw(t, "apiVersion"), Kind: text().Draw(t, "kind"), Namespace: text().Draw(t, "namespace"),
				Name: text().Draw(t, "name"), UID: types.UID(text().Draw(t, "uid")),
			},
			Steps:      rapid.SliceOfN(step, 0, 3).Draw(t, "steps"),
			Impact:     v1alpha1.EstimatedImpact{ResourcesAffected: rapid.Int32().Draw(t, "affected"), Description: text().Draw(t, "impact")},
			PolicyHash: text().Draw(t, "policy"),
		}
		if rapid.Bool().Draw(t, "reversible") {
			p.Rollback = &v1alpha1.RollbackInformation{Available: true, RollbackAction: text().Draw(t, "back"), RollbackParameters: rawJSON().Draw(t, "to"), ExpectedCurrentValues: rawJSON().Draw(t, "from")}
		}
		return p
	})
}

// TestHashStable has plans that say the same in other words.
func TestHashStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := plans().Draw(t, "plan")
		want := HashPlanEffect(p)
		same := p.DeepCopy()
		same.Hash, same.Diff, same.CreatedAt = "other", "- a\n+ b\n", metav1.NewTime(time.Now())
		same.Target.ResourceVersion, same.Target.Generation = "12", 34
		if same.Steps == nil {
			same.Steps = []v1alpha1.PlanStep{}
		}
		same.Parameters, same.Before = spaced(t, same.Parameters), spaced(t, same.Before)
		if got := HashPlanEffect(same); got != want {
			t.Fatalf("hash %s of the same, want %s: %s", got, want, cmp.Diff(p, same))
		}
		// As the API server keeps it, and gives it back.
		stored, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var read map[string]any
		if err = json.Unmarshal(stored, &read); err != nil {
			t.Fatal(err)
		}
		stored, _ = json.Marshal(read)
		var back v1alpha1.Plan
		if err = json.Unmarshal(stored, &back); err != nil {
			t.Fatal(err)
		}
		if got := HashPlanEffect(&back); got != want {
			t.Fatalf("hash %s of what was stored, want %s", got, want)
		}
	})
}

// spaced is the same JSON with other white space.
func spaced(t *rapid.T, e *runtime.RawExtension) *runtime.RawExtension {
	var values map[string]any
	if err := json.Unmarshal(e.Raw, &values); err != nil {
		t.Fatal(err)
	}
	raw, err := json.MarshalIndent(values, " ", "   ")
	if err != nil {
		t.Fatal(err)
	}
	return &runtime.RawExtension{Raw: raw}
}

// TestHashCovers changes each thing that a plan says.
func TestHashCovers(t *testing.T) {
	changes := map[string]func(p *v1alpha1.Plan){
		"action":     func(p *v1alpha1.Plan) { p.Action += "x" },
		"parameters": func(p *v1alpha1.Plan) { p.Parameters = &runtime.RawExtension{Raw: []byte(`{"a rare key":7.5}`)} },
		"no JSON":    func(p *v1alpha1.Plan) { p.Parameters = &runtime.RawExtension{Raw: []byte(`{`)} },
		"apiVersion": func(p *v1alpha1.Plan) { p.Target.APIVersion += "x" },
		"kind":       func(p *v1alpha1.Plan) { p.Target.Kind += "x" },
		"namespace":  func(p *v1alpha1.Plan) { p.Target.Namespace += "x" },
		"name":       func(p *v1alpha1.Plan) { p.Target.Name += "x" },
		"uid":        func(p *v1alpha1.Plan) { p.Target.UID += "x" },
		"before":     func(p *v1alpha1.Plan) { p.Before = &runtime.RawExtension{Raw: []byte(`{"a rare key":7.5}`)} },
		"more steps": func(p *v1alpha1.Plan) { p.Steps = append(p.Steps, v1alpha1.PlanStep{Verb: "delete"}) },
		"step": func(p *v1alpha1.Plan) {
			if len(p.Steps) == 0 {
				p.Steps = []v1alpha1.PlanStep{{}}
			}
			p.Steps[0].Body += "x"
		},
		"impact":      func(p *v1alpha1.Plan) { p.Impact.ResourcesAffected++ },
		"description": func(p *v1alpha1.Plan) { p.Impact.Description += "x" },
		"replicas":    func(p *v1alpha1.Plan) { p.Impact.ReplicasChanged += "x" },
		"rollback": func(p *v1alpha1.Plan) {
			if p.Rollback == nil {
				p.Rollback = &v1alpha1.RollbackInformation{}
			}
			p.Rollback.RollbackAction += "x"
		},
		"expected": func(p *v1alpha1.Plan) {
			if p.Rollback == nil {
				p.Rollback = &v1alpha1.RollbackInformation{}
			}
			p.Rollback.ExpectedCurrentValues = &runtime.RawExtension{Raw: []byte(`{"a rare key":7.5}`)}
		},
		"policy": func(p *v1alpha1.Plan) { p.PolicyHash += "x" },
	}
	rapid.Check(t, func(t *rapid.T) {
		p := plans().Draw(t, "plan")
		want := HashPlanEffect(p)
		for name, change := range changes {
			other := p.DeepCopy()
			change(other)
			if HashPlanEffect(other) == want {
				t.Fatalf("the hash does not cover %s", name)
			}
		}
	})
}

// TestSameState plans for objects that differ in what no plan depends on.
func TestSameState(t *testing.T) {
	requests := []string{
		`scale_deployment {"deployment":"web","namespace":"shop","replicas":5}`,
		`update_image {"deployment":"web","namespace":"shop","container":"app","image":"registry.example.com/app:2"}`,
		`increase_resources {"deployment":"web","namespace":"shop","container":"app","memoryLimit":"2Gi","cpuRequest":"200m"}`,
		`rollout_restart {"deployment":"web","namespace":"shop"}`,
	}
	rapid.Check(t, func(t *rapid.T) {
		var name, parameters string
		if _, err := fmt.Sscan(rapid.SampledFrom(requests).Draw(t, "request"), &name, &parameters); err != nil {
			t.Fatal(err)
		}
		r, err := Parse(newSpec(name, parameters))
		if err != nil {
			t.Fatal(err)
		}
		replicas := rapid.Int64Range(0, 1000).Draw(t, "replicas")
		plan := func(label string) *v1alpha1.Plan {
			o := (&unstructured.Unstructured{Object: deployment("web", replicas)}).DeepCopy()
			o.SetNamespace("shop")
			o.SetUID("uid-of-web")
			o.SetResourceVersion(fmt.Sprint(rapid.IntRange(1, 1<<30).Draw(t, label+" version")))
			o.SetGeneration(rapid.Int64Range(1, 1<<30).Draw(t, label+" generation"))
			o.SetLabels(rapid.MapOfN(rapid.StringMatching(`[a-z]{1,8}`), rapid.StringMatching(`[a-z]{0,8}`), 0, 3).Draw(t, label+" labels"))
			c := Client{Dynamic: fake.NewSimpleDynamicClient(runtime.NewScheme(), o)}
			p, err := r.Plan(t.Context(), c, newSubject("uid"))
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		one, other := plan("one"), plan("other")
		if one.Hash != other.Hash || one.Diff != other.Diff {
			t.Fatalf("plans differ: %s", cmp.Diff(one, other))
		}
	})
}
