package console

import (
	"context"
	"net/http"

	"github.com/fleetloop/fleetloop/internal/console/session"
)

// A Person is the signed-in person as host clusters need it.
type Person struct {
	// Name is the name that the fleet API or the issuer gives.
	Name string
	// Token is the person's bearer token, or empty.
	Token string
}

// HostState is what a person can do on a host cluster.
type HostState struct {
	Name   string `json:"name"`
	Writes bool   `json:"writes"`
	WhyNot string `json:"why_not,omitempty"`
	Audit  bool   `json:"audit"` // whether the console can read the audit of executions
}

// CoveragePath is where the console checks whether each resource is watched by one sentinel.
const CoveragePath = "/console/coverage"

// HostClusters are the host clusters of a console.
type HostClusters interface {
	// Handler serves CoveragePath and the paths below console/hosts for the person of PersonFromContext.
	http.Handler
	// ListHostStates returns what a person can do on each host cluster.
	ListHostStates(ctx context.Context, person Person) []HostState
	// ListSources returns the streams of the host clusters.
	ListSources() []Source
}

type personKey struct{}

func withSession(ctx context.Context, s session.Session) context.Context {
	return context.WithValue(ctx, personKey{}, s)
}

// PersonFromContext returns the signed-in person of a request.
func PersonFromContext(ctx context.Context) Person {
	s, _ := ctx.Value(personKey{}).(session.Session)
	return personOfSession(s)
}

func personOfSession(s session.Session) Person {
	return Person{Name: s.User.Name, Token: s.Tokens.Bearer}
}

type endSessionKey struct{}

// EndSessionFromContext ends the session of a request, because the fleet API does not accept its token any more.
func EndSessionFromContext(ctx context.Context) error {
	if end, ok := ctx.Value(endSessionKey{}).(func(context.Context) error); ok {
		return end(ctx)
	}
	return nil
}

// An Action is what a person did through the console.
type Action struct {
	// Action is one of a closed set, such as execution-approve-requested.
	Action string
	// Host is the host cluster, Object an object in it, and Node a node in it.
	Host, Object, Node string
	By, Reason         string
	// View is the page from which the person acted.
	View string
}

type recorderKey struct{}

// RecordActionFromContext reports what a person did, to the timeline. It never blocks.
func RecordActionFromContext(ctx context.Context, action Action) {
	if record, ok := ctx.Value(recorderKey{}).(func(context.Context, Action)); ok {
		record(ctx, action)
	}
}
