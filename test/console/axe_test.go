package console

import (
	"os"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// readAxe returns the program that checks accessibility in the browser. It is among the page's npm packages.
func readAxe(t *testing.T) string {
	t.Helper()
	const path = "../../console/node_modules/axe-core/axe.min.js"
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("read axe: %v; run: make setup-test", err)
	}
	return string(program)
}

// axeRun returns a text for each finding. Its tags are those of console/scripts/axe.mjs.
const axeRun = `axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'], resultTypes: ['violations']})
  .then((r) => r.violations.flatMap((v) => v.nodes.map((n) => v.id + ': ' + n.html.slice(0, 160) + ': ' + n.failureSummary)))`

// wantAccessible fails for each finding of axe in what the page shows.
func (p *page) wantAccessible(axe, what string) {
	p.Helper()
	// The debugger loads axe, because the Content-Security-Policy of the page keeps other scripts out.
	findings := evaluate[[]string](p, axe+";"+axeRun, chromedp.EvalAwaitPromise)
	for _, f := range findings {
		p.Errorf("%s: %s", what, f)
	}
}

// emulate gives the page the screen of a look, without motion.
func (p *page) emulate(l look) {
	p.Helper()
	p.do(chromedp.EmulateViewport(l.width, l.height))
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: l.scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
}
