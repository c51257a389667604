package fleetapi

import (
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

// resourceRoutes serve the resources of a kind.
type resourceRoutes struct {
	api  *API
	kind *kind
}

// handleGet answers with one resource, or that the client already has it.
func (rs resourceRoutes) handleGet(w http.ResponseWriter, r *http.Request, principal auth.Principal) error {
	by, err := authorizeVerb(principal, v1.VerbGet)
	if err != nil {
		return err
	}
	fields, err := parseFieldsParameter(r.URL.Query()["fields"])
	if err != nil {
		return err
	}
	record, err := rs.getRecordFromPath(r, by.scope)
	if err != nil {
		return err
	}
	tag := computeETag(&record)
	known := rest.ParseETagList(r.Header.Values("If-None-Match"))
	_, unchanged := known.FindMatchingTag(func(value string) bool { return value == tag })
	if unchanged || known.Any {
		writeNotModified(w, rest.QuoteETag(tag))
		return nil
	}
	w.Header().Set("Etag", rest.QuoteETag(tag))
	rest.WriteJSON(w, http.StatusOK, fields.appendRecordFields(nil, &record, rs.kind))
	return nil
}

func (rs resourceRoutes) handleCreate(w http.ResponseWriter, r *http.Request, principal auth.Principal) error {
	by, err := authorizeVerb(principal, v1.VerbCreate)
	if err != nil {
		return err
	}
	parentID, err := rs.parseParentIDFromPath(r)
	if err != nil {
		return err
	}
	service, err := rs.chooseServiceByDryRun(r)
	if err != nil {
		return err
	}
	var req v1.CreateRequest
	if e := rest.DecodeJSONBody(w, r, rs.api.maxBody, &req); e != nil {
		return e
	}
	content, err := validateCreateRequest(rs.kind, &req)
	if err != nil {
		return err
	}
	record, err := service.createResource(r.Context(), by, rs.kind, parentID, content)
	if err != nil {
		return err
	}
	w.Header().Set("Location", string(appendResourcePath(nil, &record, rs.kind)))
	writeRecordWithETag(w, http.StatusCreated, &record, rs.kind)
	return nil
}

// parseParentIDFromPath returns the id under which a resource is created, "" for a top-level kind.
func (rs resourceRoutes) parseParentIDFromPath(r *http.Request) (parentID string, err error) {
	k := rs.kind
	if k.parent == nil {
		return "", nil
	}
	id := r.PathValue("parent")
	if id == "" {
		return "", rest.NewError(rest.CodeParentRequired, "a %s must be created under its %s: POST %s/%s/{id}/%s",
			k.name, k.parent.name, v1.BasePath, k.parent.collection, k.collection)
	}
	return parseResourceID(k.parent, id)
}

func (rs resourceRoutes) handlePatch(w http.ResponseWriter, r *http.Request, principal auth.Principal) error {
	by, id, err := rs.authorizeOnPath(r, principal, v1.VerbPatch)
	if err != nil {
		return err
	}
	service, err := rs.chooseServiceByDryRun(r)
	if err != nil {
		return err
	}
	var req patchBody
	if e := rest.DecodeJSONBody(w, r, rs.api.maxBody, &req); e != nil {
		return e
	}
	changes, err := req.validateAndConvertToPatch()
	if err != nil {
		return err
	}
	changes.match = rest.ParseETagList(r.Header.Values("If-Match"))
	record, err := service.updateResource(r.Context(), by, rs.kind, id, changes)
	if err != nil {
		return err
	}
	writeRecordWithETag(w, http.StatusOK, &record, rs.kind)
	return nil
}

func (rs resourceRoutes) handleDelete(w http.ResponseWriter, r *http.Request, principal auth.Principal) error {
	by, id, err := rs.authorizeOnPath(r, principal, v1.VerbDelete)
	if err != nil {
		return err
	}
	service, err := rs.chooseServiceByDryRun(r)
	if err != nil {
		return err
	}
	ifMatch := rest.ParseETagList(r.Header.Values("If-Match"))
	record, err := service.requestDeletion(r.Context(), by, rs.kind, id, ifMatch)
	if err != nil {
		return err
	}
	rest.WriteJSON(w, http.StatusAccepted, appendRecordJSON(nil, &record, rs.kind))
	return nil
}

func (rs resourceRoutes) handleForceDelete(w http.ResponseWriter, r *http.Request, principal auth.Principal) error {
	by, id, err := rs.authorizeOnPath(r, principal, v1.VerbDelete)
	if err != nil {
		return err
	}
	var req v1.ForceDeleteRequest
	if e := rest.DecodeJSONBody(w, r, rs.api.maxBody, &req); e != nil {
		return e
	}
	if err := validateForceDeleteReason(req.Reason); err != nil {
		return err
	}
	if err := rs.api.forceRemoveDeletingResource(r.Context(), by, rs.kind, id); err != nil {
		return err
	}
	rs.api.log.InfoContext(r.Context(), "resource force-deleted",
		"kind", rs.kind.name, "resource_id", id, "subject", principal.Actor(), "reason", req.Reason)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func validateForceDeleteReason(reason string) error {
	var constraint string
	switch {
	case strings.TrimSpace(reason) == "":
		constraint = "min_length"
	case utf8.RuneCountInString(reason) > maxReason:
		constraint = "max_length"
	default:
		return nil
	}
	return rest.NewFieldsError([]v1.FieldError{{
		Field: "reason", Constraint: constraint, Message: "must give the reason for not waiting for the adapters, in 1 to 1024 characters",
	}})
}

func (rs resourceRoutes) handleReport(w http.ResponseWriter, r *http.Request, principal auth.Principal) error {
	by, id, err := rs.authorizeOnPath(r, principal, v1.VerbReport)
	if err != nil {
		return err
	}
	var req v1.Report
	if e := rest.DecodeJSONBody(w, r, rs.api.maxBody, &req); e != nil {
		return e
	}
	wrong := ValidateReport(req, time.Now())
	wrong = append(wrong, requireAndCompactObject("data", &req.Data, false)...)
	wrong = append(wrong, requireAndCompactObject("metadata", &req.Metadata, false)...)
	if len(wrong) > 0 {
		return rest.NewFieldsError(wrong)
	}
	status, verdict, err := rs.api.decideAndStoreReport(r.Context(), by.scope, rs.kind, id, req)
	if err != nil {
		return err
	}
	rs.api.metrics.countReport(rs.kind.collection, verdict)
	if verdict != ReportStored {
		rs.api.log.DebugContext(r.Context(), "report discarded",
			"kind", rs.kind.name, "resource_id", id, "adapter", req.Adapter, "verdict", string(verdict))
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return rest.WriteJSONValue(w, http.StatusCreated, status)
}

func (rs resourceRoutes) serveReportList(w http.ResponseWriter, r *http.Request, principal auth.Principal) error {
	by, id, err := rs.authorizeOnPath(r, principal, v1.VerbGet)
	if err != nil {
		return err
	}
	page, size, err := parsePageAndSize(r.URL.Query())
	if err != nil {
		return err
	}
	all, err := rs.api.store.ListReports(r.Context(), by.scope, Key{rs.kind.name, id})
	if errors.Is(err, ErrNotFound) {
		return newNotFoundError(rs.kind, id)
	}
	if err != nil {
		return err
	}
	from := min((page-1)*size, len(all))
	items := all[from:min(from+size, len(all))]
	if items == nil {
		items = []v1.AdapterStatus{}
	}
	return rest.WriteJSONValue(w, http.StatusOK, v1.AdapterStatusList{Items: items, Page: page, Size: len(items), Total: int64(len(all))})
}

// authorizeOnPath returns the author with whose scope a principal may use a verb, and the id that the path
// names. On a nested path it checks that the resource has this parent, which never changes.
func (rs resourceRoutes) authorizeOnPath(r *http.Request, principal auth.Principal, verb v1.Verb) (by author, id string, err error) {
	by, err = authorizeVerb(principal, verb)
	if err != nil {
		return author{}, "", err
	}
	if r.PathValue("parent") == "" {
		id, err = parseResourceID(rs.kind, r.PathValue("id"))
		return by, id, err
	}
	record, err := rs.getRecordFromPath(r, by.scope)
	return by, record.ID, err
}

func (rs resourceRoutes) getRecordFromPath(r *http.Request, scope Scope) (Record, error) {
	id, err := parseResourceID(rs.kind, r.PathValue("id"))
	if err != nil {
		return Record{}, err
	}
	record, err := rs.api.store.Get(r.Context(), scope, Key{rs.kind.name, id})
	if errors.Is(err, ErrNotFound) {
		return Record{}, newNotFoundError(rs.kind, id)
	}
	if err != nil {
		return Record{}, err
	}
	if parent := r.PathValue("parent"); parent != "" && !strings.EqualFold(parent, record.ParentID) {
		return Record{}, rest.NewError(rest.CodeNotFound, "there is no %s %q in %s %q", rs.kind.name, id, rs.kind.parent.name, parent)
	}
	return record, nil
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
	hash := fnv.New64a()
	for _, text := range []string{string(s.ShootStatus), s.ShootMessage, s.SyncError} {
		_, _ = io.WriteString(hash, text+"\x00") // a hash accepts every write
	}
	return tag + "-" + strconv.FormatUint(hash.Sum64(), 36)
}

func writeRecordWithETag(w http.ResponseWriter, status int, record *Record, k *kind) {
	w.Header().Set("Etag", rest.QuoteETag(computeETag(record)))
	rest.WriteJSON(w, status, appendRecordJSON(nil, record, k))
}
