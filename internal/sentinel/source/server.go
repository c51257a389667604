package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/fleetloop/fleetloop/internal/selector"
)

// A serverTraits holds what is known about how to query a server.
type serverTraits struct {
	way pagingWay

	// settled says that this was detected, and not merely assumed. Any way other than tokens is
	// detected before it is used, if there are enough resources for a test.
	settled bool

	// labels and search are the filters that are sent, the one that the server supports; both may
	// be empty.
	labels, search string

	// part says that search covers only a part of the selector.
	part bool

	// order says that the server supports order=id.
	order bool

	// highest is the greatest id when the order was tested. The first page with more than one
	// resource must end below it; afterwards highest is empty.
	highest string
}

// A server is the server of one collection, as far as it is known.
type server struct {
	cfg WalkerConfig
	src Lister
	log *slog.Logger

	traits  serverTraits
	most    int // its maximum page size, by number and by id
	flavour atomic.Pointer[Flavour]
	told    string // the last logged description

	// walks counts the walks that started at the beginning.
	walks uint32
	tags  map[Place]rememberedPage
}

func (v *server) setFlavour(f Flavour) { v.flavour.Store(&f) }

// recheckAfter is the number of walks, or chunks, after which a detected server is tested again.
// The server may have been replaced by one with more features.
const recheckAfter = 100

// filtersAll reports whether the request contains the whole selector.
func (s *serverTraits) filtersAll() bool { return s.labels != "" || s.search != "" && !s.part }

// probeAndResolveStart returns the actual start of a walk for a requested start.
func (v *server) probeAndResolveStart(ctx context.Context, start Place) (Place, error) {
	if start.Later() && start.way == v.traits.way && start.size <= v.pageSize() {
		return start, nil
	}
	v.walks++
	if v.walks%recheckAfter == 0 && v.traits.settled {
		v.resetTraits()
	}
	if v.traits.way != byToken && !v.traits.settled {
		if err := v.probeCapabilities(ctx); err != nil {
			return Place{}, fmt.Errorf("list %s: probe the API: %w", v.cfg.Collection, err)
		}
	}
	return v.firstPlace(), nil
}

// resetTraits discards the detected properties of the server.
func (v *server) resetTraits() {
	s := serverTraits{labels: v.cfg.Selector.String()}
	if v.cfg.Flavour == FlavourHyperfleet {
		s = serverTraits{way: byNumber}
	}
	v.setTraitsAndForgetPages(s)
	v.setFlavour(v.cfg.Flavour)
}

// setTraitsAndForgetPages changes how the server is queried. It discards the remembered pages,
// because they are responses to other requests.
func (v *server) setTraitsAndForgetPages(s serverTraits) {
	v.traits = s
	clear(v.tags)
}

// detectPagingWithoutTokens finds another way to continue with a server that does not support tokens.
func (v *server) detectPagingWithoutTokens(ctx context.Context) error {
	if v.cfg.Flavour == FlavourFleetloop {
		v.setTraitsAndForgetPages(serverTraits{way: byNumber, settled: true, labels: v.traits.labels})
		return nil
	}
	return v.probeCapabilities(ctx)
}

// fallBackToPageNumbers switches to page numbers, which every server without tokens supports.
func (v *server) fallBackToPageNumbers(ctx context.Context, reason string) {
	s := v.traits
	s.way, s.highest, s.settled = byNumber, "", true
	v.setTraitsAndForgetPages(s)
	v.told = ""
	v.log.WarnContext(ctx, "api paging is inconsistent, falling back to page numbers", "collection", v.cfg.Collection, "reason", reason)
}

// nextPlaceByID returns the place after a page by id; more is false at the end of the list. sound says
// that the page matches the request.
func (s *serverTraits) nextPlaceByID(current Place, env Envelope) (next Place, more, consistent bool) {
	if env.Items == 0 {
		return Place{}, false, env.Total <= 0
	}
	last := string(env.Last)
	complete := env.Total >= 0 && env.Total <= int64(env.Items)
	switch {
	case complete && current.after == "":
		return Place{}, false, true
	case !env.Sorted || string(env.First) <= current.after:
		return Place{}, false, false
	case complete:
		return Place{}, false, true
	case s.highest != "" && last >= s.highest:
		return Place{}, false, false // the remaining ids would have to be greater
	}
	s.highest = ""
	return Place{way: byID, after: last}, true, true
}

