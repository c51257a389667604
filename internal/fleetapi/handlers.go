package fleetapi

import (
	"encoding/json"
	"errors"
	"hash/fnv"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
)

// resourceRoutes serve the resources of each kind.
type resourceRoutes struct{ api *API }

func (rs resourceRoutes) newGetHandler(k *kind) handler {
	return func(w http.ResponseWriter, r *http.Request, who auth.Principal) error {
		by, err := authorizeVerb(who, v1.VerbGet)
		if err != nil {
			return err
		}
		fields, err := parseFieldsParameter(r.URL.Query()["fields"])
		if err != nil {
			return err
		}
		rec, err := rs.getRecordFromPath(r, by.scope, k)
		if err != nil {
			return err
		}
		have, tag := rest.ParseETagList(r.Header.Values("If-None-Match")), computeETag(&rec)
		if _, ok := have.FindMatchingTag(func(value string) bool { return value == tag }); ok || have.Any {
			writeNotModified(w, rest.QuoteETag(tag))
			return nil
		}
		w.Header().Set("Etag", rest.QuoteETag(tag))
		writeJSON(w, http.StatusOK, fields.appendRecordFields(nil, &rec, k))
		return nil
	}
}

func (rs resourceRoutes) newCreateHandler(k *kind) handler {
	return func(w http.ResponseWriter, r *http.Request, who auth.Principal) error {
		by, err := authorizeVerb(who, v1.VerbCreate)
		if err != nil {
			return err
		}
		parent, err := parseParentIDFromPath(r, k)
		if err != nil {
			return err
		}
		rules, err := rs.chooseServiceByDryRun(r)
		if err != nil {
			return err
		}
		d := resourceDraft{parent: parent}
		var req v1.CreateRequest
		if e := rest.DecodeJSONBody(w, r, rs.api.maxBody, &req); e != nil {
			return e
		}
		if err := d.validateAndCopyRequest(k, &req); err != nil {
			return err
		}
		rec, err := rules.createResource(r.Context(), by, k, d)
		if err != nil {
			return err
		}
		w.Header().Set("Location", string(appendResourcePath(nil, &rec, k)))
		writeRecordWithETag(w, http.StatusCreated, &rec, k)
		return nil
	}
}

// parseParentIDFromPath returns the id under which a resource is created, "" for a top-level kind.
func parseParentIDFromPath(r *http.Request, k *kind) (parentID string, err error) {
	id := r.PathValue("parent")
	switch {
	case k.parent == nil:
		return "", nil
	case id == "":
		return "", rest.NewError(rest.CodeParentRequired, "a %s must be created under its %s: POST %s/%s/{id}/%s",
			k.name, k.parent.name, v1.BasePath, k.parent.collection, k.collection)
	}
	return parseResourceID(k.parent, id)
}

func (rs resourceRoutes) newPatchHandler(k *kind) handler {
	return func(w http.ResponseWriter, r *http.Request, who auth.Principal) error {
		by, err := authorizeVerb(who, v1.VerbPatch)
		if err != nil {
			return err
		}
		id, err := rs.parseIDAndCheckParent(r, by.scope, k)
		if err != nil {
			return err
		}
		rules, err := rs.chooseServiceByDryRun(r)
		if err != nil {
			return err
		}
		var req patchBody
		if e := rest.DecodeJSONBody(w, r, rs.api.maxBody, &req); e != nil {
			return e
		}
		p, err := req.validateAndConvertToPatch()
		if err != nil {
			return err
		}
		p.match = rest.ParseETagList(r.Header.Values("If-Match"))
		rec, err := rules.updateResource(r.Context(), by, k, id, p)
		if err != nil {
			return err
		}
		writeRecordWithETag(w, http.StatusOK, &rec, k)
		return nil
	}
}

func (rs resourceRoutes) newDeleteHandler(k *kind) handler {
	return func(w http.ResponseWriter, r *http.Request, who auth.Principal) error {
		by, err := authorizeVerb(who, v1.VerbDelete)
		if err != nil {
			return err
		}
		id, err := rs.parseIDAndCheckParent(r, by.scope, k)
		if err != nil {
			return err
		}
		rules, err := rs.chooseServiceByDryRun(r)
		if err != nil {
			return err
		}
		rec, err := rules.requestDeletion(r.Context(), by, k, id, rest.ParseETagList(r.Header.Values("If-Match")))
		if err != nil {
			return err
		}
		writeJSON(w, http.StatusAccepted, appendRecordJSON(nil, &rec, k))
		return nil
	}
}

