package execution

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/execution/audit"
	"github.com/fleetloop/fleetloop/test/execution/fleettest"
)

// Whoever deletes an execution that does nothing waits for nobody, and the audit
// says that it was deleted: at once where a controller is there, and else when the
// next one comes.
func TestDeletedWhileItDoesNothing(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleettest.Options{})
	book := f.OpenAudit()
	waits := func(name string) *v1alpha1.KubernetesExecution {
		t.Helper()
		f.CreateDeploymentAndAwaitObserved(f.Dear, name, 3)
		f.WantCommand(alice, cli.CodeOK, fleettest.Scale(f.Dear, name, 5, "--name="+name))
		ke := f.AwaitPhase(name, v1alpha1.PhaseWaitingApproval)
		tells(f, book, ke, audit.ApprovalRequested)
		if len(ke.Finalizers) > 0 {
			t.Fatalf("it is held by %q", ke.Finalizers)
		}
		return ke
	}
	seen, unseen, stays := waits("seen"), waits("unseen"), waits("stays")
	deletes(f, seen)
	if e := tells(f, book, seen, audit.Deleted); strings.Contains(string(e.Payload), "unseen") {
		t.Errorf("the end that it was told of is %s", e.Payload)
	}
	f.Controller().Kill()
	deletes(f, unseen)
	f.StartController("--leader-elect=false") // the Lease of the dead is not what this is about
	if e := tells(f, book, unseen, audit.Deleted); !strings.Contains(string(e.Payload), `"unseen": true`) {
		t.Errorf("the end that nobody saw is %s", e.Payload)
	}
	for _, e := range f.ListAuditTrail(book, stays) {
		if e.Type == audit.Deleted {
			t.Errorf("the audit says that one was deleted that is there: %+v", e)
		}
	}
	f.WantAuditIntact(book)
}

// deletes deletes an execution, which is gone then.
func deletes(f *fleettest.Fleet, ke *v1alpha1.KubernetesExecution) {
	f.Helper()
	if err := f.Client.Delete(f.Context(), ke); err != nil {
		f.Fatal(err)
	}
	if err := f.Client.Get(f.Context(), client.ObjectKeyFromObject(ke), ke.DeepCopy()); !apierrors.IsNotFound(err) {
		f.Fatalf("it is still there (%v)", err)
	}
}

// tells waits until the last that the audit says of an execution is of a type.
func tells(f *fleettest.Fleet, book *audit.PostgresStore, ke *v1alpha1.KubernetesExecution, last audit.Type) audit.Event {
	f.Helper()
	var e audit.Event
	f.Until(func() error {
		trail := f.ListAuditTrail(book, ke)
		if len(trail) == 0 {
			return errors.New("the audit says nothing")
		}
		if e = trail[len(trail)-1]; e.Type != last {
			return fmt.Errorf("the last that the audit says is %s, want %s", e.Type, last)
		}
		return nil
	})
	return e
}
