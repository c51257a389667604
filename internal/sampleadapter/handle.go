package sampleadapter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
)

// errNotOurs is the error of a cloud event that is not about a resource. No redelivery helps.
var errNotOurs = errors.New("not an event of a resource")

// handleEvent processes one cloud event: nil acknowledges it, an error causes a redelivery.
func (a *Adapter) handleEvent(ctx context.Context, e cloudevent.Event) error {
	collection, id, err := subjectOf(e)
	if err != nil {
		a.metrics.countResult(resultIgnored)
		a.log.WarnContext(ctx, "cloud event ignored", "event_id", e.ID, "event_type", e.Type, "err", err)
		return nil
	}
	log := a.log.With("event_id", e.ID, "collection", collection, "resource_id", id)
	said, stored, err := a.reconcileResource(ctx, collection, id)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case isGone(err):
		a.metrics.countResult(resultGone)
		log.DebugContext(ctx, "resource not found")
		return nil
	case isRefused(err):
		// It would be refused again; the sentinel sends another event later.
		a.metrics.countResult(resultRefused)
		log.ErrorContext(ctx, "request rejected", "err", err)
		return nil
	case err != nil:
		a.metrics.countResult(resultFailed)
		return err
	case !stored:
		a.metrics.countResult(resultDiscarded)
		log.DebugContext(ctx, "report discarded", "outcome", string(said))
		return nil
	}
	a.noteReport()
	a.metrics.countResult(result(said))
	log.DebugContext(ctx, "reported", "outcome", string(said))
	return nil
}

// reconcileResource reads a resource, does the necessary work, and reports.
func (a *Adapter) reconcileResource(ctx context.Context, collection, id string) (reported outcome, stored bool, err error) {
	r, err := a.deps.Fleet.Get(ctx, collection, id)
	if err != nil {
		return "", false, fmt.Errorf("get resource: %w", err)
	}
	statuses, err := a.deps.Fleet.Statuses(ctx, collection, id)
	if err != nil {
		return "", false, fmt.Errorf("get reports: %w", err)
	}
	reported, err = a.runStep(ctx, decideStep(a.cfg, r, statuses))
	if err != nil {
		return "", false, err
	}
	stored, err = a.deps.Fleet.Report(ctx, collection, id, newReport(a.cfg, r.Generation, time.Now(), reported))
	if err != nil {
		return "", false, fmt.Errorf("report: %w", err)
	}
	return reported, stored, nil
}

func (a *Adapter) runStep(ctx context.Context, s step) (outcome, error) {
	var done outcome
	switch s {
	case stepWait:
		return outcomeWaiting, nil
	case stepConfirm:
		return outcomeAvailable, nil
	case stepConfirmFinal:
		return outcomeFinalized, nil
	case stepWork:
		done = outcomeAvailable
	case stepFinalize:
		done = outcomeFinalized
	}
	ok, err := a.simulateWork(ctx)
	if err != nil {
		return "", err
	}
	if !ok {
		return outcomeTransient, nil
	}
	return done, nil
}

func (a *Adapter) noteReport() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stats.Reports++
	a.stats.LastReport = time.Now()
}

// subjectOf returns the resource of a cloud event. The type contains the kind; the data contains
// the id, under one of the names that a sentinel may be configured to use.
func subjectOf(e cloudevent.Event) (collection, id string, err error) {
	switch e.Type {
	case "com.redhat.hyperfleet.cluster.reconcile":
		collection = v1.CollectionClusters
	case "com.redhat.hyperfleet.nodepool.reconcile":
		collection = v1.CollectionNodePools
	case "com.redhat.hyperfleet.manifest.reconcile":
		collection = v1.CollectionManifests
	case "com.redhat.hyperfleet.workload.reconcile":
		collection = v1.CollectionWorkloads
	default:
		return "", "", fmt.Errorf("%w: type %q", errNotOurs, e.Type)
	}
	var data struct {
		Snake string `json:"resource_id"`
		Camel string `json:"resourceId"`
		Short string `json:"id"`
	}
	if err := json.Unmarshal(e.Data, &data); err != nil {
		return "", "", fmt.Errorf("%w: data: %w", errNotOurs, err)
	}
	for _, id := range []string{data.Snake, data.Camel, data.Short} {
		if id != "" {
			return collection, id, nil
		}
	}
	return "", "", fmt.Errorf("%w: no resource_id, resourceId or id in its data", errNotOurs)
}

func isGone(err error) bool { return httpStatusOf(err) == http.StatusNotFound }

// isRefused reports whether the same request would be refused again. Permissions and rate limits
// may change, so their errors are not final.
func isRefused(err error) bool {
	switch status := httpStatusOf(err); status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	default:
		return status >= 400 && status < 500
	}
}

func httpStatusOf(err error) int {
	if e, ok := errors.AsType[interface {
		error
		StatusCode() int
	}](err); ok {
		return e.StatusCode()
	}
	return 0
}
