package record

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// CodeNothing is the code of the problem that no record contains a resource. It distinguishes this
// case from a server without records.
const CodeNothing = "no_decisions"

const (
	defaultLimit = 100
	maxLimit     = 1000
)

// An Answer is the response of Handler.
type Answer struct {
	// Time is the time of the response, by the sentinel's clock.
	Time time.Time `json:"time"`

	// Known is the number of resources that have a record.
	Known int `json:"total"`

	// Resources holds the requested resources, the most recently noted first.
	Resources []Decisions `json:"resources"`
}

// Decisions holds the latest decisions about one resource.
type Decisions struct {
	// Watch is the watch of the sentinel that decided: the collection, and the selector if there is
	// one.
	Watch string `json:"watch"`

	ResourceID string `json:"resource_id"`

	// Decisions holds the decisions, the newest first.
	Decisions []Decision `json:"decisions"`
}

// A Decision is the served form of an Entry. Zero times are omitted.
type Decision struct {
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

// Handler serves the contents of records as JSON, an Answer. With ?id= it returns one resource,
// otherwise the most recently noted ones, up to ?limit= (default 100, maximum 1000). An unknown
// resource is a problem with status 404. The keys of records are the names of their watches.
func Handler(records map[string]*Record) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			writeProblem(w, http.StatusMethodNotAllowed, "method_not_allowed", "only GET and HEAD are allowed")
			return
		}
		q := r.URL.Query()
		limit, err := parseLimit(q.Get("limit"))
		if err != nil {
			writeProblem(w, http.StatusBadRequest, "invalid_query", err.Error())
			return
		}
		answer := Answer{Time: time.Now().UTC().Truncate(time.Millisecond)}
		for _, rec := range records {
			answer.Known += rec.Len()
		}
		if id := q.Get("id"); id != "" {
			answer.Resources = findResource(records, id)
		} else {
			answer.Resources = latestDecisions(records, limit)
		}
		if q.Get("id") != "" && len(answer.Resources) == 0 {
			writeProblem(w, http.StatusNotFound, CodeNothing, "no decisions recorded for this resource: it was not due since the sentinel started,"+
				" is not watched by this sentinel, or its history was evicted")
			return
		}
		writeResponse(w, http.StatusOK, "application/json", answer)
	})
}

func parseLimit(text string) (int, error) {
	if text == "" {
		return defaultLimit, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxLimit {
		return 0, fmt.Errorf("limit %q is invalid: must be a number from 1 to %d", text, maxLimit)
	}
	return n, nil
}

func findResource(records map[string]*Record, id string) []Decisions {
	var found []Decisions
	for watch, rec := range records {
		if entries := rec.Of(id); len(entries) > 0 {
			found = append(found, newDecisions(watch, id, entries))
		}
	}
	slices.SortFunc(found, func(a, b Decisions) int { return b.Decisions[0].At.Compare(a.Decisions[0].At) })
	return found
}

func latestDecisions(records map[string]*Record, limit int) []Decisions {
	type noted struct {
		watch string
		Resource
	}
	var all []noted
	for watch, rec := range records {
		for _, res := range rec.Latest(limit) {
			all = append(all, noted{watch, res})
		}
	}
	slices.SortStableFunc(all, func(a, b noted) int { return b.Noted.Compare(a.Noted) })
	list := make([]Decisions, 0, min(limit, len(all)))
	for _, n := range all[:cap(list)] {
		list = append(list, newDecisions(n.watch, n.ID, n.Entries))
	}
	return list
}

func newDecisions(watch, id string, entries []Entry) Decisions {
	d := Decisions{Watch: watch, ResourceID: id}
	for _, e := range entries {
		d.Decisions = append(d.Decisions, Decision{
			At: e.At, FirstAt: e.First, Times: e.Times, Publish: e.Published, Reason: e.Reason,
			Generation: e.Generation, ObservedGeneration: e.ObservedGeneration, Phase: e.Phase,
			LastUpdatedTime: e.LastUpdated, Since: e.Since, Next: e.Next,
			EventID: e.EventID, ConfirmedAt: e.Confirmed, Error: e.Err,
		})
	}
	return d
}

func writeProblem(w http.ResponseWriter, status int, code, detail string) {
	writeResponse(w, status, "application/problem+json", v1.Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Code: code, Detail: detail,
	})
}

func writeResponse(w http.ResponseWriter, status int, contentType string, v any) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may have disconnected, and nothing else can fail
}
