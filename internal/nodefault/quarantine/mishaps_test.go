package quarantine_test

import (
	"time"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault/quarantine"
)

// released returns cases about nodes that are excluded or released by a person.
func released() map[string]ownership {
	return map[string]ownership{
		"OptedOutBefore": {
			reason: "such a node is not touched",
			do: func(w *fixture) {
				w.label(v1alpha1.LabelOptOut, v1alpha1.OptedOut)
				w.fault("both")
			},
			why: quarantine.OptedOut,
		},
		"OptedOutWhileOurs": {
			reason: "what is ours goes in one write, at once, and no more follows",
			do: func(w *fixture) {
				quarantined(w, "both")
				w.label(v1alpha1.LabelOptOut, v1alpha1.OptedOut)
				w.settle()
				w.pass(time.Hour)
			},
			on: []string{"released"}, told: []string{"cordon", "uncordon"}, why: quarantine.OptedOut,
		},
		"OptedOutWhileForeign": {
			reason: "but a cordon of others stays",
			do: func(w *fixture) {
				w.cordon()
				quarantined(w, "both")
				w.label(v1alpha1.LabelOptOut, v1alpha1.OptedOut)
			},
			on: []string{"cordoned", "released"}, why: quarantine.OptedOut,
		},
		"OptedInAgain": {
			reason: "a node that may be touched again is judged afresh",
			do: func(w *fixture) {
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
			do: func(w *fixture) {
				w.label("node-role.kubernetes.io/control-plane", "x")
				w.fault("both")
			},
			why: quarantine.OptedOut,
		},
		"ControlPlaneAllowed": {
			reason: "as it is here",
			do: func(w *fixture) {
				w.cfg.ControlPlane = true
				w.label("node-role.kubernetes.io/control-plane", "x")
				quarantined(w, "cordon")
			},
			on: []string{"cordoned", "owned", "state=quarantined"}, told: []string{"cordon"}, why: quarantine.Ours, act: true,
		},
		"ReleasedByHand": {
			reason: "a release is ours, is told with its reason, and the node may be taken again",
			do: func(w *fixture) {
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
			do: func(w *fixture) {
				quarantined(w, "both")
				w.release(true)
				w.settle()
				w.pass(time.Hour)
			},
			on: []string{"released", "overridden"}, told: []string{"cordon", "uncordon"}, why: quarantine.Overridden,
		},
		"ReleasedByHandForGoodFaultFlaps": {
			reason: "nor when one of them comes and goes",
			do: func(w *fixture) {
				quarantined(w, "both")
				w.release(true)
				w.settle()
				w.heal()
				w.pass(time.Minute)
				w.fault("both")
			},
			on: []string{"released", "overridden"}, told: []string{"cordon", "uncordon"}, why: quarantine.Overridden,
		},
		"ReleasedByHandForGoodNewFault": {
			reason: "but for new ones",
			do: func(w *fixture) {
				quarantined(w, "both")
				w.release(true)
				w.settle()
				w.pass(time.Hour)
				w.fault("cordon")
			},
			on:   []string{"cordoned", "sick=gpu:NoSchedule", "worse:NoExecute", "owned", "state=quarantined"},
			told: []string{"cordon", "uncordon", "cordon"}, why: quarantine.Ours, act: true,
		},
	}
}

// damaged returns cases about lost marks, statuses and nodes, and about failing rules.
func damaged() map[string]ownership {
	return map[string]ownership{
		"MarkDestroyed": {
			reason: "the status and the managed fields show that it is ours",
			do: func(w *fixture) {
				quarantined(w, "both")
				w.annotate(v1alpha1.AnnotationOwned, "")
				w.settle()
				recovers(w)
			},
			on: []string{"released"}, told: []string{"cordon", "uncordon"}, why: quarantine.Released,
		},
		"MarkGarbled": {
			reason: "so they do if it is there and says nothing",
			do: func(w *fixture) {
				quarantined(w, "both")
				w.annotate(v1alpha1.AnnotationOwned, "{garbage")
				w.settle()
				recovers(w)
			},
			on: []string{"released"}, told: []string{"cordon", "uncordon"}, why: quarantine.Released,
		},
		"MarkDestroyedAndUncordoned": {
			reason: "who undoes both has undone the cordon",
			do: func(w *fixture) {
				quarantined(w, "both")
				w.annotate(v1alpha1.AnnotationOwned, "")
				w.uncordon()
			},
			on: []string{"overridden"}, told: []string{"cordon", "override-detected"}, why: quarantine.Overridden,
		},
		"ForeignMarkDestroyedAndUncordoned": {
			reason: "that of others likewise",
			do: func(w *fixture) {
				w.cordon()
				quarantined(w, "cordon")
				w.annotate(v1alpha1.AnnotationOwned, "")
				w.uncordon()
			},
			on: []string{"overridden"}, told: []string{"override-detected"}, why: quarantine.Overridden,
		},
		"MarkDestroyedAndCordonedByThem": {
			reason: "nothing says that this cordon is ours",
			do: func(w *fixture) {
				quarantined(w, "cordon")
				w.annotate(v1alpha1.AnnotationOwned, "")
				w.uncordon()
				w.cordon()
				recovers(w)
			},
			on: []string{"cordoned", "released"}, told: []string{"cordon"}, why: quarantine.Released,
		},
		"MarkDestroyedReleasedByHand": {
			reason: "the command takes off the cordon that the managed fields show, and the controller the taints that it knows of",
			do: func(w *fixture) {
				quarantined(w, "both")
				w.heal()
				w.annotate(v1alpha1.AnnotationOwned, "")
				w.release(false)
			},
			on: []string{"released"}, told: []string{"cordon", "uncordon"}, why: quarantine.Released,
		},
		"MarkRestored": {
			reason: "a session that is over is not begun again because its mark is back",
			do: func(w *fixture) {
				w.taint("theirs=x:NoSchedule")
				quarantined(w, "both")
				mark := w.node.Annotations[v1alpha1.AnnotationOwned]
				recovers(w)
				w.settle()
				w.cordon()
				w.annotate(v1alpha1.AnnotationOwned, mark)
				w.taint("sick=gpu:NoSchedule")
			},
			on: []string{"cordoned", "theirs=x:NoSchedule", "released"}, told: []string{"cordon", "uncordon"}, why: quarantine.Released,
		},
		"ReleasedByHandBeforeWrittenDown": {
			reason: "what began and ended while nobody could write it down is told",
			do: func(w *fixture) {
				w.denial = "3 of 10 nodes are out of service"
				w.fault("cordon")
				w.settle()
				w.denial = ""
				w.step(w.node, crashes)
				w.heal()
				w.release(false)
			},
			on: []string{"released"}, told: []string{"budget-exhausted", "cordon", "uncordon"}, why: quarantine.Released,
		},
		"StatusLost": {
			reason: "the node alone shows what is ours",
			do: func(w *fixture) {
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
			do: func(w *fixture) {
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
			do: func(w *fixture) {
				w.cordon()
				w.annotate(v1alpha1.AnnotationOwned, "yes")
				w.annotate(v1alpha1.AnnotationReleased, "[]")
			},
			on: []string{"cordoned", "owned", "released"}, why: quarantine.Released,
		},
		"MarkOfAnotherNode": {
			reason: "an annotation that was copied from another node says nothing",
			do: func(w *fixture) {
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
			do: func(w *fixture) {
				w.annotate(v1alpha1.AnnotationOverridden, "hands off")
				w.fault("both")
				w.settle()
				w.pass(2 * overrideTTL)
			},
			on: []string{"overridden"}, why: quarantine.Overridden,
		},
		"NodeGone": {
			reason: "nothing is told that was not seen",
			do: func(w *fixture) {
				quarantined(w, "cordon")
				w.node = nil
			},
			told: []string{"cordon"}, why: quarantine.Gone,
		},
		"NodeReplaced": {
			reason: "another node of the same name begins afresh",
			do: func(w *fixture) {
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
			do: func(w *fixture) {
				quarantined(w, "cordon")
				w.join()
			},
			on: []string{"cordoned", "owned", "state=quarantined"}, told: []string{"cordon", "cordon"}, why: quarantine.Ours, act: true,
		},
		"NodeReplacedWhileBusy": {
			reason: "but not before the end of the old one was told",
			do: func(w *fixture) {
				quarantined(w, "cordon")
				w.busy = true
				w.join()
			},
			told: []string{"cordon"}, why: quarantine.Gone,
		},
		"Slow": {
			reason: "a fault that has to last does nothing before",
			do: func(w *fixture) {
				w.fault("slow")
				w.settle()
				w.pass(time.Minute - time.Second)
			},
			why: quarantine.Observing,
		},
		"BrokenRule": {
			reason: "nobody takes a node to be well because a rule is wrong",
			do: func(w *fixture) {
				quarantined(w, "cordon")
				w.heal()
				w.fault("broken")
				w.faults[0].ErrorCodes = nil
				w.settle()
				w.pass(time.Hour)
			},
			on: []string{"cordoned", "owned", "state=quarantined"}, told: []string{"cordon"}, why: quarantine.Ours,
		},
	}
}
