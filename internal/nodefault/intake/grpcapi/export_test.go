package grpcapi

// EventOf is an event of the wire.
var EventOf = eventOf
