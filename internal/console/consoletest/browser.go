package consoletest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/fleetloop/fleetloop/internal/settings"
)

var errNoChromium = errors.New("no Chromium found: run tools/setup chromium, or set CHROMIUM")

// StartBrowser starts Chromium without a window, with more flags: the one that CHROMIUM names, or that of the
// distribution. The context is that of the browser.
func StartBrowser(ctx context.Context, logf func(string, ...any), flags ...string) (browser context.Context, stop func(), err error) {
	var path string
	named, _ := settings.OSEnv("CHROMIUM")
	for _, name := range []string{named, "chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		return nil, nil, errNoChromium
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // it refuses to start for root otherwise
	}
	for _, flag := range flags {
		options = append(options, chromedp.Flag(flag, true))
	}
	allocator, stopAllocator := chromedp.NewExecAllocator(ctx, options...)
	browser, end := chromedp.NewContext(allocator, chromedp.WithErrorf(logf))
	stop = func() {
		end()
		stopAllocator()
	}
	if err := chromedp.Do(browser); err != nil {
		stop()
		return nil, nil, fmt.Errorf("start %s: %w", path, err)
	}
	return browser, stop, nil
}

// evaluateTimeout is more than any script of a benchmark takes.
const evaluateTimeout = 3 * time.Minute

var errEvaluate = errors.New("the script in the page does not end")

// A Page is a tab with its own cookies and its own cache.
type Page struct {
	ctx context.Context //nolint:containedctx // chromedp keeps the tab in it

	// Close closes the tab.
	Close func()
}

// NewPage opens a tab.
func NewPage(browser context.Context, width, height int64) (*Page, error) {
	p := &Page{}
	p.ctx, p.Close = chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	if err := chromedp.Do(p.ctx, chromedp.EmulateViewport(width, height)); err != nil { //nolint:contextcheck // that of the tab
		p.Close()
		return nil, fmt.Errorf("open a tab: %w", err)
	}
	return p, nil
}

// RunScriptBeforeLoad runs a script in each later document, before the scripts of the document.
func (p *Page) RunScriptBeforeLoad(script string) error {
	_, err := chromedp.Call(p.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
	return err
}

// Open loads a document.
func (p *Page) Open(url string) error { return chromedp.Do(p.ctx, chromedp.Navigate(url)) }

// Evaluate runs a script in a page and returns its value, or that of its promise.
func Evaluate[T any](p *Page, script string) (T, error) {
	ctx, cancel := context.WithTimeoutCause(p.ctx, evaluateTimeout, errEvaluate)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
}

// HeapBytesAfterGC returns the size of the JavaScript objects in use after a garbage collection.
func (p *Page) HeapBytesAfterGC() (float64, error) {
	if _, err := chromedp.Call(p.ctx, heapprofiler.CollectGarbage, cdp.Empty{}); err != nil {
		return 0, err
	}
	usage, err := chromedp.Call(p.ctx, runtime.GetHeapUsage, cdp.Empty{})
	return usage.UsedSize, err
}
