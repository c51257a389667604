package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/consoleapp"
	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/console/consoletest"
	"github.com/fleetloop/fleetloop/internal/settings"
)

const (
	consolePageRows = 100_000
	firstPaints     = 7
	scrollRounds    = 9
	scrollFrames    = 200 // per round
	scrollRows      = 3   // per frame, as a wheel does
	scrollRowsToEnd = 50  // per frame, afterwards
	pixelChanges    = 200
	pixelPause      = 50 * time.Millisecond
	pixelPatience   = 10 * time.Second
)

// consolePageBench measures the list of clusters in a browser: until it can be used, while it is
// scrolled, and until it shows a change. Frames are not limited to the rate of a screen. The bare list
// has the same document and styles, and its rows have the same fixed text.
func consolePageBench() bench {
	const paint, scroll, heap, pixel = "console.first_paint_ms", "console.scroll_vs_static", "console.heap_mb", "console.change_to_pixel_ms"
	return bench{names: []string{paint, scroll, heap, pixel}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		f, err := measureConsolePageInBrowser(ctx, progress)
		return []line{
			{kind: "value", name: paint, value: f.paintMS, unit: "ms", op: "<=", want: 1000},
			{kind: "ratio", name: scroll, value: f.scroll, op: "<=", want: 1.5},
			{kind: "value", name: heap, value: f.heapMB, unit: "MB", op: "<=", want: 150},
			{kind: "value", name: pixel, value: f.pixelMS, unit: "ms", op: "<=", want: 500},
		}, err
	}}
}

// consolePageFigures are what is measured of the page.
type consolePageFigures struct{ paintMS, scroll, heapMB, pixelMS float64 }

func measureConsolePageInBrowser(ctx context.Context, progress io.Writer) (f consolePageFigures, err error) {
	dir, remove, err := tempDir()
	if err != nil {
		return f, err
	}
	defer remove()
	db, err := startMigratedDatabase(ctx, dir, false)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, db.stopServer()) }()
	_, _ = fmt.Fprintf(progress, "loading %d rows\n", consolePageRows)
	fleet := databaseFleet{Rows: consolePageRows}
	if err := errors.Join(loadFleet(ctx, db.server.DatabaseURL(), fleet), simulateFleetFailures(ctx, db.server.DatabaseURL())); err != nil {
		return f, err
	}
	client, stop, err := serveAPI(ctx, db.cfg)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	end, err := startRollupCounter(ctx, db.cfg)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, end()) }()
	url, endConsole, err := serveConsole(ctx, strings.TrimSuffix(client.Endpoint(), "/api/hyperfleet/v1"))
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, endConsole()) }()
	browser, endBrowser, err := consoletest.StartBrowser(ctx, func(string, ...any) {}, "disable-frame-rate-limit", "disable-gpu-vsync")
	if err != nil {
		return f, err
	}
	defer endBrowser()

	l := listPage{browser: browser, url: url, progress: progress}
	return l.measurePaintScrollAndChanges(client, fleet) //nolint:contextcheck // that of the browser
}

func (l listPage) measurePaintScrollAndChanges(client *fleetclient.Client, fleet databaseFleet) (f consolePageFigures, err error) {
	if f.paintMS, err = l.measureFirstPaint(); err != nil {
		return f, err
	}
	if f.scroll, f.heapMB, err = l.measureScroll(); err != nil {
		return f, err
	}
	f.pixelMS, err = l.measureTimeToShowChanges(client, fleet)
	return f, err
}

// serveConsole serves the console as its binary does, without a sign-in, and returns the URL of its page.
func serveConsole(ctx context.Context, fleetAPI string) (url string, stop func() error, err error) {
	env := map[string]string{
		"FLEET_API_URL": fleetAPI, "LOG_LEVEL": "error",
		"LISTEN_ADDRESS": "127.0.0.1:0", "METRICS_BIND_ADDRESS": "127.0.0.1:0", "HEALTH_PROBE_BIND_ADDRESS": "127.0.0.1:0",
	}
	cfg := consoleapp.OverriddenDefaults()
	_, err = settings.Load(&cfg, settings.Source{Env: func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}})
	if err != nil {
		return "", nil, err
	}
	p, err := process.New(ctx, "console", cfg.Process, io.Discard)
	if err != nil {
		return "", nil, err
	}
	parts, url, err := consoleapp.BuildParts(ctx, p, cfg.Part, consoleapp.Overrides{})
	if err != nil {
		return "", nil, err
	}
	running, end := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- p.Run(running, nil, parts...) }()
	return url, func() error {
		end()
		return <-done
	}, nil
}