// firstPlace returns the first place for the current way of paging.
func (v *server) firstPlace() Place {
	if v.traits.way == byNumber {
		return Place{way: byNumber, page: 1, size: v.pageSize()}
	}
	return Place{way: v.traits.way}
}

// pageSize returns the number of resources per request, by number and by id.
func (v *server) pageSize() int { return min(v.cfg.PageSize, v.most) }

// The maximum and default page sizes of known servers.
const (
	maxPublicPage     = 100
	defaultPublicPage = 20
)

// shrinkPageSizeToStatedLimit reduces the page size for later requests, if a refusal is about the size.
func (v *server) shrinkPageSizeToStatedLimit(refusal error) (shrunk bool) {
	text := refusal.Error()
	at := sizeWord().FindStringIndex(text)
	if at == nil {
		return false
	}
	text, _, _ = strings.Cut(text[at[0]:], "(trace")
	size, smaller := v.pageSize(), 0
	for _, digits := range numberPattern().FindAllString(text, -1) {
		if n, err := strconv.Atoi(digits); err == nil && n < size {
			smaller = max(smaller, n)
		}
	}
	return v.shrinkPageSize(smaller)
}

// shrinkPageSize reduces the page size to size. If size cannot be a page size, it uses the next smaller
// known maximum of servers: a limit of one is a minimum, not a maximum. It returns false if there
// is no smaller size.
func (v *server) shrinkPageSize(wantedOrZero int) (shrunk bool) {
	switch before := v.pageSize(); {
	case wantedOrZero > 1:
	case before > maxPublicPage:
		wantedOrZero = maxPublicPage
	case before > defaultPublicPage:
		wantedOrZero = defaultPublicPage
	default:
		return false
	}
	v.most = wantedOrZero
	clear(v.tags)
	return true
}

func sizeWord() *regexp.Regexp      { return regexp.MustCompile(`(?i)\b(page)?_?size\b`) }
func numberPattern() *regexp.Regexp { return regexp.MustCompile(`\b[0-9]+\b`) }

// isRequestRefused reports whether a server understood a request and refused it. Other errors, such as
// that it is busy, do not concern the request.
func isRequestRefused(err error) bool {
	switch HTTPStatusOf(err) {
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestURITooLong:
		return true
	}
	return false
}

// HTTPStatusOf returns the HTTP status of an error, or 0 if it has none.
func HTTPStatusOf(err error) (statusOrZero int) {
	if e, ok := errors.AsType[interface {
		error
		StatusCode() int
	}](err); ok {
		return e.StatusCode()
	}
	return 0
}

// logCapabilitiesIfChanged logs how the server is queried, if that has changed.
func (v *server) logCapabilitiesIfChanged(ctx context.Context) {
	s := v.traits
	paging := map[pagingWay]string{byToken: "continue tokens", byNumber: "page numbers", byID: "ids"}[s.way]
	filter := "none"
	switch {
	case s.labels != "":
		filter = "labels=" + s.labels
	case s.search != "":
		filter = "search=" + s.search
	}
	if told := paging + " " + filter; told != v.told {
		v.told = told
		v.log.InfoContext(ctx, "api capabilities detected", "collection", v.cfg.Collection, "flavour", string(*v.flavour.Load()), "paging", paging, "filter", filter)
		if filter == "none" && !v.cfg.Selector.Empty() {
			v.log.WarnContext(ctx, "api cannot filter by this selector, filtering on the client",
				"collection", v.cfg.Collection, "selector", v.cfg.Selector.String())
		}
	}
}

// sendProbeRequest sends a test request and calls visit for each resource in the response.
// isRequestRefused is true for the error of a refusal.
func (v *server) sendProbeRequest(ctx context.Context, pageSize int, query url.Values, visit func(*Item)) (Envelope, error) {
	setPageAndSize(query, 1, pageSize)
	body, rest, _, err := v.requestPage(ctx, query, "", nil)
	if err != nil {
		return Envelope{}, err
	}
	pg := Page{Body: body, Rest: rest}
	defer pg.closeRest()
	return pg.ScanItems(NewScanner(!v.cfg.Selector.Empty()), func(it *Item) error {
		visit(it)
		return nil
	})
}

func ignoreItem(*Item) {}

