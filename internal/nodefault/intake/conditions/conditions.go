// Package conditions finds faults on Node objects themselves: conditions that
// are bad, and extended resources of which less can be allocated than there is.
//
// Whether a condition is bad when True or when False is said for each, never
// guessed. One that is bad counts after it has been so for a while, by the time
// of its last transition. One that is neither good nor bad, such as an Unknown of
// a kubelet that is silent, leaves a fault as it is.
package conditions

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

// The sources of faults that are found here.
const (
	SourceConditions = "node-conditions"
	SourceResources  = "node-resources"
)

// A Set is what of a node is a fault. Make it with New.
type Set struct {
	conditions map[corev1.NodeConditionType]Condition
	resources  []Resource
	connector  bool // what NVSentinel's connector writes is a fault
}

// Shortages are since when some of a resource has been missing. A Node does not
// say, so it is remembered beside it; who has lost it waits anew.
type Shortages map[corev1.ResourceName]time.Time

// Short gives the shortages of a node at now, with what was known before.
func (s *Set) Short(node *corev1.Node, before Shortages, now time.Time) Shortages {
	var out Shortages
	for _, r := range s.resources {
		if missing, known := shortfall(node, r.Resource); !known || missing == "" {
			continue
		}
		if out == nil {
			out = Shortages{}
		}
		out[r.Resource] = now
		if since, ok := before[r.Resource]; ok {
			out[r.Resource] = since
		}
	}
	return out
}

// shortfall says what is missing of a resource, "" if nothing. It is not known
// while there is none of it at all: its device plugin may be away.
func shortfall(node *corev1.Node, name corev1.ResourceName) (missing string, known bool) {
	capacity, ok := node.Status.Capacity[name]
	if !ok || capacity.IsZero() {
		return "", false
	}
	allocatable := node.Status.Allocatable[name]
	if allocatable.Cmp(capacity) >= 0 {
		return "", true
	}
	return fmt.Sprintf("%s of %s %s allocatable", allocatable.String(), capacity.String(), name), true
}

// Look says what is wrong with a node and what is well again, in a stable order,
// and when to look again: never, if that is zero. About what it says nothing of,
// nothing is known, or not for long enough.
func (s *Set) Look(node *corev1.Node, now time.Time, short Shortages) (reports []nodefault.Report, after time.Duration) {
	l := look{node: node, now: now}
	seen := map[corev1.NodeConditionType]bool{}
	for _, c := range node.Status.Conditions {
		seen[c.Type] = true
		if rule, ok := s.conditions[c.Type]; ok {
			l.condition(c, rule)
		} else if s.connector {
			l.connector(c)
		}
	}
	for _, t := range slices.Sorted(maps.Keys(s.conditions)) {
		if !seen[t] {
			l.reportHealthy(SourceConditions, string(t)) // whoever reported it has taken it away
		}
	}
	for _, r := range s.resources {
		l.reportResource(r, short)
	}
	slices.SortFunc(l.reports, func(a, b nodefault.Report) int {
		return strings.Compare(nodefault.KeyOf(a.Fault), nodefault.KeyOf(b.Fault))
	})
	return l.reports, l.after
}

// A look is one look at a node.
type look struct {
	node    *corev1.Node
	now     time.Time
	reports []nodefault.Report
	after   time.Duration
}

func (l *look) reportHealthy(source, check string) {
	l.reports = append(l.reports, nodefault.Report{Node: l.node.Name, Healthy: true, Fault: v1alpha1.Fault{Source: source, Check: check, DetectedAt: metav1.NewMicroTime(l.now)}})
}

// reportFault reports a fault if it has lasted, and else looks again when it will have.
func (l *look) reportFault(f v1alpha1.Fault, since time.Time, wait time.Duration) {
	if rest := wait - l.now.Sub(since); rest > 0 {
		if l.after == 0 || rest < l.after {
			l.after = rest
		}
		return
	}
	f.DetectedAt = metav1.NewMicroTime(since.UTC().Truncate(time.Microsecond))
	if f.RecommendedAction == "" {
		f.RecommendedAction = v1alpha1.ActionNone
	}
	l.reports = append(l.reports, nodefault.Report{Node: l.node.Name, Fault: f})
}

func (l *look) condition(c corev1.NodeCondition, rule Condition) {
	switch {
	case slices.Contains(rule.UnhealthyStatus, c.Status):
	case c.Status == corev1.ConditionUnknown:
		return
	default:
		l.reportHealthy(SourceConditions, string(c.Type))
		return
	}
	code := rule.ErrorCode
	if code == "" {
		code = c.Reason
	}
	f := v1alpha1.Fault{
		Source: SourceConditions, Check: string(c.Type), ComponentClass: rule.ComponentClass,
		Fatal: rule.Fatal, Message: truncateText(c.Message, mostMessage), RecommendedAction: rule.RecommendedAction,
	}
	if code != "" {
		f.ErrorCodes = []string{truncateText(code, mostCode)}
	}
	since, wait := l.conditionSince(c), rule.For
	if since.IsZero() {
		since, wait = l.now, 0
	}
	l.reportFault(f, since, wait)
}

// skew is how far the clocks of nodes may be ahead of ours.
const skew = time.Minute

// conditionSince is when a condition became what it is, zero if that is not known. The
// clock of a node that is ill may be wrong: what will only begin is not waited for.
func (l *look) conditionSince(c corev1.NodeCondition) time.Time {
	if at := c.LastTransitionTime.Time; !at.After(l.now.Add(skew)) {
		return at
	}
	return time.Time{}
}

func (l *look) reportResource(r Resource, short Shortages) {
	missing, known := shortfall(l.node, r.Resource)
	if !known {
		return
	}
	if missing == "" {
		l.reportHealthy(SourceResources, string(r.Resource))
		return
	}
	since, ok := short[r.Resource]
	if !ok {
		since = l.now
	}
	f := v1alpha1.Fault{
		Source: SourceResources, Check: string(r.Resource), ComponentClass: r.ComponentClass,
		Fatal: r.Fatal, Message: missing, RecommendedAction: r.RecommendedAction,
	}
	if r.ErrorCode != "" {
		f.ErrorCodes = []string{r.ErrorCode}
	}
	l.reportFault(f, since, r.For)
}

// What a fault has room for, in characters.
const mostMessage, mostCode = 1024, 64

// truncateText makes a text fit into a fault.
func truncateText(message string, most int) string {
	message = strings.ToValidUTF8(message, "")
	if r := []rune(message); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return message
}
