package console

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/console/consoletest"
)

// patience is how long anything may take that happens soon.
const patience = kubebedtest.Patience

// pollEvery is the interval of looks at the page during a wait.
const pollEvery = 50 * time.Millisecond

// A chromium is a running browser. Each page has its own cookies.
type chromium struct{ ctx context.Context } //nolint:containedctx // chromedp keeps the browser in it

// startChromium starts the browser that CHROMIUM names, or that of the distribution.
func startChromium(t *testing.T) *chromium {
	t.Helper()
	ctx, stop, err := consoletest.StartBrowser(context.WithoutCancel(t.Context()), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return &chromium{ctx}
}

// A page is a tab with its own cookies.
type page struct {
	*testing.T
	ctx  context.Context //nolint:containedctx // chromedp keeps the tab in it
	base string

	// expected holds parts of the errors that a test causes on purpose.
	expected []string
}

// newPage opens a tab for the console at base. At the end of the test, it fails for each exception,
// console.error, failed request and violation of the Content-Security-Policy.
func (b *chromium) newPage(t *testing.T, base string) *page {
	t.Helper()
	ctx, end := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext())
	p := &page{T: t, ctx: ctx, base: base}
	messages := chromedp.Console(ctx)
	var read sync.WaitGroup
	var errors []string
	read.Go(func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			if m.Type == chromedp.ConsoleError || m.IsException() {
				errors = append(errors, m.String()+" "+m.URL)
			}
		}
	})
	t.Cleanup(func() {
		t.Helper()
		end()
		read.Wait()
		for _, e := range errors {
			if !slices.ContainsFunc(p.expected, func(part string) bool { return strings.Contains(e, part) }) {
				t.Errorf("the browser reports: %s", e)
			}
		}
	})
	p.do(chromedp.EmulateViewport(1280, 800))
	return p
}

// newPageOf opens a tab and signs a person of the demo in.
func (b *chromium) newPageOf(t *testing.T, s *system, person string) *page {
	t.Helper()
	p := b.newPage(t, s.console)
	p.open("signin")
	p.signIn(person)
	return p
}

// signIn signs a person of the demo in.
func (p *page) signIn(person string) {
	p.Helper()
	if person != "admin" {
		p.expectErrors("403 (Forbidden) " + p.base + "console/hosts/local/nodes") // for administrators only
	}
	p.click("button", strings.ToUpper(person[:1])+" "+person)
	p.wantPath("")
	p.sees("Is something on fire?")
}

// expectErrors permits errors that contain one of the parts.
func (p *page) expectErrors(parts ...string) { p.expected = append(p.expected, parts...) }

// do runs actions in the tab.
func (p *page) do(actions ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.Fatalf("Chromium: %v", err)
	}
}

// call sends a command of the debugging protocol.
func call[P, R any](p *page, command cdp.Command[P, R], params P) R {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	answer, err := chromedp.Call(ctx, command, params)
	if err != nil {
		p.Fatalf("Chromium: %v", err)
	}
	return answer
}

// open loads a path of the console as a deep link.
func (p *page) open(path string) {
	p.Helper()
	p.do(chromedp.Navigate(p.base + path))
}

// evaluate runs a script and reads its value.
func evaluate[T any](p *page, script string, options ...chromedp.EvaluateOption) T {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](script, options...))
	if err != nil {
		p.Fatalf("Chromium: %v", err)
	}
	return value
}

