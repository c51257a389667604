// Package rules decides what is wished for a node with faults: a cordon,
// taints, a drain, remedies.
//
// A rule matches single faults, with a CEL expression over the fault and its
// node. What the rules that match wish is united; whatever one of them wants
// is wanted. Rules in dry run have a say only where no other has. What a
// source says itself (leave the node alone, cordon it in any case, only
// observe) goes before all rules.
//
// Deciding is pure, and what it may cost is bounded when the rules are
// compiled. A rule that fails on a fault makes the verdict unsure: nobody
// takes a node to be well because a rule is wrong.
package rules

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

// Config is the rules. Their order decides between remedies of one priority.
type Config []Rule

// A Rule says what is wished for the nodes of certain faults.
type Rule struct {
	Name  string `key:"name" doc:"Name of the rule, as shown in the status." validate:"required,max=63"`
	Match string `key:"match" doc:"CEL expression that selects faults. Variables: fault.source, .check, .entity, .componentClass, .errorCodes, .fatal, .message, .recommendedAction and .ageSeconds, and node.name, .labels, .annotations, .taints and .ready. A missing label or annotation is an empty string." validate:"required,max=4096"`

	For time.Duration `key:"for" doc:"Minimum age of a fault before the rule applies." validate:"gte=0"`

	Cordon   *bool             `key:"cordon" doc:"Whether to cordon the node; true by default."`
	Drain    *bool             `key:"drain" doc:"Whether to drain the node; false by default. It requires cordon."`
	Taints   []string          `key:"taints" doc:"Taints to add to the node, as key=value:Effect or key:Effect." validate:"max=8"`
	Remedies []v1alpha1.Remedy `key:"remedies" doc:"Remedies to try, in this order: reboot, terminate, support. If several rules match, the rule with the highest priority decides." validate:"max=8,dive,oneof=reboot terminate support"`

	DryRun   bool `key:"dry_run" doc:"Report the actions without performing them."`
	Priority int  `key:"priority" doc:"Priority for remedies if several rules match. Among equal priorities, the first rule is used."`
}

// maxTaints is how many taints a node is given at most, by all rules.
const maxTaints = 16

// A Verdict is what is wished for a node.
type Verdict struct {
	// Wish is empty if no rule wants anything.
	DesiredActions v1alpha1.DesiredActions

	// Opened is the most severe fault that something is wished for: what is
	// done is told with it. It is nil if nothing is wished.
	Opened *v1alpha1.Fault

	// Matched are the faults that something is wished for, as their source had
	// them.
	Matched []v1alpha1.Fault

	// After is when to look again though nothing has changed, as a rule waits
	// for a fault to last: 0 is that none does.
	After time.Duration

	// Unsure is that a rule could not say whether it matches, so that there may
	// be more to wish for.
	Unsure bool
}

// Empty says whether nothing is wished.
func Empty(w v1alpha1.DesiredActions) bool {
	return !w.Cordon && !w.Drain && len(w.Taints) == 0 && len(w.Remedies) == 0
}

// A Set is rules that can be asked, at the same time too.
type Set struct {
	rules []rule
}

// A rule is one that was compiled.
type rule struct {
	name     string
	match    program
	lasting  time.Duration
	cordon   bool
	drain    bool
	taints   []corev1.Taint
	remedies []v1alpha1.Remedy
	dryRun   bool
	priority int
}

// ageInterval is how soon a rule that looks at a fault's age is asked again.
const ageInterval = 15 * time.Second

// Decide says what is wished for a node with these faults at a time.
//
// The error is of rules that could not be evaluated. The verdict holds
// nevertheless, without them, and is marked as unsure. For a node that is no
// more, which is nil, nothing is wished.
func (s *Set) Decide(node *corev1.Node, faults []v1alpha1.Fault, now time.Time) (Verdict, error) {
	if node == nil {
		return Verdict{}, nil
	}
	d := deciding{now: now}
	subject := subjectOf(node)
	for i := range faults {
		d.judgeFault(s, subject, &faults[i])
	}
	return d.mergeVerdict(), errors.Join(d.errs...)
}

// A deciding is one decision under way: a hit for each fault and rule.
type deciding struct {
	now    time.Time
	hits   []hit
	after  time.Duration
	unsure bool
	errs   []error
}

// A hit is that a rule is about a fault. Its place is the rule's in the list.
type hit struct {
	fault *v1alpha1.Fault
	rule  rule
	place int
}

// ruleOfSource stands for the source itself where that wants a cordon or a
// drain. No rule can have the name.
const ruleOfSource = "(source)"