// A listPage is the list of clusters in a browser.
type listPage struct {
	browser  context.Context //nolint:containedctx // chromedp keeps the browser in it
	url      string
	progress io.Writer
}

const (
	screenWidth  = 1280
	screenHeight = 800
)

// awaitRow resolves with the time at which a row with a text was painted, in milliseconds since the
// start of the navigation.
const awaitRow = `const awaitRow = (text) => new Promise((resolve) => {
  const look = () => {
    const rows = document.querySelectorAll('.virtual .scroller .row')
    if (![...rows].some((row) => row.querySelector('a') && row.textContent.includes(text))) return false
    // The frame after this one begins when this one was painted.
    requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now())))
    return true
  }
  if (look()) return
  const observer = new MutationObserver(() => look() && observer.disconnect())
  observer.observe(document, { childList: true, subtree: true, characterData: true })
});`

// open opens the list in a tab without a cache.
func (l listPage) open() (p *consoletest.Page, paintedMS float64, err error) {
	if p, err = consoletest.NewPage(l.browser, screenWidth, screenHeight); err != nil {
		return nil, 0, err
	}
	if err = p.RunScriptBeforeLoad(awaitRow + `self.painted = awaitRow('cluster-')`); err == nil {
		err = p.Open(l.url + "clusters")
	}
	if err == nil {
		paintedMS, err = consoletest.Evaluate[float64](p, `self.painted`)
	}
	if err != nil {
		p.Close()
		return nil, 0, fmt.Errorf("open the list: %w", err)
	}
	return p, paintedMS, nil
}

// measureFirstPaint returns the median of several visits. Each has an empty cache.
func (l listPage) measureFirstPaint() (medianMS float64, err error) {
	var took []float64
	for range firstPaints {
		p, painted, err := l.open()
		if err != nil {
			return 0, err
		}
		p.Close()
		took = append(took, painted)
	}
	_, _ = fmt.Fprintf(l.progress, "first paints: %.0f ms\n", took)
	return computeMedian(took), nil
}

// scrollList scrolls down by rows for a number of frames, and returns the average time of a frame.
const scrollList = `new Promise((resolve) => {
  const scroller = document.querySelector('.virtual .scroller')
  const height = scroller.querySelector('.row').getBoundingClientRect().height
  const frames = %d, start = performance.now()
  let frame = 0
  const next = () => {
    if (frame === frames) return resolve((performance.now() - start) / frames)
    frame++
    scroller.scrollTop += %d * height
    requestAnimationFrame(next)
  }
  requestAnimationFrame(next)
})`

// measureScroll scrolls the list and the bare list in turn, and returns the median ratio of their frame
// times. Then it scrolls to the last row, and measures the heap.
func (l listPage) measureScroll() (frameTimeRatio, heapMB float64, err error) {
	list, _, err := l.open()
	if err != nil {
		return 0, 0, err
	}
	defer list.Close()
	static, closeStatic, err := l.openStaticCopy(list)
	if err != nil {
		return 0, 0, err
	}
	defer closeStatic()
	script := fmt.Sprintf(scrollList, scrollFrames, scrollRows)
	var ratios []float64
	for range scrollRounds {
		of, err := consoletest.Evaluate[float64](list, script)
		if err != nil {
			return 0, 0, fmt.Errorf("scroll the list: %w", err)
		}
		bare, err := consoletest.Evaluate[float64](static, script)
		if err != nil {
			return 0, 0, fmt.Errorf("scroll the bare list: %w", err)
		}
		_, _ = fmt.Fprintf(l.progress, "frames take %.2f ms, %.2f ms bare\n", of, bare)
		ratios = append(ratios, of/bare)
	}
	if _, err := consoletest.Evaluate[float64](list, fmt.Sprintf(scrollList, consolePageRows/scrollRowsToEnd, scrollRowsToEnd)); err != nil {
		return 0, 0, fmt.Errorf("scroll to the last row: %w", err)
	}
	if _, err := consoletest.Evaluate[float64](list, `(() => {`+awaitRow+`return awaitRow('cluster-0000000')})()`); err != nil {
		return 0, 0, fmt.Errorf("await the last row: %w", err)
	}
	heap, err := list.HeapBytesAfterGC()
	_, _ = fmt.Fprintf(l.progress, "the heap has %.0f MB after the last row\n", heap/1e6)
	return computeMedian(ratios), heap / 1e6, err
}

