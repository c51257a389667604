package hosts

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/console"
)

// A Decision is what the rules of a SentinelConfig say about a resource. It does not consider the events
// that the sentinel has published already.
type Decision struct {
	Host      string `json:"host"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Endpoint is the fleet API that the sentinel watches.
	Endpoint string `json:"endpoint"`
	// State is due, waiting, not_watched, invalid or not_found, or error if Message says why the rules
	// cannot be applied.
	State string `json:"state"`
	// Message names the rule that matched, and its inputs.
	Message string `json:"message"`
	// Next is when a waiting resource falls due, if that is known.
	Next *time.Time `json:"next,omitempty"`
	// Inputs are absent if the resource cannot be read.
	Inputs *DecisionInputs `json:"inputs,omitempty"`
}

// DecisionInputs are the inputs of a Decision.
type DecisionInputs struct {
	Generation         int64      `json:"generation"`
	ObservedGeneration int64      `json:"observed_generation"`
	Phase              string     `json:"phase"`
	Ready              bool       `json:"ready"`
	LastUpdated        *time.Time `json:"last_updated_time,omitempty"`
	MaxAgeSeconds      float64    `json:"max_age_seconds"`
}

// StateError is the state of a Decision that could not be made.
const StateError = "error"

// DecideFunc applies the rules of SentinelConfigs of one collection to a resource that it reads as the
// person, once. It returns a Decision for each, and leaves their names to the caller.
type DecideFunc func(ctx context.Context, who console.Person, list []*v1alpha1.SentinelConfig, id string) ([]Decision, error)

// evaluateSentinelsAndRespond serves what each SentinelConfig that the person may list decides about a resource.
func (h *Host) evaluateSentinelsAndRespond(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	collection, id := r.URL.Query().Get("collection"), r.URL.Query().Get("id")
	if collection == "" || id == "" {
		console.WriteProblemJSON(w, http.StatusBadRequest, "collection and id must name a resource.", "")
		return nil
	}
	readable, err := listReadableSentinelConfigs(ctx, h, false)
	if err != nil {
		return err
	}
	list := slices.DeleteFunc(readable, func(s *v1alpha1.SentinelConfig) bool { return s.Spec.ResourceType != collection })
	answer := page[Decision]{Items: []Decision{}, AsOf: time.Now().UTC()}
	if len(list) > 0 {
		answer.Items, err = h.deps.Decide(ctx, console.PersonFromContext(ctx), list, id)
		if err != nil {
			return fmt.Errorf("decide about %s %q: %w", collection, id, err)
		}
	}
	for i, s := range list {
		decision := &answer.Items[i]
		decision.Host, decision.Namespace, decision.Name = h.cfg.Name, s.Namespace, s.Name
	}
	console.WriteJSON(w, http.StatusOK, answer)
	return nil
}
