package conditions

import (
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
)

// What NVSentinel's connector appends to the name of a check, as the reason of
// the condition of the same name.
const (
	unhealthySuffix = "IsNotHealthy"
	healthySuffix   = "IsHealthy"
)

// connector reports a condition that NVSentinel's connector has written, which is
// known by its reason. It writes one for each check that found something fatal, and
// says in the message what, and what should be done.
func (l *look) connector(c corev1.NodeCondition) {
	switch {
	case c.Status == corev1.ConditionTrue && c.Reason == string(c.Type)+unhealthySuffix:
	case c.Status == corev1.ConditionFalse && c.Reason == string(c.Type)+healthySuffix:
		l.reportHealthy(SourceConditions, string(c.Type))
		return
	default:
		return
	}
	codes, action := parseCodes(c.Message)
	since := l.conditionSince(c)
	if since.IsZero() {
		since = l.now
	}
	l.reportFault(v1alpha1.Fault{
		Source: SourceConditions, Check: string(c.Type), ErrorCodes: codes, Fatal: true,
		Message: truncateText(c.Message, mostMessage), RecommendedAction: action,
	}, since, 0)
}

// parseCodes reads the codes of the errors in a message of the connector, and the
// action that helps with most of them.
func parseCodes(message string) ([]string, v1alpha1.RecommendedAction) {
	const most, longest = 16, 64
	var codes []string
	for _, m := range regexp.MustCompile(`ErrorCode:([^\s;]+)`).FindAllStringSubmatch(message, -1) {
		for code := range strings.SplitSeq(m[1], ",") {
			if code != "" && len(code) <= longest && !slices.Contains(codes, code) && len(codes) < most {
				codes = append(codes, strings.ToValidUTF8(code, ""))
			}
		}
	}
	action, rank := v1alpha1.ActionUnknown, len(byReach())
	for _, m := range regexp.MustCompile(`Recommended Action=([A-Z0-9_]{1,64})`).FindAllStringSubmatch(message, -1) {
		found := v1alpha1.RecommendedAction(m[1])
		at := slices.Index(byReach(), found)
		switch {
		case at >= 0 && at < rank:
			action, rank = found, at
		case at < 0 && action == v1alpha1.ActionUnknown:
			action = found // one of the monitor's own
		}
	}
	return codes, action
}

// byReach are the actions, from the one that undoes most.
func byReach() []v1alpha1.RecommendedAction {
	return []v1alpha1.RecommendedAction{
		v1alpha1.ActionReplaceVM, v1alpha1.ActionRestartBM, v1alpha1.ActionRestartVM, v1alpha1.ActionComponentReset,
		v1alpha1.ActionContactSupport, v1alpha1.ActionRunDCGMEUD, v1alpha1.ActionRunFieldDiag, v1alpha1.ActionNone,
	}
}