// staticList makes a bare virtual list of a copy of the list: each row shows one of the copied rows. It
// has as many rows in the document as the list.
const staticList = `
const scroller = document.querySelector('.virtual .scroller'), space = scroller.querySelector('.space')
const rows = [...space.children], height = rows[0].getBoundingClientRect().height
const overscan = 10, shown = Math.ceil(scroller.clientHeight / height) + 2 * overscan
while (space.children.length < shown) space.append(rows[0].cloneNode(true))
const nodes = [...space.children]
const place = () => {
  const first = Math.max(0, Math.floor(scroller.scrollTop / height) - overscan)
  for (let i = first; i < first + shown; i++) {
    const node = nodes[i % shown]
    node.style.transform = 'translateY(' + i * height + 'px)'
    node.querySelector('a').firstChild.data = 'cluster-' + i
  }
}
scroller.addEventListener('scroll', place)
place()`

// openStaticCopy opens a bare list with the document and the styles of the list.
func (l listPage) openStaticCopy(list *consoletest.Page) (p *consoletest.Page, closeAll func(), err error) {
	document, err := consoletest.Evaluate[string](list, `(() => {
  const copy = document.documentElement.cloneNode(true)
  for (const e of copy.querySelectorAll('script, link')) e.remove()
  const style = document.createElement('style')
  style.textContent = [...document.styleSheets].flatMap((s) => [...s.cssRules]).map((r) => r.cssText).join('\n')
  copy.querySelector('head').append(style)
  return '<!doctype html>' + copy.outerHTML
})()`)
	if err != nil {
		return nil, nil, fmt.Errorf("copy the list: %w", err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, document) }))
	if p, err = consoletest.NewPage(l.browser, screenWidth, screenHeight); err != nil {
		server.Close()
		return nil, nil, err
	}
	closeAll = func() {
		p.Close()
		server.Close()
	}
	if err = p.Open(server.URL); err == nil {
		_, err = consoletest.Evaluate[bool](p, staticList+"; true")
	}
	if err != nil {
		closeAll()
		return nil, nil, fmt.Errorf("open the bare list: %w", err)
	}
	return p, closeAll, nil
}

// measureTimeToShowChanges returns the 99th percentile from the request for a change of a cluster to the frame
// that shows it. Both clocks are that of the machine.
func (l listPage) measureTimeToShowChanges(client *fleetclient.Client, fleet databaseFleet) (p99MS float64, err error) {
	p, _, err := l.open()
	if err != nil {
		return 0, err
	}
	defer p.Close()
	var took []float64
	for i := range pixelChanges {
		if err := backoff.Sleep(l.browser, pixelPause); err != nil {
			return 0, err
		}
		mark := "change-" + strconv.Itoa(i)
		_, err = consoletest.Evaluate[bool](p, `(() => {`+awaitRow+`self.shown = awaitRow('`+mark+`').then(() => Date.now()); return true})()`)
		if err != nil {
			return 0, fmt.Errorf("watch the list: %w", err)
		}
		labels := map[string]string{"mark": mark}
		begin := time.Now()
		row := consolePageRows - 1 - i%10 // on the screen
		if _, err := client.Clusters().Patch(l.browser, fleet.ID(row).String(), v1.PatchRequest{Labels: &labels}); err != nil {
			return 0, fmt.Errorf("change a cluster: %w", err)
		}
		shown, err := consoletest.Evaluate[float64](
			p,
			fmt.Sprintf(
				`Promise.race([self.shown, new Promise((_, fail) => setTimeout(() => fail(new Error(%q)), %d))])`,
				mark+" is not shown",
				pixelPatience.Milliseconds(),
			),
		)
		if err != nil {
			return 0, fmt.Errorf("await a change: %w", err)
		}
		took = append(took, shown-float64(begin.UnixMicro())/1000)
	}
	p99 := computePercentile99(took)
	_, _ = fmt.Fprintf(l.progress, "changes are shown after %.0f ms (median), %.0f ms (99th percentile)\n", computeMedian(took), p99)
	return p99, nil
}
