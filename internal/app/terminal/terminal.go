// Package terminal formats output for users of the command line and the live view.
//
// It formats tables, ages, phases and colours, and removes control sequences from text.
package terminal

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// Style highlights a piece of text. It never carries information that the text lacks.
type Style int

// The styles.
const (
	Plain Style = iota
	Bold
	Faint
	Good
	Busy
	Bad
)

// Paint applies a style to a text.
func (s Style) Paint(text string) string {
	var code string
	switch s {
	case Plain:
		return text
	case Bold:
		code = "1"
	case Faint:
		code = "2"
	case Good:
		code = "32"
	case Busy:
		code = "33"
	case Bad:
		code = "31"
	}
	if text == "" {
		return ""
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// WantsColour reports whether an output uses colours. It never does with NO_COLOR and always with
// CLICOLOR_FORCE. Otherwise it does on a terminal that is not dumb.
func WantsColour(env func(string) (string, bool), isTerminal bool) bool {
	if v, _ := env("NO_COLOR"); v != "" {
		return false
	}
	if v, _ := env("CLICOLOR_FORCE"); v != "" && v != "0" {
		return true
	}
	kind, _ := env("TERM")
	return isTerminal && kind != "dumb"
}

// PhaseStyle returns the style of a phase.
func PhaseStyle(p v1.Phase) Style {
	switch p {
	case v1.PhaseReady:
		return Good
	case v1.PhaseFailed:
		return Bad
	case v1.PhaseProvisioning, v1.PhaseDeleting:
		return Busy
	case v1.PhasePending:
		return Faint
	}
	return Plain // a phase of a newer server
}

// PhaseSymbol returns the symbol of a phase, for use before its name.
func PhaseSymbol(p v1.Phase) string {
	switch p {
	case v1.PhaseReady:
		return "●"
	case v1.PhaseFailed:
		return "✗"
	case v1.PhaseProvisioning:
		return "◐"
	case v1.PhaseDeleting:
		return "◌"
	case v1.PhasePending:
		return "○"
	}
	return "?"
}

// Age formats a duration in two units at most, as kubectl does: exact if short, coarse if long.
func Age(d time.Duration) string {
	const (
		day  = 24 * time.Hour
		year = 365 * day
	)
	switch {
	case d < 0:
		return "0s" // the remote clock is ahead
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 10*time.Minute:
		return formatTwoUnits(d, time.Minute, "m", time.Second, "s")
	case d < 3*time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 8*time.Hour:
		return formatTwoUnits(d, time.Hour, "h", time.Minute, "m")
	case d < 2*day:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d < 8*day:
		return formatTwoUnits(d, day, "d", time.Hour, "h")
	case d < 2*year:
		return fmt.Sprintf("%dd", d/day)
	case d < 8*year:
		return formatTwoUnits(d, year, "y", day, "d")
	}
	return fmt.Sprintf("%dy", d/year)
}

func formatTwoUnits(d, big time.Duration, bigUnit string, small time.Duration, smallUnit string) string {
	if rest := d % big / small; rest > 0 {
		return fmt.Sprintf("%d%s%d%s", d/big, bigUnit, rest, smallUnit)
	}
	return fmt.Sprintf("%d%s", d/big, bigUnit)
}

// Since returns the age of a time, or "-" for the zero time.
func Since(now, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return Age(now.Sub(t))
}

// ReplaceUnprintable replaces control sequences of a terminal, because text from a server is untrusted.
func ReplaceUnprintable(text string) string {
	harmless := func(r rune) bool {
		return r != utf8.RuneError && (unicode.IsGraphic(r) || r == '\u200d') && !unicode.Is(unicode.Bidi_Control, r)
	}
	if strings.IndexFunc(text, func(r rune) bool { return !harmless(r) }) < 0 {
		return text
	}
	return strings.Map(func(r rune) rune {
		if harmless(r) {
			return r
		}
		return '�'
	}, text)
}

// ClipWithEllipsis shortens a text to width characters. A shortened text ends in "…".
func ClipWithEllipsis(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	if width <= 0 {
		return ""
	}
	runes := []rune(text)
	return string(runes[:width-1]) + "…"
}

// Pad fills a text with spaces up to width characters.
func Pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
}
