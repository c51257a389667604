package fleetapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
)

// ErrNotCounted means that the resources have not been counted to the end yet.
var ErrNotCounted = errors.New("not counted yet")

// Bounds of a summary.
const (
	// MaxSummaryReasons is the maximum number of reasons.
	MaxSummaryReasons = 20
	// MaxSummaryValues is the maximum number of values of one label.
	MaxSummaryValues = 100
	// maxSummaryLabels is the maximum number of labels.
	maxSummaryLabels = 8
)

// Rollups reads the counts of resources, and what is stuck.
type Rollups interface {
	// ReadSummary returns the counts of a scope. It returns ErrNotCounted until all resources have been counted once.
	ReadSummary(ctx context.Context, scope Scope) (v1.Summary, error)

	// ListStuckResources returns a page of resources that are not ready or not synced.
	ListStuckResources(ctx context.Context, scope Scope, q StuckQuery) (StuckPage, error)
}

// ValidateSummaryLabels checks the label keys by whose values clusters are counted.
func ValidateSummaryLabels(keys []string) error {
	if len(keys) > maxSummaryLabels {
		return fmt.Errorf("summary labels: %d keys are listed; at most %d are allowed", len(keys), maxSummaryLabels)
	}
	for i, key := range keys {
		if errs := validation.IsQualifiedName(key); len(errs) > 0 {
			return fmt.Errorf("summary labels: %q is not a label key: %s", key, errs[0])
		}
		if slices.Contains(keys[:i], key) {
			return fmt.Errorf("summary labels: %q is listed twice", key)
		}
	}
	return nil
}

func (a *API) serveSummary(w http.ResponseWriter, r *http.Request, principal auth.Principal) error {
	scope, err := authorizeRead(principal)
	if err != nil {
		return err
	}
	if err := checkQueryParameters(r.URL.Query()); err != nil {
		return err
	}
	summary, err := a.store.ReadSummary(r.Context(), scope)
	if errors.Is(err, ErrNotCounted) {
		return &rest.Error{
			Code:       rest.CodeUnavailable,
			Detail:     "the fleet API is still counting the resources for the first time; retry later",
			RetryAfter: retryAfter,
			Cause:      err,
		}
	}
	if err != nil {
		return err
	}
	return rest.WriteJSONValue(w, http.StatusOK, summary)
}
