package action

import (
	"context"
	"encoding/json"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// An entry is what the catalogue has of one action whose parameters are a P.
//
// P is a struct. Each exported field is one parameter, described by tags:
//
//	json:"replicas"      its name
//	doc:"…"              what it is, for readers
//	required:"true"      it must be given, and must not be ""
//	default:"3"          its value where it is not given (of strings: the text itself)
//	min:"0" max:"1000"   bounds of integers
//	enum:"a,b"           the values that it can have
//	format:"dns-label"   see checkFormat in formats.go; of lists and maps it is that of each value
//	keys:"config-key"    the format of a map's keys
//	type:"array"         for json.RawMessage, which is an object unless it says so ("either" takes both)
//	target:"name"        it names the target: name, namespace or kind
//
// Fields are string, bool, int32, int64, pointers to those (nil is not given),
// metav1.Duration, []string, map[string]string, map[string]*string (nil is a
// JSON null), map[string]any, []map[string]any and json.RawMessage. With the
// formats quantity and duration a string is checked, and kept as the API server
// would write it ("1000m" becomes "1").
//
// The parameters with a target tag are filled from spec.targetNamespace,
// spec.resourceName and spec.target where they are not given.
//
// The engine does what all actions share:
//
//   - it reads the target, live, before draft and before anything is sent;
//   - it makes the plan from the draft, and the draft must depend on nothing but
//     Subject, parameters, the live object and what draft itself reads;
//   - a draft without steps says that there is nothing to do, which is a success;
//   - it sends the steps (see work.send), holding on to the target's UID, to the
//     values of the plan's "before", and to the resourceVersion that they were
//     read with. On a conflict it reads again and decides again.
//
// Where a plan has several steps, the one that writes the marker must be the
// last. A later attempt takes a target with our marker for done if the target
// and the objects of the other steps are as the plan leaves them; the first
// attempt takes no notice of it, see work.verify. Steps on other objects must
// bear being sent twice: to a later attempt, a create that finds its object there
// as it would be made has been done; so has a delete that finds nothing. A draft makes
// its steps with patchStep, scaleStep, createStep and deleteStep, which have all
// that send needs.
//
// An entry with a run of its own (as for draining) starts with newWork, calls
// work.open to read and judge the target, work.get, work.list and work.send for
// requests, and returns work.end. Those hold on to the rules: a dry run sends
// dryRun=All, passing errors are tried again, the deadline and a cancellation
// stop between two requests.
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

	did    string // what has been done to the target then: scaled, restarted, …
	absent bool   // the target need not exist: draft, values and run get nil then
}

// newAction creates the action of an entry. It panics on invalid tags of P, which any test that
// uses the catalogue reveals.
func newAction[P any](e entry[P]) *Action {
	a := e.Action
	k := &typedKind[P]{entry: e, params: fieldsOf(reflect.TypeFor[P]())}
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
	q.fillTarget(k.params)
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
	t, problems = k.targetOf(p)
	if len(problems) > 0 {
		return nil, nil, t, problems
	}
	return p, normal, t, q.disagreements(t)
}

// targetOf returns the complete target.
func (k *typedKind[P]) targetOf(p *P) (v1alpha1.Target, []string) {
	var t v1alpha1.Target
	if k.entry.target != nil {
		t = k.entry.target(p)
	} else {
		t = taggedTarget(k.params, reflect.ValueOf(p).Elem(), k.entry.Kinds)
	}
	if t.Kind == "" { // an action without a target
		return t, nil
	}
	r, ok := resourceOf(t.APIVersion, t.Kind)
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

func (k *typedKind[P]) dependentFields(parsed any, live *unstructured.Unstructured) map[string]any {
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
	return w.buildResult(w.sendAll(ctx, k.targetExpectation(c, p, r), k.entry.did))
}

// targetExpectation returns the required state of the target, see openTarget.
func (k *typedKind[P]) targetExpectation(c Client, p *P, r Run) expectation {
	return expectation{
		values: func(live *unstructured.Unstructured) map[string]any { return k.dependentFields(p, live) },
		idle: func(ctx context.Context, live *unstructured.Unstructured) bool {
			d, err := k.entry.draft(ctx, c, r.Subject, p, live)
			return err == nil && len(d.steps) == 0
		},
	}
}