func (rs resourceRoutes) newForceDeleteHandler(k *kind) handler {
	return func(w http.ResponseWriter, r *http.Request, who auth.Principal) error {
		by, err := authorizeVerb(who, v1.VerbDelete)
		if err != nil {
			return err
		}
		id, err := rs.parseIDAndCheckParent(r, by.scope, k)
		if err != nil {
			return err
		}
		var req v1.ForceDeleteRequest
		if e := rest.DecodeJSONBody(w, r, rs.api.maxBody, &req); e != nil {
			return e
		}
		const longest = 1024
		constraint := ""
		if strings.TrimSpace(req.Reason) == "" {
			constraint = "min_length"
		} else if utf8.RuneCountInString(req.Reason) > longest {
			constraint = "max_length"
		}
		if constraint != "" {
			return rest.NewFieldsError([]v1.FieldError{{Field: "reason", Constraint: constraint, Message: "must give the reason for not waiting for the adapters, in 1 to 1024 characters"}})
		}
		if err := rs.api.forceDeleteResource(r.Context(), by, k, id); err != nil {
			return err
		}
		rs.api.log.InfoContext(r.Context(), "resource force-deleted", "kind", k.name, "resource_id", id, "subject", who.Actor(), "reason", req.Reason)
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
}

func (rs resourceRoutes) newStoreReportHandler(k *kind) handler {
	return func(w http.ResponseWriter, r *http.Request, who auth.Principal) error {
		by, err := authorizeVerb(who, v1.VerbReport)
		if err != nil {
			return err
		}
		id, err := rs.parseIDAndCheckParent(r, by.scope, k)
		if err != nil {
			return err
		}
		var req v1.Report
		if e := rest.DecodeJSONBody(w, r, rs.api.maxBody, &req); e != nil {
			return e
		}
		fields := ValidateReport(req, time.Now())
		fields = append(fields, requireAndCompactObject("data", &req.Data, false)...)
		fields = append(fields, requireAndCompactObject("metadata", &req.Metadata, false)...)
		if len(fields) > 0 {
			return rest.NewFieldsError(fields)
		}
		status, verdict, err := rs.api.decideAndStoreReport(r.Context(), by.scope, k, id, req)
		if err != nil {
			return err
		}
		rs.api.metrics.countReport(k.collection, verdict)
		if verdict != ReportStored {
			rs.api.log.DebugContext(r.Context(), "report discarded", "kind", k.name, "resource_id", id, "adapter", req.Adapter, "verdict", string(verdict))
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
		return writeJSONValue(w, http.StatusCreated, status)
	}
}

func (rs resourceRoutes) newListReportsHandler(k *kind) handler {
	return func(w http.ResponseWriter, r *http.Request, who auth.Principal) error {
		by, err := authorizeVerb(who, v1.VerbGet)
		if err != nil {
			return err
		}
		id, err := rs.parseIDAndCheckParent(r, by.scope, k)
		if err != nil {
			return err
		}
		page, size, err := parsePageAndSize(r.URL.Query())
		if err != nil {
			return err
		}
		all, err := rs.api.store.ListReports(r.Context(), by.scope, Key{k.name, id})
		if errors.Is(err, ErrNotFound) {
			return newNotFoundError(k, id)
		}
		if err != nil {
			return err
		}
		from := min((page-1)*size, len(all))
		items := all[from:min(from+size, len(all))]
		if items == nil {
			items = []v1.AdapterStatus{}
		}
		return writeJSONValue(w, http.StatusOK, v1.AdapterStatusList{Items: items, Page: page, Size: len(items), Total: int64(len(all))})
	}
}

// getRecordFromPath reads the row that the path names.
func (rs resourceRoutes) getRecordFromPath(r *http.Request, scope Scope, k *kind) (record Record, err error) {
	id, err := parseResourceID(k, r.PathValue("id"))
	if err != nil {
		return Record{}, err
	}
	rec, err := rs.api.store.Get(r.Context(), scope, Key{k.name, id})
	if errors.Is(err, ErrNotFound) {
		return Record{}, newNotFoundError(k, id)
	}
	if err != nil {
		return Record{}, err
	}
	if parent := r.PathValue("parent"); parent != "" && !strings.EqualFold(parent, rec.ParentID) {
		return Record{}, rest.NewError(rest.CodeNotFound, "there is no %s %q in %s %q", k.name, id, k.parent.name, parent)
	}
	return rec, nil
}

// parseIDAndCheckParent returns the id that the path names. On a nested path it checks that the row has this
// parent, which never changes.
func (rs resourceRoutes) parseIDAndCheckParent(r *http.Request, scope Scope, k *kind) (canonicalID string, err error) {
	if r.PathValue("parent") == "" {
		return parseResourceID(k, r.PathValue("id"))
	}
	rec, err := rs.getRecordFromPath(r, scope, k)
	return rec.ID, err
}

// parseResourceID parses an id. A malformed id is answered as not found.
func parseResourceID(k *kind, text string) (canonicalID string, err error) {
	id, err := uuid.Parse(text)
	if err != nil || len(text) != len(id.String()) {
		return "", newNotFoundError(k, text)
	}
	return id.String(), nil
}

// computeETag returns the entity tag of a resource. The displayed state of a cluster's Shoot
// changes without the row, so the tag includes it.
func computeETag(record *Record) (etag string) {
	tag := strconv.FormatInt(record.Revision, 10)
	s := &record.Status
	if s.ShootStatus == "" && s.ShootMessage == "" && s.SyncError == "" {
		return tag
	}
	h := fnv.New64a()
	for _, shown := range []string{string(s.ShootStatus), s.ShootMessage, s.SyncError} {
		_, _ = io.WriteString(h, shown+"\x00") // a hash accepts every write
	}
	return tag + "-" + strconv.FormatUint(h.Sum64(), 36)
}

// writeRecordWithETag answers with the current state of a resource.
func writeRecordWithETag(w http.ResponseWriter, status int, record *Record, k *kind) {
	w.Header().Set("Etag", rest.QuoteETag(computeETag(record)))
	writeJSON(w, status, appendRecordJSON(nil, record, k))
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body) //nolint:gosec // JSON, which no browser takes for a page; a client that is gone misses nothing
}

func writeJSONValue(w http.ResponseWriter, status int, value any) error {
	b, err := json.Marshal(value)
	if err != nil {
		return err
	}
	writeJSON(w, status, b)
	return nil
}
