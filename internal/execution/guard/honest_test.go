package guard_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
)

// TestCollectedWithTheParent holds that the garbage collector, with no more
// rights than it has anywhere, takes an execution with its parent, or leaves it
// without one where it was told so.
func TestCollectedWithTheParent(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason  string
		how     metav1.DeletionPropagation
		orphans bool
	}{
		"Background": {"the parent first", metav1.DeletePropagationBackground, false},
		"Foreground": {"the parent last: the collector takes blockOwnerDeletion into account", metav1.DeletePropagationForeground, false},
		"Orphan":     {"the collector takes the owner off", metav1.DeletePropagationOrphan, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			w.guarded()
			w.parent.BlockOwnerDeletion = new(true)
			awaitCollector(w)
			on := given{owner: true}.make(w)
			us := w.as(controller)
			must(t, w.admin.CoreV1().ConfigMaps(w.ns).Delete(t.Context(), w.parent.Name, metav1.DeleteOptions{PropagationPolicy: &tc.how}))
			kubebedtest.Eventually(t, func(ctx context.Context) error {
				_, err := w.admin.CoreV1().ConfigMaps(w.ns).Get(ctx, w.parent.Name, metav1.GetOptions{})
				if !apierrors.IsNotFound(err) {
					return fmt.Errorf("%s: the parent is there: %w", tc.reason, cmpErr(err))
				}
				o, err := us.objects.Get(ctx, on, metav1.GetOptions{})
				switch {
				case tc.orphans && err == nil && len(o.GetOwnerReferences()) == 0, !tc.orphans && apierrors.IsNotFound(err):
					return nil
				default:
					return fmt.Errorf("%s: the execution: %w", tc.reason, cmpErr(err))
				}
			})
		})
	}
}

// awaitCollector waits until the garbage collector knows executions: what it
// does not know it neither takes nor leaves.
func awaitCollector(w *fixture) {
	w.tb.Helper()
	nobody := w.parent
	nobody.Name, nobody.UID = "nobody", "11111111-2222-3333-4444-555555555555"
	on, us := given{}.make(w), w.as(controller)
	must(w.tb, w.as(rita).merge(on, text(w.tb, map[string]any{"metadata": map[string]any{"ownerReferences": []metav1.OwnerReference{nobody}}})))
	kubebedtest.Eventually(w.tb, func(ctx context.Context) error {
		_, err := us.objects.Get(ctx, on, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("the garbage collector ignores at executions: %w", cmpErr(err))
	})
}

// TestNamespaceGoes holds that a namespace can be deleted with executions and
// with the settings that it has.
func TestNamespaceGoes(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.guarded()
	given{}.make(w)
	given{configMap: "safety-policies"}.make(w)
	given{configMap: "emergency-stop"}.make(w)
	namespaces := w.admin.CoreV1().Namespaces()
	must(t, namespaces.Delete(t.Context(), w.ns, metav1.DeleteOptions{}))
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		ns, err := namespaces.Get(ctx, w.ns, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %w: %v", cmpErr(err), ns.Status.Conditions)
	})
}

// TestNotHindered holds that what executions need every day is not refused.
func TestNotHindered(t *testing.T) {
	t.Parallel()
	open := newFixture(t)
	open.guarded()
	kubectl := func(person string, args ...string) try {
		return func(w *fixture, name string) error {
			args := append([]string{"-n", w.ns, "--as=" + person}, args...)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "NAME", name)
			}
			_, err := kubebedtest.Bed(w.tb).Kubectl(w.tb.Context(), args...)
			return err
		}
	}
	for name, tc := range map[string]struct {
		reason string
		given  given
		do     try
	}{
		"Label":    {"for those who look", given{}, kubectl(walt, "label", "kexec", "NAME", "team=a")},
		"Annotate": {"likewise", given{}, kubectl(walt, "annotate", "kexec", "NAME", "note=a")},
		"LabelAnOldOne": {
			"in any phase, approved or not",
			given{phase: "completed", approvedBy: nil},
			kubectl(walt, "label", "kexec", "NAME", "team=a"),
		},
		"LabelAnApprovedOne": {"it was approved by somebody else", given{approvedBy: map[string]string{adam: "Approve"}}, kubectl(walt, "label", "kexec", "NAME", "team=a")},
		"Tick":               {"the way of the specification", given{}, kubectl(adam, "patch", "kexec", "NAME", "--type=merge", "-p", `{"spec":{"approvalReceived":true}}`)},
		"TickTwice":          {"the second time nothing changes", given{}, then(ticks(adam), ticks(eve))},
		"ApproveAndTick":     {"in one request", given{}, merges(adam, `{"spec":{"approvalReceived":true,"approvals":[{"approver":"adam","decision":"Approve","planHash":"`+hash+`"}]}}`)},
		"OneAfterAnother": {"a quorum", given{}, then(approves(adam, adam), func(w *fixture, name string) error {
			return w.as(rosa).patch(name, another(text(w.tb, entry(rosa, "Approve", hash))))
		})},
		"Finalize": {"whoever asked, such as a parent", given{phase: "rollback_ready"}, merges(rita, `{"spec":{"finalize":true}}`)},
		"Cancel":   {"whoever may approve may stop", given{phase: "executing"}, merges(adam, `{"spec":{"cancel":true}}`)},
		"Delete":   {"the requester deletes it, if the roles allow that", given{}, func(w *fixture, name string) error { return w.as(rita).remove(name) }},
		"Finalizer": {"the controller puts its own on, and takes it off", given{}, then(
			merges(controller, `{"metadata":{"finalizers":["`+v1alpha1.Finalizer+`"]}}`), merges(controller, `{"metadata":{"finalizers":null}}`))},
		"OtherFinalizer": {"the requester has one, which others may take off", given{finalizer: true}, then(
			merges(rita, `{"metadata":{"finalizers":["example.com/mine","`+v1alpha1.Finalizer+`"]}}`), merges(eve, `{"metadata":{"finalizers":["`+v1alpha1.Finalizer+`"]}}`))},
		"StatusByApply": {"one write for each transition", given{}, func(w *fixture, name string) error {
			return w.as(controller).apply(name, called(name, map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.Kind, "status": given{}.status("executing")}), "status")
		}},
		"BornWithAnOwner": {"a parent sets itself as owner", given{owner: true}, merges(walt, `{"metadata":{"labels":{"team":"a"}}}`)},
		"OtherConfigMap":  {"whatever else is in the namespace", given{}, func(w *fixture, _ string) error { return w.settings(pete).create(configMap("other")) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := open.in(t)
			if err := tc.do(w, tc.given.make(w)); err != nil {
				t.Errorf("%s: %v", tc.reason, err)
			}
		})
	}
}

