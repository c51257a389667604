package changes

import (
	"encoding/json"
	"net/http"

	"github.com/fleetloop/fleetloop/changeevent"
)

// debugPath is where a process shows how its sinks are.
const debugPath = "/debug/change-events"

// A report is how the sinks are.
type report struct {
	Sinks        []changeevent.Stats `json:"sinks"`
	InvalidSinks []InvalidSink       `json:"invalidSinks,omitempty"`
}

// ServeHTTP shows how the sinks are, as JSON.
func (s *Sinks) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	r := report{Sinks: []changeevent.Stats{}, InvalidSinks: s.invalid}
	for _, sink := range s.Each() {
		if stats, ok := changeevent.StatsOf(sink.Client); ok { // one that cannot work has none
			r.Sinks = append(r.Sinks, stats)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(r) // whoever asked has gone
}
