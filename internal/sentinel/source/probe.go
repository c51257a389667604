package source

import (
	"context"
	"net/url"

	"github.com/fleetloop/fleetloop/internal/selector"
)

// probePagingAndFilters detects the features of a server that does not support tokens.
func (v *server) probePagingAndFilters(ctx context.Context) error {
	traits := serverTraits{way: byNumber, supportsOrder: true}

	// Request the last resources by id. One of them may be a sample for the test of the filter.
	var sample selector.Selector
	takeSample := func(it *Item) { setSampleToOneLabel(v.cfg.Selector, it, &sample) }
	pageSize := min(defaultPublicPage, v.pageSize())
	top, err := v.sendProbeRequest(ctx, pageSize, url.Values{"order": {"id desc"}}, takeSample)
	if isRequestRefused(err) {
		traits.supportsOrder = false
		top, err = v.sendProbeRequest(ctx, pageSize, url.Values{}, takeSample)
	}
	if err != nil {
		return err
	}
	if leastTotal(top) < 2 {
		// Too few resources for a test. One page by number holds them.
		v.setTraitsAndForgetPages(traits)
		return nil
	}

	if err := v.probeFilterSupport(ctx, &traits, sample); err != nil {
		return err
	}
	if traits.supportsOrder && len(top.First) > 0 {
		highestID := string(top.First)
		supported, err := v.probeSearchAfterID(ctx, highestID)
		if err != nil {
			return err
		}
		if supported {
			traits.way, traits.highestID = byID, highestID
		}
	}
	traits.detected = true
	v.setTraitsAndForgetPages(traits)
	v.setFlavour(FlavourHyperfleet)
	v.logCapabilitiesIfChanged(ctx)
	return nil
}

// sendProbeRequest sends a test request and calls visit for each resource in the response.
// isRequestRefused is true for the error of a refusal.
func (v *server) sendProbeRequest(
	ctx context.Context, pageSize int, query url.Values, visit func(*Item),
) (Envelope, error) {
	setPageAndSize(query, 1, pageSize)
	body, rest, _, err := v.requestPage(ctx, query, "", nil)
	if err != nil {
		return Envelope{}, err
	}
	page := Page{Body: body, Rest: rest}
	defer page.closeRest()
	return page.ScanItems(NewScanner(!v.cfg.Selector.Empty()), func(it *Item) error {
		visit(it)
		return nil
	})
}

func ignoreItem(*Item) {}

// leastTotal returns the minimum number of resources of a list with this page.
func leastTotal(page Envelope) int64 { return max(page.Total, int64(page.Items)) }

// probeSearchAfterID reports whether the server supports a search for greater ids. It searches above
// the highest id, where no resource exists unless it was created just now.
func (v *server) probeSearchAfterID(ctx context.Context, highestID string) (supported bool, err error) {
	query := url.Values{"order": {"id"}, "search": {searchIDsAfter(highestID)}}
	found, err := v.sendProbeRequest(ctx, 1, query, ignoreItem)
	switch {
	case isRequestRefused(err):
		return false, nil
	case err != nil:
		return false, err
	case found.Items == 0:
		return found.Total <= 0, nil
	}
	return string(found.First) > highestID, nil
}

// No resource has these labels: a server that ignores the filter returns all resources.
const (
	labelsOfNone = "fleetloop-probe=nothing-has-this"
	searchOfNone = "labels.fleetloop_probe='nothing_has_this'"
)

// probeFilterSupport stores in traits the filter that the server supports, if any. sample selects a
// resource of the collection, if one is available for the test.
func (v *server) probeFilterSupport(ctx context.Context, traits *serverTraits, sample selector.Selector) error {
	if v.cfg.Selector.Empty() {
		return nil
	}
	labels := v.cfg.Selector.String()
	supported, err := v.probeFilterParameter(ctx, "labels", labels+","+labelsOfNone, sample.String())
	if err != nil {
		return err
	}
	if supported {
		traits.labels = labels
		return nil
	}

	search, complete := translateSelector(v.cfg.Selector)
	if search == "" {
		return nil
	}
	searchOfSample, _ := translateSelector(sample)
	supported, err = v.probeFilterParameter(ctx, "search", joinAnd(search, searchOfNone), searchOfSample)
	if err != nil {
		return err
	}
	if supported {
		traits.search, traits.searchIsPartial = search, !complete
	}
	return nil
}

// probeFilterParameter reports whether the server filters by a parameter. Such a server finds nothing
// for the value matchesNone, and something for matchesSome. An empty value is not tested.
func (v *server) probeFilterParameter(
	ctx context.Context, parameter, matchesNone, matchesSome string,
) (supported bool, err error) {
	probes := []struct {
		value     string
		wantFound bool
	}{
		{value: matchesNone, wantFound: false}, // first, because most servers without the filter fail here
		{value: matchesSome, wantFound: true},
	}
	for _, probe := range probes {
		if probe.value == "" {
			continue
		}
		found, err := v.sendProbeRequest(ctx, 1, url.Values{parameter: {probe.value}}, ignoreItem)
		if isRequestRefused(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		foundAny := leastTotal(found) > 0
		if foundAny != probe.wantFound {
			return false, nil
		}
	}
	return true, nil
}

// setSampleToOneLabel makes sample select a resource by a label that the selector uses, if the
// resource has one. The value of the label may be any. A sample that can be a search is preferred.
func setSampleToOneLabel(selects selector.Selector, it *Item, sample *selector.Selector) {
	for _, requirement := range selects.Requirements() {
		value, hasLabel := it.Labels.Get(requirement.Key)
		comparesValue := requirement.Op == selector.Equals || requirement.Op == selector.In
		if !hasLabel || !comparesValue {
			continue
		}
		candidate, err := selector.New(selector.Requirement{
			Key:    requirement.Key,
			Op:     selector.Equals,
			Values: []string{value},
		})
		if err != nil {
			continue
		}
		search, _ := translateSelector(candidate)
		if search != "" || sample.Empty() {
			*sample = candidate
		}
	}
}