// library finds elements as a person does: by what they are and what they are called, on top of the
// page. A dialog hides what is behind it.
const library = `
const root = document.querySelector('dialog[open]') ?? document
const clean = (text) => (text ?? '').replace(/\s+/g, ' ').trim()
const nameOf = (e) => clean(e.getAttribute('aria-label') ?? e.labels?.[0]?.innerText ?? e.innerText)
const find = (css, name) => {
  const all = [...root.querySelectorAll(css)].filter((e) => e.checkVisibility())
  const e = all.find((e) => nameOf(e) === name) ?? all.find((e) => nameOf(e).startsWith(name))
  if (!e) return css + ' "' + name + '" not found among: ' + all.map(nameOf).join(' | ')
  if (e.disabled) return 'it is disabled: ' + css + ' "' + name + '"'
  e.scrollIntoView({ block: 'center', behavior: 'instant' })
  const box = e.getClientRects()[0]
  const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2)
  if (!top || !(e.contains(top) || e.labels?.[0]?.contains(top))) return 'it is covered: ' + css + ' "' + name + '" by ' + top?.outerHTML.slice(0, 100)
  return e
}
`

// eventually runs a script until it returns an empty text. The script returns why it cannot.
func (p *page) eventually(script string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	poll := chromedp.Evaluate[string]("(() => {" + library + script + "})()")
	last := "nothing was found out"
	for {
		switch why, err := chromedp.Run(ctx, poll); { // it fails while the tab goes to another document
		case ctx.Err() != nil:
			p.Fatalf("not within %s: %s; the page at %s shows:\n%s", patience, last, evaluate[string](p, "location.href"), p.text())
		case err != nil:
			last = err.Error()
		case why == "":
			return
		default:
			last = why
		}
		_ = chromedp.Do(ctx, chromedp.Sleep(pollEvery)) // ends with ctx
	}
}

func quote(text string) string {
	quoted, _ := json.Marshal(text) // a string can always be encoded
	return string(quoted)
}

// click clicks on an element that a person could click on.
func (p *page) click(css, name string) {
	p.Helper()
	p.eventually(`
const e = find(` + quote(css) + `, ` + quote(name) + `)
if (typeof e === 'string') return e
e.click()
return ''`)
}

// fill replaces the text of a field.
func (p *page) fill(name, text string) {
	p.Helper()
	p.eventually(`
const e = find('input, textarea', ` + quote(name) + `)
if (typeof e === 'string') return e
e.focus()
e.select()
return ''`)
	call(p, input.InsertText, input.InsertTextParams{Text: text})
}

// choose chooses an option by its text.
func (p *page) choose(name, option string) {
	p.Helper()
	p.eventually(`
const e = find('select', ` + quote(name) + `)
if (typeof e === 'string') return e
const option = [...e.options].find((o) => clean(o.text) === ` + quote(option) + `)
if (!option) return 'option not found'
option.selected = true
e.dispatchEvent(new Event('change', { bubbles: true }))
return ''`)
}

// text returns what the page shows.
func (p *page) text() string {
	p.Helper()
	return evaluate[string](p, `document.body.innerText.replace(/\s+/g, ' ')`)
}

// sees waits until the page shows all texts.
func (p *page) sees(texts ...string) {
	p.Helper()
	for _, text := range texts {
		p.eventually(`return clean(root.innerText ?? document.body.innerText).includes(` + quote(text) + `) ? '' : 'the page lacks ' + ` + quote(quote(text)))
	}
}

// seesNot waits until the page does not show a text.
func (p *page) seesNot(text string) {
	p.Helper()
	p.eventually(`return clean(root.innerText ?? document.body.innerText).includes(` + quote(text) + `) ? 'the page shows ' + ` + quote(quote(text)) + ` : ''`)
}

// shows reports whether the page shows a text now.
func (p *page) shows(text string) bool {
	p.Helper()
	return strings.Contains(p.text(), text)
}

// offers reports whether the page has a button that can be used.
func (p *page) offers(name string) bool {
	p.Helper()
	return evaluate[bool](p, "(() => {"+library+"return typeof find('button', "+quote(name)+") !== 'string'})()")
}

// wantPath waits until the address is that of a path of the console.
func (p *page) wantPath(path string) {
	p.Helper()
	p.eventually(`return location.href === ` + quote(p.base+path) + ` ? '' : 'the address is ' + location.href`)
}
