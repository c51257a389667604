package decision

// A Reason is why a verdict is what it is. The set is closed, so that a reason
// may be the label of a metric.
type Reason uint8

// The reasons.
const (
	// ReasonGenerationChanged and the next three are those of
	// GenerationThenAge.
	ReasonGenerationChanged Reason = iota
	ReasonMaxAgeReady
	ReasonMaxAgeNotReady
	ReasonMaxAgeNotExpired

	// ReasonBackoffExpired and the next are those of TransitionAge.
	ReasonBackoffExpired
	ReasonBackoffNotExpired

	// ReasonExpressionTrue and the next two are those of a rule of the user's
	// own.
	ReasonExpressionTrue
	ReasonExpressionFalse
	ReasonExpressionFailed

	// ReasonAnnounced is a resource that is due and was announced so recently
	// that its adapters are given time to answer.
	ReasonAnnounced

	// ReasonDeferred is a resource that is due by its age and waits its turn,
	// because as many events have gone out as may at a time.
	ReasonDeferred

	// NumReasons is how many there are.
	NumReasons
)

// String is the reason as logs, metrics and payloads show it.
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

// Publishes reports whether the reason is one for publishing an event. Any other
// is one for leaving a resource alone.
func (r Reason) Publishes() bool {
	switch r {
	case ReasonGenerationChanged, ReasonMaxAgeReady, ReasonMaxAgeNotReady, ReasonBackoffExpired, ReasonExpressionTrue, ReasonExpressionFailed:
		return true
	case ReasonMaxAgeNotExpired, ReasonBackoffNotExpired, ReasonExpressionFalse, ReasonAnnounced, ReasonDeferred, NumReasons:
	}
	return false
}

// A Warning is something odd about a resource that did not stop the decision.
type Warning uint8

// The warnings.
const (
	WarningNone Warning = iota

	// WarningObservedAhead: adapters claim a generation that the resource has
	// not reached. It is decided as if they had claimed the current one.
	WarningObservedAhead

	// WarningFutureTime: the time to count from lies further ahead than
	// clocks may differ. The resource counts as due.
	WarningFutureTime

	// WarningNoTime: a ready resource without any time to count from.
	WarningNoTime

	// NumWarnings is how many there are, WarningNone included.
	NumWarnings
)

// String is the warning as the log shows it; empty for WarningNone.
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
