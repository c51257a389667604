package fleetapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
)

// maxSchemaWarnings limits the resources that are listed as violating a new schema.
const maxSchemaWarnings = 20

// Schemas stores the schemas of specs, at most one for each kind. They apply to all tenants.
type Schemas interface {
	// ListSpecSchemas returns all schemas, ordered by kind.
	ListSpecSchemas(ctx context.Context) ([]v1.SpecSchema, error)

	// SetSpecSchema sets the schema of a kind, replacing any previous one, and returns the stored schema.
	SetSpecSchema(ctx context.Context, kind string, schema json.RawMessage, updatedBy string) (v1.SpecSchema, error)

	// DeleteSpecSchema removes the schema of a kind. It returns ErrNotFound if the kind has no schema.
	DeleteSpecSchema(ctx context.Context, kind string) error
}

// A SchemaReader is a Tx that reads schemas.
type SchemaReader interface {
	// ReadSpecSchemaIfChanged returns the schema of a kind and its revision, 0 without a schema. It omits the
	// schema if the caller already has that revision.
	ReadSpecSchemaIfChanged(ctx context.Context, kind string, knownRevision int64) (revision int64, schema json.RawMessage, err error)

	// QueueSpecSchemaRead lets LockAndReadResource read the schema, too, so that ReadSpecSchemaIfChanged costs nothing. It is
	// read after the wait for the lock.
	QueueSpecSchemaRead(kind string, knownRevision int64)
}

// requireSchemaManager returns an error unless a principal may register schemas, which apply to all tenants.
func requireSchemaManager(principal auth.Principal) error {
	if principal.Unrestricted || principal.HasRole(auth.Operator) {
		return nil
	}
	return rest.NewError(
		rest.CodeForbidden,
		"schemas apply to all tenants and need the role %s, which %q does not have",
		auth.Operator,
		principal.Subject,
	)
}

// schemaRoutes serve the schemas of specs.
type schemaRoutes struct{ api *API }

func (sr schemaRoutes) registerRoutes(mux *http.ServeMux) {
	sr.api.registerRoute(mux, v1.SchemasPath, route{http.MethodGet: sr.serveSchemaList})
	sr.api.registerRoute(mux, v1.SchemasPath+"/{kind}", route{
		http.MethodGet:    sr.serveSchema,
		http.MethodPut:    sr.registerSchema,
		http.MethodDelete: sr.deleteSchema,
	})
}

// findKindFromPath returns the kind that the path names, by its name or its collection.
func (sr schemaRoutes) findKindFromPath(r *http.Request) (*kind, error) {
	name := r.PathValue("kind")
	for _, k := range sr.api.kinds {
		if k.name == name || k.collection == name {
			return k, nil
		}
	}
	return nil, rest.NewError(rest.CodeNotFound, "no kind %q", name)
}

func newNoSchemaError(k *kind) error {
	return rest.NewError(rest.CodeNotFound, "no schema is registered for %s", k.collection)
}

func (sr schemaRoutes) serveSchemaList(w http.ResponseWriter, r *http.Request, _ auth.Principal) error {
	list, err := sr.api.store.ListSpecSchemas(r.Context())
	if err != nil {
		return err
	}
	if list == nil {
		list = []v1.SpecSchema{}
	}
	return rest.WriteJSONValue(w, http.StatusOK, v1.SpecSchemaList{Items: list})
}

func (sr schemaRoutes) serveSchema(w http.ResponseWriter, r *http.Request, _ auth.Principal) error {
	k, err := sr.findKindFromPath(r)
	if err != nil {
		return err
	}
	list, err := sr.api.store.ListSpecSchemas(r.Context())
	if err != nil {
		return err
	}
	for _, s := range list {
		if s.Kind == k.name {
			return rest.WriteJSONValue(w, http.StatusOK, s)
		}
	}
	return newNoSchemaError(k)
}

