package state

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// CodeNoDecisions is the code of the problem that no record contains a resource. It distinguishes
// this case from a server without records.
const CodeNoDecisions = "no_decisions"

const (
	defaultServedLimit = 100
	maxServedLimit     = 1000
)

// A RecordResponse is the response of the handler of records.
type RecordResponse struct {
	// Time is the time of the response, by the sentinel's clock.
	Time time.Time `json:"time"`

	// Known is the number of resources that have a record.
	Known int `json:"total"`

	// Resources holds the requested resources, the most recently noted first.
	Resources []ServedDecisions `json:"resources"`
}

// ServedDecisions holds the latest decisions about one resource.
type ServedDecisions struct {
	// Watch is the watch of the sentinel that decided: the collection, and the selector if there is
	// one.
	Watch string `json:"watch"`

	ResourceID string `json:"resource_id"`

	// Decisions holds the decisions, the newest first.
	Decisions []ServedDecision `json:"decisions"`
}

// A ServedDecision is the served form of a DecisionEntry. Zero times are omitted.
type ServedDecision struct {
	// At is the time of the last one of Times equal decisions in a row, and FirstAt that of the
	// first.
	At      time.Time `json:"last_time"`
	FirstAt time.Time `json:"first_time"`
	Times   int       `json:"count"`

	// Publish says whether the decision was to publish an event.
	Publish bool   `json:"publish"`
	Reason  string `json:"reason"`

	Generation         int64     `json:"generation"`
	ObservedGeneration int64     `json:"observed_generation"`
	Phase              string    `json:"phase"`
	LastUpdatedTime    time.Time `json:"last_updated_time,omitzero"`

	// Since is the time that the rule counted from, and Next when the resource
	// falls due by it, or fell due.
	Since time.Time `json:"age_from,omitzero"`
	Next  time.Time `json:"due_time,omitzero"`

	// EventID is the id of the event, the last one of Times. ConfirmedAt is when a broker confirmed
	// it; Error is the last error if none did.
	EventID     string    `json:"event_id,omitempty"`
	ConfirmedAt time.Time `json:"confirmed_at,omitzero"`
	Error       string    `json:"error,omitempty"`
}

// NewRecordHandler serves the contents of records as JSON, a RecordResponse. With ?id= it returns
// one resource, otherwise the most recently noted ones, up to ?limit= (default 100, maximum 1000).
// An unknown resource is a problem with status 404. The keys of records are the names of their
// watches.
func NewRecordHandler(recordsByWatch map[string]*DecisionRecord) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			writeProblem(w, http.StatusMethodNotAllowed, "method_not_allowed", "only GET and HEAD are allowed")
			return
		}
		query := r.URL.Query()
		limit, err := parseLimitOrDefault(query.Get("limit"))
		if err != nil {
			writeProblem(w, http.StatusBadRequest, "invalid_query", err.Error())
			return
		}
		response := RecordResponse{Time: time.Now().UTC().Truncate(time.Millisecond)}
		for _, record := range recordsByWatch {
			response.Known += record.Len()
		}
		id := query.Get("id")
		if id == "" {
			response.Resources = listLatestOfAllWatches(recordsByWatch, limit)
		} else {
			response.Resources = findDecisions(recordsByWatch, id)
			if len(response.Resources) == 0 {
				writeProblem(w, http.StatusNotFound, CodeNoDecisions,
					"no decisions recorded for this resource: it was not due since the sentinel started,"+
						" is not watched by this sentinel, or its history was evicted")
				return
			}
		}
		writeJSON(w, http.StatusOK, "application/json", response)
	})
}

func parseLimitOrDefault(text string) (limit int, err error) {
	if text == "" {
		return defaultServedLimit, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxServedLimit {
		return 0, fmt.Errorf("limit %q is invalid: must be a number from 1 to %d", text, maxServedLimit)
	}
	return n, nil
}

func findDecisions(recordsByWatch map[string]*DecisionRecord, id string) []ServedDecisions {
	var found []ServedDecisions
	for watch, record := range recordsByWatch {
		if entries := record.ListDecisions(id); len(entries) > 0 {
			found = append(found, newServedDecisions(watch, id, entries))
		}
	}
	slices.SortFunc(found, func(a, b ServedDecisions) int { // the newest first
		return b.Decisions[0].At.Compare(a.Decisions[0].At)
	})
	return found
}

func listLatestOfAllWatches(recordsByWatch map[string]*DecisionRecord, limit int) []ServedDecisions {
	type watchedResource struct {
		watch    string
		resource RecordedResource
	}
	var all []watchedResource
	for watch, record := range recordsByWatch {
		for _, resource := range record.ListLatest(limit) {
			all = append(all, watchedResource{watch: watch, resource: resource})
		}
	}
	slices.SortStableFunc(all, func(a, b watchedResource) int { // the newest first
		return b.resource.Noted.Compare(a.resource.Noted)
	})
	latest := all[:min(limit, len(all))]
	list := make([]ServedDecisions, 0, len(latest))
	for _, r := range latest {
		list = append(list, newServedDecisions(r.watch, r.resource.ID, r.resource.Entries))
	}
	return list
}

func newServedDecisions(watch, id string, entries []DecisionEntry) ServedDecisions {
	d := ServedDecisions{Watch: watch, ResourceID: id}
	for _, e := range entries {
		d.Decisions = append(d.Decisions, ServedDecision{
			At:                 e.At,
			FirstAt:            e.First,
			Times:              e.Times,
			Publish:            e.Published,
			Reason:             e.Reason,
			Generation:         e.Generation,
			ObservedGeneration: e.ObservedGeneration,
			Phase:              e.Phase,
			LastUpdatedTime:    e.LastUpdated,
			Since:              e.Since,
			Next:               e.Next,
			EventID:            e.EventID,
			ConfirmedAt:        e.Confirmed,
			Error:              e.Err,
		})
	}
	return d
}

func writeProblem(w http.ResponseWriter, status int, code, detail string) {
	writeJSON(w, status, "application/problem+json", v1.Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Code: code, Detail: detail,
	})
}

func writeJSON(w http.ResponseWriter, status int, contentType string, body any) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may have disconnected, and nothing else can fail
}
