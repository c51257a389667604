package quarantine_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault/quarantine"
)

// An owner's case is what somebody does, and what stands on the node and was
// told in the end.
type ownership struct {
	reason string
	do     func(w *world)
	on     []string
	told   []string
	why    quarantine.Situation
	act    bool
}

// quarantined has a node taken for one fault.
func quarantined(w *world, checks ...string) {
	w.t.Helper()
	w.fault(checks...)
	if s := w.settle(); !s.Act {
		w.t.Fatalf("not in quarantine: %+v", s)
	}
	w.pass(time.Minute)
}

// recovers has all faults go and the time pass that it takes.
func recovers(w *world) {
	w.t.Helper()
	w.heal()
	w.settle()
	w.pass(healthyFor)
}

func ownershipMatrix() map[string]ownership {
	return map[string]ownership{
		"Cordon": {
			reason: "one write takes the node, marks it and is told",
			do:     func(w *world) { quarantined(w, "both") },
			on:     []string{"cordoned", "sick=gpu:NoSchedule", "worse:NoExecute", "owned", "state=quarantined"},
			told:   []string{"cordon"}, why: quarantine.Ours, act: true,
		},
		"Recovery": {
			reason: "exactly what is ours is taken off",
			do: func(w *world) {
				w.taint("theirs=x:NoSchedule")
				quarantined(w, "both")
				recovers(w)
			},
			on: []string{"theirs=x:NoSchedule", "released"}, told: []string{"cordon", "uncordon"}, why: quarantine.Released,
		},
		"RecoveryHasToLast": {
			reason: "a fault that comes and goes does not have the node come and go",
			do: func(w *world) {
				quarantined(w, "cordon")
				w.heal()
				w.settle()
				w.pass(healthyFor - time.Second)
			},
			on: []string{"cordoned", "owned", "state=recovering"}, told: []string{"cordon"}, why: quarantine.Recovering,
		},
		"FaultComesBack": {
			reason: "the wait begins anew, and the session goes on",
			do: func(w *world) {
				quarantined(w, "cordon")
				w.heal()
				w.settle()
				w.pass(healthyFor - time.Second)
				quarantined(w, "cordon")
				w.heal()
				w.settle()
				w.pass(2 * time.Second)
			},
			on: []string{"cordoned", "owned", "state=recovering"}, told: []string{"cordon"}, why: quarantine.Recovering,
		},
		"CordonedBefore": {
			reason: "a cordon that was there is not ours, and stays after recovery",
			do: func(w *world) {
				w.cordon()
				quarantined(w, "both")
				recovers(w)
			},
			on: []string{"cordoned", "released"}, why: quarantine.Released,
		},
		"CordonedBeforeWhileSick": {
			reason: "taints and the mark are added, and the node counts as in quarantine",
			do: func(w *world) {
				w.cordon()
				quarantined(w, "both")
			},
			on:  []string{"cordoned", "sick=gpu:NoSchedule", "worse:NoExecute", "owned", "state=quarantined"},
			why: quarantine.Foreign, act: true,
		},
		"CordonedBeforeUncordoned": {
			reason: "who had cordoned it wants it in service: that ends the session",
			do: func(w *world) {
				w.cordon()
				quarantined(w, "both")
				w.uncordon()
			},
			on: []string{"overridden"}, told: []string{"override-detected"}, why: quarantine.Overridden,
		},
		"PersonUncordons": {
			reason: "the session ends, our taints go, and nothing is cordoned again",
			do: func(w *world) {
				quarantined(w, "both")
				w.uncordon()
				w.settle()
				w.pass(time.Hour)
			},
			on: []string{"overridden"}, told: []string{"cordon", "override-detected"}, why: quarantine.Overridden,
		},
		"PersonUncordonsNewFault": {
			reason: "a new fault is none that the person knew of",
			do: func(w *world) {
				quarantined(w, "cordon")
				w.uncordon()
				w.settle()
				w.fault("both")
			},
			on:   []string{"cordoned", "sick=gpu:NoSchedule", "worse:NoExecute", "owned", "state=quarantined"},
			told: []string{"cordon", "override-detected", "cordon"}, why: quarantine.Ours, act: true,
		},
		"PersonUncordonsOtherFaultGoes": {
			reason: "fewer faults are no new ones",
			do: func(w *world) {
				quarantined(w, "cordon", "both")
				w.uncordon()
				w.settle()
				w.heal("both")
				w.settle()
				w.pass(time.Hour)
			},
			on: []string{"overridden"}, told: []string{"cordon", "override-detected"}, why: quarantine.Overridden,
		},
		"PersonUncordonsFaultFlaps": {
			reason: "the same fault is no new one because it was away for a moment",
			do: func(w *world) {
				quarantined(w, "cordon")
				w.uncordon()
				w.settle()
				w.heal()
				w.settle()
				w.pass(time.Minute)
				w.fault("cordon")
			},
			on: []string{"overridden"}, told: []string{"cordon", "override-detected"}, why: quarantine.Overridden,
		},
		"PersonUncordonsAndIsWell": {
			reason: "with the faults the memory of the override goes",
			do: func(w *world) {
				quarantined(w, "cordon")
				w.uncordon()
				w.settle()
				recovers(w)
			},
			told: []string{"cordon", "override-detected"}, why: quarantine.Released,
		},
		"PersonUncordonsAndAllowsAgain": {
			reason: "taking the annotation away has us act again",
			do: func(w *world) {
				quarantined(w, "cordon")
				w.uncordon()
				w.settle()
				w.annotate(v1alpha1.AnnotationOverridden, "")
			},
			on: []string{"cordoned", "owned", "state=quarantined"}, told: []string{"cordon", "override-detected", "cordon"}, why: quarantine.Ours, act: true,
		},
		"PersonUncordonsAndResumes": {
			reason: "so does asking for it",
			do: func(w *world) {
				quarantined(w, "cordon")
				w.uncordon()
				w.settle()
				w.resume = true
			},
			on: []string{"cordoned", "owned", "state=quarantined"}, told: []string{"cordon", "override-detected", "cordon"}, why: quarantine.Ours, act: true,
		},
		"PersonUncordonsLongAgo": {
			reason: "an override has its time",
			do: func(w *world) {
				quarantined(w, "cordon")
				w.uncordon()
				w.settle()
				w.pass(overrideTTL)
			},
			on: []string{"cordoned", "owned", "state=quarantined"}, told: []string{"cordon", "override-detected", "cordon"}, why: quarantine.Ours, act: true,
		},
		"PersonUncordonsAndCordons": {
			reason: "the cordon is theirs, as the managed fields show, though we saw neither",
			do: func(w *world) {
				quarantined(w, "both")
				w.uncordon()
				w.cordon()
			},
			on:   []string{"cordoned", "sick=gpu:NoSchedule", "worse:NoExecute", "owned", "state=quarantined"},
			told: []string{"cordon"}, why: quarantine.Foreign, act: true,
		},
		"PersonUncordonsAndCordonsThenWell": {
			reason: "and is not taken off",
			do: func(w *world) {
				quarantined(w, "both")
				w.uncordon()
				w.cordon()
				recovers(w)
			},
			on: []string{"cordoned", "released"}, told: []string{"cordon"}, why: quarantine.Released,
		},
		"PersonDeclaresTheCordon": {
			reason: "who applies a cordon that is there holds it too",
			do: func(w *world) {
				quarantined(w, "cordon")
				w.apply()
				recovers(w)
			},
			on: []string{"cordoned", "released"}, told: []string{"cordon"}, why: quarantine.Released,
		},
		"ManagersForgotten": {
			reason: "where the managed fields say nothing, our annotation counts",
			do: func(w *world) {
				quarantined(w, "cordon")
				w.edit("x", func(n *corev1.Node) { n.ManagedFields = nil })
				recovers(w)
			},
			on: []string{"released"}, told: []string{"cordon", "uncordon"}, why: quarantine.Released,
		},
		"Hold": {
			reason: "a person wants it kept as it is",
			do: func(w *world) {
				quarantined(w, "cordon")
				w.annotate(v1alpha1.AnnotationHold, "looking into it")
				recovers(w)
				w.settle()
				w.pass(time.Hour)
			},
			on: []string{"cordoned", "owned", "state=held"}, told: []string{"cordon"}, why: quarantine.Held,
		},
		"HoldEnds": {
			reason: "and then no more",
			do: func(w *world) {
				quarantined(w, "cordon")
				w.annotate(v1alpha1.AnnotationHold, "looking into it")
				recovers(w)
				w.settle()
				w.annotate(v1alpha1.AnnotationHold, "")
			},
			on: []string{"released"}, told: []string{"cordon", "uncordon"}, why: quarantine.Released,
		},
		"Busy": {
			reason: "a node is not given back in the middle of a reboot",
			do: func(w *world) {
				quarantined(w, "cordon")
				w.busy = true
				recovers(w)
			},
			on: []string{"cordoned", "owned", "state=recovering"}, told: []string{"cordon"}, why: quarantine.Recovering, act: true,
		},
		"OptedOutBefore": {
			reason: "such a node is not touched",
			do: func(w *world) {
				w.label(v1alpha1.LabelOptOut, v1alpha1.OptedOut)
				w.fault("both")
			},
			why: quarantine.OptedOut,
		},
		"OptedOutWhileOurs": {
			reason: "what is ours goes in one write, at once, and no more follows",
			do: func(w *world) {
				quarantined(w, "both")
				w.label(v1alpha1.LabelOptOut, v1alpha1.OptedOut)
				w.settle()
				w.pass(time.Hour)
			},
			on: []string{"released"}, told: []string{"cordon", "uncordon"}, why: quarantine.OptedOut,
		},
		"OptedOutWhileForeign": {
			reason: "but a cordon of others stays",
			do: func(w *world) {
				w.cordon()
				quarantined(w, "both")
				w.label(v1alpha1.LabelOptOut, v1alpha1.OptedOut)
			},
			on: []string{"cordoned", "released"}, why: quarantine.OptedOut,
		},
		"OptedInAgain": {
			reason: "a node that may be touched again is judged afresh",
			do: func(w *world) {
				quarantined(w, "cordon")
				w.label(v1alpha1.LabelOptOut, v1alpha1.OptedOut)
				w.settle()
				w.pass(time.Minute)
				w.label(v1alpha1.LabelOptOut, "")
			},
			on: []string{"cordoned", "owned", "state=quarantined"}, told: []string{"cordon", "uncordon", "cordon"}, why: quarantine.Ours, act: true,
		},
		"ControlPlane": {
			reason: "nodes of the control plane are left alone unless it is allowed",
			do: func(w *world) {
				w.label("node-role.kubernetes.io/control-plane", "x")
				w.fault("both")
			},
			why: quarantine.OptedOut,
		},
		"ControlPlaneAllowed": {
			reason: "as it is here",
			do: func(w *world) {
				w.cfg.ControlPlane = true
				w.label("node-role.kubernetes.io/control-plane", "x")
				quarantined(w, "cordon")
			},
			on: []string{"cordoned", "owned", "state=quarantined"}, told: []string{"cordon"}, why: quarantine.Ours, act: true,
		},
		"ReleasedByHand": {
			reason: "a release is ours, is told with its reason, and the node may be taken again",
			do: func(w *world) {
				quarantined(w, "both")
				w.release(false)
				w.settle()
				w.pass(time.Minute)
			},
			on:   []string{"cordoned", "sick=gpu:NoSchedule", "worse:NoExecute", "owned", "state=quarantined"},
			told: []string{"cordon", "uncordon", "cordon"}, why: quarantine.Ours, act: true,
		},
		"ReleasedByHandForGood": {
			reason: "with an override it is not taken again for the same faults",
			do: func(w *world) {
				quarantined(w, "both")
				w.release(true)
				w.settle()
				w.pass(time.Hour)
			},
			on: []string{"released", "overridden"}, told: []string{"cordon", "uncordon"}, why: quarantine.Overridden,
		},
		"ReleasedByHandForGoodNewFault": {
			reason: "but for new ones",
			do: func(w *world) {
				quarantined(w, "both")
				w.release(true)
				w.settle()
				w.pass(time.Hour)
				w.fault("cordon")
			},
			on:   []string{"cordoned", "sick=gpu:NoSchedule", "worse:NoExecute", "owned", "state=quarantined"},
			told: []string{"cordon", "uncordon", "cordon"}, why: quarantine.Ours, act: true,
		},
		"Denied": {
			reason: "without a place nothing is written, and it is told once",
			do: func(w *world) {
				w.denial = "3 of 10 nodes are out of service"
				w.fault("both")
				w.settle()
				w.pass(time.Hour)
			},
			told: []string{"budget-exhausted"}, why: quarantine.Denied,
		},
		"DeniedThenTaken": {
			reason: "a place that is free later is taken",
			do: func(w *world) {
				w.denial = "3 of 10 nodes are out of service"
				w.fault("cordon")
				w.settle()
				w.denial = ""
			},
			on: []string{"cordoned", "owned", "state=quarantined"}, told: []string{"budget-exhausted", "cordon"}, why: quarantine.Ours, act: true,
		},
		"DeniedAndGivenBack": {
			reason: "what is out of service is given back, whatever the budget says",
			do: func(w *world) {
				quarantined(w, "cordon")
				w.denial = "all nodes are out of service"
				recovers(w)
			},
			on: []string{"released"}, told: []string{"cordon", "uncordon"}, why: quarantine.Released,
		},
		"MoreTaintsWithoutPlace": {
			reason: "more on a node that is out of service takes no place",
			do: func(w *world) {
				quarantined(w, "cordon")
				w.denial = "all nodes are out of service"
				w.fault("both")
			},
			on:   []string{"cordoned", "sick=gpu:NoSchedule", "worse:NoExecute", "owned", "state=quarantined"},
			told: []string{"cordon"}, why: quarantine.Ours, act: true,
		},
		"TaintsThenCordon": {
			reason: "a worse fault adds a cordon to the taints of the same session",
			do: func(w *world) {
				quarantined(w, "taint")
				w.fault("cordon")
			},
			on:   []string{"cordoned", "sick=gpu:NoSchedule", "owned", "state=quarantined"},
			told: []string{"cordon"}, why: quarantine.Ours, act: true,
		},
		"TaintsOnly": {
			reason: "without a cordon there is none to tell of",
			do: func(w *world) {
				quarantined(w, "taint")
				recovers(w)
			},
			on: []string{"released"}, why: quarantine.Released,
		},
		"TaintsOnlyTakenOff": {
			reason: "a person has undone all that we did",
			do: func(w *world) {
				quarantined(w, "taint")
				w.untaint("sick")
				w.settle()
				w.pass(time.Hour)
			},
			on: []string{"overridden"}, told: []string{"override-detected"}, why: quarantine.Overridden,
		},
		"OneTaintTakenOff": {
			reason: "it is not put back; the rest stays",
			do: func(w *world) {
				quarantined(w, "both")
				w.untaint("sick")
				w.settle()
				w.pass(time.Hour)
			},
			on: []string{"cordoned", "worse:NoExecute", "owned", "state=quarantined"}, told: []string{"cordon"}, why: quarantine.Ours, act: true,
		},
		"TaintChanged": {
			reason: "a taint with another value is theirs, and stays after recovery",
			do: func(w *world) {
				quarantined(w, "both")
				w.untaint("sick")
				w.taint("sick=disk:NoSchedule")
				w.settle()
				recovers(w)
			},
			on: []string{"sick=disk:NoSchedule", "released"}, told: []string{"cordon", "uncordon"}, why: quarantine.Released,
		},
		"TaintThere": {
			reason: "a taint that was there with the same key and effect is not ours",
			do: func(w *world) {
				w.taint("sick=disk:NoSchedule")
				quarantined(w, "both")
				recovers(w)
			},
			on: []string{"sick=disk:NoSchedule", "released"}, told: []string{"cordon", "uncordon"}, why: quarantine.Released,
		},
		"SupportOnly": {
			reason: "where nothing is wished of the node, nothing is written to it",
			do:     func(w *world) { quarantined(w, "support") },
			why:    quarantine.Ours, act: true,
		},
		"MarkDestroyed": {
			reason: "the status and the managed fields show that it is ours",
			do: func(w *world) {
				quarantined(w, "both")
				w.annotate(v1alpha1.AnnotationOwned, "")
				w.settle()
				recovers(w)
			},
			on: []string{"released"}, told: []string{"cordon", "uncordon"}, why: quarantine.Released,
		},
		"MarkGarbled": {
			reason: "so they do if it is there and says nothing",
			do: func(w *world) {
				quarantined(w, "both")
				w.annotate(v1alpha1.AnnotationOwned, "{garbage")
				w.settle()
				recovers(w)
			},
			on: []string{"released"}, told: []string{"cordon", "uncordon"}, why: quarantine.Released,
		},
		"MarkDestroyedAndUncordoned": {
			reason: "who undoes both has undone the cordon",
			do: func(w *world) {
				quarantined(w, "both")
				w.annotate(v1alpha1.AnnotationOwned, "")
				w.uncordon()
			},
			on: []string{"overridden"}, told: []string{"cordon", "override-detected"}, why: quarantine.Overridden,
		},
		"ForeignMarkDestroyedAndUncordoned": {
			reason: "that of others likewise",
			do: func(w *world) {
				w.cordon()
				quarantined(w, "cordon")
				w.annotate(v1alpha1.AnnotationOwned, "")
				w.uncordon()
			},
			on: []string{"overridden"}, told: []string{"override-detected"}, why: quarantine.Overridden,
		},
		"MarkDestroyedAndCordonedByThem": {
			reason: "nothing says that this cordon is ours",
			do: func(w *world) {
				quarantined(w, "cordon")
				w.annotate(v1alpha1.AnnotationOwned, "")
				w.uncordon()
				w.cordon()
				recovers(w)
			},
			on: []string{"cordoned", "released"}, told: []string{"cordon"}, why: quarantine.Released,
		},
		"StatusLost": {
			reason: "the node alone shows what is ours",
			do: func(w *world) {
				quarantined(w, "both")
				w.heal()
				w.status = v1alpha1.NodeFaultStatus{}
				w.settle()
				w.pass(healthyFor)
			},
			on: []string{"released"}, told: []string{"cordon", "uncordon"}, why: quarantine.Released,
		},
		"StatusAndMarkLost": {
			reason: "even then the managed fields show that the cordon is ours",
			do: func(w *world) {
				quarantined(w, "cordon")
				w.heal()
				w.status = v1alpha1.NodeFaultStatus{}
				w.annotate(v1alpha1.AnnotationOwned, "")
				w.settle()
				w.pass(healthyFor)
			},
			on: []string{"released"}, told: []string{"cordon", "uncordon"}, why: quarantine.Released,
		},
		"GarbageOfOthers": {
			reason: "what we cannot read is not ours, and is left",
			do: func(w *world) {
				w.cordon()
				w.annotate(v1alpha1.AnnotationOwned, "yes")
				w.annotate(v1alpha1.AnnotationReleased, "[]")
			},
			on: []string{"cordoned", "owned", "released"}, why: quarantine.Released,
		},
		"MarkOfAnotherNode": {
			reason: "an annotation that was copied from another node says nothing",
			do: func(w *world) {
				quarantined(w, "cordon")
				mark := w.node.Annotations[v1alpha1.AnnotationOwned]
				w.join()
				w.status = v1alpha1.NodeFaultStatus{}
				w.heal()
				w.cordon()
				w.annotate(v1alpha1.AnnotationOwned, mark)
			},
			on: []string{"cordoned", "owned"}, why: quarantine.Released,
		},
		"OverrideOfTheirOwn": {
			reason: "a person's own words in our annotation keep us away",
			do: func(w *world) {
				w.annotate(v1alpha1.AnnotationOverridden, "hands off")
				w.fault("both")
				w.settle()
				w.pass(2 * overrideTTL)
			},
			on: []string{"overridden"}, why: quarantine.Overridden,
		},
		"NodeGone": {
			reason: "nothing is told that was not seen",
			do: func(w *world) {
				quarantined(w, "cordon")
				w.node = nil
			},
			told: []string{"cordon"}, why: quarantine.Gone,
		},
		"NodeReplaced": {
			reason: "another node of the same name begins afresh",
			do: func(w *world) {
				quarantined(w, "cordon")
				w.node = nil
				w.settle()
				w.heal()
				w.join()
			},
			told: []string{"cordon"}, why: quarantine.Released,
		},
		"NodeReplacedUnseen": {
			reason: "so it does if nobody saw that the first was gone",
			do: func(w *world) {
				quarantined(w, "cordon")
				w.join()
			},
			on: []string{"cordoned", "owned", "state=quarantined"}, told: []string{"cordon", "cordon"}, why: quarantine.Ours, act: true,
		},
		"NodeReplacedWhileBusy": {
			reason: "but not before the end of the old one was told",
			do: func(w *world) {
				quarantined(w, "cordon")
				w.busy = true
				w.join()
			},
			told: []string{"cordon"}, why: quarantine.Gone,
		},
		"Slow": {
			reason: "a fault that has to last does nothing before",
			do: func(w *world) {
				w.fault("slow")
				w.settle()
				w.pass(time.Minute - time.Second)
			},
			why: quarantine.Observing,
		},
		"BrokenRule": {
			reason: "nobody takes a node to be well because a rule is wrong",
			do: func(w *world) {
				quarantined(w, "cordon")
				w.heal()
				w.fault("broken")
				w.faults[0].ErrorCodes = nil
				w.settle()
				w.pass(time.Hour)
			},
			on: []string{"cordoned", "owned", "state=quarantined"}, told: []string{"cordon"}, why: quarantine.Ours,
		},
		"DryRun": {
			reason: "nothing is written, and what would be done is told once",
			do: func(w *world) {
				w.cfg.DryRun = true
				w.fault("both")
				w.settle()
				w.pass(time.Hour)
				w.settle()
			},
			told: []string{"dry-run cordon"}, why: quarantine.DryRun,
		},
		"DryRunRecovers": {
			reason: "so is that it would be given back",
			do: func(w *world) {
				w.cfg.DryRun = true
				w.fault("both")
				w.settle()
				recovers(w)
			},
			told: []string{"dry-run cordon", "dry-run uncordon"}, why: quarantine.Released,
		},
		"DryRunCordonedByOthers": {
			reason: "a node that is cordoned would not be",
			do: func(w *world) {
				w.cfg.DryRun = true
				w.cordon()
				w.fault("both")
			},
			on: []string{"cordoned"}, why: quarantine.DryRun,
		},
		"DryRunEnds": {
			reason: "then the node is taken in earnest",
			do: func(w *world) {
				w.cfg.DryRun = true
				w.fault("cordon")
				w.settle()
				w.cfg.DryRun = false
			},
			on: []string{"cordoned", "owned", "state=quarantined"}, told: []string{"dry-run cordon", "cordon"}, why: quarantine.Ours, act: true,
		},
		"DryRunBegins": {
			reason: "what is ours stays as it is until dry run ends",
			do: func(w *world) {
				quarantined(w, "cordon")
				w.cfg.DryRun = true
				recovers(w)
				w.settle()
				w.pass(time.Hour)
			},
			on: []string{"cordoned", "owned", "state=quarantined"}, told: []string{"cordon", "dry-run uncordon"}, why: quarantine.DryRun,
		},
		"DryRunBeginsAndEnds": {
			reason: "and is given back then",
			do: func(w *world) {
				quarantined(w, "cordon")
				w.cfg.DryRun = true
				recovers(w)
				w.settle()
				w.pass(time.Hour)
				w.cfg.DryRun = false
			},
			on: []string{"released"}, told: []string{"cordon", "dry-run uncordon", "uncordon"}, why: quarantine.Released,
		},
		"DryRunUncordoned": {
			reason: "a person who uncordons in dry run is remembered, and is not undone when it ends",
			do: func(w *world) {
				quarantined(w, "both")
				w.cfg.DryRun = true
				w.settle()
				w.uncordon()
				w.settle()
				w.cfg.DryRun = false
			},
			on: []string{"overridden"}, told: []string{"cordon", "override-detected"}, why: quarantine.Overridden,
		},
		"DryRunOfARule": {
			reason: "the same holds for a single rule",
			do: func(w *world) {
				w.fault("dry")
				w.settle()
				recovers(w)
			},
			told: []string{"dry-run cordon", "dry-run uncordon"}, why: quarantine.Released,
		},
		"DryRunOfARuleBesideAnother": {
			reason: "what is ours is given back though a rule in dry run would keep it",
			do: func(w *world) {
				quarantined(w, "cordon", "dry")
				w.heal("cordon")
				w.settle()
				w.pass(healthyFor)
			},
			on: []string{"released"}, told: []string{"cordon", "uncordon", "dry-run cordon"}, why: quarantine.DryRun,
		},
	}
}

