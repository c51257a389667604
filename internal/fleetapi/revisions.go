package fleetapi

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
)

const (
	defaultRevisions = 20
	maxRevisions     = 100
	// revisionBytes is the size of specs after which a page ends.
	revisionBytes = 8 << 20
)

// Revisions reads the kept generations of clusters and node pools.
type Revisions interface {
	// Revisions calls visit for the kept generations of a resource below one, the newest first. It
	// ends when visit returns false. A resource whose spec never changed has none. It does not
	// check that the resource exists.
	Revisions(ctx context.Context, scope Scope, key Key, below int64, limit int, visit func(*v1.Revision) bool) error
}

func (rs resourceRoutes) listRevisions(k *kind) handler {
	return func(w http.ResponseWriter, r *http.Request, who auth.Principal) error {
		by, err := authorize(who, v1.VerbGet)
		if err != nil {
			return err
		}
		v := r.URL.Query()
		if err := checkParameters(v, "limit", "continue"); err != nil {
			return err
		}
		limit, err := parseNumber(v, "limit", maxRevisions, defaultRevisions)
		if err != nil {
			return err
		}
		rec, err := rs.findRecord(r, by.scope, k)
		if err != nil {
			return err
		}
		query, below := rest.DigestQuery("revisions", by.scope.Tenant, strconv.FormatBool(by.scope.All), rec.ID), int64(math.MaxInt64)
		if v.Has("continue") {
			_, below, err = rest.ParseNumberedPageToken(query, v.Get("continue"))
			if err := explainTokenError(v.Get("continue"), err); err != nil {
				return err
			}
		}
		page, err := rs.readRevisions(r.Context(), by.scope, &rec, below, limit)
		if err != nil {
			return err
		}
		if n := len(page.Items); page.more {
			page.Continue = rest.NewNumberedPageToken(query, time.Time{}, page.Items[n-1].Generation)
		}
		return writeValue(w, http.StatusOK, page.RevisionList)
	}
}

// A revisionPage is a page, and whether there is another one.
type revisionPage struct {
	v1.RevisionList

	more bool
}

// readRevisions reads a page of generations. The current one is not kept if the spec never changed;
// it is then the resource itself.
func (rs resourceRoutes) readRevisions(ctx context.Context, scope Scope, rec *Record, below int64, limit int) (revisionPage, error) {
	page := revisionPage{RevisionList: v1.RevisionList{Items: []v1.Revision{}}}
	bytes := 0
	err := rs.api.store.Revisions(ctx, scope, rec.Key, below, limit+1, func(kept *v1.Revision) bool {
		if len(page.Items) == limit || bytes > revisionBytes {
			page.more = true
			return false
		}
		bytes += len(kept.Spec)
		page.Items = append(page.Items, *kept)
		return true
	})
	if err != nil || len(page.Items) > 0 || rec.Generation >= below {
		return page, err
	}
	current, err := newestRevision(rec)
	page.Items = append(page.Items, current)
	return page, err
}

// newestRevision returns the current generation of a resource of which none is kept.
func newestRevision(rec *Record) (v1.Revision, error) {
	current := v1.Revision{
		Generation: rec.Generation, CreatedTime: rec.CreatedTime.UTC(), Actor: rec.CreatedBy, Deleting: rec.Deleting(), Spec: rec.Spec,
	}
	if rec.Generation > 1 { // it is older than the keeping of generations
		current.CreatedTime, current.Actor = rec.UpdatedTime.UTC(), rec.UpdatedBy
	}
	err := json.Unmarshal(rec.Labels, &current.Labels)
	return current, err
}
