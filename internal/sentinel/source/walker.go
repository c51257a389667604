package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/fleetloop/fleetloop/internal/selector"
)

// A Lister reads pages. A refused request returns an error with a method StatusCode() int.
type Lister interface {
	// ListPage reads one page of a collection into the capacity of dst.
	ListPage(ctx context.Context, collection string, q url.Values, dst []byte) ([]byte, error)

	// ListPageIf reads one page unless it still has the tag etag. If it does, the body is empty and
	// tag is etag. An empty etag requests the page unconditionally. An empty tag means that the
	// server has none.
	//
	// A page may come in two parts: body is then its beginning, and rest reads the remainder until
	// it is closed. rest is nil if body is the whole page.
	ListPageIf(
		ctx context.Context, collection string, q url.Values, etag string, dst []byte,
	) (body []byte, rest io.ReadCloser, tag string, err error)
}

// WalkerConfig configures a Walker.
type WalkerConfig struct {
	// Collection is the path of the collection below the API's base.
	Collection string

	// Selector selects the resources. The server gets it as far as it supports it.
	Selector selector.Selector

	// PageSize is the number of resources per request; a server may return fewer.
	PageSize int

	// Timeout limits one request. It does not cover the rest of a page that comes in two parts,
	// which the source limits. Zero means the timeout of the source.
	Timeout time.Duration

	// Flavour is the flavour of the server. Empty means FlavourAuto.
	Flavour Flavour

	// Log receives the detected properties of the server; nil discards them.
	Log *slog.Logger
}

// A pagingWay is a way of paging.
type pagingWay uint8

const (
	byToken  pagingWay = iota // limit, and a continue token for all pages but the first
	byNumber                  // page and size
	byID                      // ordered by id, each page after the last id of the previous page
)

// A Place is the start of a page. Places are comparable; the zero value is the start of the list,
// for every way of paging.
type Place struct {
	way pagingWay

	// after is the server's token, or an id; empty at the start of the list.
	after string

	// page counts from 1 if the way is by number.
	page, size int
}

// Later reports whether the place is not the start of the list.
func (p Place) Later() bool { return p.after != "" || p.page > 1 }

// String returns the place as errors name it.
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

// A Page is one page of the list.
type Page struct {
	At   Place
	Body []byte

	// Rest reads the remainder after Body for large pages; nil means that Body is the whole page.
	// The Walker closes it.
	Rest io.ReadCloser

	// Filtered says that the request contained the whole selector.
	Filtered bool

	// Asked is when the page was requested: its data may be that old.
	Asked time.Time

	// First says that the list starts with this page. A walk may have to restart: then there is a
	// second first page, and the pages before it come again.
	First bool

	// Tag is the page's entity tag, empty if the server gives none.
	Tag string

	// Unchanged says that the page has not changed since the last walk, in which it had Items
	// items. The page then has no body.
	Unchanged bool
	Items     int
}

// ScanItems visits the resources of the page, and returns its other fields.
func (p Page) ScanItems(s *Scanner, visit func(*Item) error) (Envelope, error) {
	if p.Rest == nil {
		return s.ScanPage(p.Body, visit)
	}
	return s.ScanPageStream(p.Body, p.Rest, visit)
}

// closeRest ends the request of a page.
func (p Page) closeRest() {
	if p.Rest != nil {
		_ = p.Rest.Close() // the body was only read
	}
}

var (
	errTimeout  = errors.New("no response in time")
	errEndless  = errors.New("the server repeats a continue token, the list never ends")
	errSamePage = errors.New("the server returned the same page twice: it ignores the page number")
)

// A Walker reads one collection page by page. FetchResources and FetchResourcesIfChanged must not
// run concurrently; FetchResourcesByID and Flavour may run concurrently with them.
//
// The Fleetloop API has continue tokens and label selectors. The public HyperFleet API has page
// numbers and a search language that supports both, but not completely in every version. The
// flavour of the server is configured, or detected from its responses (FlavourAuto). Detection
// trusts no apparent support, because many servers ignore unknown parameters. It tests each way
// with a request whose response proves that the server understood it, and checks each page again. A
// wrong guess costs a request, and restarts the walk in a way that every server supports; it never
// loses a resource.
//
// Filters only save bytes: the reader of the pages must check the labels again if there are any,
// because the server may not have.
//
// A page of any size takes no more memory than its beginning and one resource, because the rest is
// read while it arrives (Page.ScanItems).
//
// A server error ends the walk, even during detection.
type Walker struct {
	server *server

	// chunksOneByOne is the number of chunks that are still looked up one by one.
	chunksOneByOne atomic.Int32
}

// NewWalker returns a Walker that has sent no request yet.
func NewWalker(cfg WalkerConfig, src Lister) *Walker {
	cfg.Flavour = cmp.Or(cfg.Flavour, FlavourAuto)
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	srv := &server{
		cfg:         cfg,
		src:         src,
		log:         log,
		maxPageSize: cfg.PageSize,
		tags:        map[Place]rememberedPage{},
	}
	srv.resetTraits()
	return &Walker{server: srv}
}

// Flavour returns the flavour of the server, as far as it is known.
func (w *Walker) Flavour() Flavour { return *w.server.flavour.Load() }

// FirstPlace returns the start of the list for the current way of paging.
func (w *Walker) FirstPlace() Place { return w.server.firstPlace() }

// FetchResources fetches pages from start on and passes them to read, in order. It fetches one page
// ahead of the one being read. read returns the envelope of the page; a page is valid only until
// read returns. FetchResources returns where it stopped, if that was not the end of the list. A
// walk that starts there continues.
func (w *Walker) FetchResources(
	ctx context.Context, start Place, read func(Page) (Envelope, error),
) (stopped Place, err error) {
	walk := pageWalk{server: w.server, read: read}
	return walk.walkPages(ctx, start)
}

// FetchResourcesIfChanged is FetchResources from the beginning, for servers with entity tags. Each
// page that has not changed since the last such walk is passed as Unchanged, and the envelope that
// read returns for it is ignored. A page counts as known after read has processed it without an
// error.
//
// If the server has no tags, every page is passed with its body.
func (w *Walker) FetchResourcesIfChanged(
	ctx context.Context, read func(Page) (Envelope, error),
) (stopped Place, err error) {
	walk := pageWalk{server: w.server, read: read, useTags: true}
	stopped, err = walk.walkPages(ctx, Place{})
	if err == nil {
		w.server.forgetUnreadPages()
	}
	return stopped, err
}
