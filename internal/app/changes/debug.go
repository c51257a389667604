package changes

import (
	"encoding/json"
	"net/http"

	"github.com/fleetloop/fleetloop/changeevent"
)

// debugPath serves the state of the sinks.
const debugPath = "/debug/change-events"

// report is the state of the sinks.
type report struct {
	Sinks        []changeevent.Stats `json:"sinks"`
	InvalidSinks []InvalidSink       `json:"invalidSinks,omitempty"`
}

// ServeHTTP writes the state of the sinks as JSON.
func (s *Sinks) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	r := report{Sinks: []changeevent.Stats{}, InvalidSinks: s.invalid}
	for _, sink := range s.List() {
		if stats, ok := changeevent.StatsOf(sink.Client); ok { // an invalid sink has none
			r.Sinks = append(r.Sinks, stats)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(r) // the client has disconnected
}
