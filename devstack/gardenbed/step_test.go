package gardenbed

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// now returns the time of all steps.
func now() time.Time { return time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC) }

// newShoot returns a Shoot that no controller has handled.
func newShoot() *unstructured.Unstructured {
	s := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"hibernated": false}}}
	s.SetName("s")
	s.SetNamespace("garden-p")
	s.SetUID("u")
	s.SetGeneration(1)
	return s
}

// walk performs steps until there is no further one, and records each.
func walk(t *testing.T, s *unstructured.Unstructured, f Fault) (*unstructured.Unstructured, []string) {
	t.Helper()
	var told []string
	for range 20 {
		next, part := advanceState(s, f, now())
		switch part {
		case nothing:
			return s, told
		case metadata:
			told = append(told, fmt.Sprintf("finalizers %v", next.GetFinalizers()))
		case status:
			op := readOperation(next)
			told = append(told, fmt.Sprintf("%s %s %d of %d, nodes %q", op.kind, op.state, op.progress, op.generation, findNodesStatus(next)))
		}
		s = next
	}
	t.Fatalf("it does not end: %s", strings.Join(told, "\n"))
	return nil, nil
}

// finished returns a Shoot whose creation is complete.
func finished(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	s, _ := walk(t, newShoot(), None)
	return s
}

func TestSteps(t *testing.T) {
	t.Parallel()
	edited := func(s *unstructured.Unstructured) *unstructured.Unstructured {
		s.SetGeneration(s.GetGeneration() + 1)
		return s
	}
	deleted := func(s *unstructured.Unstructured) *unstructured.Unstructured {
		at := metav1.NewTime(now())
		s.SetDeletionTimestamp(&at)
		return edited(s)
	}
	faulty := func(s *unstructured.Unstructured, f Fault) *unstructured.Unstructured {
		s, _ = walk(t, s, f)
		return s
	}
	cases := map[string]struct {
		reason string
		shoot  *unstructured.Unstructured
		fault  Fault
		want   []string
	}{
		"Create": {reason: "the finalizer comes first", shoot: newShoot(), want: []string{
			"finalizers [gardener]", `Create Pending 0 of 1, nodes "Progressing"`, `Create Processing 0 of 1, nodes "Progressing"`,
			`Create Processing 25 of 1, nodes "Progressing"`, `Create Processing 50 of 1, nodes "Progressing"`,
			`Create Processing 75 of 1, nodes "Progressing"`, `Create Succeeded 100 of 1, nodes "True"`,
		}},
		"Done": {reason: "there is nothing to do", shoot: finished(t)},
		"Reconcile": {reason: "each generation is an operation, and health stays meanwhile", shoot: edited(finished(t)), want: []string{
			`Reconcile Pending 0 of 2, nodes "True"`, `Reconcile Processing 0 of 2, nodes "True"`, `Reconcile Processing 25 of 2, nodes "True"`,
			`Reconcile Processing 50 of 2, nodes "True"`, `Reconcile Processing 75 of 2, nodes "True"`, `Reconcile Succeeded 100 of 2, nodes "True"`,
		}},
		"Delete": {reason: "the finalizer goes last, after success", shoot: deleted(finished(t)), want: []string{
			`Delete Pending 0 of 2, nodes "True"`, `Delete Processing 0 of 2, nodes "True"`, `Delete Processing 25 of 2, nodes "True"`,
			`Delete Processing 50 of 2, nodes "True"`, `Delete Processing 75 of 2, nodes "True"`, `Delete Succeeded 100 of 2, nodes "True"`,
			"finalizers []",
		}},
		"NotOurs": {reason: "another's finalizer holds it", shoot: deleted(newShoot())},
		"Error": {reason: "it stays as long as the fault does", shoot: edited(finished(t)), fault: Error, want: []string{
			`Reconcile Pending 0 of 2, nodes "True"`, `Reconcile Processing 0 of 2, nodes "True"`, `Reconcile Processing 25 of 2, nodes "True"`,
			`Reconcile Processing 50 of 2, nodes "True"`, `Reconcile Error 50 of 2, nodes "True"`,
		}},
		"Recovery": {reason: "the operation goes on where it was", shoot: faulty(edited(finished(t)), Error), want: []string{
			`Reconcile Processing 50 of 2, nodes "True"`, `Reconcile Processing 75 of 2, nodes "True"`, `Reconcile Succeeded 100 of 2, nodes "True"`,
		}},
		"Failed": {reason: "it was given up", shoot: faulty(newShoot(), Failed)},
		"Retry": {reason: "a creation is that until it has succeeded", shoot: edited(faulty(newShoot(), Failed)), want: []string{
			`Create Pending 0 of 2, nodes "Progressing"`, `Create Processing 0 of 2, nodes "Progressing"`,
			`Create Processing 25 of 2, nodes "Progressing"`, `Create Processing 50 of 2, nodes "Progressing"`,
			`Create Processing 75 of 2, nodes "Progressing"`, `Create Succeeded 100 of 2, nodes "True"`,
		}},
		"Stuck":   {reason: "it goes no further", shoot: faulty(newShoot(), Stuck), fault: Stuck},
		"Loose":   {reason: "and then it does", shoot: faulty(newShoot(), Stuck), want: []string{`Create Processing 75 of 1, nodes "Progressing"`, `Create Succeeded 100 of 1, nodes "True"`}},
		"Ill":     {reason: "nodes went", shoot: finished(t), fault: Unhealthy, want: []string{`Create Succeeded 100 of 1, nodes "False"`}},
		"Healthy": {reason: "nodes are back", shoot: faulty(finished(t), Unhealthy), want: []string{`Create Succeeded 100 of 1, nodes "True"`}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, got := walk(t, tc.shoot, tc.fault)
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
		})
	}
}

// TestLastErrors covers that errors stay until the operation has succeeded.
func TestLastErrors(t *testing.T) {
	t.Parallel()
	codes := func(s *unstructured.Unstructured) string {
		list, _, _ := unstructured.NestedSlice(s.Object, "status", "lastErrors")
		return fmt.Sprint(list)
	}
	for f, want := range map[Fault]string{Error: "ERR_INFRA_QUOTA_EXCEEDED", Failed: "ERR_CONFIGURATION_PROBLEM"} {
		s, _ := walk(t, newShoot(), f)
		if got := codes(s); !strings.Contains(got, want) {
			t.Errorf("with %s the errors are %s, want %s", f, got, want)
		}
		s.SetGeneration(2)
		if s, _ = walk(t, s, None); codes(s) != "[]" {
			t.Errorf("after success the errors are %s", codes(s))
		}
	}
}
