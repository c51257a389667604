package v1

import (
	"encoding/json"
	"time"
)

// SchemasPath is the path of the schemas of specs.
const SchemasPath = BasePath + "/schemas"

// A SpecSchema is the JSON Schema that the specs of a kind must meet.
type SpecSchema struct {
	Kind        string          `json:"kind"`
	Schema      json.RawMessage `json:"schema"`
	UpdatedTime time.Time       `json:"updated_time"`
	UpdatedBy   string          `json:"updated_by"`
	// Existing lists existing resources that violate the schema. Only the answer to PUT has it.
	Existing *SchemaWarnings `json:"existing_resources,omitempty"`
}

// SchemaWarnings list the resources that violate a new schema. Their specs must meet it with the next change.
type SchemaWarnings struct {
	Checked int64 `json:"checked"`
	Invalid int64 `json:"invalid"`
	// Examples are the first violations, in the order of creation.
	Examples []SchemaWarning `json:"examples"`
}

// A SchemaWarning is one resource that violates a schema.
type SchemaWarning struct {
	ID     string       `json:"id"`
	Name   string       `json:"name"`
	Tenant string       `json:"tenant"`
	Errors []FieldError `json:"errors"`
}

// A SpecSchemaList holds all schemas, in the order of their kinds.
type SpecSchemaList struct {
	Items []SpecSchema `json:"items"`
}
