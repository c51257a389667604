package guard_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/execution/guard"
)

// stamped is a guarded fixture where names are written.
func stamped(t *testing.T) *fixture {
	t.Helper()
	w := newFixture(t)
	w.install(guard.MutatingPolicyObjects(w.options()))
	w.guarded()
	on, asking, approving := given{}.make(w), w.as(rita), w.as(adam)
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		made, err := asking.objects.Create(ctx, &unstructured.Unstructured{Object: asked(nil)}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && requester(made) != rita {
			err = fmt.Errorf("no name is written yet: %v", made.Object["spec"])
		}
		if err != nil {
			return err
		}
		ticked, err := approving.objects.Patch(ctx, on, "application/merge-patch+json", []byte(`{"spec":{"approvalReceived":true}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && approvalsIn(t, ticked) == nil {
			err = fmt.Errorf("no approver is written yet: %v", ticked.Object["spec"])
		}
		return err
	})
	return w
}

func requester(o *unstructured.Unstructured) string {
	name, _, _ := unstructured.NestedString(o.Object, "spec", "requestedBy") // the schema has a string
	return name
}

func approvalsIn(t *testing.T, o *unstructured.Unstructured) []any {
	t.Helper()
	list, _, err := unstructured.NestedSlice(o.Object, "spec", "approvals")
	must(t, err)
	return list
}

// TestStampedRequester holds that an execution says who asked, and does not say
// it wrongly.
func TestStampedRequester(t *testing.T) {
	t.Parallel()
	w := stamped(t)
	for name, tc := range map[string]struct {
		reason string
		by     string
		spec   map[string]any
		want   string
	}{
		"Nobody":  {"whoever it is from", rita, nil, rita},
		"Empty":   {"is nobody", rita, map[string]any{"requestedBy": ""}, rita},
		"Oneself": {"stays", rita, map[string]any{"requestedBy": rita}, rita},
		"Portal":  {"says for whom it asks", portal, map[string]any{"requestedBy": "jane"}, "jane"},
		"Account": {"is a user, too", robot, nil, w.user(robot)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			made, err := w.in(t).as(tc.by).objects.Create(t.Context(), &unstructured.Unstructured{Object: asked(tc.spec)}, metav1.CreateOptions{})
			must(t, err)
			if requester(made) != tc.want {
				t.Errorf("%s: requestedBy is %q, want %q", tc.reason, requester(made), tc.want)
			}
		})
	}
	if err := w.as(rita).create(asked(map[string]any{"requestedBy": adam})); !apierrors.IsForbidden(err) {
		t.Errorf("in another's name: %v", err)
	}
}

// TestStampedGroups holds that an execution records the groups of who asked, and none
// that the request does not come from.
func TestStampedGroups(t *testing.T) {
	t.Parallel()
	w := stamped(t)
	groups := func(by string, spec map[string]any) ([]string, error) {
		made, err := w.as(by).objects.Create(t.Context(), &unstructured.Unstructured{Object: asked(spec)}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return nil, err
		}
		list, _, err := unstructured.NestedStringSlice(made.Object, "spec", "requesterGroups")
		return list, err
	}
	kubebedtest.Eventually(t, func(context.Context) error {
		got, err := groups(rita, map[string]any{"requestedBy": rita})
		if !slices.Contains(got, "system:authenticated") {
			return fmt.Errorf("the groups are %q: %w", got, err)
		}
		return nil
	})
	if got, err := groups(portal, map[string]any{"requestedBy": "jane"}); len(got) != 0 || err != nil {
		t.Errorf("jane, for whom somebody else asks, has the groups %q: %v", got, err)
	}
	if err := w.as(rita).create(asked(map[string]any{"requestedBy": rita, "requesterGroups": []any{"system:masters"}})); !apierrors.IsForbidden(err) {
		t.Errorf("a group that rita is not in: %v", err)
	}
	if err := w.as(rita).create(asked(map[string]any{"requestedBy": rita, "requesterGroups": []any{"system:authenticated"}})); err != nil {
		t.Errorf("a group that rita is in: %v", err)
	}
}

// TestStampedApprover holds that approvalReceived alone becomes an approval with
// a name and a plan, and that what is refused stays refused.
func TestStampedApprover(t *testing.T) {
	t.Parallel()
	open := stamped(t)
	said := func(person, decision string) any { return entry(person, decision, hash) }
	for name, tc := range map[string]struct {
		reason string
		given  given
		do     try
		want   []any
	}{
		"Tick":           {"the yes has a name", given{}, ticks(adam), []any{said(adam, "Approve")}},
		"TickAfterOther": {"beside the other's", given{approvedBy: map[string]string{anna: "Approve"}}, ticks(adam), []any{said(anna, "Approve"), said(adam, "Approve")}},
		"TickByApply": {"by server-side apply", given{}, func(w *fixture, name string) error {
			return w.as(adam).apply(name, called(name, asked(map[string]any{"approvalReceived": true})))
		}, []any{said(adam, "Approve")}},
		"TickAndApprove": {"the entry is there already", given{}, merges(adam, `{"spec":{"approvalReceived":true,"approvals":[{"approver":"adam","decision":"Reject","planHash":"`+hash+`"}]}}`), []any{said(adam, "Reject")}},
		"TickAfterOwnNo": {"a no stays a no", given{approvedBy: map[string]string{adam: "Reject"}}, ticks(adam), []any{said(adam, "Reject")}},
		"Approve":        {"nothing is to be written", given{}, approves(adam, adam), []any{said(adam, "Approve")}},
		"Label":          {"that is no approval", given{}, merges(adam, `{"metadata":{"labels":{"a":"b"}}}`), nil},
		"Again":          {"somebody labels what somebody else has ticked", given{}, then(ticks(adam), merges(anna, `{"metadata":{"labels":{"a":"b"}}}`)), []any{said(adam, "Approve")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := open.in(t)
			on := tc.given.make(w)
			if err := tc.do(w, on); err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, approvalsIn(t, w.as(controller).get(on))); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
	for name, tc := range map[string]attack{
		"WhoMayNot":   {given: &given{}, attack: ticks(eve)},
		"Requester":   {given: &given{by: rosa, fourEyes: true, anonymous: true}, attack: ticks(rosa)},
		"TooEarly":    {given: &given{phase: "validated"}, attack: ticks(adam)},
		"WithoutPlan": {given: &given{noPlan: true}, attack: ticks(adam)},
		"WrongGroup":  {given: &given{groups: []string{"oncall"}}, attack: ticks(anna)},
		"OthersName":  {given: &given{}, attack: merges(adam, `{"spec":{"approvalReceived":true,"approvals":[{"approver":"anna","decision":"Approve","planHash":"`+hash+`"}]}}`)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := open.in(t)
			if err := tc.attack(w, tc.given.make(w)); !apierrors.IsForbidden(err) {
				t.Errorf("it gives %v, want a refusal", err)
			}
		})
	}
}

// TestStampedCanceller holds that a cancel bears the name of who cancelled, for
// good.
func TestStampedCanceller(t *testing.T) {
	t.Parallel()
	open := stamped(t)
	byApply := func(w *fixture, name string) error {
		return w.as(rita).apply(name, called(name, asked(map[string]any{"requestedBy": rita, "cancel": true})))
	}
	for name, tc := range map[string]struct {
		reason string
		do     try
		want   string
	}{
		"Cancel":         {"it is written", merges(adam, `{"spec":{"cancel":true}}`), adam},
		"InOnesOwnName":  {"it stays", merges(rita, `{"spec":{"cancel":true,"cancelledBy":"rita"}}`), rita},
		"Finalize":       {"nobody has cancelled", merges(adam, `{"spec":{"finalize":true}}`), ""},
		"ByApply":        {"a manifest that is applied once more says nothing new", then(byApply, byApply), rita},
		"Twice":          {"the first counts", then(merges(adam, `{"spec":{"cancel":true}}`), merges(rita, `{"spec":{"cancel":true}}`)), adam},
		"LabelledBeside": {"and others may go on with what is no cancel", then(merges(adam, `{"spec":{"cancel":true}}`), merges(walt, `{"metadata":{"labels":{"a":"b"}}}`)), adam},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := open.in(t)
			on := given{}.make(w)
			if err := tc.do(w, on); err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			who, _, _ := unstructured.NestedString(w.as(controller).get(on).Object, "spec", "cancelledBy") // the schema has a string
			if who != tc.want {
				t.Errorf("%s: it was cancelled by %q, want %q", tc.reason, who, tc.want)
			}
		})
	}
	for name, change := range map[string]string{"Renamed": `{"spec":{"cancelledBy":"rita"}}`, "Erased": `{"spec":{"cancelledBy":null}}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := open.in(t)
			on := given{}.make(w)
			must(t, merges(adam, `{"spec":{"cancel":true}}`)(w, on))
			if err := merges(rita, change)(w, on); !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
				t.Errorf("who cancelled is changed: %v", err)
			}
		})
	}
}
