package guard_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/execution/guard"
)

// ruleNames are the validations of the policies, in their order: how tests call
// them.
func ruleNames() map[string][]string {
	return map[string][]string{
		"requests":  {"approvals", "received", "ends", "requester", "groups", "execute"},
		"changes":   {"parameters", "ends", "canceller", "finalizer", "finalizers", "owners"},
		"approvals": {"phase", "approved", "name", "plan", "eyes", "groups", "approve"},
		"status":    {"controller"},
		"settings":  {"administer", "author"},
	}
}

// A loosening takes something out of the guard.
type loosening func(policies map[string]*admissionv1.ValidatingAdmissionPolicy)

// loosened are the guards that lack one thing each. All there is in a guard is
// in here, or is not necessary.
func loosened() map[string]loosening {
	all := map[string]loosening{
		"match/exact": func(policies map[string]*admissionv1.ValidatingAdmissionPolicy) {
			for _, p := range policies {
				p.Spec.MatchConstraints.MatchPolicy = new(admissionv1.Exact)
			}
		},
		"changes/ends-cancel":       without("changes", "object.spec.?cancel.orValue(false) && !oldObject.spec.?cancel.orValue(false) || ", ""),
		"changes/ends-finalize":     without("changes", " || object.spec.?finalize.orValue(false) && !oldObject.spec.?finalize.orValue(false)", ""),
		"changes/canceller-name":    without("changes", "variables.canceller == request.userInfo.username && ", ""),
		"changes/canceller-cancels": without("changes", "variables.canceller == request.userInfo.username && object.spec.?cancel.orValue(false) && !oldObject.spec.?cancel.orValue(false)", "variables.canceller == request.userInfo.username"),
		"changes/owners-uid":        without("changes", "was.uid == now.uid && ", ""),
		"changes/owners-version":    without("changes", "was.apiVersion == now.apiVersion && ", ""),
		"changes/owners-kind":       without("changes", "was.kind == now.kind && ", ""),
		"changes/owners-name":       without("changes", "was.name == now.name && ", ""),
		"changes/owners-controller": without("changes", " && was.?controller == now.?controller", ""),
		"approvals/plan-there":      without("approvals", "variables.plan != '' && ", ""),
		"approvals/eyes-unknown":    without("approvals", "variables.requester != '' && ", ""),
		"approvals/eyes-agent":      without("approvals", " || oldObject.spec.?requestedByAgent.orValue('') != ''", ""),
		"approvals/eyes-portal":     without("approvals", " && !(request.userInfo.username in variables.trusted)", ""),
		"approvals/ticked":          without("approvals", " || object.spec.?approvalReceived.orValue(false) && !oldObject.spec.?approvalReceived.orValue(false)", ""),
		"status/by-request":         without("status", "(object == null ? oldObject : object).metadata.?name.orValue('') ==", "request.?name.orValue('') =="),
		"settings/by-request":       without("settings", "(object == null ? oldObject : object).metadata.?name.orValue('') in", "request.?name.orValue('') in"),
	}
	for policy, names := range ruleNames() {
		for i, name := range names {
			all[policy+"/"+name] = func(policies map[string]*admissionv1.ValidatingAdmissionPolicy) {
				p := policies[policy]
				p.Spec.Validations[i].Expression = "true"
			}
		}
	}
	return all
}

// without changes the expressions of a policy.
func without(policy, old, other string) loosening {
	return func(policies map[string]*admissionv1.ValidatingAdmissionPolicy) {
		p, changed := policies[policy], false
		replace := func(expression *string) {
			now := strings.ReplaceAll(*expression, old, other)
			changed = changed || now != *expression
			*expression = now
		}
		for i := range p.Spec.Variables {
			replace(&p.Spec.Variables[i].Expression)
		}
		for i := range p.Spec.MatchConditions {
			replace(&p.Spec.MatchConditions[i].Expression)
		}
		for i := range p.Spec.Validations {
			replace(&p.Spec.Validations[i].Expression)
		}
		if !changed {
			panic("the policy " + policy + " has no " + old)
		}
	}
}

// guarded has a fixture guarded, and waits until it is.
func (w *fixture) guarded() {
	w.tb.Helper()
	w.settled(w.installed(nil))
}

// installed installs a guard, but for what is loosened.
func (w *fixture) installed(loosen loosening) map[string]*admissionv1.ValidatingAdmissionPolicy {
	w.tb.Helper()
	objects := guard.ValidatingPolicyObjects(w.options())
	policies := policiesOf(w.ns, objects)
	if loosen != nil {
		loosen(policies)
	}
	w.install(objects)
	return policies
}

func policiesOf(ns string, objects []runtime.Object) map[string]*admissionv1.ValidatingAdmissionPolicy {
	policies := map[string]*admissionv1.ValidatingAdmissionPolicy{}
	for _, o := range objects {
		if p, ok := o.(*admissionv1.ValidatingAdmissionPolicy); ok {
			policies[strings.TrimPrefix(p.Name, ns+"-execution-")] = p
		}
	}
	return policies
}

