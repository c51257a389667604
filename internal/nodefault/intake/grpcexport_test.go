package intake

// EventOf converts an event of the protocol.
var EventOf = eventFromProto
