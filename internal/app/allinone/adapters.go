package allinone

import (
	"fmt"
	"mime"
	"net/http"

	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/app/sentinelapp"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
	"github.com/fleetloop/fleetloop/internal/sampleadapter"
)

// adapters are the sample adapters of this process.
type adapters []*sampleadapter.Adapter

// newSampleAdaptersIfEnabled builds the sample adapters.
func newSampleAdaptersIfEnabled(p *process.Process, cfg AdapterConfig, b *sentinelapp.Broker, api *fleetclient.Client) (adapters, error) {
	if !cfg.Enabled {
		return nil, nil
	}
	var list adapters
	for _, c := range sampleadapter.SampleConfigs(sampleadapter.Config{Latency: cfg.Latency, FailureRate: cfg.FailureRate, Seed: cfg.Seed}) {
		a, err := sampleadapter.New(c, sampleadapter.Deps{Consumer: b, Fleet: api.Reporter(), Log: p.Log, Registerer: p.Metrics})
		if err != nil {
			return nil, err
		}
		list = append(list, a)
	}
	return list, nil
}

func (l adapters) adapterParts() []lifecycle.Part {
	var parts []lifecycle.Part
	for _, a := range l {
		parts = append(parts, lifecycle.Part{Name: "adapter " + a.Name(), Run: a.Run})
	}
	return parts
}

// adapterStates returns the state of the adapters for the live view.
func (l adapters) adapterStates() []AdapterState {
	var out []AdapterState
	for _, a := range l {
		stats := a.Stats()
		out = append(out, AdapterState{Name: a.Name(), Paused: a.Paused(), Reports: stats.Reports, LastReport: stats.LastReport})
	}
	return out
}

// adaptersPath serves the commands to pause and resume adapters.
const adaptersPath = "/adapters/"

// newPauseResumeHandler pauses and resumes adapters: POST /adapters/{name}/pause. It requires a JSON content
// type, so that no web page can send the request unnoticed.
func (l adapters) newPauseResumeHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+adaptersPath+"{name}/{verb}", func(w http.ResponseWriter, r *http.Request) {
		if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
			http.Error(w, "Content-Type must be application/json", http.StatusUnsupportedMediaType)
			return
		}
		for _, a := range l {
			if a.Name() != r.PathValue("name") {
				continue
			}
			switch r.PathValue("verb") {
			case "pause":
				a.Pause()
			case "resume":
				a.Resume()
			default:
				http.Error(w, fmt.Sprintf("unknown action %q: use pause or resume", r.PathValue("verb")), http.StatusNotFound)
				return
			}
			w.WriteHeader(http.StatusNoContent)
			return
		}
		http.Error(w, fmt.Sprintf("sample adapter %q not found", r.PathValue("name")), http.StatusNotFound)
	})
	return mux
}