func (d *deciding) judgeFault(s *Set, subject subject, f *v1alpha1.Fault) {
	if f.ObserveOnly || f.QuarantineOverride == v1alpha1.OverrideSkip {
		return
	}
	if forced := f.QuarantineOverride == v1alpha1.OverrideForce; forced || f.DrainOverride == v1alpha1.OverrideForce {
		// What is drained is cordoned first, or it would fill up again.
		r := rule{name: ruleOfSource, cordon: true, drain: f.DrainOverride == v1alpha1.OverrideForce}
		d.hits = append(d.hits, hit{fault: f, rule: r, place: len(s.rules)})
	}
	age := max(0, d.now.Sub(f.DetectedAt.Time))
	vars := subject.withFault(f, age)
	for i, r := range s.rules {
		matches, aging, err := r.match.evalProgram(vars)
		switch {
		case err != nil:
			d.unsure = true
			d.errs = append(d.errs, fmt.Errorf("rule %q on fault %q: %w", r.name, nodefault.KeyOf(*f), err))
		case matches && age < r.lasting:
			d.lookAfter(r.lasting - age)
		case matches:
			if f.DrainOverride == v1alpha1.OverrideSkip {
				r.drain = false
			}
			d.hits = append(d.hits, hit{fault: f, rule: r, place: i})
		}
		if aging && err == nil {
			d.lookAfter(ageInterval)
		}
	}
}

func (d *deciding) lookAfter(after time.Duration) {
	if d.after == 0 || after < d.after {
		d.after = after
	}
}

// mergeVerdict unites the hits.
func (d *deciding) mergeVerdict() Verdict {
	v := Verdict{After: d.after, Unsure: d.unsure}
	hits := slices.DeleteFunc(d.hits, func(h hit) bool { return h.rule.wishesNothing() })
	if firm := slices.DeleteFunc(slices.Clone(hits), func(h hit) bool { return h.rule.dryRun }); len(firm) > 0 {
		hits = firm
	} else if len(hits) > 0 {
		v.DesiredActions.DryRun = true
	}
	if len(hits) == 0 {
		return v
	}
	// The remedies of the first are tried, and taints of the first win.
	slices.SortStableFunc(hits, func(a, b hit) int {
		return cmp.Or(cmp.Compare(b.rule.priority, a.rule.priority), cmp.Compare(a.place, b.place))
	})
	for _, h := range hits {
		v.DesiredActions.Cordon = v.DesiredActions.Cordon || h.rule.cordon
		v.DesiredActions.Drain = v.DesiredActions.Drain || h.rule.drain
		if len(v.DesiredActions.Remedies) == 0 {
			v.DesiredActions.Remedies = slices.Clone(h.rule.remedies)
		}
		for _, t := range h.rule.taints {
			v.DesiredActions.Taints = addTaint(v.DesiredActions.Taints, t)
		}
		if !slices.Contains(v.DesiredActions.MatchedRules, h.rule.name) {
			v.DesiredActions.MatchedRules = append(v.DesiredActions.MatchedRules, h.rule.name)
		}
		v.Matched = addFault(v.Matched, h.fault)
	}
	opened := slices.MinFunc(hits, bySeverity).fault
	v.Opened = opened.DeepCopy()
	return v
}

func (r *rule) wishesNothing() bool {
	return !r.cordon && !r.drain && len(r.taints) == 0 && len(r.remedies) == 0
}

// bySeverity has the fault first that explains best what is done: one that is
// fatal, of the rule with the highest priority, and the oldest.
func bySeverity(a, b hit) int {
	return cmp.Or(
		-compareBool(a.fault.Fatal, b.fault.Fatal),
		cmp.Compare(b.rule.priority, a.rule.priority),
		a.fault.DetectedAt.Compare(b.fault.DetectedAt.Time),
		cmp.Compare(nodefault.KeyOf(*a.fault), nodefault.KeyOf(*b.fault)),
	)
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}

func addTaint(taints []corev1.Taint, t corev1.Taint) []corev1.Taint {
	same := func(o corev1.Taint) bool { return o.Key == t.Key && o.Effect == t.Effect }
	if slices.ContainsFunc(taints, same) || len(taints) == maxTaints {
		return taints
	}
	return append(taints, t)
}

func addFault(faults []v1alpha1.Fault, f *v1alpha1.Fault) []v1alpha1.Fault {
	same := func(o v1alpha1.Fault) bool { return nodefault.KeyOf(o) == nodefault.KeyOf(*f) }
	if slices.ContainsFunc(faults, same) {
		return faults
	}
	return append(faults, *f.DeepCopy())
}
