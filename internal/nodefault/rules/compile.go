package rules

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
)

// maxRules limits the number of rules, and so the cost of a decision.
const maxRules = 128

// Compile compiles rules. The error names each invalid rule, and for an expression the
// line, the column and a suggestion.
func Compile(cfg Config) (*Set, error) {
	if len(cfg) > maxRules {
		return nil, fmt.Errorf("%d rules exceed the maximum of %d", len(cfg), maxRules)
	}
	env, err := newCELEnvironment()
	if err != nil {
		return nil, err
	}
	s := &Set{}
	var errs []error
	seen := map[string]bool{}
	for i, c := range cfg {
		r, err := env.compileRule(c)
		if seen[c.Name] {
			err = errors.Join(err, errors.New("duplicate name"))
		}
		seen[c.Name] = true
		if err != nil {
			errs = append(errs, prefixRuleErrors(i, c.Name, err))
			continue
		}
		s.rules = append(s.rules, r)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return s, nil
}

// prefixRuleErrors adds the name of the rule to each part of an error.
func prefixRuleErrors(index int, rule string, err error) error {
	var errs []error
	for _, e := range flattenJoinedErrors(err) {
		errs = append(errs, fmt.Errorf("rule %d, %q: %w", index+1, rule, e))
	}
	return errors.Join(errs...)
}

func flattenJoinedErrors(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, flattenJoinedErrors(e)...)
		}
		return all
	}
	return []error{err}
}

// compileRule compiles a rule, or returns all its errors.
func (e *celEnvironment) compileRule(c Rule) (rule, error) {
	r := rule{
		name:     c.Name,
		lasting:  c.For,
		cordon:   c.Cordon == nil || *c.Cordon,
		drain:    c.Drain != nil && *c.Drain,
		remedies: slices.Clone(c.Remedies),
		dryRun:   c.DryRun,
		priority: c.Priority,
	}
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Name == "" || strings.ContainsAny(c.Name, "()\n\r") {
		refuse("name %q is empty or contains parentheses or line breaks", c.Name)
	}
	if c.For < 0 {
		refuse("for is %s: it must not be negative", c.For)
	}
	if r.drain && !r.cordon {
		refuse("drain requires cordon: pods could be scheduled to the node again")
	}
	for _, remedy := range c.Remedies {
		switch remedy {
		case v1alpha1.RemedySupport: // a person repairs the node, which requires nothing
		case v1alpha1.RemedyReboot, v1alpha1.RemedyTerminate:
			if !r.drain {
				refuse("%s requires drain: pods would be killed with the node", remedy)
			}
		default:
			refuse("unknown remedy %q%s", remedy, didYouMeanSuffix(string(remedy), allRemedies()))
		}
	}
	terminate := slices.Index(c.Remedies, v1alpha1.RemedyTerminate)
	if terminate >= 0 && slices.Contains(c.Remedies[terminate:], v1alpha1.RemedyReboot) {
		refuse("reboot after terminate: the node no longer exists")
	}
	for _, text := range c.Taints {
		t, err := parseTaint(text)
		if err != nil {
			errs = append(errs, err)
		}
		r.taints = append(r.taints, t)
	}
	match, err := e.compileBoolExpr(c.Match)
	if err != nil {
		errs = append(errs, err)
	}
	r.match = match
	return r, errors.Join(errs...)
}

func allRemedies() []string {
	return []string{
		string(v1alpha1.RemedyReboot),
		string(v1alpha1.RemedyTerminate),
		string(v1alpha1.RemedySupport),
	}
}

// parseTaint parses a taint in the syntax of kubectl.
func parseTaint(text string) (corev1.Taint, error) {
	rest, effect, ok := strings.Cut(text, ":")
	if !ok {
		return corev1.Taint{}, fmt.Errorf("taint %q has no effect: use key=value:Effect or key:Effect", text)
	}
	key, value, _ := strings.Cut(rest, "=")
	t := corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
	if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
		return t, fmt.Errorf("taint %q: key: %s", text, strings.Join(wrong, "; "))
	}
	if wrong := validation.IsValidLabelValue(value); len(wrong) > 0 {
		return t, fmt.Errorf("taint %q: value: %s", text, strings.Join(wrong, "; "))
	}
	domain, _, _ := strings.Cut(key, "/")
	if domain == "node.kubernetes.io" || strings.HasSuffix(domain, ".node.kubernetes.io") {
		return t, fmt.Errorf("taint %q: taints of node.kubernetes.io are reserved for Kubernetes", text)
	}
	if !slices.Contains(allTaintEffects(), effect) {
		return t, fmt.Errorf("taint %q: unknown effect %q%s", text, effect, didYouMeanSuffix(effect, allTaintEffects()))
	}
	return t, nil
}

func allTaintEffects() []string {
	return []string{
		string(corev1.TaintEffectNoSchedule),
		string(corev1.TaintEffectPreferNoSchedule),
		string(corev1.TaintEffectNoExecute),
	}
}