// leastTotal returns the minimum number of resources of a list with this page.
func leastTotal(e Envelope) int64 { return max(e.Total, int64(e.Items)) }

// probeCapabilities detects the features of a server that does not support tokens.
func (v *server) probeCapabilities(ctx context.Context) error {
	s := serverTraits{way: byNumber, order: true}
	var sample selector.Selector
	take := func(it *Item) { setSampleFromLabels(v.cfg.Selector, it, &sample) }
	top, err := v.sendProbeRequest(ctx, min(defaultPublicPage, v.pageSize()), url.Values{"order": {"id desc"}}, take)
	if isRequestRefused(err) {
		s.order = false
		top, err = v.sendProbeRequest(ctx, min(defaultPublicPage, v.pageSize()), url.Values{}, take)
	}
	if err != nil {
		return err
	}
	if leastTotal(top) < 2 {
		// Too few resources for a test. One page by number holds them.
		v.setTraitsAndForgetPages(s)
		return nil
	}
	if err := v.probeFilterSupport(ctx, &s, sample); err != nil {
		return err
	}
	if s.order && len(top.First) > 0 {
		understood, err := v.probeSearchAfterID(ctx, string(top.First))
		if err != nil {
			return err
		}
		if understood {
			s.way, s.highest = byID, string(top.First)
		}
	}
	s.settled = true
	v.setTraitsAndForgetPages(s)
	v.setFlavour(FlavourHyperfleet)
	v.logCapabilitiesIfChanged(ctx)
	return nil
}

// probeSearchAfterID reports whether the server supports a search for greater ids. It searches above
// the highest id, where no resource exists unless it was created just now.
func (v *server) probeSearchAfterID(ctx context.Context, highestID string) (supported bool, err error) {
	a, err := v.sendProbeRequest(ctx, 1, url.Values{"order": {"id"}, "search": {searchIDsAfter(highestID)}}, ignoreItem)
	switch {
	case isRequestRefused(err):
		return false, nil
	case err != nil:
		return false, err
	case a.Items == 0:
		return a.Total <= 0, nil
	}
	return string(a.First) > highestID, nil
}

// probeFilterSupport detects the filter that the server supports, if any. sample selects a resource of
// the collection, if one is available for the test.
func (v *server) probeFilterSupport(ctx context.Context, s *serverTraits, sample selector.Selector) error {
	if v.cfg.Selector.Empty() {
		return nil
	}
	// No resource has these labels: a server that ignores the filter returns all.
	const labels, search = "fleetloop-probe=nothing-has-this", "labels.fleetloop_probe='nothing_has_this'"
	all := v.cfg.Selector.String()
	ok, err := v.probeFilterParameter(ctx, "labels", all+","+labels, sample.String())
	if err != nil {
		return err
	}
	if ok {
		s.labels = all
		return nil
	}
	some, whole := translateSelector(v.cfg.Selector)
	if some == "" {
		return nil
	}
	one, _ := translateSelector(sample)
	ok, err = v.probeFilterParameter(ctx, "search", joinAnd(some, search), one)
	if ok {
		s.search, s.part = some, !whole
	}
	return err
}

// probeFilterParameter reports whether the server filters by a parameter. A filter finds nothing
// for matchesNone, and something for the value one, if that is not empty.
func (v *server) probeFilterParameter(ctx context.Context, parameter, matchesNone, matchesSome string) (supported bool, err error) {
	for value, want := range map[string]bool{matchesNone: false, matchesSome: true} {
		if value == "" {
			continue
		}
		a, err := v.sendProbeRequest(ctx, 1, url.Values{parameter: {value}}, ignoreItem)
		if isRequestRefused(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if (leastTotal(a) > 0) != want {
			return false, nil
		}
	}
	return true, nil
}

// setSampleFromLabels makes found select a resource by a label that the selector uses, if the
// resource has one. The value of the label may be any.
func setSampleFromLabels(selects selector.Selector, it *Item, sample *selector.Selector) {
	for _, r := range selects.Requirements() {
		value, ok := it.Labels.Get(r.Key)
		if !ok || r.Op != selector.Equals && r.Op != selector.In {
			continue
		}
		sel, err := selector.New(selector.Requirement{Key: r.Key, Op: selector.Equals, Values: []string{value}})
		if said, _ := translateSelector(sel); err == nil && (said != "" || sample.Empty()) {
			*sample = sel
		}
	}
}
