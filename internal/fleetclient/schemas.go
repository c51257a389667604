package fleetclient

import (
	"context"
	"encoding/json"
	"net/http"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

const schemas = "schemas"

// Schemas returns the schemas of specs, in the order of their kinds.
func (c *Client) Schemas(ctx context.Context) ([]v1.SpecSchema, error) {
	var list v1.SpecSchemaList
	_, err := c.callJSON(ctx, request{method: http.MethodGet, path: schemas}, nil, &list)
	return list.Items, err
}

// Schema returns the schema of a kind, identified by its collection. An error for which IsNotFound
// is true means that the kind has none.
func (c *Client) Schema(ctx context.Context, collection string) (v1.SpecSchema, error) {
	return c.callSchema(ctx, http.MethodGet, collection, nil)
}

// SetSchema registers a schema, and returns the resources that violate it.
func (c *Client) SetSchema(ctx context.Context, collection string, schema json.RawMessage) (v1.SpecSchema, error) {
	return c.callSchema(ctx, http.MethodPut, collection, schema)
}

// DeleteSchema removes the schema of a kind.
func (c *Client) DeleteSchema(ctx context.Context, collection string) error {
	_, err := c.callJSON(ctx, request{method: http.MethodDelete, path: schemas + "/" + collection}, nil, nil)
	return err
}

func (c *Client) callSchema(ctx context.Context, method, collection string, in any) (v1.SpecSchema, error) {
	var out v1.SpecSchema
	_, err := c.callJSON(ctx, request{method: method, path: schemas + "/" + collection}, in, &out)
	return out, err
}
