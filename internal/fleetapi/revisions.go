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

// serveRevisions answers with a page of the kept generations of a resource.
func (rs resourceRoutes) serveRevisions(w http.ResponseWriter, r *http.Request, principal auth.Principal) error {
	by, err := authorizeVerb(principal, v1.VerbGet)
	if err != nil {
		return err
	}
	parameters := r.URL.Query()
	if err := checkQueryParameters(parameters, "limit", "continue"); err != nil {
		return err
	}
	limit, err := parsePositiveNumber(parameters, "limit", maxRevisions, defaultRevisions)
	if err != nil {
		return err
	}
	record, err := rs.getRecordFromPath(r, by.scope)
	if err != nil {
		return err
	}
	digest := rest.DigestQuery("revisions", by.scope.Tenant, strconv.FormatBool(by.scope.All), record.ID)
	below := int64(math.MaxInt64)
	if token := parameters.Get("continue"); parameters.Has("continue") {
		_, below, err = rest.ParseTimeAndNumberPageToken(digest, token)
		if err := toTokenProblem(token, err); err != nil {
			return err
		}
	}
	page, hasMore, err := rs.readRevisionPage(r.Context(), by.scope, &record, below, limit)
	if err != nil {
		return err
	}
	if hasMore {
		last := page.Items[len(page.Items)-1]
		page.Continue = rest.NewTimeAndNumberPageToken(digest, time.Time{}, last.Generation)
	}
	return rest.WriteJSONValue(w, http.StatusOK, page)
}

// readRevisionPage reads a page of generations. The current one is not kept if the spec never changed;
// it is then the resource itself.
func (rs resourceRoutes) readRevisionPage(
	ctx context.Context, scope Scope, record *Record, belowGeneration int64, limit int,
) (page v1.RevisionList, hasMore bool, err error) {
	page.Items = []v1.Revision{}
	size := 0
	err = rs.api.store.VisitRevisions(ctx, scope, record.Key, belowGeneration, limit+1, func(kept *v1.Revision) bool {
		if len(page.Items) == limit || size > revisionBytes {
			hasMore = true
			return false
		}
		size += len(kept.Spec)
		page.Items = append(page.Items, *kept)
		return true
	})
	isAfterCurrent := record.Generation >= belowGeneration
	if err != nil || len(page.Items) > 0 || isAfterCurrent {
		return page, hasMore, err
	}
	current, err := newCurrentRevision(record)
	page.Items = append(page.Items, current)
	return page, false, err
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
