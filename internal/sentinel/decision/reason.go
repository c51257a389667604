package decision

// A Reason is the reason of a verdict. The set is closed, so that a reason can be the label of a
// metric.
type Reason uint8

// The reasons.
const (
	// ReasonGenerationChanged and the next three belong to the profile generation-then-age.
	ReasonGenerationChanged Reason = iota
	ReasonMaxAgeReady
	ReasonMaxAgeNotReady
	ReasonMaxAgeNotExpired

	// ReasonBackoffExpired and the next belong to the profile transition-age.
	ReasonBackoffExpired
	ReasonBackoffNotExpired

	// ReasonExpressionTrue and the next two belong to the user's own rules.
	ReasonExpressionTrue
	ReasonExpressionFalse
	ReasonExpressionFailed

	// ReasonAnnounced means that the resource is due and was announced so recently that its
	// adapters still have time to answer.
	ReasonAnnounced

	// ReasonDeferred means that the resource is due by its age and waits, because the budget for
	// events is spent.
	ReasonDeferred

	// NumReasons is the number of reasons.
	NumReasons
)

// String returns the reason as logs, metrics and payloads show it.
func (r Reason) String() string {
	switch r {
	case ReasonGenerationChanged:
		return "generation changed - new spec to reconcile"
	case ReasonMaxAgeReady:
		return "max age expired (ready)"
	case ReasonMaxAgeNotReady:
		return "max age expired (not ready)"
	case ReasonMaxAgeNotExpired:
		return "max age not expired"
	case ReasonBackoffExpired:
		return "backoff-expired"
	case ReasonBackoffNotExpired:
		return "backoff not expired"
	case ReasonExpressionTrue:
		return "message decision matched"
	case ReasonExpressionFalse:
		return "message decision result is false"
	case ReasonExpressionFailed:
		return "message decision failed"
	case ReasonAnnounced:
		return "already published, waiting for adapters"
	case ReasonDeferred:
		return "publish budget exhausted, deferred"
	case NumReasons:
	}
	return "no reason"
}

// Publishes reports whether the reason leads to an event. All other reasons leave the resource
// alone.
func (r Reason) Publishes() bool {
	switch r {
	case ReasonGenerationChanged,
		ReasonMaxAgeReady, ReasonMaxAgeNotReady,
		ReasonBackoffExpired,
		ReasonExpressionTrue, ReasonExpressionFailed:
		return true
	case ReasonMaxAgeNotExpired, ReasonBackoffNotExpired, ReasonExpressionFalse:
		return false
	case ReasonAnnounced, ReasonDeferred, NumReasons:
	}
	return false
}

// A Warning is a problem of a resource that did not stop the decision.
type Warning uint8

// The warnings.
const (
	WarningNone Warning = iota

	// WarningObservedAhead means that adapters claim a generation that the resource has not
	// reached. The decision treats it as the current generation.
	WarningObservedAhead

	// WarningFutureTime means that the time to count from is further ahead than clocks may differ.
	// The resource counts as due.
	WarningFutureTime

	// WarningNoTime means a ready resource without any time to count from.
	WarningNoTime

	// NumWarnings is the number of warnings, including WarningNone.
	NumWarnings
)

// String returns the warning as the log shows it; empty for WarningNone.
func (w Warning) String() string {
	switch w {
	case WarningObservedAhead:
		return "observed_generation ahead of generation - potential API issue"
	case WarningFutureTime:
		return "status time in the future - potential clock issue"
	case WarningNoTime:
		return "no status time to calculate the age - potential API issue"
	case WarningNone, NumWarnings:
	}
	return ""
}
