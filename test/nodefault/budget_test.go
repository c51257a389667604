package nodefault

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/test/nodefault/faulttest"
)

// TestBudget verifies that the number of nodes out of service never exceeds the budget,
// also after a restart. Other faulty nodes wait, and follow one by one as nodes recover.
func TestBudget(t *testing.T) {
	const all = 20
	c := faulttest.UseSharedCluster(t)
	book := c.StartNodeStateLog()
	p := c.StartController(tenPercent())
	waiting, faults := map[string]bool{}, map[string]faulttest.Report{}
	for i := range all {
		name := fmt.Sprintf("node-%02d", i)
		c.CreateReadyNode(name, nil)
		waiting[name], faults[name] = true, faulttest.Fatal(name, "disk")
	}
	for _, fault := range faults {
		c.Report(fault)
	}
	for name := range faults {
		f := c.AwaitFault(name, "a node that is taken, or waits", func(f *v1alpha1.NodeFault) bool {
			return f.Status.Phase == v1alpha1.PhaseQuarantined || f.Status.Phase == v1alpha1.PhasePending
		})
		if f.Status.Phase == v1alpha1.PhaseQuarantined {
			delete(waiting, name)
			continue
		}
		denied := meta.FindStatusCondition(f.Status.Conditions, v1alpha1.ConditionBudgetDenied)
		if denied == nil || denied.Status != "True" || !strings.Contains(f.Status.Message, "2 of") {
			t.Errorf("node %q waits, and does not say why: %q %+v", name, f.Status.Message, denied)
		}
	}
	if len(waiting) != all-most {
		t.Fatalf("%d nodes wait, want %d", len(waiting), all-most)
	}

	healed := map[string]bool{}
	for len(healed) < all {
		if n := len(healed); n == 5 || n == 12 {
			p.Kill()
			p = c.StartController(tenPercent())
		}
		next := nextCordoned(t, c, faults, healed)
		c.Report(faults[next].Healthy())
		healed[next] = true
	}
	for name := range faults {
		c.AwaitPhase(name, v1alpha1.PhaseHealthy)
		c.Sink.AwaitActions(t, name, "cordon drain-completed uncordon")
		if got := book.Of(c.GetNode(name)); got != "open cordoned open" {
			t.Errorf("node %q was %s", name, got)
		}
	}
	if got := book.Most(); got != most {
		t.Errorf("%d nodes were out of service at the same time, want %d", got, most)
	}
}

// most is ten percent of the nodes.
const most = 2

func tenPercent() map[string]string {
	return map[string]string{
		"NODE_FAULT_BUDGET_MAX_PERCENT": "10", "NODE_FAULT_HEALTHY_FOR": "1ms", "NODE_FAULT_INTAKE_RATE": "10000",
	}
}

// nextCordoned returns a node that is out of service and still faulty. After the first
// one, monitors report the waiting nodes again, which triggers a reconcile at once.
func nextCordoned(t *testing.T, c *faulttest.Cluster, faults map[string]faulttest.Report, healed map[string]bool) (next string) {
	t.Helper()
	looks := 0
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		var list v1alpha1.NodeFaultList
		if err := c.Client.List(ctx, &list); err != nil {
			return err
		}
		var waits string
		for i := range list.Items {
			f := &list.Items[i]
			if healed[f.Name] {
				continue
			}
			if d := f.Status.Drain; f.Status.Phase == v1alpha1.PhaseQuarantined && d != nil && d.State == v1alpha1.DrainCompleted {
				next = f.Name
				return nil
			}
			waits = f.Name
		}
		if len(healed) <= most { // the first must follow without a report
			return errNone
		}
		looks++
		fault := faults[waits]
		fault.Message = fmt.Sprintf("found %d times", looks)
		return errors.Join(errNone, c.PostHealthEvent(ctx, fault))
	})
	return next
}

var errNone = errors.New("no faulty node is cordoned")

// TestRateOutlivesTheController verifies that the rate limit holds after a restart, also
// if the last node is back in service.
func TestRateOutlivesTheController(t *testing.T) {
	c := faulttest.UseSharedCluster(t)
	env := map[string]string{"NODE_FAULT_BUDGET_WINDOW": "1h", "NODE_FAULT_BUDGET_WINDOW_MIN_ALLOWED_NODES": "2"}
	p := c.StartController(env)
	for _, name := range []string{"node-back", "node-undone", "node-next"} {
		c.CreateReadyNode(name, nil)
	}
	for _, name := range []string{"node-back", "node-undone"} {
		c.Report(faulttest.Fatal(name, "disk"))
		drained(c, name)
	}
	c.Report(faulttest.Fatal("node-back", "disk").Healthy())
	c.AwaitPhase("node-back", v1alpha1.PhaseHealthy)
	c.PatchNodeWithRetry("node-undone", uncordon)
	c.AwaitPhase("node-undone", v1alpha1.PhaseOverridden)
	p.Kill()
	c.StartController(env)
	c.Report(faulttest.Fatal("node-next", "disk"))
	f := c.AwaitFault("node-next", "a node that is taken, or waits", func(f *v1alpha1.NodeFault) bool { return f.Status.Phase != "" })
	if f.Status.Phase != v1alpha1.PhasePending || !strings.Contains(f.Status.Message, "2 nodes of the cluster were taken out of service within 1h") {
		t.Errorf("it is %s: %s", f.Status.Phase, f.Status.Message)
	}
	wantNode(t, c, "node-next", false, false)
}
