package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

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

// recheckAfter is the number of walks, or chunks, after which a detected server is tested again.
// The server may have been replaced by one with more features.
const recheckAfter = 100

// filtersAll reports whether the request contains the whole selector.
func (s *serverTraits) filtersAll() bool { return s.labels != "" || s.search != "" && !s.part }

// resolveStart returns the actual start of a walk for a requested start.
func (w *Walker) resolveStart(ctx context.Context, start Place) (Place, error) {
	if start.Later() && start.way == w.server.way && start.size <= w.pageSize() {
		return start, nil
	}
	w.walks++
	if w.walks%recheckAfter == 0 && w.server.settled {
		w.forgetServer()
	}
	if w.server.way != byToken && !w.server.settled {
		if err := w.probeServer(ctx); err != nil {
			return Place{}, fmt.Errorf("list %s: probe the API: %w", w.cfg.Collection, err)
		}
	}
	return w.firstPlace(), nil
}

// forgetServer discards the detected properties of the server.
func (w *Walker) forgetServer() {
	s := serverTraits{labels: w.cfg.Selector.String()}
	if w.cfg.Flavour == FlavourHyperfleet {
		s = serverTraits{way: byNumber}
	}
	w.setServer(s)
	w.setFlavour(w.cfg.Flavour)
}

// setServer changes how the server is queried. It discards the remembered pages, because they are
// responses to other requests.
func (w *Walker) setServer(s serverTraits) {
	w.server = s
	clear(w.tags)
}

// detectPaging finds another way to continue with a server that does not support tokens.
func (w *Walker) detectPaging(ctx context.Context) error {
	if w.cfg.Flavour == FlavourFleetloop {
		w.setServer(serverTraits{way: byNumber, settled: true, labels: w.server.labels})
		return nil
	}
	return w.probeServer(ctx)
}

// fallBackToPageNumbers switches to page numbers, which every server without tokens supports.
func (w *Walker) fallBackToPageNumbers(ctx context.Context, why string) {
	s := w.server
	s.way, s.highest, s.settled = byNumber, "", true
	w.setServer(s)
	w.told = ""
	w.log.WarnContext(ctx, "api paging is inconsistent, falling back to page numbers", "collection", w.cfg.Collection, "reason", why)
}

// nextByID returns the place after a page by id; more is false at the end of the list. sound says
// that the page matches the request.
func (s *serverTraits) nextByID(at Place, env Envelope) (next Place, more, sound bool) {
	if env.Items == 0 {
		return Place{}, false, env.Total <= 0
	}
	last := string(env.Last)
	complete := env.Total >= 0 && env.Total <= int64(env.Items)
	switch {
	case complete && at.after == "":
		return Place{}, false, true
	case !env.Sorted || string(env.First) <= at.after:
		return Place{}, false, false
	case complete:
		return Place{}, false, true
	case s.highest != "" && last >= s.highest:
		return Place{}, false, false // the remaining ids would have to be greater
	}
	s.highest = ""
	return Place{way: byID, after: last}, true, true
}

// recoverRefused finds another way to request a page that was refused. It returns false if there is
// none, or if the error has another cause.
func (w *walk) recoverRefused(ctx context.Context, pg fetchedPage) (instead Place, ok bool, err error) {
	if !isRefused(pg.err) || ctx.Err() != nil {
		return Place{}, false, pg.err
	}
	s := w.server
	if s.way == byToken {
		if w.cfg.Flavour != FlavourAuto || pg.At.Later() || w.Flavour() == FlavourFleetloop {
			return Place{}, false, pg.err
		}
		if err := w.probeServer(ctx); err != nil {
			return Place{}, false, errors.Join(pg.err, err)
		}
		return w.firstPlace(), true, nil
	}
	if !w.shrinkToStatedLimit(pg.cause) {
		switch {
		case s.way == byID:
			w.fallBackToPageNumbers(ctx, "it rejects a search for greater ids")
		case s.search != "" || s.labels != "":
			s.search, s.labels, s.part = "", "", false
			w.setServer(s)
			w.logCapabilityChange(ctx)
		case s.order:
			s.order = false
			w.setServer(s)
		case !w.shrinkPageSize(0):
			return Place{}, false, pg.err
		}
		return w.firstPlace(), true, nil
	}
	if s.way == byID {
		return pg.At, true, nil
	}
	return w.firstPlace(), true, nil
}

