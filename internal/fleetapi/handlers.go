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

func (rs resourceRoutes) get(k *kind) handler {
	return func(w http.ResponseWriter, r *http.Request, who auth.Principal) error {
		by, err := authorize(who, v1.VerbGet)
		if err != nil {
			return err
		}
		fields, err := parseFields(r.URL.Query()["fields"])
		if err != nil {
			return err
		}
		rec, err := rs.findRecord(r, by.scope, k)
		if err != nil {
			return err
		}
		have, tag := rest.ParseETags(r.Header.Values("If-None-Match")), revisionTag(&rec)
		if _, ok := have.Find(func(value string) bool { return value == tag }); ok || have.Any {
			notModified(w, rest.QuoteETag(tag))
			return nil
		}
		w.Header().Set("Etag", rest.QuoteETag(tag))
		writeJSON(w, http.StatusOK, fields.appendTo(nil, &rec, k))
		return nil
	}
}

func (rs resourceRoutes) post(k *kind) handler {
	return func(w http.ResponseWriter, r *http.Request, who auth.Principal) error {
		by, err := authorize(who, v1.VerbCreate)
		if err != nil {
			return err
		}
		parent, err := parseParentID(r, k)
		if err != nil {
			return err
		}
		rules, err := rs.rulesFor(r)
		if err != nil {
			return err
		}
		d := draft{parent: parent}
		var req v1.CreateRequest
		if e := rest.ReadBody(w, r, rs.api.maxBody, &req); e != nil {
			return e
		}
		if err := d.fillFrom(k, &req); err != nil {
			return err
		}
		rec, err := rules.createResource(r.Context(), by, k, d)
		if err != nil {
			return err
		}
		w.Header().Set("Location", string(appendHref(nil, &rec, k)))
		writeRecord(w, http.StatusCreated, &rec, k)
		return nil
	}
}

// parseParentID returns the id under which a resource is created, "" for a top-level kind.
func parseParentID(r *http.Request, k *kind) (string, error) {
	id := r.PathValue("parent")
	switch {
	case k.parent == nil:
		return "", nil
	case id == "":
		return "", rest.NewError(rest.CodeParentRequired, "a %s must be created under its %s: POST %s/%s/{id}/%s",
			k.name, k.parent.name, v1.BasePath, k.parent.collection, k.collection)
	}
	return parseID(k.parent, id)
}

func (rs resourceRoutes) patch(k *kind) handler {
	return func(w http.ResponseWriter, r *http.Request, who auth.Principal) error {
		by, err := authorize(who, v1.VerbPatch)
		if err != nil {
			return err
		}
		id, err := rs.parseIDCheckingParent(r, by.scope, k)
		if err != nil {
			return err
		}
		rules, err := rs.rulesFor(r)
		if err != nil {
			return err
		}
		var req patchBody
		if e := rest.ReadBody(w, r, rs.api.maxBody, &req); e != nil {
			return e
		}
		p, err := req.toPatch()
		if err != nil {
			return err
		}
		p.match = rest.ParseETags(r.Header.Values("If-Match"))
		rec, err := rules.updateResource(r.Context(), by, k, id, p)
		if err != nil {
			return err
		}
		writeRecord(w, http.StatusOK, &rec, k)
		return nil
	}
}

func (rs resourceRoutes) delete(k *kind) handler {
	return func(w http.ResponseWriter, r *http.Request, who auth.Principal) error {
		by, err := authorize(who, v1.VerbDelete)
		if err != nil {
			return err
		}
		id, err := rs.parseIDCheckingParent(r, by.scope, k)
		if err != nil {
			return err
		}
		rules, err := rs.rulesFor(r)
		if err != nil {
			return err
		}
		rec, err := rules.requestDeletion(r.Context(), by, k, id, rest.ParseETags(r.Header.Values("If-Match")))
		if err != nil {
			return err
		}
		writeJSON(w, http.StatusAccepted, appendRecord(nil, &rec, k))
		return nil
	}
}

