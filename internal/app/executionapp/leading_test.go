package executionapp_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fleetloop/fleetloop/internal/app/executionapp"
	"github.com/fleetloop/fleetloop/internal/processtest"
)

// TestSaysWhoLeads holds that the log says which of two replicas works, from when
// on, and that it works no more: the Lease only knows the last one.
func TestSaysWhoLeads(t *testing.T) {
	t.Parallel()
	namespace, kubeconfig := installNamespace(t)
	start := func() *processtest.RunningCommand {
		return processtest.StartCommandInGoroutine(t, executionapp.NewCommand, nil, "--kubeconfig", kubeconfig, "--namespace", namespace, "--runner-image=runner", "--audit=off", "--admission-policy-propagation-delay=10ms")
	}
	says := func(c *processtest.RunningCommand, leading, over int) error {
		text := c.Stderr.String()
		lease := fmt.Sprintf(`,"lease":%q,"holder":`, namespace+"/fleetloop-execution-controller")
		if l, o := strings.Count(text, `"msg":"leader election won"`+lease), strings.Count(text, `"msg":"leader election lost"`+lease); l != leading || o != over {
			return fmt.Errorf("it says %d times that it leads and %d times that it does no more, want %d and %d:\n%s", l, o, leading, over, text)
		}
		return nil
	}
	first := start()
	processtest.Eventually(t, func() error { return says(first, 1, 0) })
	second := start()
	processtest.EventuallyStatus(t, second.WaitForURLInLog(t, "metrics and health")+"/healthz", 200)
	first.Cancel()
	if err := first.WaitUntilEnded(t); err != nil {
		t.Errorf("told to stop, it ended with %v", err)
	}
	if err := says(first, 1, 1); err != nil {
		t.Error(err)
	}
	processtest.Eventually(t, func() error { return says(second, 1, 0) })
	second.Cancel()
	if err := second.WaitUntilEnded(t); err != nil {
		t.Errorf("told to stop, it ended with %v", err)
	}
	if err := says(second, 1, 1); err != nil {
		t.Error(err)
	}
}
