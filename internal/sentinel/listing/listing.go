// Package listing reads a collection of the fleet API page by page, whatever
// way of paging and filtering the server knows.
//
// Our own API has continue tokens and label selectors. The public HyperFleet
// API has page numbers and a search language that can do both, though not all
// of it in every version. Which server it is shows by its answers (FlavourAuto),
// or is given. Nothing that a server merely seems to understand is believed:
// many ignore parameters that they do not know. So each way is tried on an
// answer that can only be right if it was understood, and each page must bear
// it out. A wrong guess costs a request, and begins the walk again by a way
// that every server knows; it never loses a resource.
//
// Filters save bytes: whoever reads the pages must check the labels again where
// there are any, because the server may not have.
//
// A page of any size takes no more memory than its beginning and one resource:
// what is behind the beginning is read while it comes (Page.Scan).
//
// An error of the server is an error of the walk, also while it is being found
// out what it understands.
package listing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/fleetloop/fleetloop/internal/selector"
	"github.com/fleetloop/fleetloop/internal/sentinel/scan"
)

// A Source reads pages. A refusal by the server is an error with a method
// StatusCode() int.
type Source interface {
	// ListPage reads one page of a collection into the room of dst.
	ListPage(ctx context.Context, collection string, q url.Values, dst []byte) ([]byte, error)

	// ListPageIf reads it unless it still has the tag etag: then the body is
	// empty, and tag is etag. An empty etag asks unconditionally. An empty tag
	// is a server that gives none.
	//
	// A page may come in two parts: body is then its beginning, and rest reads
	// what follows until it is closed. It is nil where body is the whole page.
	ListPageIf(ctx context.Context, collection string, q url.Values, etag string, dst []byte) (body []byte, rest io.ReadCloser, tag string, err error)
}

// Config says what is read and how.
type Config struct {
	// Collection is the path of the collection below the API's base.
	Collection string

	// Selector is what the server is asked to select by, as far as it can.
	Selector selector.Selector

	// PageSize is how many resources to ask for at once; a server may give
	// less.
	PageSize int

	// Timeout bounds one request, up to the rest of a page that comes in two
	// parts: that is bounded by the source. Zero means that of the source.
	Timeout time.Duration

	// Flavour is the server's. Empty means FlavourAuto.
	Flavour Flavour

	// Log takes what is found out about the server; nil means nowhere.
	Log *slog.Logger
}

// A way of paging.
type way uint8

const (
	byToken  way = iota // limit, and a continue token for all but the first
	byNumber            // page and size
	byID                // in the order of ids, each page behind the last id of the one before
)

// A Place is where a page begins. Places can be compared; the zero value is
// the beginning, whatever way the server is asked.
type Place struct {
	way way

	// after is the server's token, or an id; empty at the beginning.
	after string

	// page counts from 1 if the way is by number.
	page, size int
}

// Later reports whether the place is not the beginning of the list.
func (p Place) Later() bool { return p.after != "" || p.page > 1 }

// String is the place as errors name it.
func (p Place) String() string {
	switch {
	case p.page > 0:
		return fmt.Sprintf("page %d of size %d", p.page, p.size)
	case p.after != "" && p.way == byID:
		return fmt.Sprintf("the page behind %q", p.after)
	case p.after != "":
		return fmt.Sprintf("the page at %q", p.after)
	}
	return "the first page"
}

// A Page is what stands at a place.
type Page struct {
	At   Place
	Body []byte

	// Rest is what follows Body where the server's pages are large, nil where
	// Body is the whole page. Whoever walks closes it.
	Rest io.ReadCloser

	// Filtered says that the server was asked to select by the whole selector.
	Filtered bool

	// Asked is when the page was asked for: what it says may be as old.
	Asked time.Time

	// First says that the list begins with this page. A walk may have to begin
	// again: then there is a second first page, and what was read before it
	// comes again.
	First bool

	// Tag is the page's entity tag, empty if the server gives none.
	Tag string

	// Unchanged says that the page is as it was in the last walk, where it had
	// Items items. There is no body then.
	Unchanged bool
	Items     int
}

// Scan visits the resources of the page, and returns what else it says.
func (p Page) Scan(s *scan.Scanner, visit func(*scan.Item) error) (scan.Envelope, error) {
	if p.Rest == nil {
		return s.Scan(p.Body, visit)
	}
	return s.ScanStream(p.Body, p.Rest, visit)
}

// closeRest ends the request of a page.
func (p Page) closeRest() {
	if p.Rest != nil {
		_ = p.Rest.Close() // it was only read
	}
}

var (
	errTimeout  = errors.New("no response in time")
	errEndless  = errors.New("the server repeats a continue token, the list never ends")
	errSamePage = errors.New("the server returned the same page twice: it ignores the page number")
)

// A Walker reads one collection. Walk and WalkChanged are for one goroutine at
// a time; Lookup and Flavour may be called beside them.
type Walker struct {
	cfg Config
	src Source
	log *slog.Logger

	server  server
	most    int // the largest page that the server gives by number and by id
	flavour atomic.Pointer[Flavour]
	told    string // what the log has last been told of the server

	// walks counts the walks from the beginning.
	walks uint32

	// milestone is a place seen before, to notice tokens that go in circles.
	milestone Place
	pages     int

	// first is the id that the last page by number began with.
	first []byte

	tags map[Place]remembered

	// alone is how many chunks are yet to be looked up one by one.
	alone atomic.Int32
}

// New returns a Walker that has asked nothing yet.
func New(cfg Config, src Source) *Walker {
	if cfg.Flavour == "" {
		cfg.Flavour = FlavourAuto
	}
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	w := &Walker{cfg: cfg, src: src, log: log, most: cfg.PageSize, tags: map[Place]remembered{}}
	w.forgetServer()
	return w
}

// Flavour is the server's, as far as it is known by now.
func (w *Walker) Flavour() Flavour { return *w.flavour.Load() }

func (w *Walker) setFlavour(f Flavour) { w.flavour.Store(&f) }

// Beginning is where the next walk begins after one that ended at a place.
func (w *Walker) Beginning(Place) Place { return w.firstPlace() }

// firstPlace is the first place, by the way that is used now.
func (w *Walker) firstPlace() Place {
	if w.server.way == byNumber {
		return Place{way: byNumber, page: 1, size: w.pageSize()}
	}
	return Place{way: w.server.way}
}

// Walk fetches pages from start on and hands them to read, in order, one ahead
// of what is being read. Read returns what the page's envelope said; a page is
// valid only until it returns. Walk returns where it stopped, if not at the end
// of the list. A walk that starts there goes on.
func (w *Walker) Walk(ctx context.Context, start Place, read func(Page) (scan.Envelope, error)) (Place, error) {
	return (&walk{Walker: w, read: read}).walkPages(ctx, start)
}

// WalkChanged is Walk from the beginning, for servers with entity tags: each
// page that is as it was in the last such walk is handed over as Unchanged.
// Read's envelope is of no account then. A page counts as known once read took
// it without an error.
//
// Where the server gives no tags, every page is handed over with its body.
func (w *Walker) WalkChanged(ctx context.Context, read func(Page) (scan.Envelope, error)) (Place, error) {
	wk := &walk{Walker: w, read: read, changed: true}
	at, err := wk.walkPages(ctx, Place{})
	if err == nil {
		w.forgetPages()
	}
	return at, err
}