func (rs resourceRoutes) forceDelete(k *kind) handler {
	return func(w http.ResponseWriter, r *http.Request, who auth.Principal) error {
		by, err := authorize(who, v1.VerbDelete)
		if err != nil {
			return err
		}
		id, err := rs.parseIDCheckingParent(r, by.scope, k)
		if err != nil {
			return err
		}
		var req v1.ForceDeleteRequest
		if e := rest.ReadBody(w, r, rs.api.maxBody, &req); e != nil {
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
		if err := rs.api.purgeResource(r.Context(), by, k, id); err != nil {
			return err
		}
		rs.api.log.InfoContext(r.Context(), "resource force-deleted", "kind", k.name, "resource_id", id, "subject", who.Subject, "reason", req.Reason)
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
}

func (rs resourceRoutes) postReport(k *kind) handler {
	return func(w http.ResponseWriter, r *http.Request, who auth.Principal) error {
		by, err := authorize(who, v1.VerbReport)
		if err != nil {
			return err
		}
		id, err := rs.parseIDCheckingParent(r, by.scope, k)
		if err != nil {
			return err
		}
		var req v1.Report
		if e := rest.ReadBody(w, r, rs.api.maxBody, &req); e != nil {
			return e
		}
		fields := ValidateReport(req, time.Now())
		fields = append(fields, checkAndCompactObject("data", &req.Data, false)...)
		fields = append(fields, checkAndCompactObject("metadata", &req.Metadata, false)...)
		if len(fields) > 0 {
			return rest.NewFieldsError(fields)
		}
		status, verdict, err := rs.api.storeReport(r.Context(), by.scope, k, id, req)
		if err != nil {
			return err
		}
		rs.api.metrics.countReport(k.collection, verdict)
		if verdict != ReportStored {
			rs.api.log.DebugContext(r.Context(), "report discarded", "kind", k.name, "resource_id", id, "adapter", req.Adapter, "verdict", string(verdict))
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
		return writeValue(w, http.StatusCreated, status)
	}
}

func (rs resourceRoutes) listReports(k *kind) handler {
	return func(w http.ResponseWriter, r *http.Request, who auth.Principal) error {
		by, err := authorize(who, v1.VerbGet)
		if err != nil {
			return err
		}
		id, err := rs.parseIDCheckingParent(r, by.scope, k)
		if err != nil {
			return err
		}
		page, size, err := parsePage(r.URL.Query())
		if err != nil {
			return err
		}
		all, err := rs.api.store.Reports(r.Context(), by.scope, Key{k.name, id})
		if errors.Is(err, ErrNotFound) {
			return notFound(k, id)
		}
		if err != nil {
			return err
		}
		from := min((page-1)*size, len(all))
		items := all[from:min(from+size, len(all))]
		if items == nil {
			items = []v1.AdapterStatus{}
		}
		return writeValue(w, http.StatusOK, v1.AdapterStatusList{Items: items, Page: page, Size: len(items), Total: int64(len(all))})
	}
}

// findRecord reads the row that the path names.
func (rs resourceRoutes) findRecord(r *http.Request, scope Scope, k *kind) (Record, error) {
	id, err := parseID(k, r.PathValue("id"))
	if err != nil {
		return Record{}, err
	}
	rec, err := rs.api.store.Get(r.Context(), scope, Key{k.name, id})
	if errors.Is(err, ErrNotFound) {
		return Record{}, notFound(k, id)
	}
	if err != nil {
		return Record{}, err
	}
	if parent := r.PathValue("parent"); parent != "" && !strings.EqualFold(parent, rec.ParentID) {
		return Record{}, rest.NewError(rest.CodeNotFound, "there is no %s %q in %s %q", k.name, id, k.parent.name, parent)
	}
	return rec, nil
}

// parseIDCheckingParent returns the id that the path names. On a nested path it checks that the row has this
// parent, which never changes.
func (rs resourceRoutes) parseIDCheckingParent(r *http.Request, scope Scope, k *kind) (string, error) {
	if r.PathValue("parent") == "" {
		return parseID(k, r.PathValue("id"))
	}
	rec, err := rs.findRecord(r, scope, k)
	return rec.ID, err
}

// parseID parses an id. A malformed id is answered as not found.
func parseID(k *kind, s string) (string, error) {
	id, err := uuid.Parse(s)
	if err != nil || len(s) != len(id.String()) {
		return "", notFound(k, s)
	}
	return id.String(), nil
}

// revisionTag returns the entity tag of a resource. The displayed state of a cluster's Shoot
// changes without the row, so the tag includes it.
func revisionTag(r *Record) string {
	tag := strconv.FormatInt(r.Revision, 10)
	s := &r.Status
	if s.ShootStatus == "" && s.ShootMessage == "" && s.SyncError == "" {
		return tag
	}
	h := fnv.New64a()
	for _, shown := range []string{string(s.ShootStatus), s.ShootMessage, s.SyncError} {
		_, _ = io.WriteString(h, shown+"\x00") // a hash accepts every write
	}
	return tag + "-" + strconv.FormatUint(h.Sum64(), 36)
}

// writeRecord answers with the current state of a resource.
func writeRecord(w http.ResponseWriter, status int, r *Record, k *kind) {
	w.Header().Set("Etag", rest.QuoteETag(revisionTag(r)))
	writeJSON(w, status, appendRecord(nil, r, k))
}

func writeJSON(w http.ResponseWriter, status int, b []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(b) //nolint:gosec // JSON, which no browser takes for a page; a client that is gone misses nothing
}

func writeValue(w http.ResponseWriter, status int, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	writeJSON(w, status, b)
	return nil
}
