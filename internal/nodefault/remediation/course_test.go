package remediation

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/janitor/v1alpha1"
	faults "github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
)

func jsonEqual(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

const first, second, third = "gpu-1-s3ss10n0-1", "gpu-1-s3ss10n0-2", "gpu-1-s3ss10n0-3"

// TestCourse tests courses of remediations: the events of a node, and the expected
// requests, records and final state.
func TestCourse(t *testing.T) {
	t.Parallel()
	const reboot, terminate, support = faults.RemedyReboot, faults.RemedyTerminate, faults.RemedySupport
	cases := map[string]course{
		"Helps": {
			reason: "one reboot, after which the fault goes", remedies: []faults.Remedy{reboot, support},
			act: func(w *fixture) {
				w.settle()
				w.accepted()
				w.settle()
				w.boots()
				w.ends(metav1.ConditionTrue, v1alpha1.ReasonSucceeded)
				w.stored.HealthySince = &metav1.Time{Time: w.now}
				w.settle()
			},
			created: []string{"RebootNode " + first},
			told:    []string{"reboot-requested rebootnodes/" + first, "reboot-sent rebootnodes/" + first, "reboot-executed rebootnodes/" + first},
			state:   faults.RemedySucceeded,
		},
		"UnderWay": {
			reason: "a node that reboots is not released, even if its fault is gone", remedies: []faults.Remedy{reboot},
			act: func(w *fixture) {
				w.settle()
				w.stored.HealthySince, w.stored.DesiredActions = &metav1.Time{Time: w.now}, nil
				w.settle()
			},
			created: []string{"RebootNode " + first}, told: []string{"reboot-requested rebootnodes/" + first},
			state: faults.RemedyRunning, busy: true,
		},
		"NotBegunYet": {
			reason: "what was written down and not asked for is dropped when the fault goes", remedies: []faults.Remedy{reboot},
			act: func(w *fixture) {
				w.step()
				w.stored.HealthySince = &metav1.Time{Time: w.now}
				w.settle()
			},
			state: faults.RemedyFailed, message: "not needed",
		},
		"FaultStays": {
			reason: "a reboot that does not help is repeated, and then a person is needed", remedies: []faults.Remedy{reboot, support},
			act: func(w *fixture) {
				for range 2 {
					w.settle()
					w.accepted()
					w.boots()
					w.ends(metav1.ConditionTrue, v1alpha1.ReasonSucceeded)
					w.settle()
					w.now = w.now.Add(11 * time.Minute)
					w.settle()
				}
			},
			created: []string{"RebootNode " + first, "RebootNode " + second},
			told: []string{
				"reboot-requested rebootnodes/" + first, "reboot-sent rebootnodes/" + first, "reboot-executed rebootnodes/" + first,
				"reboot-requested rebootnodes/" + second, "reboot-sent rebootnodes/" + second, "reboot-executed rebootnodes/" + second, "support-required",
			},
			state: faults.RemedyExhausted, message: "did not help",
		},
		"Escalates": {
			reason: "a reboot that is refused for good is not repeated, and the machine is replaced", remedies: []faults.Remedy{reboot, terminate},
			act: func(w *fixture) {
				w.settle()
				w.ends(metav1.ConditionFalse, v1alpha1.ReasonFailed)
				w.settle()
				w.accepted()
				w.settle()
				w.node = nil
				w.settle()
				w.ends(metav1.ConditionTrue, v1alpha1.ReasonSucceeded)
				w.settle()
			},
			created: []string{"RebootNode " + first, "TerminateNode " + second},
			told: []string{
				"reboot-requested rebootnodes/" + first, "reboot-failed rebootnodes/" + first,
				"terminate-requested terminatenodes/" + second, "terminate-sent terminatenodes/" + second, "terminate-executed terminatenodes/" + second,
			},
			state: faults.RemedySucceeded,
		},
		"TimesOut": {
			reason: "a reboot that took too long is repeated, and all were tried at last", remedies: []faults.Remedy{reboot},
			act: func(w *fixture) {
				for range 2 {
					w.settle()
					w.accepted()
					w.ends(metav1.ConditionFalse, v1alpha1.ReasonTimeout)
					w.settle()
				}
			},
			created: []string{"RebootNode " + first, "RebootNode " + second},
			told: []string{
				"reboot-requested rebootnodes/" + first, "reboot-sent rebootnodes/" + first, "reboot-failed rebootnodes/" + first,
				"reboot-requested rebootnodes/" + second, "reboot-sent rebootnodes/" + second, "reboot-failed rebootnodes/" + second, "support-required",
			},
			state: faults.RemedyExhausted, message: "all remedies were tried",
		},
		"NoJanitor": {
			reason: "what nobody carries out is taken back, and counts as tried", cfg: Config{RebootAttempts: 1}, remedies: []faults.Remedy{reboot, support},
			act: func(w *fixture) {
				w.settle()
				w.now = w.now.Add(46 * time.Minute)
				w.settle()
				var left v1alpha1.RebootNodeList
				if err := w.client.List(context.Background(), &left); err != nil || len(left.Items) > 0 { //nolint:usetesting // a closure of the table
					w.Errorf("objects that nobody waits for are left: %d, %v", len(left.Items), err)
				}
			},
			created: []string{"RebootNode " + first},
			told:    []string{"reboot-requested rebootnodes/" + first, "reboot-failed rebootnodes/" + first, "support-required"},
			state:   faults.RemedyExhausted, message: "is a janitor running?",
		},
		"Support": {
			reason: "a fault that needs a person says so once", remedies: []faults.Remedy{support},
			act:   func(w *fixture) { w.settle(); w.now = w.now.Add(time.Hour); w.settle() },
			told:  []string{"support-required"},
			state: faults.RemedyExhausted, message: "manual repair",
		},
		"SupportThenReboot": {
			reason: "another fault that a reboot may mend gets its reboot", remedies: []faults.Remedy{support},
			act: func(w *fixture) {
				w.settle()
				w.stored.DesiredActions.Remedies = []faults.Remedy{reboot, support}
				w.settle()
			},
			created: []string{"RebootNode " + first}, told: []string{"support-required", "reboot-requested rebootnodes/" + first},
			state: faults.RemedyRunning, busy: true,
		},
		"DrainRuns": {
			reason: "nothing is done before the pods have gone", remedies: []faults.Remedy{reboot},
			act: func(w *fixture) { w.stored.Drain.State = faults.DrainRunning; w.settle() },
		},
		"DrainFailed": {
			reason: "pods that would not go are not rebooted away", remedies: []faults.Remedy{reboot},
			act:  func(w *fixture) { w.stored.Drain.State = faults.DrainFailed; w.settle(); w.settle() },
			told: []string{"support-required"}, state: faults.RemedyExhausted, message: "drain failed",
		},
		"DrainMended": {
			reason: "once they have gone it goes on", remedies: []faults.Remedy{reboot},
			act: func(w *fixture) {
				w.stored.Drain.State = faults.DrainFailed
				w.settle()
				w.stored.Drain.State = faults.DrainCompleted
				w.settle()
			},
			created: []string{"RebootNode " + first}, told: []string{"support-required", "reboot-requested rebootnodes/" + first},
			state: faults.RemedyRunning, busy: true,
		},
		"DrainFailedForce": {
			reason: "unless that is wanted", cfg: Config{AfterFailedDrain: true}, remedies: []faults.Remedy{reboot},
			act: func(w *fixture) {
				w.stored.Drain.State = faults.DrainFailed
				w.settle()
				if !w.current().spec.Force {
					w.Errorf("the janitor would wait for pods that never go")
				}
			},
			created: []string{"RebootNode " + first}, told: []string{"reboot-requested rebootnodes/" + first}, state: faults.RemedyRunning, busy: true,
		},
		"DrainFailedSilentWanted": {
			reason: "where that is wanted, pods of a silent kubelet go with a reboot", cfg: Config{RebootUnreachable: true}, remedies: []faults.Remedy{reboot},
			act: func(w *fixture) {
				w.failsSilently(2)
				w.settle()
				if !w.current().spec.Force {
					w.Errorf("the janitor would wait for pods that never go")
				}
			},
			created: []string{"RebootNode " + first}, told: []string{"reboot-requested rebootnodes/" + first}, state: faults.RemedyRunning, busy: true,
		},
		"DrainFailedSilent": {
			reason: "what a silent kubelet runs is not rebooted away", remedies: []faults.Remedy{reboot},
			act:  func(w *fixture) { w.failsSilently(2); w.settle() },
			told: []string{"support-required"}, state: faults.RemedyExhausted, message: "remediation.reboot_unreachable",
		},
		"DrainFailedSilentKept": {
			reason: "a pod that was not even told to go is not rebooted away", cfg: Config{RebootUnreachable: true}, remedies: []faults.Remedy{reboot},
			act:  func(w *fixture) { w.failsSilently(1); w.settle() },
			told: []string{"support-required"}, state: faults.RemedyExhausted, message: "drain failed",
		},
		"SilentRebootFailedThenTerminate": {
			reason: "what permits a reboot permits no termination", cfg: Config{RebootUnreachable: true}, remedies: []faults.Remedy{reboot, terminate},
			act: func(w *fixture) {
				w.failsSilently(2)
				w.settle()
				w.ends(metav1.ConditionFalse, v1alpha1.ReasonFailed)
				w.settle()
			},
			created: []string{"RebootNode " + first},
			told:    []string{"reboot-requested rebootnodes/" + first, "reboot-failed rebootnodes/" + first, "support-required"},
			state:   faults.RemedyExhausted, message: "terminate is not tried, because remediation.after_failed_drain is false",
		},
		"SilentRebootFailedThenSupport": {
			reason: "a person is told that the reboot did not help", cfg: Config{RebootUnreachable: true}, remedies: []faults.Remedy{reboot, support},
			act: func(w *fixture) {
				w.failsSilently(2)
				w.settle()
				w.ends(metav1.ConditionFalse, v1alpha1.ReasonFailed)
				w.settle()
			},
			created: []string{"RebootNode " + first},
			told:    []string{"reboot-requested rebootnodes/" + first, "reboot-failed rebootnodes/" + first, "support-required"},
			state:   faults.RemedyExhausted, message: "did not help",
		},
		"SilentTerminate": {
			reason: "what permits a reboot permits no termination, not even as the first remedy", cfg: Config{RebootUnreachable: true}, remedies: []faults.Remedy{terminate},
			act:  func(w *fixture) { w.failsSilently(2); w.settle(); w.settle() },
			told: []string{"support-required"}, state: faults.RemedyExhausted, message: "or set remediation.after_failed_drain",
		},
		"DryRun": {
			reason: "what is only to be told is not done", remedies: []faults.Remedy{reboot},
			act: func(w *fixture) { w.stored.DesiredActions.DryRun = true; w.settle() },
		},
		"Deleted": {
			reason: "a person who takes a reboot back has ended it", remedies: []faults.Remedy{reboot, terminate},
			act: func(w *fixture) {
				w.settle()
				if err := w.client.Delete(context.Background(), w.current().Object); err != nil { //nolint:usetesting // a closure of the table
					w.Fatalf("%v", err)
				}
				w.settle()
				w.now = w.now.Add(24 * time.Hour)
				w.settle()
			},
			created: []string{"RebootNode " + first}, told: []string{"reboot-requested rebootnodes/" + first, "support-required"},
			state: faults.RemedyExhausted, message: "was deleted",
		},
		"CacheLags": {
			reason: "an object that the cache has still to hear of was not deleted", remedies: []faults.Remedy{reboot},
			act: func(w *fixture) {
				w.settle()
				w.hidden[first] = true
				w.settle()
				w.hidden[first] = false
				w.settle()
			},
			created: []string{"RebootNode " + first}, told: []string{"reboot-requested rebootnodes/" + first}, state: faults.RemedyRunning, busy: true,
		},
		"AnswerLost": {
			reason: "an object whose making was not stored is taken for what it is, and told once", remedies: []faults.Remedy{reboot},
			act: func(w *fixture) {
				w.step()
				w.lose = func() bool { return true }
				w.step()
				w.lose = func() bool { return false }
				w.hidden[first] = true
				w.settle()
				w.hidden[first] = false
				w.settle()
			},
			created: []string{"RebootNode " + first}, told: []string{"reboot-requested rebootnodes/" + first}, state: faults.RemedyRunning, busy: true,
		},
		"Denied": {
			reason: "what may not be made is not told, and says why", remedies: []faults.Remedy{reboot},
			act: func(w *fixture) {
				w.create = func(client.Object) error {
					return apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("rebootnodes").GroupResource(), first, errors.New("a policy says no"))
				}
				w.settle()
			},
			state: faults.RemedyRunning, message: "a policy says no", busy: true,
		},
		"SomebodyElses": {
			reason: "an object of the name that was not made here is left alone, and the next is ours", remedies: []faults.Remedy{reboot},
			act: func(w *fixture) {
				theirs := &v1alpha1.RebootNode{ObjectMeta: metav1.ObjectMeta{Name: first}, Spec: v1alpha1.NodeActionSpec{NodeName: "gpu-1"}}
				if err := w.client.Create(context.Background(), theirs); err != nil { //nolint:usetesting // a closure of the table
					w.Fatalf("%v", err)
				}
				w.settle()
			},
			created: []string{"RebootNode " + second}, told: []string{"reboot-requested rebootnodes/" + second}, state: faults.RemedyRunning, busy: true,
		},
		"NotBelieved": {
			reason: "a janitor that only waits has proven nothing", cfg: Config{RebootAttempts: 1}, remedies: []faults.Remedy{reboot},
			act: func(w *fixture) {
				w.settle()
				w.accepted()
				w.ends(metav1.ConditionTrue, v1alpha1.ReasonSucceeded)
				w.settle()
				if !w.r.BlocksRelease(w.stored) || !strings.Contains(w.stored.Remediation.Message, "unchanged") {
					w.Errorf("it was believed: %+v", w.stored.Remediation)
				}
				w.now = w.now.Add(time.Hour)
				w.settle()
			},
			created: []string{"RebootNode " + first},
			told:    []string{"reboot-requested rebootnodes/" + first, "reboot-sent rebootnodes/" + first, "reboot-failed rebootnodes/" + first, "support-required"},
			state:   faults.RemedyExhausted, message: "unchanged",
		},
		"BootIDLater": {
			reason: "a node that said only later in which boot it is, is held to that, too", cfg: Config{RebootAttempts: 1}, remedies: []faults.Remedy{reboot},
			act: func(w *fixture) {
				w.node.Status.NodeInfo.BootID = ""
				w.settle()
				if w.stored.Remediation.PreviousBootID != "" {
					w.Errorf("the boot before is %q", w.stored.Remediation.PreviousBootID)
				}
				w.node.Status.NodeInfo.BootID = "boot-1"
				w.settle()
				w.accepted()
				w.ends(metav1.ConditionTrue, v1alpha1.ReasonSucceeded)
				w.settle()
				if !w.r.BlocksRelease(w.stored) || !strings.Contains(w.stored.Remediation.Message, "unchanged") {
					w.Errorf("it was believed: %+v", w.stored.Remediation)
				}
				w.boots()
				w.settle()
			},
			created: []string{"RebootNode " + first}, told: []string{"reboot-requested rebootnodes/" + first, "reboot-sent rebootnodes/" + first, "reboot-executed rebootnodes/" + first},
			state: faults.RemedySucceeded, message: "waiting for its faults to disappear",
		},
		"NodeGone": {
			reason: "a node that goes while it reboots ends the attempt", remedies: []faults.Remedy{reboot, terminate},
			act: func(w *fixture) {
				w.settle()
				w.node = nil
				w.ends(metav1.ConditionFalse, v1alpha1.ReasonFailed)
				w.settle()
			},
			created: []string{"RebootNode " + first}, told: []string{"reboot-requested rebootnodes/" + first, "reboot-failed rebootnodes/" + first},
			state: faults.RemedyFailed,
		},
		"Recreated": {
			reason: "another node of the same name is none of this session's", remedies: []faults.Remedy{reboot},
			act:   func(w *fixture) { w.step(); w.node.UID = "another"; w.settle() },
			state: faults.RemedyFailed, message: "deleted",
		},
		"WishChanges": {
			reason: "what the rules wish for by now counts", remedies: []faults.Remedy{reboot, support},
			act: func(w *fixture) {
				w.settle()
				w.accepted()
				w.stored.DesiredActions.Remedies = []faults.Remedy{terminate}
				w.ends(metav1.ConditionFalse, v1alpha1.ReasonTimeout)
				w.settle()
			},
			created: []string{"RebootNode " + first, "TerminateNode " + second},
			told: []string{
				"reboot-requested rebootnodes/" + first, "reboot-sent rebootnodes/" + first, "reboot-failed rebootnodes/" + first,
				"terminate-requested terminatenodes/" + second,
			},
			state: faults.RemedyRunning, busy: true,
		},
		"SomebodyReboots": {
			reason: "a reboot that a person asked for is told as well", remedies: nil,
			act: func(w *fixture) {
				theirs := &v1alpha1.RebootNode{ObjectMeta: metav1.ObjectMeta{Name: "by-hand", UID: "hand"}, Spec: v1alpha1.NodeActionSpec{NodeName: "gpu-1"}}
				if err := w.client.Create(context.Background(), theirs); err != nil { //nolint:usetesting // a closure of the table
					w.Fatalf("%v", err)
				}
				w.settle()
				by := wrapActionObject(theirs)
				by.status.PreviousBootID = w.node.Status.NodeInfo.BootID
				w.says(by, v1alpha1.ConditionSignalSent, metav1.ConditionTrue, v1alpha1.ReasonSucceeded)
				w.settle()
				w.boots()
				w.says(by, v1alpha1.ConditionNodeReady, metav1.ConditionTrue, v1alpha1.ReasonSucceeded)
				w.settle()
			},
			told: []string{"reboot-sent rebootnodes/by-hand", "reboot-executed rebootnodes/by-hand"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.want(t)
		})
	}
}
