package v1

import (
	"encoding/json"
	"time"
)

// SchemasPath is where the schemas of specs are.
const SchemasPath = BasePath + "/schemas"

// A SpecSchema is the JSON Schema that the specs of a kind have to meet.
type SpecSchema struct {
	Kind        string          `json:"kind"`
	Schema      json.RawMessage `json:"schema"`
	UpdatedTime time.Time       `json:"updated_time"`
	UpdatedBy   string          `json:"updated_by"`
	// Existing is what the resources that are there say. Only the answer to PUT
	// has it.
	Existing *SchemaWarnings `json:"existing_resources,omitempty"`
}

// SchemaWarnings tell which resources that are there violate a schema. They stay
// as they are; their specs have to meet it when they are changed.
type SchemaWarnings struct {
	Checked int64 `json:"checked"`
	Invalid int64 `json:"invalid"`
	// First are the first of them, in the order of creation.
	Examples []SchemaWarning `json:"examples"`
}

// A SchemaWarning is one resource that violates a schema.
type SchemaWarning struct {
	ID     string       `json:"id"`
	Name   string       `json:"name"`
	Tenant string       `json:"tenant"`
	Errors []FieldError `json:"errors"`
}

// A SpecSchemaList is all schemas, in the order of their kinds.
type SpecSchemaList struct {
	Items []SpecSchema `json:"items"`
}
