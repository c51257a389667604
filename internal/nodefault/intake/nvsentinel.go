package intake

import (
	"fmt"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
)

// NVSentinelActionName returns the action with a number in NVSentinel's protocol. For an unknown
// number it returns ActionUnknown, so that rules can match it.
func NVSentinelActionName(number int32) string {
	switch number {
	case 0:
		return string(v1alpha1.ActionNone)
	case 2:
		return string(v1alpha1.ActionComponentReset)
	case 5:
		return string(v1alpha1.ActionContactSupport)
	case 6:
		return string(v1alpha1.ActionRunFieldDiag)
	case 15:
		return string(v1alpha1.ActionRestartVM)
	case 24:
		return string(v1alpha1.ActionRestartBM)
	case 25:
		return string(v1alpha1.ActionReplaceVM)
	case 26:
		return string(v1alpha1.ActionRunDCGMEUD)
	case 27:
		return ActionCustom
	case 28:
		return "REMEDIATE"
	case 39:
		return "RESTART_APP" // of older monitors
	}
	return string(v1alpha1.ActionUnknown)
}

// IsObserveOnlyStrategy reports whether a processing strategy, by its number in NVSentinel's
// protocol, takes no action. Unknown numbers take none.
func IsObserveOnlyStrategy(number int32) bool {
	const unspecified, execute = 0, 1
	return number != unspecified && number != execute
}

// ParseStrategy reports whether a processing strategy, by its name, takes no action.
func ParseStrategy(name string) (observeOnly bool, err error) {
	switch name {
	case "", "UNSPECIFIED", "EXECUTE_REMEDIATION":
		return false, nil
	case "STORE_ONLY", "STORE_AND_ANALYSE":
		return true, nil
	}
	return false, fmt.Errorf("%w: unknown processingStrategy %q: use EXECUTE_REMEDIATION, STORE_ONLY or STORE_AND_ANALYSE", ErrInvalid, name)
}
