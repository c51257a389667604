package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
)

// A serverTraits holds what is known about how to query a server.
type serverTraits struct {
	way pagingWay

	// detected says that the traits were detected, and not merely assumed. Any way other than
	// tokens is detected before it is used, if there are enough resources for a test.
	detected bool

	// labels and search are the filters that are sent, the one that the server supports; both may
	// be empty.
	labels, search string

	// searchIsPartial says that search covers only a part of the selector.
	searchIsPartial bool

	// supportsOrder says that the server supports order=id.
	supportsOrder bool

	// highestID is the greatest id when the order was tested. The first page with more than one
	// resource must end below it; afterwards highestID is empty.
	highestID string
}

// A server is the server of one collection, as far as it is known.
type server struct {
	cfg WalkerConfig
	src Lister
	log *slog.Logger

	traits      serverTraits
	maxPageSize int // by number and by id
	flavour     atomic.Pointer[Flavour]

	// loggedTraits is the last logged description of the traits.
	loggedTraits string

	// walks counts the walks that started at the beginning.
	walks uint32

	// tags holds the pages with entity tags.
	tags map[Place]rememberedPage
}

func (v *server) setFlavour(f Flavour) { v.flavour.Store(&f) }

// recheckAfter is the number of walks, or chunks, after which a detected server is tested again.
// The server may have been replaced by one with more features.
const recheckAfter = 100

// filtersAll reports whether the request contains the whole selector.
func (s *serverTraits) filtersAll() bool {
	return s.labels != "" || s.search != "" && !s.searchIsPartial
}

// probeAndResolveStart returns the actual start of a walk for a requested start.
func (v *server) probeAndResolveStart(ctx context.Context, start Place) (Place, error) {
	isStillValid := start.way == v.traits.way && start.size <= v.pageSize()
	if start.Later() && isStillValid {
		return start, nil
	}
	v.walks++
	if v.walks%recheckAfter == 0 && v.traits.detected {
		v.resetTraits()
	}
	if v.traits.way != byToken && !v.traits.detected {
		if err := v.probePagingAndFilters(ctx); err != nil {
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
		v.setTraitsAndForgetPages(serverTraits{way: byNumber, detected: true, labels: v.traits.labels})
		return nil
	}
	return v.probePagingAndFilters(ctx)
}

// fallBackToPageNumbers switches to page numbers, which every server without tokens supports.
func (v *server) fallBackToPageNumbers(ctx context.Context, reason string) {
	traits := v.traits
	traits.way, traits.highestID, traits.detected = byNumber, "", true
	v.setTraitsAndForgetPages(traits)
	v.loggedTraits = ""
	v.log.WarnContext(ctx, "api paging is inconsistent, falling back to page numbers",
		"collection", v.cfg.Collection, "reason", reason)
}

// nextPlaceByID returns the place after a page by id; more is false at the end of the list. consistent
// says that the page matches the request.
func (s *serverTraits) nextPlaceByID(current Place, envelope Envelope) (next Place, more, consistent bool) {
	if envelope.Items == 0 {
		return Place{}, false, envelope.Total <= 0
	}
	lastID := string(envelope.Last)
	isLastPage := envelope.Total >= 0 && envelope.Total <= int64(envelope.Items)
	switch {
	case isLastPage && current.after == "":
		return Place{}, false, true // the order of the only page does not matter
	case !envelope.Sorted || string(envelope.First) <= current.after:
		return Place{}, false, false
	case isLastPage:
		return Place{}, false, true
	case s.highestID != "" && lastID >= s.highestID:
		return Place{}, false, false // the remaining ids would have to be greater
	}
	s.highestID = ""
	return Place{way: byID, after: lastID}, true, true
}

// firstPlace returns the first place for the current way of paging.
func (v *server) firstPlace() Place {
	if v.traits.way == byNumber {
		return Place{way: byNumber, page: 1, size: v.pageSize()}
	}
	return Place{way: v.traits.way}
}

// pageSize returns the number of resources per request, by number and by id.
func (v *server) pageSize() int { return min(v.cfg.PageSize, v.maxPageSize) }

// The maximum and default page sizes of known servers.
const (
	maxPublicPage     = 100
	defaultPublicPage = 20
)

// shrinkPageSizeToStatedLimit reduces the page size for later requests, if a refusal is about the size.
func (v *server) shrinkPageSizeToStatedLimit(refusal error) (shrunk bool) {
	text := refusal.Error()
	sizeAt := sizeWord().FindStringIndex(text)
	if sizeAt == nil {
		return false
	}
	text, _, _ = strings.Cut(text[sizeAt[0]:], "(trace") // a trace id has digits, too
	// The limit is the greatest number in the message that is less than the refused size.
	refused, limit := v.pageSize(), 0
	for _, digits := range numberPattern().FindAllString(text, -1) {
		n, err := strconv.Atoi(digits)
		if err == nil && n < refused {
			limit = max(limit, n)
		}
	}
	return v.shrinkPageSize(limit)
}

// shrinkPageSize reduces the page size to the wanted size. If that cannot be a page size, it uses the
// next smaller known maximum of servers: a limit of one is a minimum, not a maximum. It returns false
// if there is no smaller size.
func (v *server) shrinkPageSize(wantedOrZero int) (shrunk bool) {
	current := v.pageSize()
	switch {
	case wantedOrZero > 1:
		v.maxPageSize = wantedOrZero
	case current > maxPublicPage:
		v.maxPageSize = maxPublicPage
	case current > defaultPublicPage:
		v.maxPageSize = defaultPublicPage
	default:
		return false
	}
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
	response, ok := errors.AsType[statusError](err)
	if !ok {
		return 0
	}
	return response.StatusCode()
}

// A statusError is an error with the HTTP status of a response.
type statusError interface {
	error
	StatusCode() int
}

// logCapabilitiesIfChanged logs how the server is queried, if that has changed.
func (v *server) logCapabilitiesIfChanged(ctx context.Context) {
	paging := map[pagingWay]string{
		byToken:  "continue tokens",
		byNumber: "page numbers",
		byID:     "ids",
	}[v.traits.way]
	filter := "none"
	switch {
	case v.traits.labels != "":
		filter = "labels=" + v.traits.labels
	case v.traits.search != "":
		filter = "search=" + v.traits.search
	}
	description := paging + " " + filter
	if description == v.loggedTraits {
		return
	}
	v.loggedTraits = description
	v.log.InfoContext(ctx, "api capabilities detected",
		"collection", v.cfg.Collection,
		"flavour", string(*v.flavour.Load()),
		"paging", paging,
		"filter", filter)
	if filter == "none" && !v.cfg.Selector.Empty() {
		v.log.WarnContext(ctx, "api cannot filter by this selector, filtering on the client",
			"collection", v.cfg.Collection, "selector", v.cfg.Selector.String())
	}
}
