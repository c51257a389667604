package crash

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/execution/audit"
	"github.com/fleetloop/fleetloop/test/execution/fleettest"
)

// Somebody deletes an execution when its controller has died, at each write. The
// next controller begins nothing, says of what was begun what became of it, leaves
// no Job behind, and holds the target for nobody: it is the same for all.
func TestDeletedAtEachWrite(t *testing.T) {
	t.Parallel()
	diesAtEach(t, (*lane).removed, courseOf("job"), courseOf("inline"), courseOf("trial"))
}

// removed has an execution go its way until the controller dies, and be deleted
// then.
func (l *lane) removed(at point) {
	l.Helper()
	name := fmt.Sprintf("%s-%d", at.mode(), at.n)
	// The next but one has the same target, and waits for ever if that is held
	// for one that is gone. The very next may find that it is held for a moment.
	l.turn++
	target := fmt.Sprintf("web-%d", l.turn%2)
	l.restore(target)
	l.way.arm(name, at, l.course.writes, l.Controller().Kill)
	l.ask(name, target)
	l.dies(name)
	writes, struck, made := l.way.seen()
	defer func() {
		if l.Failed() {
			l.Errorf("that was execution %q, deleted after a death at %q; it had the writes %q", name, struck, writes)
		}
	}()
	l.wantDeath(at, writes, struck)
	if struck == "" {
		return
	}
	l.Until(func() error { // it may still be on its way out
		select {
		case <-l.Controller().Ended():
			return nil
		default:
			return errors.New("it lives")
		}
	})
	ke := l.GetExecution(name)
	if err := l.Client.Delete(l.Context(), ke); err != nil {
		l.Fatal(err)
	}
	l.StartController()
	l.Until(func() error {
		if err := l.Client.Get(l.Context(), client.ObjectKeyFromObject(ke), ke.DeepCopy()); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is still there (%w)", err)
		}
		if jobs, pods := l.ListExecutionJobs(name), l.ListExecutionPods(name); len(jobs)+len(pods) > 0 {
			return fmt.Errorf("it has left %d Jobs and %d Pods", len(jobs), len(pods))
		}
		return nil
	})
	if _, _, then := l.way.seen(); then != made {
		l.Errorf("there were %d effects when it was deleted, and %d afterwards", made, then)
	}
	l.checkRemoved(ke, target)
}

// restore makes the target be as it was.
func (l *lane) restore(target string) {
	l.Helper()
	key := client.ObjectKey{Namespace: l.targets(), Name: target}
	err := l.Client.Get(l.Context(), key, &appsv1.Deployment{})
	switch {
	case apierrors.IsNotFound(err):
		l.CreateDeploymentAndAwaitObserved(key.Namespace, key.Name, 3)
	case err != nil:
		l.Fatal(err)
	default:
		l.PatchDeploymentAndAwaitObserved(key.Namespace, key.Name, `{"spec":{"replicas":3}}`)
	}
}

// dies does what people do for an execution until its controller has died, or
// nothing more is written.
func (l *lane) dies(name string) {
	l.Helper()
	approved, finalized := false, false
	l.Until(func() error {
		ke := l.GetExecution(name)
		select {
		case <-l.Controller().Ended():
			return nil
		default:
		}
		switch {
		case ke.Status.Phase == v1alpha1.PhaseWaitingApproval && !approved:
			approved = true
			l.WantCommand(fleettest.Approver, cli.CodeOK, []string{"approve", name, "--yes"})
		case ke.Status.Phase == v1alpha1.PhaseRollbackReady && !finalized:
			finalized = true
			l.WantCommand(fleettest.Requester, cli.CodeOK, []string{"exec", "finalize", name})
		}
		return over(ke)
	})
}

// checkRemoved holds that the audit says of an execution that is gone what became
// of its target.
func (l *lane) checkRemoved(ke *v1alpha1.KubernetesExecution, target string) {
	l.Helper()
	said := l.parted(ke)
	_, began := said[audit.Started]
	result, ended := said[audit.Result]
	before, after := l.course.replicas()
	replicas := *l.GetDeployment(l.targets(), target).Spec.Replicas
	unknown := bytes.Contains(said[audit.Failed].Payload, []byte(`"`+v1alpha1.DetailResultUnknown+`"`))
	switch {
	case !began && !ended && replicas == before: // nothing was done
	case began && ended && result.Outcome == string(v1alpha1.OutcomeSucceeded) && replicas == after:
	case began && ended && result.Outcome == string(v1alpha1.OutcomeFailed) && (l.course.inline && unknown || replicas == before):
	default:
		l.Errorf("the target has %d replicas, and the audit says that it began (%t) and came to an end (%t) as %q (unknown: %t)", replicas, began, ended, result.Outcome, unknown)
	}
}

// parted waits until the audit says that an execution was deleted, if it has
// anything of it and no end, and gives what it says. Who is held goes only after
// that; of who is not, the next controller has to find that it went.
func (l *lane) parted(ke *v1alpha1.KubernetesExecution) map[audit.Type]audit.Event {
	l.Helper()
	said := map[audit.Type]audit.Event{}
	l.Until(func() error {
		clear(said)
		events := l.ListAuditTrail(l.audit, ke)
		for i := range events {
			e := &events[i]
			if _, twice := said[e.Type]; twice {
				return fmt.Errorf("the audit says %s twice", e.Type)
			}
			said[e.Type] = *e
		}
		held := slices.Contains(ke.Finalizers, v1alpha1.Finalizer)
		_, deleted := said[audit.Deleted]
		_, over := said[audit.Finalized]
		_, failed := said[audit.Failed]
		if !deleted && (held || len(events) > 0 && !over && !failed) {
			return fmt.Errorf("the audit says nothing of its deletion among %d things, and it was %q and held by %q", len(events), ke.Status.Phase, ke.Finalizers)
		}
		return nil
	})
	return said
}
