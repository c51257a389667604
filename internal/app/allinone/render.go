package allinone

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
)

const (
	// narrow is the width below which there is one column instead of two.
	narrow = 64
	gutter = 2
	// eventRows is the maximum number of cloud events.
	eventRows = 8
	// changeRows is the maximum number of changes.
	changeRows = 8
	// titleRows is an empty line and the title above events or changes.
	titleRows = 2
	// sideRows is the maximum number of unready resources and of adapters.
	sideRows = 4
)

// viewSpan is a piece of a line in one style.
type viewSpan struct {
	text  string
	style terminal.Style
}

// viewLine is the content of one line of the terminal.
type viewLine []viewSpan

// RenderFleet draws a snapshot on the given columns and lines. It depends on nothing else. Content
// that does not fit is left out, the least important first. No line is longer than width. State is
// always a symbol and a word, and colour is optional.
func RenderFleet(s FleetSnapshot, width, height int, colour bool) string {
	if width < 1 || height < 1 {
		return ""
	}
	top := slices.Concat(
		[]viewLine{drawHeader(s, width)},
		drawHintAndConsole(s, width),
		[]viewLine{drawRule(width)},
		drawGroups(s, width),
		drawShoots(s),
	)
	bottom := drawUnreadyAndAdapters(s, width)
	if s.Notice != "" {
		bottom = append(bottom, viewLine{{"! " + s.Notice, terminal.Bad}})
	}
	// Events and changes share the remaining lines, within limits.
	room := height - len(top) - len(bottom)
	changes := drawChanges(s, min(room/2, titleRows+changeRows))
	events := drawCloudEvents(s, width, min(room-len(changes), titleRows+eventRows))
	lines := slices.Concat(top, events, changes, bottom)
	if len(lines) > height {
		lines = lines[:height]
	}
	var b strings.Builder
	for i, l := range lines {
		if i > 0 {
			b.WriteByte('\n')
		}
		l.writeClippedTo(&b, width, colour)
	}
	return b.String()
}

func (l viewLine) writeClippedTo(b *strings.Builder, width int, colour bool) {
	l = l.clipToWidth(width)
	// Trailing spaces are invisible and disturb copied text.
	for len(l) > 0 && strings.TrimRight(l[len(l)-1].text, " ") == "" {
		l = l[:len(l)-1]
	}
	for i, s := range l {
		if i == len(l)-1 {
			s.text = strings.TrimRight(s.text, " ")
		}
		if colour {
			s.text = s.style.Paint(s.text)
		}
		b.WriteString(s.text)
	}
}

// clipToWidth removes control characters and shortens the line to width.
func (l viewLine) clipToWidth(width int) viewLine {
	out := make(viewLine, 0, len(l))
	for _, s := range l {
		s.text = terminal.ClipWithEllipsis(terminal.ReplaceUnprintable(s.text), width)
		width -= utf8.RuneCountInString(s.text)
		if s.text != "" {
			out = append(out, s)
		}
	}
	return out
}

// clipOrPadToWidth pads or shortens the line to width.
func (l viewLine) clipOrPadToWidth(width int) viewLine {
	l = l.clipToWidth(width)
	used := 0
	for _, s := range l {
		used += utf8.RuneCountInString(s.text)
	}
	return append(l, viewSpan{strings.Repeat(" ", width-used), terminal.Plain})
}

func drawHeader(s FleetSnapshot, width int) viewLine {
	left := viewLine{{"fleetloop", terminal.Bold}, {"  up " + terminal.Age(s.Now.Sub(s.Started)), terminal.Plain}}
	right := utf8.RuneCountInString(s.APIURL)
	if width < right+gutter+12 {
		return left
	}
	return append(left.clipOrPadToWidth(width-right), viewSpan{s.APIURL, terminal.Faint})
}

// drawHintAndConsole draws the command and the link of the console in full if they fit, so that they can be
// copied. They are near the top, where the shortest terminal shows it.
func drawHintAndConsole(s FleetSnapshot, width int) []viewLine {
	const where = "Try it in another terminal:  "
	var lines []viewLine
	switch {
	case s.Hint == "":
	case utf8.RuneCountInString(where+s.Hint) > width:
		lines = append(lines, viewLine{{s.Hint, terminal.Plain}})
	default:
		lines = append(lines, viewLine{{where, terminal.Bold}, {s.Hint, terminal.Plain}})
	}
	if s.Console != "" {
		lines = append(lines, viewLine{{"console  ", terminal.Bold}, {s.Console, terminal.Plain}})
	}
	return lines
}

func drawRule(width int) viewLine { return viewLine{{strings.Repeat("─", width), terminal.Faint}} }

