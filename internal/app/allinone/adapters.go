package allinone

import (
	"fmt"
	"mime"
	"net/http"
	"slices"

	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/app/sentinelapp"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
	"github.com/fleetloop/fleetloop/internal/sampleadapter"
)

// adapters are the sample adapters of this process.
type adapters []*sampleadapter.Adapter

func newSampleAdaptersIfEnabled(p *process.Process, cfg AdapterConfig, b *sentinelapp.Broker, api *fleetclient.Client) (adapters, error) {
	if !cfg.Enabled {
		return nil, nil
	}
	var list adapters
	common := sampleadapter.Config{Latency: cfg.Latency, FailureRate: cfg.FailureRate, Seed: cfg.Seed}
	deps := sampleadapter.Deps{Consumer: b, Fleet: api.Reporter(), Log: p.Log, Registerer: p.Metrics}
	for _, config := range sampleadapter.ChainedSampleConfigs(common) {
		a, err := sampleadapter.New(config, deps)
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
	mux.HandleFunc("POST "+adaptersPath+"{name}/{verb}", l.servePauseOrResume)
	return mux
}

func (l adapters) servePauseOrResume(w http.ResponseWriter, r *http.Request) {
	name, verb := r.PathValue("name"), r.PathValue("verb")
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || mediaType != "application/json" {
		http.Error(w, "Content-Type must be application/json", http.StatusUnsupportedMediaType)
		return
	}
	i := slices.IndexFunc(l, func(a *sampleadapter.Adapter) bool { return a.Name() == name })
	if i < 0 {
		http.Error(w, fmt.Sprintf("sample adapter %q not found", name), http.StatusNotFound)
		return
	}
	switch verb {
	case "pause":
		l[i].Pause()
	case "resume":
		l[i].Resume()
	default:
		http.Error(w, fmt.Sprintf("unknown action %q: use pause or resume", verb), http.StatusNotFound)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
