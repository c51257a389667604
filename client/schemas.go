package client

import (
	"context"
	"encoding/json"
	"net/http"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

const schemasPath = "schemas"

// Schemas reads and sets the schemas of specs. Each kind has at most one.
type Schemas struct {
	caller *caller
}

// List returns the schemas of specs, in the order of their kinds.
func (s *Schemas) List(ctx context.Context) ([]v1.SpecSchema, error) {
	list, err := call[v1.SpecSchemaList](ctx, s.caller, request{method: http.MethodGet, path: schemasPath}, nil)
	return list.Items, err
}

// Get returns the schema of a kind, identified by its collection. An error for which IsNotFound
// is true means that the kind has none.
func (s *Schemas) Get(ctx context.Context, collection string) (v1.SpecSchema, error) {
	return call[v1.SpecSchema](ctx, s.caller, schemaRequest(http.MethodGet, collection), nil)
}

// Set registers a schema, and returns the resources that violate it.
func (s *Schemas) Set(ctx context.Context, collection string, schema json.RawMessage) (v1.SpecSchema, error) {
	return call[v1.SpecSchema](ctx, s.caller, schemaRequest(http.MethodPut, collection), schema)
}

// Delete removes the schema of a kind.
func (s *Schemas) Delete(ctx context.Context, collection string) error {
	_, err := s.caller.callJSONWithRetry(ctx, schemaRequest(http.MethodDelete, collection), nil, nil)
	return err
}

func schemaRequest(method, collection string) request {
	return request{method: method, path: schemasPath + "/" + collection}
}