// drawGroups draws the counts by phase, two kinds side by side.
func drawGroups(s FleetSnapshot, width int) []viewLine {
	blocks := make([][]viewLine, len(s.Groups))
	column := computeColumnWidth(width)
	for i, g := range s.Groups {
		blocks[i] = drawGroup(g, column)
	}
	var lines []viewLine
	for len(blocks) > 0 {
		n := min(len(blocks), computeColumnCount(width))
		lines = append(lines, arrangeInColumns(blocks[:n], column)...)
		blocks = blocks[n:]
	}
	return lines
}

func computeColumnCount(width int) int {
	if width < narrow {
		return 1
	}
	return 2
}

func computeColumnWidth(width int) int {
	n := computeColumnCount(width)
	return (width - gutter*(n-1)) / n
}

// arrangeInColumns puts blocks of the given width side by side.
func arrangeInColumns(blocks [][]viewLine, columnWidth int) []viewLine {
	rows := 0
	for _, b := range blocks {
		rows = max(rows, len(b))
	}
	lines := make([]viewLine, rows)
	for i := range lines {
		for j, b := range blocks {
			var cell viewLine
			if i < len(b) {
				cell = b[i]
			}
			if j > 0 {
				lines[i] = append(lines[i], viewSpan{strings.Repeat(" ", gutter), terminal.Plain})
			}
			lines[i] = append(lines[i], cell.clipOrPadToWidth(columnWidth)...)
		}
	}
	return lines
}

func drawGroup(g ResourceGroup, width int) []viewLine {
	total := g.countResources()
	lines := []viewLine{{{g.Title, terminal.Bold}, {fmt.Sprintf("  %d", total), terminal.Plain}}}
	for _, p := range knownAndCountedPhasesInOrder(g.Phases) {
		n := g.Phases[p]
		label := fmt.Sprintf("%s %-12s %6d ", terminal.PhaseSymbol(p), p, n)
		style := terminal.PhaseStyle(p)
		if n == 0 {
			style = terminal.Faint
		}
		room := width - utf8.RuneCountInString(label)
		lines = append(lines, viewLine{{label, style}, {drawBar(n, total, room), style}})
	}
	return lines
}

// drawShoots draws the progress of Gardener in one line.
func drawShoots(s FleetSnapshot) []viewLine {
	if s.Shoots == nil {
		return nil
	}
	l := viewLine{{"Shoots", terminal.Bold}}
	for _, state := range shootStates() {
		n := s.Shoots[state.status]
		style := state.style
		if n == 0 {
			if !state.always {
				continue
			}
			style = terminal.Faint
		}
		l = append(l, viewSpan{fmt.Sprintf("  %d %s", n, state.word), style})
	}
	return []viewLine{l}
}

// shootState is the display of a Shoot status: always, or only if its count is not zero.
type shootState struct {
	status v1.ShootStatus
	word   string
	style  terminal.Style
	always bool
}

// shootStates returns the states in lifecycle order.
func shootStates() []shootState {
	return []shootState{
		{"", "not requested", terminal.Plain, false},
		{v1.ShootPending, "pending", terminal.Plain, true},
		{v1.ShootProgressing, "progressing", terminal.Plain, true},
		{v1.ShootReady, "ready", terminal.Good, true},
		{v1.ShootError, "failed", terminal.Bad, true},
		{v1.ShootDeleting, "deleting", terminal.Plain, false},
		{v1.ShootDeleted, "deleted", terminal.Faint, false},
	}
}

