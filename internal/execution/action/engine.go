package action

import (
	"context"
	"encoding/json"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// An entry defines one action whose parameters are a P.
//
// P is a struct. Each exported field is one parameter, described by tags:
//
//	json:"replicas"      its name
//	doc:"…"              its description
//	required:"true"      it must be set, and must not be ""
//	default:"3"          its value if it is not set (for strings: the text itself)
//	min:"0" max:"1000"   bounds of integers
//	enum:"a,b"           its allowed values
//	format:"dns-label"   see checkFormat in formats.go; for lists and maps the format of each value
//	keys:"config-key"    the format of a map's keys
//	type:"array"         for json.RawMessage, an object by default ("either" accepts both)
//	target:"name"        it names the target: name, namespace or kind
//
// Fields are string, bool, int32, int64, pointers to those (nil means not set),
// metav1.Duration, []string, map[string]string, map[string]*string (nil means
// JSON null), map[string]any, []map[string]any and json.RawMessage. The formats
// quantity and duration validate a string and convert it to the notation of the
// API server ("1000m" becomes "1").
//
// Parameters with a target tag default to spec.targetNamespace, spec.resourceName
// and spec.target.
//
// The engine implements the common part of all actions:
//
//   - it reads the live target before draft and before sending anything;
//   - it makes the plan from the draft, which may depend only on Subject,
//     parameters, the live object and the objects that draft reads;
//   - it treats a draft without steps as a success with nothing to do;
//   - it sends the steps (see sendStepWithRetry) for exactly the UID of the target, the
//     "before" values of the plan, and the resourceVersion of these values. After
//     a conflict it reads and decides again.
//
// If a plan has several steps, the last one must write the marker. A later attempt
// considers a target with the marker done if the target and the objects of the
// other steps are as the plan leaves them. The first attempt ignores the marker,
// see isPlanDone. Steps on other objects must tolerate being sent twice: for a
// later attempt, a create is done if a matching object exists, and a delete is
// done if the object is gone. A draft makes its steps with newPatchStep, newScaleStep,
// newCreateStep and newDeleteStep, which set everything that sendStepWithRetry needs.
//
// An entry with a custom run (such as draining) starts with newAttempt, calls
// readAndCheckTarget to read and check the target, getObjectWithRetry, listObjectsWithRetry and sendStepWithRetry for
// requests, and returns buildResult. These methods apply the common rules: a dry
// run sends dryRun=All, transient errors are retried, and the deadline or a
// cancellation stops between two requests.
type entry[P any] struct {
	Action

	// check returns the problems of parameters beyond those found by the tags. It may be nil.
	check func(p *P) []string
	// spell converts other notations of the parameters to that of the tags, before they are
	// decoded. asked is the requested name or alias. It returns contradictions. It may be nil.
	spell func(asked string, raw map[string]json.RawMessage) []string
	// target returns the object that the parameters refer to. Nil uses the target tags, and the
	// kind from Kinds. The APIVersion may be empty.
	target func(p *P) v1alpha1.Target
	// draft drafts a plan. live is nil if the target does not exist.
	draft func(ctx context.Context, c Client, s Subject, p *P, live *unstructured.Unstructured) (*draft, error)
	// values returns the fields of a live object that the action depends on and changes: the
	// "before" of the draft. It must also accept the response of a write, which is a Scale for the
	// subresource scale.
	values func(p *P, live *unstructured.Unstructured) map[string]any
	// run executes a plan. Nil sends the steps.
	run func(ctx context.Context, c Client, pl *v1alpha1.Plan, p *P, r Run) Result

	did    string // past participle of the change: scaled, restarted, …
	absent bool   // the target may be missing: draft, values and run get nil then
}

// newAction creates the action of an entry. It panics on invalid tags of P, which any test that
// uses the catalogue reveals.
func newAction[P any](e entry[P]) *Action {
	a := e.Action
	k := &typedKind[P]{entry: e, params: mustParseFieldTags(reflect.TypeFor[P]())}
	for _, f := range k.params {
		a.schema = append(a.schema, f.Parameter)
	}
	a.kind = k
	return &a
}

// typedKind is the kind of an entry.
type typedKind[P any] struct {
	entry  entry[P]
	params []field
}

func (k *typedKind[P]) targetOptional() bool { return k.entry.absent }

func (k *typedKind[P]) parseParameters(q parseInput) (parsed any, normal json.RawMessage, t v1alpha1.Target, problems []string) {
	if k.entry.spell != nil {
		if problems = k.entry.spell(q.asked, q.parameters); len(problems) > 0 {
			return nil, nil, t, problems
		}
	}
	q.fillMissingTargetParameters(k.params)
	p := new(P)
	normal, problems = decodeParameters(k.params, q.parameters, reflect.ValueOf(p).Elem())
	if len(problems) > 0 {
		return nil, nil, t, problems
	}
	if k.entry.check != nil {
		if problems = k.entry.check(p); len(problems) > 0 {
			return nil, nil, t, problems
		}
	}
	t, problems = k.resolveTarget(p)
	if len(problems) > 0 {
		return nil, nil, t, problems
	}
	return p, normal, t, q.targetConflicts(t)
}

// resolveTarget returns the complete target.
func (k *typedKind[P]) resolveTarget(p *P) (t v1alpha1.Target, problems []string) {
	if k.entry.target != nil {
		t = k.entry.target(p)
	} else {
		t = targetFromTags(k.params, reflect.ValueOf(p).Elem(), k.entry.Kinds)
	}
	if t.Kind == "" { // action without a target
		return t, nil
	}
	r, ok := findKind(t.APIVersion, t.Kind)
	if !ok {
		return t, []string{"kind: no action supports kind " + t.Kind}
	}
	t.APIVersion = r.GroupVersion().String()
	if r.cluster {
		t.Namespace = ""
	}
	return t, nil
}

func (k *typedKind[P]) draftPlan(ctx context.Context, c Client, s Subject, parsed any, live *unstructured.Unstructured) (*draft, error) {
	return k.entry.draft(ctx, c, s, parsed.(*P), live) //nolint:errcheck,forcetypeassert // parse made it
}

func (k *typedKind[P]) relevantValues(parsed any, live *unstructured.Unstructured) map[string]any {
	if k.entry.values == nil {
		return map[string]any{}
	}
	return k.entry.values(parsed.(*P), live) //nolint:errcheck,forcetypeassert // parse made it
}

func (k *typedKind[P]) runPlan(ctx context.Context, c Client, pl *v1alpha1.Plan, parsed any, r Run) Result {
	p := parsed.(*P) //nolint:errcheck,forcetypeassert // parse made it
	if k.entry.run != nil {
		return k.entry.run(ctx, c, pl, p, r)
	}
	w := newAttempt(c, pl, r)
	return w.buildResult(w.sendPlanSteps(ctx, k.valuesExpectation(c, p, r), k.entry.did))
}

// valuesExpectation returns the required state of the target, see readAndCheckTarget.
func (k *typedKind[P]) valuesExpectation(c Client, p *P, r Run) expectation {
	return expectation{
		values: func(live *unstructured.Unstructured) map[string]any { return k.relevantValues(p, live) },
		alreadyDesired: func(ctx context.Context, live *unstructured.Unstructured) bool {
			d, err := k.entry.draft(ctx, c, r.Subject, p, live)
			return err == nil && len(d.steps) == 0
		},
	}
}
