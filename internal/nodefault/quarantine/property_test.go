package quarantine_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault/quarantine"
)

// TestNobodyIsUndone applies changes of people, faults, crashes and time in random order,
// and the oracle verifies each write and each record. In the end, no change of the
// controller may be left.
func TestNobodyIsUndone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := newOracle(t)
		o.note()
		t.Repeat(map[string]func(*rapid.T){
			"look":        func(*rapid.T) { o.look(o.node, works) },
			"lookAgain":   func(*rapid.T) { o.rest() },
			"crash":       func(*rapid.T) { o.look(o.node, crashes) },
			"conflict":    func(*rapid.T) { o.look(o.node, conflicts) },
			"unanswered":  func(*rapid.T) { o.look(o.node, unanswered) },
			"lookBack":    func(t *rapid.T) { o.look(o.earlier(t), rapid.SampledFrom([]fate{works, crashes}).Draw(t, "fate")) },
			"fault":       o.drawFault,
			"heal":        o.drawHealing,
			"time":        func(t *rapid.T) { o.drawTime(t) },
			"cordon":      func(t *rapid.T) { o.personCordons(rapid.IntRange(0, 3).Draw(t, "applies") == 0) },
			"uncordon":    func(*rapid.T) { o.personUncordons() },
			"untaint":     func(t *rapid.T) { o.personUntaints(rapid.SampledFrom([]string{"sick", "worse"}).Draw(t, "key")) },
			"taint":       o.drawTaint,
			"annotations": o.drawAnnotation,
			"hold":        func(t *rapid.T) { o.annotate(v1alpha1.AnnotationHold, drawn(t, "hold", "me", "")) },
			"optOut":      o.drawOptOut,
			"release":     func(t *rapid.T) { o.personReleases(rapid.Bool().Draw(t, "override")) },
			"budget":      func(t *rapid.T) { o.denial = drawn(t, "denial", "all are out", "", "") },
			"busy":        func(t *rapid.T) { o.busy = rapid.Bool().Draw(t, "busy") },
			"dryRun":      func(t *rapid.T) { o.cfg.DryRun = rapid.IntRange(0, 2).Draw(t, "dryRun") == 0 },
			"mishap":      o.drawMishap,
		})
		o.calm(t)
	})
}

func drawn(t *rapid.T, label string, values ...string) string {
	return rapid.SampledFrom(values).Draw(t, label)
}

// earlier returns the node at a random time since the last write of the controller.
func (o *oracle) earlier(t *rapid.T) *corev1.Node {
	if len(o.seen) == 0 {
		return o.node
	}
	return o.seen[rapid.IntRange(max(0, len(o.seen)-3), len(o.seen)-1).Draw(t, "version")]
}

// drawFault makes a step before and after, because a new fault triggers a reconcile.
func (o *oracle) drawFault(t *rapid.T) {
	check := drawn(t, "check", "cordon", "cordon2", "taint", "both", "support", "slow", "dry", "none", "broken")
	o.rest()
	o.heal(check)
	o.fault(check)
	if check == "broken" {
		o.faults[len(o.faults)-1].ErrorCodes = nil
	}
	o.note()
	o.rest()
}

func (o *oracle) drawHealing(t *rapid.T) {
	o.rest()
	if rapid.IntRange(0, 2).Draw(t, "all") == 0 {
		o.heal()
	} else if len(o.faults) > 0 {
		o.heal(rapid.SampledFrom(o.faults).Draw(t, "fault").Check)
	}
	o.note()
	o.rest()
}

func (o *oracle) drawTime(t *rapid.T) {
	for range rapid.IntRange(1, 3).Draw(t, "times") {
		o.pass(rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, time.Minute, 3 * time.Minute, healthyFor, overrideTTL}).Draw(t, "time"))
		o.note()
		o.rest()
	}
}

// drawTaint adds a taint that the controller might have added, with a different value.
func (o *oracle) drawTaint(t *rapid.T) {
	text := drawn(t, "taint", "sick=disk:NoSchedule", "worse=x:NoExecute", "other=y:NoSchedule")
	for _, is := range o.node.Spec.Taints {
		if is.MatchTaint(new(parseTaint(text))) {
			return
		}
	}
	o.taint(text)
	o.note()
}

func (o *oracle) drawAnnotation(t *rapid.T) {
	key := drawn(t, "key", v1alpha1.AnnotationOwned, v1alpha1.AnnotationReleased, v1alpha1.AnnotationOverridden)
	o.personWrites(key, drawn(t, "value", "", "", "garbage", `{"session":"x"}`))
}

func (o *oracle) drawOptOut(t *rapid.T) {
	value := drawn(t, "value", v1alpha1.OptedOut, "")
	if value == "" {
		o.left = nil // a node that was excluded is evaluated again
	}
	o.label(v1alpha1.LabelOptOut, value)
	o.note()
}

// drawMishap draws a rare event.
func (o *oracle) drawMishap(t *rapid.T) {
	switch rapid.IntRange(0, 5).Draw(t, "mishap") {
	case 0:
		o.loseStatus()
	case 1:
		o.replaceNode()
	}
}

// calm waits until nothing changes, after one of the ways in which a node is released.
func (o *oracle) calm(t *rapid.T) {
	o.cfg.DryRun, o.busy, o.denial = false, false, ""
	o.personWrites(v1alpha1.AnnotationHold, "")
	switch drawn(t, "end", "heal", "optOut", "release") {
	case "heal":
		if o.node.Labels[v1alpha1.LabelOptOut] != "" {
			o.label(v1alpha1.LabelOptOut, "")
			o.left = nil
		}
		o.rest()
		o.heal()
		o.note()
		o.rest()
		o.pass(healthyFor)
		o.rest()
		o.wantNothingOfOurs("after recovery")
		o.comesBack(t)
	case "optOut":
		o.rest()
		o.label(v1alpha1.LabelOptOut, v1alpha1.OptedOut)
		o.rest()
		o.wantNothingOfOurs("after opting out")
	case "release":
		o.rest()
		o.heal()
		o.rest()
		o.personReleases(false)
		o.rest()
		o.wantNothingOfOurs("after release")
	}
}

// comesBack verifies that the node can still be quarantined.
func (o *oracle) comesBack(t *rapid.T) {
	if _, held := o.node.Annotations[v1alpha1.AnnotationOverridden]; held {
		return
	}
	o.left = nil
	o.fault("both")
	s := o.rest()
	if !s.Act || s.Why != quarantine.Ours && s.Why != quarantine.Foreign || !o.node.Spec.Unschedulable {
		t.Fatalf("a new fault has no effect: %s, %s", s.Why, s.Message)
	}
}