// knownAndCountedPhasesInOrder returns all known phases in lifecycle order, followed by any others.
func knownAndCountedPhasesInOrder(counts map[v1.Phase]int) []v1.Phase {
	list := []v1.Phase{v1.PhaseReady, v1.PhaseProvisioning, v1.PhasePending, v1.PhaseFailed, v1.PhaseDeleting}
	for _, p := range slices.Sorted(maps.Keys(counts)) {
		if !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	return list
}

// drawBar draws a bar for the share count of total. A count above zero is always visible.
func drawBar(count, total, width int) string {
	if count <= 0 || total <= 0 || width <= 0 {
		return ""
	}
	cells := int(int64(count) * int64(width) / int64(total))
	if cells == 0 {
		return "▏"
	}
	return strings.Repeat("█", cells)
}

// drawCloudEvents draws an empty line, a title and the newest events on at most maxLines lines.
func drawCloudEvents(s FleetSnapshot, width, maxLines int) []viewLine {
	if maxLines < titleRows {
		return nil
	}
	lines := make([]viewLine, 0, maxLines)
	lines = append(lines, nil, viewLine{
		{"Cloud events", terminal.Bold},
		{fmt.Sprintf("  %.1f/s  %d published", s.PerSecond, s.Published), terminal.Plain},
	})
	if len(s.Recent) == 0 && maxLines > titleRows {
		return append(lines, viewLine{{"none yet", terminal.Faint}})
	}
	shown := s.Recent[:min(len(s.Recent), maxLines-titleRows)]
	nameWidth := 0
	for _, e := range shown {
		nameWidth = max(nameWidth, utf8.RuneCountInString(e.Resource))
	}
	nameWidth = min(nameWidth, max(width/3, 12))
	for _, e := range shown {
		name := terminal.Pad(terminal.ClipWithEllipsis(terminal.ReplaceUnprintable(e.Resource), nameWidth), nameWidth)
		lines = append(lines, viewLine{
			{e.Time.Format(time.TimeOnly) + "  ", terminal.Faint},
			{name + "  ", terminal.Plain},
			{e.Reason, terminal.Plain},
		})
	}
	return lines
}

// drawChanges draws an empty line, a title and the latest changes on at most maxLines lines.
func drawChanges(s FleetSnapshot, maxLines int) []viewLine {
	if len(s.Changes) == 0 || maxLines < 3 {
		return nil
	}
	lines := make([]viewLine, 0, maxLines)
	lines = append(lines, nil, viewLine{{"Changes", terminal.Bold}, {"  fleetloop changes -f", terminal.Faint}})
	for _, c := range s.Changes[:min(len(s.Changes), maxLines-titleRows)] {
		lines = append(lines, drawChange(c))
	}
	return lines
}

func drawChange(c RecentChange) viewLine {
	style := terminal.Plain
	if c.Failed {
		style = terminal.Bad
	}
	return viewLine{{c.Time.Format(time.TimeOnly) + "  ", terminal.Faint}, {c.Summary, style}}
}

func drawUnreadyAndAdapters(s FleetSnapshot, width int) []viewLine {
	lines := []viewLine{nil}
	blocks := [][]viewLine{drawUnready(s, computeColumnWidth(width)), drawAdapters(s)}
	if computeColumnCount(width) == 2 {
		return append(lines, arrangeInColumns(blocks, computeColumnWidth(width))...)
	}
	return append(append(lines, blocks[0]...), blocks[1]...)
}

// drawUnready draws the resources that have waited longest, without their kinds. A name with a
// slash is that of a node pool. A name that does not fit keeps its end, which distinguishes it from
// others.
func drawUnready(s FleetSnapshot, width int) []viewLine {
	lines := []viewLine{{{"Oldest unready", terminal.Bold}}}
	if len(s.Unready) == 0 {
		return append(lines, viewLine{{"none", terminal.Faint}})
	}
	shown := s.Unready[:min(len(s.Unready), sideRows)]
	ages := 0
	for _, u := range shown {
		ages = max(ages, utf8.RuneCountInString(terminal.Since(s.Now, u.Since)))
	}
	for _, u := range shown {
		phase := terminal.PhaseSymbol(u.Phase) + " " + terminal.Pad(string(u.Phase), 12) + " "
		age := terminal.Pad(terminal.Since(s.Now, u.Since), ages) + " "
		name := terminal.ReplaceUnprintable(u.Resource)
		if _, rest, ok := strings.Cut(name, "/"); ok {
			name = rest
		}
		room := width - utf8.RuneCountInString(phase+age)
		lines = append(lines, viewLine{
			{phase, terminal.PhaseStyle(u.Phase)},
			{age, terminal.Plain},
			{clipTextStart(name, room), terminal.Plain},
		})
	}
	return lines
}

// clipTextStart shortens a text to width characters and keeps its end.
func clipTextStart(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= width || width < 1 {
		return text
	}
	return "…" + string(runes[len(runes)-width+1:])
}

func drawAdapters(s FleetSnapshot) []viewLine {
	lines := []viewLine{{{"Adapters", terminal.Bold}}}
	if len(s.Adapters) == 0 {
		return append(lines, viewLine{{"none", terminal.Faint}})
	}
	for _, a := range s.Adapters[:min(len(s.Adapters), sideRows)] {
		state := viewSpan{"● ok     ", terminal.Good}
		if a.Paused {
			state = viewSpan{"‖ paused ", terminal.Bad}
		}
		last := "no report yet"
		if !a.LastReport.IsZero() {
			last = fmt.Sprintf("%d, last %s ago", a.Reports, terminal.Since(s.Now, a.LastReport))
		}
		const nameWidth = 13
		name := terminal.Pad(terminal.ClipWithEllipsis(terminal.ReplaceUnprintable(a.Name), nameWidth), nameWidth)
		lines = append(lines, viewLine{state, {name + " ", terminal.Plain}, {last, terminal.Faint}})
	}
	return lines
}
