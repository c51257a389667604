package v1alpha1

// Labels and annotations of nodes.
const (
	// AnnotationOwned, on a node, says what of it is ours. It is written in the
	// same request as what it speaks of.
	AnnotationOwned = "fleetloop.io/node-fault-owned"
	// AnnotationReleased, on a node, says which session was ended last, by us. It
	// tells our own release from a person's.
	AnnotationReleased = "fleetloop.io/node-fault-released"
	// AnnotationOverridden, on a node, remembers what a person has undone. Taking
	// it away has us act again.
	AnnotationOverridden = "fleetloop.io/node-fault-overridden"
	// AnnotationHold, on a node, keeps it as it is after recovery. Its value is
	// for people.
	AnnotationHold = "fleetloop.io/node-fault-hold"
	// LabelOptOut, "disabled" on a node, keeps us away from it.
	LabelOptOut = "fleetloop.io/node-faults"
	// OptedOut is the value of LabelOptOut that does.
	OptedOut = "disabled"
	// LabelPhase, on a node, is the phase of its fault in lower case while
	// something of ours is on it.
	LabelPhase = "fleetloop.io/node-fault-phase"

	// AnnotationResend, on a NodeFault, has records sent again that a sink has
	// refused. Its value is any text that was not there before.
	AnnotationResend = "fleetloop.io/resend-change-events"
)

// FieldManager is how the controller calls itself where it writes.
const FieldManager = "fleetloop-node-fault"
