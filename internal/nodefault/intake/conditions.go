package intake

import (
	"cmp"
	"fmt"
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
	out := Shortages{}
	for _, r := range s.resources {
		if missing, _ := describeShortfall(node, r.Resource); missing == "" {
			continue
		}
		since, ok := before[r.Resource]
		if !ok {
			since = now
		}
		out[r.Resource] = since
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
) (healthReports []nodefault.Report, recheckAfter time.Duration) {
	for _, f := range slices.Concat(s.findHealthOfConditions(node, now), s.findHealthOfResources(node, now, short)) {
		if rest := f.minDuration - now.Sub(f.since); !f.healthy && rest > 0 {
			recheckAfter = shorterNonZeroDelay(recheckAfter, rest)
			continue
		}
		f.fault.DetectedAt = metav1.NewMicroTime(f.since.UTC().Truncate(time.Microsecond))
		healthReports = append(healthReports, nodefault.Report{Node: node.Name, Healthy: f.healthy, Fault: f.fault})
	}
	slices.SortFunc(healthReports, func(a, b nodefault.Report) int {
		return strings.Compare(nodefault.KeyOf(a.Fault), nodefault.KeyOf(b.Fault))
	})
	return healthReports, recheckAfter
}

// A healthFinding is the result of one check of a node.
type healthFinding struct {
	fault       v1alpha1.Fault // only Source and Check if healthy
	healthy     bool
	since       time.Time
	minDuration time.Duration // before an unhealthy state is a fault
}

func newHealthyFinding(source, check string, now time.Time) healthFinding {
	return healthFinding{fault: v1alpha1.Fault{Source: source, Check: check}, healthy: true, since: now}
}

func (s *ConditionSet) findHealthOfConditions(node *corev1.Node, now time.Time) []healthFinding {
	var findings []healthFinding
	seen := map[corev1.NodeConditionType]bool{}
	for _, c := range node.Status.Conditions {
		seen[c.Type] = true
		if f, ok := s.checkCondition(c, now); ok {
			findings = append(findings, f)
		}
	}
	for conditionType := range s.conditions {
		if !seen[conditionType] { // the reporter has removed the condition
			findings = append(findings, newHealthyFinding(SourceConditions, string(conditionType), now))
		}
	}
	return findings
}

// checkCondition returns the finding about a condition, if it is checked and its status is known.
func (s *ConditionSet) checkCondition(c corev1.NodeCondition, now time.Time) (f healthFinding, statusKnown bool) {
	rule, hasRule := s.conditions[c.Type]
	switch {
	case !hasRule && s.connector:
		return checkNVSentinelCondition(c, now)
	case !hasRule:
		return healthFinding{}, false
	case slices.Contains(rule.UnhealthyStatus, c.Status):
		return newUnhealthyConditionFinding(c, rule, now), true
	case c.Status == corev1.ConditionUnknown:
		return healthFinding{}, false
	}
	return newHealthyFinding(SourceConditions, string(c.Type), now), true
}

// newUnhealthyConditionFinding returns the finding about an unhealthy condition.
func newUnhealthyConditionFinding(c corev1.NodeCondition, rule NodeCondition, now time.Time) healthFinding {
	f := healthFinding{since: transitionTimeUnlessFuture(c, now), minDuration: rule.For, fault: v1alpha1.Fault{
		Source:            SourceConditions,
		Check:             string(c.Type),
		ComponentClass:    rule.ComponentClass,
		Fatal:             rule.Fatal,
		Message:           truncateMessage(c.Message, maxMessage),
		RecommendedAction: cmp.Or(rule.RecommendedAction, v1alpha1.ActionNone),
	}}
	if f.since.IsZero() {
		f.since, f.minDuration = now, 0
	}
	if code := cmp.Or(rule.ErrorCode, c.Reason); code != "" {
		f.fault.ErrorCodes = []string{truncateMessage(code, maxCode)}
	}
	return f
}

// maxClockSkew limits how far the clock of a node may be ahead.
const maxClockSkew = time.Minute

// transitionTimeUnlessFuture returns the time of the last transition of a condition, or zero if it is
// unknown. A time in the future is ignored, because the clock of a faulty node may be
// wrong.
func transitionTimeUnlessFuture(c corev1.NodeCondition, now time.Time) time.Time {
	if at := c.LastTransitionTime.Time; !at.After(now.Add(maxClockSkew)) {
		return at
	}
	return time.Time{}
}

func (s *ConditionSet) findHealthOfResources(node *corev1.Node, now time.Time, knownShortages Shortages) []healthFinding {
	var findings []healthFinding
	for _, r := range s.resources {
		missing, known := describeShortfall(node, r.Resource)
		if !known {
			continue
		}
		if missing == "" {
			findings = append(findings, newHealthyFinding(SourceResources, string(r.Resource), now))
			continue
		}
		since, ok := knownShortages[r.Resource]
		if !ok {
			since = now
		}
		fault := v1alpha1.Fault{
			Source:            SourceResources,
			Check:             string(r.Resource),
			ComponentClass:    r.ComponentClass,
			Fatal:             r.Fatal,
			Message:           missing,
			RecommendedAction: cmp.Or(r.RecommendedAction, v1alpha1.ActionNone),
		}
		if r.ErrorCode != "" {
			fault.ErrorCodes = []string{r.ErrorCode}
		}
		findings = append(findings, healthFinding{fault: fault, since: since, minDuration: r.For})
	}
	return findings
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
