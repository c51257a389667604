package listing

// A Flavour is which API is listed.
type Flavour string

// The flavours.
const (
	// FlavourAuto finds out.
	FlavourAuto Flavour = "auto"
	// FlavourFleetloop is our own API.
	FlavourFleetloop Flavour = "fleetloop"
	// FlavourHyperfleet is the public HyperFleet API.
	FlavourHyperfleet Flavour = "hyperfleet"
)