// settled waits until the API server goes by the policies, which it notices a
// moment after it has them: until each refuses somebody a trial, who is refused
// by a rule that the policy still has.
func (w *fixture) settled(policies map[string]*admissionv1.ValidatingAdmissionPolicy) {
	w.tb.Helper()
	probes := map[string]struct {
		on   given
		rule map[string]try // by the rule that refuses it
	}{
		"requests":  {given{}, map[string]try{"received": asks(rita, map[string]any{"approvalReceived": true}), "ends": asks(rita, map[string]any{"cancel": true})}},
		"changes":   {given{finalizer: true}, map[string]try{"parameters": merges(eve, `{"spec":{"parameters":{"replicas":50}}}`), "finalizer": merges(eve, `{"metadata":{"finalizers":null}}`)}},
		"approvals": {given{}, map[string]try{"name": approves(adam, anna), "approve": approves(eve, eve)}},
		"status":    {given{}, map[string]try{"controller": merges(eve, `{"status":{"message":"x"}}`, "status")}},
		"settings":  {given{}, map[string]try{"administer": func(w *fixture, _ string) error { return w.settings(pete).create(configMap("safety-policies")) }}},
	}
	trial := w.onTrial()
	for policy, p := range policies {
		for rule, probe := range probes[policy].rule {
			if p.Spec.Validations[slices.Index(ruleNames()[policy], rule)].Expression == "true" {
				continue
			}
			name := probes[policy].on.make(trial)
			kubebedtest.Eventually(w.tb, func(context.Context) error {
				if err := probe(trial, name); !byGuard(err, p.Name) {
					return fmt.Errorf("policy %s does not refuse yet: %w", policy, cmpErr(err))
				}
				return nil
			})
			must(w.tb, trial.as(boss).firmly().merge(name, `{"metadata":{"finalizers":null}}`))
			break
		}
	}
}

func cmpErr(err error) error {
	if err == nil {
		return errors.New("it went through")
	}
	return err
}

// byGuard is whether an error is the refusal of a policy.
func byGuard(err error, policy string) bool {
	return err != nil && refused(err) && strings.Contains(err.Error(), "'"+policy)
}

// TestAttacks holds that each attack is refused, changes nothing and is told
// why, and that what is honest is not refused.
func TestAttacks(t *testing.T) {
	t.Parallel()
	if n := len(attacks()); n < 30 {
		t.Errorf("%d attacks", n)
	}
	open := newFixture(t)
	open.installed(nil)
	for name, tc := range attacks() {
		fixture := open
		if _, alone := attacksOnSettings()[name]; alone { // there is one ConfigMap of the name
			fixture = newFixture(t)
			fixture.installed(nil)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := fixture.in(t)
			w.settled(policiesOf(w.ns, guard.ValidatingPolicyObjects(w.options())))
			on := ""
			if tc.given != nil {
				on = tc.given.make(w)
			}
			before := w.resourceVersion(tc.given, on)
			err := tc.attack(w, on)
			if !refused(err) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s: the attack gives %v, want a refusal with %q", tc.reason, err, tc.says)
			}
			if len(tc.opens) > 0 && !byGuard(err, w.ns+"-execution-") {
				t.Errorf("%s: refused, and not by the guard: %v", tc.reason, err)
			}
			if after := w.resourceVersion(tc.given, on); after != before && !strings.Contains(name, "Deleted") {
				t.Errorf("%s: the attack changed the object", tc.reason)
			}
			if err := tc.twin(w, on); err != nil {
				t.Errorf("%s: the honest twin is refused: %v", tc.reason, err)
			}
		})
	}
}

func (w *fixture) resourceVersion(g *given, name string) string {
	w.tb.Helper()
	switch {
	case g == nil:
		return ""
	case g.configMap != "":
		return w.settings(mona).get(name).GetResourceVersion()
	default:
		return w.as(controller).get(name).GetResourceVersion()
	}
}

// TestEveryRuleIsNecessary holds that every rule is what keeps some attack
// away: without it exactly the attacks that name it go through.
func TestEveryRuleIsNecessary(t *testing.T) {
	t.Parallel()
	all := attacks()
	expected := map[string][]string{}
	for name, a := range all {
		for _, rule := range a.opens {
			expected[rule] = append(expected[rule], name)
		}
	}
	list := loosened()
	for rule := range expected {
		if list[rule] == nil {
			t.Errorf("there is no rule %q that %v could name", rule, expected[rule])
		}
	}
	for policy, p := range policiesOf("n", guard.ValidatingPolicyObjects(guard.Options{Namespace: "n"})) {
		if len(p.Spec.Validations) != len(ruleNames()[policy]) {
			t.Errorf("policy %s has %d validations, and names for %v", policy, len(p.Spec.Validations), ruleNames()[policy])
		}
	}
	for rule, loosen := range list {
		fixture := newFixture(t)
		policies := fixture.installed(loosen) // of all of them, before the API server is waited for
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			w := fixture.in(t)
			w.settled(policies)
			w = w.onTrial()
			var through []string
			for _, name := range slices.Sorted(maps.Keys(all)) {
				a, on := all[name], ""
				if !a.concerns(rule) {
					continue
				}
				if a.given != nil {
					on = w.madeOnce(*a.given)
				}
				switch err := a.attack(w, on); {
				case err == nil, apierrors.IsAlreadyExists(err): // the guard comes first
					through = append(through, name)
				case !refused(err):
					t.Errorf("%s: %v", name, err)
				}
			}
			if len(through) == 0 {
				t.Error("nothing goes through without it")
			}
			if diff := cmp.Diff(slices.Sorted(slices.Values(expected[rule])), through); diff != "" {
				t.Errorf("attacks that go through without it: -want +got\n%s", diff)
			}
		})
	}
}

// concerns is whether an attack could go through without a rule: not if it is
// one that another policy refuses.
func (a attack) concerns(rule string) bool {
	policy, _, _ := strings.Cut(rule, "/")
	return len(a.opens) == 0 || policy == "match" || slices.ContainsFunc(a.opens, func(r string) bool { return strings.HasPrefix(r, policy+"/") })
}

// madeOnce is like make, but for a ConfigMap that is there already.
func (w *fixture) madeOnce(g given) string {
	w.tb.Helper()
	if g.configMap != "" {
		_, err := w.settings(mona).objects.Get(w.tb.Context(), g.configMap, metav1.GetOptions{})
		if err == nil {
			return g.configMap
		}
	}
	return g.make(w)
}