// registerSchema stores a schema, which applies to new specs from then on, and then finds the resources
// that violate it.
func (sr schemaRoutes) registerSchema(w http.ResponseWriter, r *http.Request, principal auth.Principal) error {
	if err := requireSchemaManager(principal); err != nil {
		return err
	}
	k, err := sr.findKindFromPath(r)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if e := rest.DecodeJSONBody(w, r, sr.api.maxBody, &raw); e != nil {
		return e
	}
	schema, err := CompileSpecSchema(raw)
	if err != nil {
		return rest.NewError(rest.CodeInvalidBody, "the body is not a valid JSON Schema: %s", err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		return err
	}
	stored, err := sr.api.store.SetSpecSchema(r.Context(), k.name, compact.Bytes(), principal.Actor())
	if err != nil {
		return err
	}
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Time{}) // reading a fleet takes longer than the deadline of a request
	stored.Existing, err = sr.findExistingViolations(r.Context(), k, schema)
	_ = control.SetWriteDeadline(time.Now().Add(answerTimeout))
	if err != nil {
		return err
	}
	sr.api.log.InfoContext(r.Context(), "schema registered", "kind", k.name, "subject", principal.Actor(),
		"checked", stored.Existing.Checked, "invalid", stored.Existing.Invalid)
	return rest.WriteJSONValue(w, http.StatusOK, stored)
}

// findExistingViolations reads all resources of a kind, except those that are being deleted.
func (sr schemaRoutes) findExistingViolations(ctx context.Context, k *kind, schema *SpecSchema) (*v1.SchemaWarnings, error) {
	found := &v1.SchemaWarnings{Examples: []v1.SchemaWarning{}}
	q := Query{Kind: k.name, Limit: maxSize}
	for {
		rows := 0
		_, err := sr.api.store.List(ctx, Scope{All: true}, q, func(r *Record) error {
			rows++
			q.After = Position{ID: r.ID}
			if !r.IsBeingDeleted() {
				countViolation(found, r, schema)
			}
			return nil
		})
		if err != nil || rows < q.Limit {
			return found, err
		}
	}
}

func countViolation(found *v1.SchemaWarnings, record *Record, schema *SpecSchema) {
	found.Checked++
	violations := schema.ValidateSpec(record.Spec)
	if len(violations) == 0 {
		return
	}
	found.Invalid++
	if len(found.Examples) < maxSchemaWarnings {
		found.Examples = append(found.Examples, v1.SchemaWarning{ID: record.ID, Name: record.Name, Tenant: record.Tenant, Errors: violations})
	}
}

func (sr schemaRoutes) deleteSchema(w http.ResponseWriter, r *http.Request, principal auth.Principal) error {
	if err := requireSchemaManager(principal); err != nil {
		return err
	}
	k, err := sr.findKindFromPath(r)
	if err != nil {
		return err
	}
	err = sr.api.store.DeleteSpecSchema(r.Context(), k.name)
	if errors.Is(err, ErrNotFound) {
		return newNoSchemaError(k)
	}
	if err != nil {
		return err
	}
	sr.api.log.InfoContext(r.Context(), "schema deleted", "kind", k.name, "subject", principal.Actor())
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// A schemaCache caches compiled schemas by kind. The zero value is ready to use.
type schemaCache struct {
	mu    sync.Mutex
	kinds map[string]compiledSchema
}

// A compiledSchema is one revision of a schema.
type compiledSchema struct {
	revision int64
	schema   *SpecSchema
}

// getCompiledSchema returns the schema of a kind's specs, nil for none. The transaction reads the current revision.
func (c *schemaCache) getCompiledSchema(ctx context.Context, tx Tx, kind string) (*SpecSchema, error) {
	reader, ok := tx.(SchemaReader)
	if !ok {
		return nil, errors.New("the store has no schemas")
	}
	cached := c.getCached(kind)
	revision, raw, err := reader.ReadSpecSchemaIfChanged(ctx, kind, cached.revision)
	if err != nil || revision == 0 { // 0 means that the kind has no schema
		return nil, err
	}
	if revision == cached.revision {
		return cached.schema, nil
	}
	schema, err := CompileSpecSchema(raw)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kinds == nil {
		c.kinds = make(map[string]compiledSchema)
	}
	c.kinds[kind] = compiledSchema{revision, schema}
	return schema, nil
}

func (c *schemaCache) getCached(kind string) compiledSchema {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kinds[kind]
}

// queueSchemaRead lets the lock of a row read the schema that getCompiledSchema needs.
func (c *schemaCache) queueSchemaRead(tx Tx, kind string) {
	if reader, ok := tx.(SchemaReader); ok {
		reader.QueueSpecSchemaRead(kind, c.getCached(kind).revision)
	}
}

func (c *schemaCache) checkSpecAgainstSchema(ctx context.Context, tx Tx, k *kind, spec json.RawMessage) error {
	schema, err := c.getCompiledSchema(ctx, tx, k.name)
	if err != nil || schema == nil {
		return err
	}
	if violations := schema.ValidateSpec(spec); len(violations) > 0 {
		return rest.NewFieldsError(violations)
	}
	return nil
}
