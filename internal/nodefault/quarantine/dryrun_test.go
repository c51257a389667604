package quarantine_test

import (
	"time"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault/quarantine"
)

// pretended returns cases about dry runs.
func pretended() map[string]ownership {
	return map[string]ownership{
		"DryRun": {
			reason: "nothing is written, and what would be done is told once",
			do: func(w *fixture) {
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
			do: func(w *fixture) {
				w.cfg.DryRun = true
				w.fault("both")
				w.settle()
				recovers(w)
			},
			told: []string{"dry-run cordon", "dry-run uncordon"}, why: quarantine.Released,
		},
		"DryRunCordonedByOthers": {
			reason: "a node that is cordoned would not be",
			do: func(w *fixture) {
				w.cfg.DryRun = true
				w.cordon()
				w.fault("both")
			},
			on: []string{"cordoned"}, why: quarantine.DryRun,
		},
		"DryRunEnds": {
			reason: "then the node is taken in earnest",
			do: func(w *fixture) {
				w.cfg.DryRun = true
				w.fault("cordon")
				w.settle()
				w.cfg.DryRun = false
			},
			on: []string{"cordoned", "owned", "state=quarantined"}, told: []string{"dry-run cordon", "cordon"}, why: quarantine.Ours, act: true,
		},
		"DryRunBegins": {
			reason: "what is ours stays as it is until dry run ends",
			do: func(w *fixture) {
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
			do: func(w *fixture) {
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
			do: func(w *fixture) {
				quarantined(w, "both")
				w.cfg.DryRun = true
				w.settle()
				w.uncordon()
				w.settle()
				w.cfg.DryRun = false
			},
			on: []string{"overridden"}, told: []string{"cordon", "override-detected"}, why: quarantine.Overridden,
		},
		"DryRunUncordonedGoesOn": {
			reason: "what is left of it is left as it is",
			do: func(w *fixture) {
				quarantined(w, "both")
				w.cfg.DryRun = true
				w.settle()
				w.uncordon()
				w.settle()
				w.pass(2 * overrideTTL)
			},
			on:   []string{"sick=gpu:NoSchedule", "worse:NoExecute", "owned", "state=quarantined"},
			told: []string{"cordon", "override-detected"}, why: quarantine.Overridden,
		},
		"DryRunMarkDestroyed": {
			reason: "what is ours is not forgotten while it may not be marked again",
			do: func(w *fixture) {
				quarantined(w, "both")
				w.cfg.DryRun = true
				w.annotate(v1alpha1.AnnotationOwned, "")
				w.annotate(v1alpha1.AnnotationOverridden, "hands off")
				w.settle()
				w.annotate(v1alpha1.AnnotationOverridden, "")
				recovers(w)
				w.settle()
				w.cfg.DryRun = false
			},
			on: []string{"released"}, told: []string{"cordon", "uncordon"}, why: quarantine.Released,
		},
		"DryRunOfARule": {
			reason: "the same holds for a single rule",
			do: func(w *fixture) {
				w.fault("dry")
				w.settle()
				recovers(w)
			},
			told: []string{"dry-run cordon", "dry-run uncordon"}, why: quarantine.Released,
		},
		"DryRunOfARuleBesideAnother": {
			reason: "what is ours is given back though a rule in dry run would keep it",
			do: func(w *fixture) {
				quarantined(w, "cordon", "dry")
				w.heal("cordon")
				w.settle()
				w.pass(healthyFor)
			},
			on: []string{"released"}, told: []string{"cordon", "uncordon", "dry-run cordon"}, why: quarantine.DryRun,
		},
	}
}
