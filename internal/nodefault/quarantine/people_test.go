package quarantine_test

import (
	"time"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault/quarantine"
)

// ordinary returns cases about quarantines and releases, and about changes of people
// meanwhile.
func ordinary() map[string]ownership {
	return map[string]ownership{
		"Cordon": {
			reason: "one write takes the node, marks it and is told",
			do:     func(w *fixture) { quarantined(w, "both") },
			on:     []string{"cordoned", "sick=gpu:NoSchedule", "worse:NoExecute", "owned", "state=quarantined"},
			told:   []string{"cordon"}, why: quarantine.Ours, act: true,
		},
		"Recovery": {
			reason: "exactly what is ours is taken off",
			do: func(w *fixture) {
				w.taint("theirs=x:NoSchedule")
				quarantined(w, "both")
				recovers(w)
			},
			on: []string{"theirs=x:NoSchedule", "released"}, told: []string{"cordon", "uncordon"}, why: quarantine.Released,
		},
		"RecoveryHasToLast": {
			reason: "a fault that comes and goes does not have the node come and go",
			do: func(w *fixture) {
				quarantined(w, "cordon")
				w.heal()
				w.settle()
				w.pass(healthyFor - time.Second)
			},
			on: []string{"cordoned", "owned", "state=recovering"}, told: []string{"cordon"}, why: quarantine.Recovering,
		},
		"ClockIsSetBack": {
			reason: "a node that was well from tomorrow on would else be kept until then",
			do: func(w *fixture) {
				quarantined(w, "cordon")
				w.heal()
				w.settle()
				w.pass(-24 * time.Hour)
				w.settle()
				w.pass(healthyFor + time.Second)
			},
			on: []string{"released"}, told: []string{"cordon", "uncordon"}, why: quarantine.Released,
		},
		"FaultComesBack": {
			reason: "the wait begins anew, and the session goes on",
			do: func(w *fixture) {
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
			do: func(w *fixture) {
				w.cordon()
				quarantined(w, "both")
				recovers(w)
			},
			on: []string{"cordoned", "released"}, why: quarantine.Released,
		},
		"CordonedBeforeWhileSick": {
			reason: "taints and the mark are added, and the node counts as in quarantine",
			do: func(w *fixture) {
				w.cordon()
				quarantined(w, "both")
			},
			on:  []string{"cordoned", "sick=gpu:NoSchedule", "worse:NoExecute", "owned", "state=quarantined"},
			why: quarantine.Foreign, act: true,
		},
		"CordonedBeforeUncordoned": {
			reason: "who had cordoned it wants it in service: that ends the session",
			do: func(w *fixture) {
				w.cordon()
				quarantined(w, "both")
				w.uncordon()
			},
			on: []string{"overridden"}, told: []string{"override-detected"}, why: quarantine.Overridden,
		},
		"PersonUncordons": {
			reason: "the session ends, our taints go, and nothing is cordoned again",
			do: func(w *fixture) {
				quarantined(w, "both")
				w.uncordon()
				w.settle()
				w.pass(time.Hour)
			},
			on: []string{"overridden"}, told: []string{"cordon", "override-detected"}, why: quarantine.Overridden,
		},
		"PersonUncordonsNewFault": {
			reason: "a new fault is none that the person knew of",
			do: func(w *fixture) {
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
			do: func(w *fixture) {
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
			do: func(w *fixture) {
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
		"PersonUncordonsWhileNobodyLooks": {
			reason: "who uncordons knows of the fault that it was for, though it has gone before we look",
			do: func(w *fixture) {
				quarantined(w, "cordon")
				w.uncordon()
				w.heal()
				w.settle()
				w.pass(time.Minute)
				w.fault("cordon")
			},
			on: []string{"overridden"}, told: []string{"cordon", "override-detected"}, why: quarantine.Overridden,
		},
		"PersonUncordonsAndIsWell": {
			reason: "with the faults the memory of the override goes",
			do: func(w *fixture) {
				quarantined(w, "cordon")
				w.uncordon()
				w.settle()
				recovers(w)
			},
			told: []string{"cordon", "override-detected"}, why: quarantine.Released,
		},
		"PersonUncordonsAndAllowsAgain": {
			reason: "taking the annotation away has us act again",
			do: func(w *fixture) {
				quarantined(w, "cordon")
				w.uncordon()
				w.settle()
				w.annotate(v1alpha1.AnnotationOverridden, "")
			},
			on: []string{"cordoned", "owned", "state=quarantined"}, told: []string{"cordon", "override-detected", "cordon"}, why: quarantine.Ours, act: true,
		},
		"PersonUncordonsAndRearms": {
			reason: "so does a release that is not to be remembered",
			do: func(w *fixture) {
				quarantined(w, "cordon")
				w.uncordon()
				w.settle()
				w.release(false)
			},
			on: []string{"cordoned", "owned", "state=quarantined"}, told: []string{"cordon", "override-detected", "cordon"}, why: quarantine.Ours, act: true,
		},
		"PersonUncordonsLongAgo": {
			reason: "an override has its time",
			do: func(w *fixture) {
				quarantined(w, "cordon")
				w.uncordon()
				w.settle()
				w.pass(overrideTTL)
			},
			on: []string{"cordoned", "owned", "state=quarantined"}, told: []string{"cordon", "override-detected", "cordon"}, why: quarantine.Ours, act: true,
		},
		"PersonUncordonsAndCordons": {
			reason: "the cordon is theirs, as the managed fields show, though we saw neither",
			do: func(w *fixture) {
				quarantined(w, "both")
				w.uncordon()
				w.cordon()
			},
			on:   []string{"cordoned", "sick=gpu:NoSchedule", "worse:NoExecute", "owned", "state=quarantined"},
			told: []string{"cordon"}, why: quarantine.Foreign, act: true,
		},
		"PersonUncordonsAndCordonsThenWell": {
			reason: "and is not taken off",
			do: func(w *fixture) {
				quarantined(w, "both")
				w.uncordon()
				w.cordon()
				recovers(w)
			},
			on: []string{"cordoned", "released"}, told: []string{"cordon"}, why: quarantine.Released,
		},
		"PersonDeclaresTheCordon": {
			reason: "who applies a cordon that is there holds it too",
			do: func(w *fixture) {
				quarantined(w, "cordon")
				w.apply()
				recovers(w)
			},
			on: []string{"cordoned", "released"}, told: []string{"cordon"}, why: quarantine.Released,
		},
		"ManagersForgotten": {
			reason: "where the managed fields say nothing, our annotation counts",
			do: func(w *fixture) {
				quarantined(w, "cordon")
				w.forgetManagers()
				recovers(w)
			},
			on: []string{"released"}, told: []string{"cordon", "uncordon"}, why: quarantine.Released,
		},
		"CordonedBeforeManagersForgotten": {
			reason: "also of a cordon that is not",
			do: func(w *fixture) {
				w.cordon()
				w.forgetManagers()
				quarantined(w, "cordon")
				recovers(w)
			},
			on: []string{"cordoned", "released"}, why: quarantine.Released,
		},
		"CordonTakenOverManagersForgotten": {
			reason: "that it became theirs is written down, and does not depend on being asked again",
			do: func(w *fixture) {
				quarantined(w, "cordon")
				w.uncordon()
				w.cordon()
				w.settle()
				w.forgetManagers()
				recovers(w)
			},
			on: []string{"cordoned", "released"}, told: []string{"cordon"}, why: quarantine.Released,
		},
		"Hold": {
			reason: "a person wants it kept as it is",
			do: func(w *fixture) {
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
			do: func(w *fixture) {
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
			do: func(w *fixture) {
				quarantined(w, "cordon")
				w.busy = true
				recovers(w)
			},
			on: []string{"cordoned", "owned", "state=recovering"}, told: []string{"cordon"}, why: quarantine.Recovering, act: true,
		},
	}
}