// release is what the command does.
func (w *world) release(override bool) {
	w.t.Helper()
	node, took := quarantine.Release(w.node.DeepCopy(), w.now, "asked for by alice", override)
	if !took {
		w.t.Fatalf("nothing was released")
	}
	w.edit("fleetloop", func(n *corev1.Node) { n.Spec, n.Labels, n.Annotations = node.Spec, node.Labels, node.Annotations })
}

func TestOwnership(t *testing.T) {
	for name, tc := range ownershipMatrix() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tc.do(w)
			got := w.settle()
			if got.Why != tc.why || got.Act != tc.act {
				t.Errorf("%s: got %s, act %v (%s), want %s, act %v", tc.reason, got.Why, got.Act, got.Message, tc.why, tc.act)
			}
			if w.node != nil {
				if diff := cmp.Diff(tc.on, w.on(), cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("%s: on the node (-want +got)\n%s", tc.reason, diff)
				}
			}
			if diff := cmp.Diff(tc.told, w.told(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: told (-want +got)\n%s", tc.reason, diff)
			}
			if got.Why != quarantine.Gone && w.node != nil {
				before := w.status.DeepCopy()
				w.settle()
				if diff := cmp.Diff(before, &w.status); diff != "" {
					t.Errorf("%s: looking again changes the status (-before +after)\n%s", tc.reason, diff)
				}
			}
		})
	}
}
