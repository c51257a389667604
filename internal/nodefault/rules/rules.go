// Package rules decides which actions a node with faults requires: a cordon, taints, a
// drain, and remedies.
//
// A rule matches single faults with a CEL expression over the fault and its node. The
// actions of all matching rules are combined. Rules in dry run have an effect only if no
// other rule matches. The overrides of a source (skip, force, observe only) take
// precedence over all rules.
//
// A decision is pure, and its cost is limited when the rules are compiled. If a rule
// fails on a fault, the verdict is marked as unsure, so that an invalid rule does not
// make a node count as healthy.
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

// Config lists the rules. Their order decides between remedies of the same priority.
type Config []Rule

// A Rule defines the actions for nodes with certain faults.
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

// maxTaints limits the taints that all rules together add to a node.
const maxTaints = 16

// A Set holds compiled rules. It is safe for concurrent use.
type Set struct {
	rules []rule
}

// A rule is a compiled rule.
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

// ageInterval is how often a rule that reads the age of a fault is evaluated again.
const ageInterval = 15 * time.Second

// Decide returns the actions that a node with these faults requires at a time.
//
// The error concerns rules that could not be evaluated. The verdict is valid without
// them, and is marked as unsure. For a nil node, which is gone, no action is required.
func (s *Set) Decide(node *corev1.Node, faults []v1alpha1.Fault, now time.Time) (nodefault.Verdict, error) {
	if node == nil {
		return nodefault.Verdict{}, nil
	}
	d := decision{now: now}
	subject := newNodeVariables(node)
	for i := range faults {
		d.matchRulesToFault(s, subject, &faults[i])
	}
	return d.mergeMatchesByRulePriority(), errors.Join(d.errs...)
}

// A decision collects the matches of one decision, one for each matching fault and rule.
type decision struct {
	now     time.Time
	matches []ruleMatch
	after   time.Duration // until a match may change without a change of the node
	unsure  bool          // a rule failed
	errs    []error
}

// A ruleMatch is a rule that matches a fault. Its place is the index of the rule.
type ruleMatch struct {
	fault *v1alpha1.Fault
	rule  rule
	place int
}

// ruleOfSource is the rule name for a cordon or a drain that a source forces. No rule can
// have this name.
const ruleOfSource = "(source)"

// matchRulesToFault adds the matches of a fault.
func (d *decision) matchRulesToFault(set *Set, node nodeVariables, f *v1alpha1.Fault) {
	if f.ObserveOnly || f.QuarantineOverride == v1alpha1.OverrideSkip {
		return
	}
	forcesCordon := f.QuarantineOverride == v1alpha1.OverrideForce
	forcesDrain := f.DrainOverride == v1alpha1.OverrideForce
	if forcesCordon || forcesDrain {
		// A drain requires a cordon, because pods could be scheduled to the node again.
		r := rule{name: ruleOfSource, cordon: true, drain: forcesDrain}
		d.matches = append(d.matches, ruleMatch{fault: f, rule: r, place: len(set.rules)})
	}
	age := max(0, d.now.Sub(f.DetectedAt.Time))
	vars := node.withFault(f, age)
	for i, r := range set.rules {
		matches, aging, err := r.match.evalMatch(vars)
		switch {
		case err != nil:
			d.unsure = true
			d.errs = append(d.errs, fmt.Errorf("rule %q on fault %q: %w", r.name, nodefault.KeyOf(*f), err))
		case matches && age < r.lasting:
			d.reevaluateWithin(r.lasting - age)
		case matches:
			if f.DrainOverride == v1alpha1.OverrideSkip {
				r.drain = false
			}
			d.matches = append(d.matches, ruleMatch{fault: f, rule: r, place: i})
		}
		if aging && err == nil {
			d.reevaluateWithin(ageInterval)
		}
	}
}

// reevaluateWithin shortens the delay until the decision is repeated.
func (d *decision) reevaluateWithin(delay time.Duration) {
	if d.after == 0 || delay < d.after {
		d.after = delay
	}
}

// mergeMatchesByRulePriority combines the matches.
func (d *decision) mergeMatchesByRulePriority() nodefault.Verdict {
	verdict := nodefault.Verdict{After: d.after, Unsure: d.unsure}
	matches, dryRun := effectiveElseDryRunMatches(d.matches)
	if len(matches) == 0 {
		return verdict
	}
	// The remedies and the taints of the first match take precedence.
	slices.SortStableFunc(matches, func(a, b ruleMatch) int {
		return cmp.Or(cmp.Compare(b.rule.priority, a.rule.priority), cmp.Compare(a.place, b.place))
	})
	desired := &verdict.DesiredActions
	desired.DryRun = dryRun
	for _, match := range matches {
		desired.Cordon = desired.Cordon || match.rule.cordon
		desired.Drain = desired.Drain || match.rule.drain
		if len(desired.Remedies) == 0 {
			desired.Remedies = slices.Clone(match.rule.remedies)
		}
		for _, taint := range match.rule.taints {
			desired.Taints = addTaintUpToLimit(desired.Taints, taint)
		}
		if !slices.Contains(desired.MatchedRules, match.rule.name) {
			desired.MatchedRules = append(desired.MatchedRules, match.rule.name)
		}
		verdict.Matched = addFaultOnce(verdict.Matched, match.fault)
	}
	verdict.Opened = slices.MinFunc(matches, compareByFatalThenPriority).fault.DeepCopy()
	return verdict
}

// effectiveElseDryRunMatches returns the matches that have an effect: those of rules in dry run only if no
// other rule with an action matches.
func effectiveElseDryRunMatches(all []ruleMatch) (matches []ruleMatch, dryRun bool) {
	var effective, inDryRun []ruleMatch
	for _, match := range all {
		switch {
		case match.rule.hasNoAction():
			// The rule only says that the fault requires nothing.
		case match.rule.dryRun:
			inDryRun = append(inDryRun, match)
		default:
			effective = append(effective, match)
		}
	}
	if len(effective) > 0 {
		return effective, false
	}
	return inDryRun, len(inDryRun) > 0
}

func (r *rule) hasNoAction() bool {
	return !r.cordon && !r.drain && len(r.taints) == 0 && len(r.remedies) == 0
}

// compareByFatalThenPriority puts the match first whose fault best explains the actions. This is
// a fatal fault, of the rule with the highest priority, and the oldest.
func compareByFatalThenPriority(a, b ruleMatch) int {
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

func addTaintUpToLimit(taints []corev1.Taint, t corev1.Taint) []corev1.Taint {
	same := func(o corev1.Taint) bool { return o.Key == t.Key && o.Effect == t.Effect }
	if slices.ContainsFunc(taints, same) || len(taints) == maxTaints {
		return taints
	}
	return append(taints, t)
}

func addFaultOnce(faults []v1alpha1.Fault, f *v1alpha1.Fault) []v1alpha1.Fault {
	same := func(o v1alpha1.Fault) bool { return nodefault.KeyOf(o) == nodefault.KeyOf(*f) }
	if slices.ContainsFunc(faults, same) {
		return faults
	}
	return append(faults, *f.DeepCopy())
}