// TestPartsThatAreNotWritten holds that each way of writing changes its own part
// of an execution, so that nobody passes one check by way of the other.
func TestPartsThatAreNotWritten(t *testing.T) {
	t.Parallel()
	open := newFixture(t)
	open.guarded()
	approved := map[string]any{"approvals": []any{entry(adam, "Approve", hash)}, "approvalReceived": true}
	for name, tc := range map[string]struct {
		reason string
		do     try
		part   []string
	}{
		"SpecByStatus": {"with the status the controller writes no approval", func(w *fixture, name string) error {
			return w.as(controller).merge(name, text(w.tb, map[string]any{"spec": approved, "status": map[string]any{"message": "x"}}), "status")
		}, []string{"spec"}},
		"SpecByStatusAsAWhole": {"nor with all of it", func(w *fixture, name string) error {
			return w.as(controller).put(name, approvedBy(adam), "status")
		}, []string{"spec"}},
		"OwnersByStatus": {"nor an owner", func(w *fixture, name string) error {
			return w.as(controller).put(name, func(o *unstructured.Unstructured) { o.SetOwnerReferences([]metav1.OwnerReference{w.parent}) }, "status")
		}, []string{"metadata", "ownerReferences"}},
		"StatusBySpec":         {"who writes executions writes no status", merges(eve, `{"status":{"phase":"completed"},"metadata":{"labels":{"a":"b"}}}`), []string{"status"}},
		"StatusBySpecAsAWhole": {"nor with all of it", func(w *fixture, name string) error { return w.as(eve).put(name, executing) }, []string{"status"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := open.in(t)
			on := given{}.make(w)
			part := func() string {
				v, _, err := unstructured.NestedFieldCopy(w.as(controller).get(on).Object, tc.part...)
				must(t, err)
				if m, ok := v.(map[string]any); ok {
					delete(m, "message")
				}
				return text(t, v)
			}
			before := part()
			must(t, tc.do(w, on))
			if after := part(); after != before {
				t.Errorf("%s: %s changed from %s to %s", tc.reason, tc.part, before, after)
			}
		})
	}
	t.Run("StatusAtCreation", func(t *testing.T) {
		t.Parallel()
		w := open.in(t)
		o := called("born-completed", asked(nil))
		o["status"] = given{}.status("completed")
		must(t, w.as(rita).create(o))
		if status, has := w.as(rita).get("born-completed").Object["status"]; has {
			t.Errorf("it is born with the status %v", status)
		}
	})
	t.Run("OtherParts", func(t *testing.T) {
		t.Parallel()
		w := open.in(t)
		on := given{}.make(w)
		if err := w.as(eve).merge(on, `{"spec":{"replicas":3}}`, "scale"); !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
			t.Errorf("there is no scale of an execution: %v", err)
		}
	})
}

// TestElsewhere holds that executions of other namespaces are none of the
// guard's: the controller does not look at them.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.guarded()
	create := on(executions, "create")
	w.grant(w.other, rita, create)
	w.granted(w.other, rita, create)
	elsewhere := hand{w, w.client(rita).Resource(resourceOf("v1alpha1")).Namespace(w.other), nil}
	if err := elsewhere.create(asked(approvalsOf(w, adam))); err != nil {
		t.Error(err)
	}
	if _, err := w.admin.CoreV1().ConfigMaps(w.other).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "emergency-stop"}}, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
}
