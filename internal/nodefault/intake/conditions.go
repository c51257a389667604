package intake

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

// The sources of the faults that a ConditionSet finds.
const (
	SourceConditions = "node-conditions"
	SourceResources  = "node-resources"
)

// A ConditionSet defines which states of a Node are faults: unhealthy conditions, and
// extended resources whose allocatable amount is less than the capacity. Use
// NewConditionSet to create one.
//
// The unhealthy statuses of a condition are configured and never guessed. An unhealthy
// condition is a fault after a configured duration since its last transition. A status
// that is neither healthy nor unhealthy, such as Unknown of a silent kubelet, leaves a
// fault unchanged.
type ConditionSet struct {
	conditions map[corev1.NodeConditionType]NodeCondition
	resources  []NodeResource
	connector  bool // conditions of NVSentinel's connector are faults
}

// Shortages holds the start time of each shortfall of a resource. A Node does not have
// it, so it is kept in memory, and a shortfall starts again if it is lost.
type Shortages map[corev1.ResourceName]time.Time

// FindShortages returns the shortages of a node at now, given the previous ones.
func (s *ConditionSet) FindShortages(node *corev1.Node, before Shortages, now time.Time) Shortages {
	var out Shortages
	for _, r := range s.resources {
		if missing, known := describeShortfall(node, r.Resource); !known || missing == "" {
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

// describeShortfall returns the missing amount of a resource, or "" if nothing is missing. It is
// unknown while the capacity is zero, because the device plugin may not be running.
func describeShortfall(node *corev1.Node, name corev1.ResourceName) (text string, capacityKnown bool) {
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

// CheckNode returns the faults of a node and the checks that are healthy, in a stable order,
// and the delay until the next look. Zero means that no later look is needed. A check
// without a report has an unknown status, or has not been unhealthy for long enough.
func (s *ConditionSet) CheckNode(
	node *corev1.Node, now time.Time, short Shortages,
) (reports []nodefault.Report, recheckAfter time.Duration) {
	l := conditionCheck{node: node, now: now}
	seen := map[corev1.NodeConditionType]bool{}
	for _, c := range node.Status.Conditions {
		seen[c.Type] = true
		if rule, ok := s.conditions[c.Type]; ok {
			l.reportCondition(c, rule)
		} else if s.connector {
			l.reportNVSentinelCondition(c)
		}
	}
	for _, t := range slices.Sorted(maps.Keys(s.conditions)) {
		if !seen[t] {
			l.reportHealthy(SourceConditions, string(t)) // the reporter has removed the condition
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

// A conditionCheck is the evaluation of one node.
type conditionCheck struct {
	node    *corev1.Node
	now     time.Time
	reports []nodefault.Report
	after   time.Duration
}

func (l *conditionCheck) reportHealthy(source, check string) {
	l.reports = append(l.reports, nodefault.Report{Node: l.node.Name, Healthy: true, Fault: v1alpha1.Fault{Source: source, Check: check, DetectedAt: metav1.NewMicroTime(l.now)}})
}

// reportFaultIfLasting reports a fault that has lasted for minDuration, or sets the delay until it will
// have.
func (l *conditionCheck) reportFaultIfLasting(f v1alpha1.Fault, since time.Time, minDuration time.Duration) {
	if rest := minDuration - l.now.Sub(since); rest > 0 {
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

func (l *conditionCheck) reportCondition(c corev1.NodeCondition, rule NodeCondition) {
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
		Fatal: rule.Fatal, Message: truncateMessage(c.Message, maxMessage), RecommendedAction: rule.RecommendedAction,
	}
	if code != "" {
		f.ErrorCodes = []string{truncateMessage(code, maxCode)}
	}
	since, wait := l.transitionTimeUnlessFuture(c), rule.For
	if since.IsZero() {
		since, wait = l.now, 0
	}
	l.reportFaultIfLasting(f, since, wait)
}

// maxClockSkew limits how far the clock of a node may be ahead.
const maxClockSkew = time.Minute

// transitionTimeUnlessFuture returns the time of the last transition of a condition, or zero if it is
// unknown. A time in the future is ignored, because the clock of a faulty node may be
// wrong.
func (l *conditionCheck) transitionTimeUnlessFuture(c corev1.NodeCondition) time.Time {
	if at := c.LastTransitionTime.Time; !at.After(l.now.Add(maxClockSkew)) {
		return at
	}
	return time.Time{}
}

func (l *conditionCheck) reportResource(r NodeResource, short Shortages) {
	missing, known := describeShortfall(l.node, r.Resource)
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
	l.reportFaultIfLasting(f, since, r.For)
}

// truncateMessage truncates a text of a condition. Unlike removeUnprintableAndTruncate, it keeps
// unprintable characters.
func truncateMessage(message string, maxRunes int) string {
	message = strings.ToValidUTF8(message, "")
	if r := []rune(message); len(r) > maxRunes {
		return string(r[:maxRunes-1]) + "…"
	}
	return message
}
