// Package rest has the HTTP conventions that the handlers of the fleet API share.
//
// DecodeJSONBody decodes the JSON bodies of requests. It refuses invalid JSON, and the refusal names the
// place. Unknown members are ignored, as in the public HyperFleet API, except in PATCH and in
// requests that ask for strictness.
//
// An Error is an error answer. It has the type application/problem+json, as defined by RFC 9457,
// and a code from a closed set on which a client may branch.
//
// An ETagList holds the condition of a request: If-Match or If-None-Match, as defined by RFC 9110.
//
// Page tokens and PageWalks record where a list was left. The place is in a token that the client
// sends back, or in memory for a client that only counts pages.
package rest