// pageSize returns the number of resources per request, by number and by id.
func (w *Walker) pageSize() int { return min(w.cfg.PageSize, w.most) }

// The maximum and default page sizes of known servers.
const (
	maxPublicPage     = 100
	defaultPublicPage = 20
)

// shrinkToStatedLimit reduces the page size for later requests, if a refusal is about the size.
func (w *Walker) shrinkToStatedLimit(refusal error) (shrunk bool) {
	text := refusal.Error()
	at := sizeWord().FindStringIndex(text)
	if at == nil {
		return false
	}
	text, _, _ = strings.Cut(text[at[0]:], "(trace")
	size, smaller := w.pageSize(), 0
	for _, digits := range numberPattern().FindAllString(text, -1) {
		if n, err := strconv.Atoi(digits); err == nil && n < size {
			smaller = max(smaller, n)
		}
	}
	return w.shrinkPageSize(smaller)
}

// shrinkPageSize reduces the page size to size. If size cannot be a page size, it uses the next smaller
// known maximum of servers: a limit of one is a minimum, not a maximum. It returns false if there
// is no smaller size.
func (w *Walker) shrinkPageSize(size int) (shrunk bool) {
	switch before := w.pageSize(); {
	case size > 1:
	case before > maxPublicPage:
		size = maxPublicPage
	case before > defaultPublicPage:
		size = defaultPublicPage
	default:
		return false
	}
	w.most = size
	clear(w.tags)
	return true
}

func sizeWord() *regexp.Regexp      { return regexp.MustCompile(`(?i)\b(page)?_?size\b`) }
func numberPattern() *regexp.Regexp { return regexp.MustCompile(`\b[0-9]+\b`) }

// isRefused reports whether a server understood a request and refused it. Other errors, such as
// that it is busy, do not concern the request.
func isRefused(err error) bool {
	switch httpStatusOf(err) {
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestURITooLong:
		return true
	}
	return false
}

func httpStatusOf(err error) int {
	if e, ok := errors.AsType[interface {
		error
		StatusCode() int
	}](err); ok {
		return e.StatusCode()
	}
	return 0
}

// logCapabilityChange logs how the server is queried, if that has changed.
func (w *Walker) logCapabilityChange(ctx context.Context) {
	s := w.server
	paging := map[pagingWay]string{byToken: "continue tokens", byNumber: "page numbers", byID: "ids"}[s.way]
	filter := "none"
	switch {
	case s.labels != "":
		filter = "labels=" + s.labels
	case s.search != "":
		filter = "search=" + s.search
	}
	if told := paging + " " + filter; told != w.told {
		w.told = told
		w.log.InfoContext(ctx, "api capabilities detected", "collection", w.cfg.Collection, "flavour", string(w.Flavour()), "paging", paging, "filter", filter)
		if filter == "none" && !w.cfg.Selector.Empty() {
			w.log.WarnContext(ctx, "api cannot filter by this selector, filtering on the client",
				"collection", w.cfg.Collection, "selector", w.cfg.Selector.String())
		}
	}
}

// A probeAnswer is the result of a test request.
type probeAnswer struct{ Envelope }

// totalItems returns the minimum number of resources.
func (a probeAnswer) totalItems() int64 { return max(a.Total, int64(a.Items)) }

// askServer sends a test request and calls visit for each resource in the response. isRefused is
// true for the error of a refusal.
func (w *Walker) askServer(ctx context.Context, size int, q url.Values, visit func(*Item)) (probeAnswer, error) {
	setPageNumber(q, 1, size)
	body, rest, _, err := w.getPage(ctx, q, "", nil)
	if err != nil {
		return probeAnswer{}, err
	}
	pg := Page{Body: body, Rest: rest}
	defer pg.closeRest()
	env, err := pg.Scan(NewScanner(!w.cfg.Selector.Empty()), func(it *Item) error {
		visit(it)
		return nil
	})
	return probeAnswer{env}, err
}

