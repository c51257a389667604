package source

// A Flavour is the kind of API that is listed.
type Flavour string

// The flavours.
const (
	// FlavourAuto detects the flavour.
	FlavourAuto Flavour = "auto"
	// FlavourFleetloop is the Fleetloop API.
	FlavourFleetloop Flavour = "fleetloop"
	// FlavourHyperfleet is the public HyperFleet API.
	FlavourHyperfleet Flavour = "hyperfleet"
)
