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
	// VisitRevisions calls visit for the kept generations of a resource below the given one, the newest first. It
	// ends when visit returns false. A resource whose spec never changed has none. It does not
	// check that the resource exists.
	VisitRevisions(ctx context.Context, scope Scope, key Key, belowGeneration int64, limit int, visit func(*v1.Revision) bool) error
}

func (rs resourceRoutes) newListRevisionsHandler(k *kind) handler {
	return func(w http.ResponseWriter, r *http.Request, who auth.Principal) error {
		by, err := authorizeVerb(who, v1.VerbGet)
		if err != nil {
			return err
		}
		v := r.URL.Query()
		if err := checkQueryParameters(v, "limit", "continue"); err != nil {
			return err
		}
		limit, err := parsePositiveNumber(v, "limit", maxRevisions, defaultRevisions)
		if err != nil {
			return err
		}
		rec, err := rs.getRecordFromPath(r, by.scope, k)
		if err != nil {
			return err
		}
		query, below := rest.DigestQuery("revisions", by.scope.Tenant, strconv.FormatBool(by.scope.All), rec.ID), int64(math.MaxInt64)
		if v.Has("continue") {
			_, below, err = rest.ParseTimeAndNumberPageToken(query, v.Get("continue"))
			if err := toTokenProblem(v.Get("continue"), err); err != nil {
				return err
			}
		}
		page, err := rs.readRevisionPage(r.Context(), by.scope, &rec, below, limit)
		if err != nil {
			return err
		}
		if n := len(page.Items); page.more {
			page.Continue = rest.NewTimeAndNumberPageToken(query, time.Time{}, page.Items[n-1].Generation)
		}
		return writeJSONValue(w, http.StatusOK, page.RevisionList)
	}
}

// A revisionPage is a page, and whether there is another one.
type revisionPage struct {
	v1.RevisionList

	more bool
}

// readRevisionPage reads a page of generations. The current one is not kept if the spec never changed;
// it is then the resource itself.
func (rs resourceRoutes) readRevisionPage(
	ctx context.Context, scope Scope, record *Record, belowGeneration int64, limit int,
) (revisionPage, error) {
	page := revisionPage{RevisionList: v1.RevisionList{Items: []v1.Revision{}}}
	bytes := 0
	err := rs.api.store.VisitRevisions(ctx, scope, record.Key, belowGeneration, limit+1, func(kept *v1.Revision) bool {
		if len(page.Items) == limit || bytes > revisionBytes {
			page.more = true
			return false
		}
		bytes += len(kept.Spec)
		page.Items = append(page.Items, *kept)
		return true
	})
	if err != nil || len(page.Items) > 0 || record.Generation >= belowGeneration {
		return page, err
	}
	current, err := newCurrentRevision(record)
	page.Items = append(page.Items, current)
	return page, err
}

// newCurrentRevision returns the current generation of a resource of which none is kept.
func newCurrentRevision(record *Record) (v1.Revision, error) {
	current := v1.Revision{
		Generation: record.Generation, CreatedTime: record.CreatedTime.UTC(), Actor: record.CreatedBy, Deleting: record.IsBeingDeleted(), Spec: record.Spec,
	}
	if record.Generation > 1 { // it is older than the keeping of generations
		current.CreatedTime, current.Actor = record.UpdatedTime.UTC(), record.UpdatedBy
	}
	err := json.Unmarshal(record.Labels, &current.Labels)
	return current, err
}
