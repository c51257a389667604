package quarantine_test

import (
	"time"

	"github.com/fleetloop/fleetloop/internal/nodefault/quarantine"
)

// bounded returns cases about budgets, and about other changes than a cordon.
func bounded() map[string]ownership {
	return map[string]ownership{
		"Denied": {
			reason: "without a place nothing is written, and it is told once",
			do: func(w *fixture) {
				w.denial = "3 of 10 nodes are out of service"
				w.fault("both")
				w.settle()
				w.pass(time.Hour)
			},
			told: []string{"budget-exhausted"}, why: quarantine.Denied,
		},
		"DeniedThenTaken": {
			reason: "a place that is free later is taken",
			do: func(w *fixture) {
				w.denial = "3 of 10 nodes are out of service"
				w.fault("cordon")
				w.settle()
				w.denial = ""
			},
			on: []string{"cordoned", "owned", "state=quarantined"}, told: []string{"budget-exhausted", "cordon"}, why: quarantine.Ours, act: true,
		},
		"DeniedAndGivenBack": {
			reason: "what is out of service is given back, whatever the budget says",
			do: func(w *fixture) {
				quarantined(w, "cordon")
				w.denial = "all nodes are out of service"
				recovers(w)
			},
			on: []string{"released"}, told: []string{"cordon", "uncordon"}, why: quarantine.Released,
		},
		"MoreTaintsWithoutPlace": {
			reason: "more on a node that is out of service takes no place",
			do: func(w *fixture) {
				quarantined(w, "cordon")
				w.denial = "all nodes are out of service"
				w.fault("both")
			},
			on:   []string{"cordoned", "sick=gpu:NoSchedule", "worse:NoExecute", "owned", "state=quarantined"},
			told: []string{"cordon"}, why: quarantine.Ours, act: true,
		},
		"TaintsThenCordon": {
			reason: "a worse fault adds a cordon to the taints of the same session",
			do: func(w *fixture) {
				quarantined(w, "taint")
				w.fault("cordon")
			},
			on:   []string{"cordoned", "sick=gpu:NoSchedule", "owned", "state=quarantined"},
			told: []string{"cordon"}, why: quarantine.Ours, act: true,
		},
		"TaintsOnly": {
			reason: "without a cordon there is none to tell of",
			do: func(w *fixture) {
				quarantined(w, "taint")
				recovers(w)
			},
			on: []string{"released"}, why: quarantine.Released,
		},
		"TaintsOnlyTakenOff": {
			reason: "a person has undone all that we did",
			do: func(w *fixture) {
				quarantined(w, "taint")
				w.untaint("sick")
				w.settle()
				w.pass(time.Hour)
			},
			on: []string{"overridden"}, told: []string{"override-detected"}, why: quarantine.Overridden,
		},
		"OneTaintTakenOff": {
			reason: "it is not put back; the rest stays",
			do: func(w *fixture) {
				quarantined(w, "both")
				w.untaint("sick")
				w.settle()
				w.pass(time.Hour)
			},
			on: []string{"cordoned", "worse:NoExecute", "owned", "state=quarantined"}, told: []string{"cordon"}, why: quarantine.Ours, act: true,
		},
		"TaintChanged": {
			reason: "a taint with another value is theirs, and stays after recovery",
			do: func(w *fixture) {
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
			do: func(w *fixture) {
				w.taint("sick=disk:NoSchedule")
				quarantined(w, "both")
				recovers(w)
			},
			on: []string{"sick=disk:NoSchedule", "released"}, told: []string{"cordon", "uncordon"}, why: quarantine.Released,
		},
		"SupportOnly": {
			reason: "where nothing is wished of the node, nothing is written to it",
			do:     func(w *fixture) { quarantined(w, "support") },
			why:    quarantine.Ours, act: true,
		},
	}
}
