package v1

import _ "embed" // for the two documents below

//go:generate go test -run TestDocumentForms -update

//go:embed openapi.yaml
var openAPIYAML string

//go:embed openapi.json
var openAPIJSON string

// OpenAPIYAML returns the OpenAPI document of this version of the API.
func OpenAPIYAML() string { return openAPIYAML }

// OpenAPIJSON returns the same document in JSON.
func OpenAPIJSON() string { return openAPIJSON }