func ignoreItem(*Item) {}

// probeServer detects the features of a server that does not support tokens.
func (w *Walker) probeServer(ctx context.Context) error {
	s := serverTraits{way: byNumber, order: true}
	var sample selector.Selector
	take := func(it *Item) { w.sampleLabel(it, &sample) }
	top, err := w.askServer(ctx, min(defaultPublicPage, w.pageSize()), url.Values{"order": {"id desc"}}, take)
	if isRefused(err) {
		s.order = false
		top, err = w.askServer(ctx, min(defaultPublicPage, w.pageSize()), url.Values{}, take)
	}
	if err != nil {
		return err
	}
	if top.totalItems() < 2 {
		// Too few resources for a test. One page by number holds them.
		w.setServer(s)
		return nil
	}
	if err := w.probeFilters(ctx, &s, sample); err != nil {
		return err
	}
	if s.order && len(top.First) > 0 {
		understood, err := w.canSearchAfterID(ctx, string(top.First))
		if err != nil {
			return err
		}
		if understood {
			s.way, s.highest = byID, string(top.First)
		}
	}
	s.settled = true
	w.setServer(s)
	w.setFlavour(FlavourHyperfleet)
	w.logCapabilityChange(ctx)
	return nil
}

// canSearchAfterID reports whether the server supports a search for greater ids. It searches above
// the highest id, where no resource exists unless it was created just now.
func (w *Walker) canSearchAfterID(ctx context.Context, highestID string) (understood bool, err error) {
	a, err := w.askServer(ctx, 1, url.Values{"order": {"id"}, "search": {searchAfter(highestID)}}, ignoreItem)
	switch {
	case isRefused(err):
		return false, nil
	case err != nil:
		return false, err
	case a.Items == 0:
		return a.Total <= 0, nil
	}
	return string(a.First) > highestID, nil
}

// probeFilters detects the filter that the server supports, if any. sample selects a resource of
// the collection, if one is available for the test.
func (w *Walker) probeFilters(ctx context.Context, s *serverTraits, sample selector.Selector) error {
	if w.cfg.Selector.Empty() {
		return nil
	}
	// No resource has these labels: a server that ignores the filter returns all.
	const labels, search = "fleetloop-probe=nothing-has-this", "labels.fleetloop_probe='nothing_has_this'"
	all := w.cfg.Selector.String()
	ok, err := w.probeFilter(ctx, "labels", all+","+labels, sample.String())
	if err != nil {
		return err
	}
	if ok {
		s.labels = all
		return nil
	}
	some, whole := searchFor(w.cfg.Selector)
	if some == "" {
		return nil
	}
	one, _ := searchFor(sample)
	ok, err = w.probeFilter(ctx, "search", joinAnd(some, search), one)
	if ok {
		s.search, s.part = some, !whole
	}
	return err
}

// probeFilter reports whether the server filters by a parameter. A filter finds nothing for matchesNone,
// and something for the value one, if that is not empty.
func (w *Walker) probeFilter(ctx context.Context, parameter, matchesNone, matchesSome string) (filters bool, err error) {
	for value, want := range map[string]bool{matchesNone: false, matchesSome: true} {
		if value == "" {
			continue
		}
		a, err := w.askServer(ctx, 1, url.Values{parameter: {value}}, ignoreItem)
		if isRefused(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if (a.totalItems() > 0) != want {
			return false, nil
		}
	}
	return true, nil
}

// sampleLabel makes found select a resource by a label that the selector uses, if the resource has
// one. The value of the label may be any.
func (w *Walker) sampleLabel(it *Item, found *selector.Selector) {
	for _, r := range w.cfg.Selector.Requirements() {
		value, ok := it.Labels.Get(r.Key)
		if !ok || r.Op != selector.Equals && r.Op != selector.In {
			continue
		}
		sel, err := selector.New(selector.Requirement{Key: r.Key, Op: selector.Equals, Values: []string{value}})
		if said, _ := searchFor(sel); err == nil && (said != "" || found.Empty()) {
			*found = sel
		}
	}
}
