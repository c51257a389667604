package intake

import (
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
)

// Suffixes that NVSentinel's connector appends to the name of a check. The result is the
// reason of the condition with that name.
const (
	unhealthySuffix = "IsNotHealthy"
	healthySuffix   = "IsHealthy"
)

// checkNVSentinelCondition returns the finding about a condition of NVSentinel's connector, which is
// recognized by its reason. The connector writes one condition for each check with a fatal
// error. The message has the errors and the recommended actions.
func checkNVSentinelCondition(c corev1.NodeCondition, now time.Time) (f healthFinding, statusKnown bool) {
	if c.Status == corev1.ConditionFalse && c.Reason == string(c.Type)+healthySuffix {
		return newHealthyFinding(SourceConditions, string(c.Type), now), true
	}
	if c.Status != corev1.ConditionTrue || c.Reason != string(c.Type)+unhealthySuffix {
		return healthFinding{}, false
	}
	codes, action := parseCodesAndAction(c.Message)
	f = newUnhealthyConditionFinding(c, NodeCondition{Fatal: true, RecommendedAction: action}, now)
	f.fault.ErrorCodes = codes
	return f, true
}

// parseCodesAndAction returns the error codes in a message of the connector, and the recommended
// action with the largest effect.
func parseCodesAndAction(message string) (codes []string, action v1alpha1.RecommendedAction) {
	for _, m := range regexp.MustCompile(`ErrorCode:([^\s;]+)`).FindAllStringSubmatch(message, -1) {
		for code := range strings.SplitSeq(m[1], ",") {
			isValid := code != "" && len(code) <= maxCode
			if isValid && len(codes) < maxCodes && !slices.Contains(codes, code) {
				codes = append(codes, strings.ToValidUTF8(code, ""))
			}
		}
	}
	action, rank := v1alpha1.ActionUnknown, len(actionsLargestEffectFirst())
	for _, m := range regexp.MustCompile(`Recommended Action=([A-Z0-9_]{1,64})`).FindAllStringSubmatch(message, -1) {
		found := v1alpha1.RecommendedAction(m[1])
		at := slices.Index(actionsLargestEffectFirst(), found)
		switch {
		case at >= 0 && at < rank:
			action, rank = found, at
		case at < 0 && action == v1alpha1.ActionUnknown:
			action = found // a custom action of the monitor
		}
	}
	return codes, action
}

// actionsLargestEffectFirst returns the actions, those with the largest effect first.
func actionsLargestEffectFirst() []v1alpha1.RecommendedAction {
	return []v1alpha1.RecommendedAction{
		v1alpha1.ActionReplaceVM, v1alpha1.ActionRestartBM, v1alpha1.ActionRestartVM, v1alpha1.ActionComponentReset,
		v1alpha1.ActionContactSupport, v1alpha1.ActionRunDCGMEUD, v1alpha1.ActionRunFieldDiag, v1alpha1.ActionNone,
	}
}
