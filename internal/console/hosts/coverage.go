package hosts

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/console"
)

// Coverage says whether each resource is watched by exactly one SentinelConfig.
type Coverage struct {
	Collections []CollectionCoverage `json:"collections"`
	// Gaps are the resources that no SentinelConfig watches, and Overlaps those that several watch, by
	// the labels that the selectors use. The largest come first.
	Gaps     []CoverageGroup `json:"gaps"`
	Overlaps []CoverageGroup `json:"overlaps"`
	// SeveralAPIs are the fleet APIs that the SentinelConfigs name, if they name several. All are compared
	// with that of the console, so the result is then not certain.
	SeveralAPIs []string  `json:"several_apis,omitempty"`
	AsOf        time.Time `json:"as_of"`
}

// CollectionCoverage counts the resources of a collection that are not watched by exactly one
// SentinelConfig.
type CollectionCoverage struct {
	Collection  string `json:"collection"`
	Resources   int    `json:"resources"`
	Unwatched   int    `json:"unwatched"`
	Overlapping int    `json:"overlapping"`
	// Invalid is the number of resources that no sentinel can read.
	Invalid int `json:"invalid"`
	// Inexact says why changes during the check may be missing. It is empty if none are.
	Inexact string `json:"inexact,omitempty"`
}

// CoverageGroup are resources with the same values of the labels.
type CoverageGroup struct {
	Collection string `json:"collection"`
	// Labels is a selector. Others means that the group is the rest, whatever its labels.
	Labels    string   `json:"labels"`
	Others    bool     `json:"others,omitempty"`
	Resources int      `json:"resources"`
	Sentinels []string `json:"sentinels,omitempty"`
	// ExampleID and ExampleName are those of one of the resources. The name is empty if it cannot be
	// read.
	ExampleID   string `json:"example_id"`
	ExampleName string `json:"example_name,omitempty"`
}

// A NamedSentinel is a SentinelConfig with its name in the console.
type NamedSentinel struct {
	Name   string
	Config *v1alpha1.SentinelConfig
}

// ErrInvalidSentinel means that a SentinelConfig cannot be read.
var ErrInvalidSentinel = errors.New("invalid SentinelConfig")

// CoverageFunc reads all resources of the collections that SentinelConfigs watch, as the person, and
// compares them with the SentinelConfigs.
type CoverageFunc func(ctx context.Context, who console.Person, list []NamedSentinel) (Coverage, error)

// coverageTimeout limits a check. It is shorter than the timeout of the server.
const coverageTimeout = 50 * time.Second

// serveCoverageCheck serves a check of all resources. A SentinelConfig that the person cannot read would be a
// false gap, so the person must be able to list all of them. One check runs at a time.
func (c *Clusters) serveCoverageCheck(w http.ResponseWriter, r *http.Request) {
	if !c.checking.TryLock() {
		w.Header().Set("Retry-After", "5")
		console.WriteProblemJSON(w, http.StatusTooManyRequests, "Another check is running. Try again in some seconds.", "")
		return
	}
	defer c.checking.Unlock()
	ctx, cancel := context.WithTimeout(r.Context(), coverageTimeout)
	defer cancel()
	var all []NamedSentinel
	for _, h := range c.list {
		list, err := listAllSentinelConfigs(ctx, h)
		if errors.Is(err, errNoAnswer) {
			console.WriteProblemJSON(
				w,
				http.StatusServiceUnavailable,
				fmt.Sprintf("Host cluster %q did not respond in time.", h.cfg.Name),
				"The SentinelConfigs of all host clusters are needed.",
			)
			return
		}
		if err != nil {
			writeErrorProblem(h.log, w, r, fmt.Errorf("host cluster %q: %w", h.cfg.Name, err))
			return
		}
		for _, s := range list {
			name := s.Namespace + "/" + s.Name
			if len(c.list) > 1 {
				name = h.cfg.Name + "/" + name
			}
			all = append(all, NamedSentinel{name, s})
		}
	}
	answer, err := c.check(ctx, console.PersonFromContext(ctx), all)
	if err != nil {
		writeCoverageProblem(ctx, w, r, err)
		return
	}
	console.WriteJSON(w, http.StatusOK, answer)
}

// writeCoverageProblem answers with the status that fits the error of a check, which ran with checkCtx.
func writeCoverageProblem(checkCtx context.Context, w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case r.Context().Err() != nil:
		// The client is gone.
	case errors.Is(err, console.ErrToken):
		console.WriteProblemJSON(w, http.StatusUnauthorized, "The fleet API does not accept your token any more.", "Sign in again.")
	case errors.Is(err, ErrInvalidSentinel):
		console.WriteProblemJSON(w, http.StatusUnprocessableEntity, capitalizeFirst(err.Error())+".", "Correct the SentinelConfig.")
	case checkCtx.Err() != nil:
		console.WriteProblemJSON(
			w,
			http.StatusServiceUnavailable,
			fmt.Sprintf("Reading all resources took longer than %s.", coverageTimeout),
			"Run: sentinel coverage FILE...",
		)
	default:
		console.WriteProblemJSON(
			w,
			http.StatusServiceUnavailable,
			capitalizeFirst(err.Error())+".",
			"Try again. If this lasts, run: sentinel coverage FILE...",
		)
	}
}

// listAllSentinelConfigs returns the SentinelConfigs of all namespaces, within the timeout of a request.
func listAllSentinelConfigs(ctx context.Context, host *Host) ([]*v1alpha1.SentinelConfig, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
	defer cancel()
	list, err := listReadableSentinelConfigs(ctx, host, true)
	if err != nil && ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	return list, err
}
