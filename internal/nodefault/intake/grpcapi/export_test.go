package grpcapi

// EventOf converts an event of the protocol.
var EventOf = eventOf
