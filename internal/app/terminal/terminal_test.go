package terminal

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

func TestAge(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	cases := map[string]struct {
		reason string
		d      time.Duration
		want   string
	}{
		"Ahead":         {"a clock that is ahead is not worth a sign", -5 * time.Second, "0s"},
		"Zero":          {"just now", 0, "0s"},
		"Seconds":       {"exact while it is short", 119*time.Second + 999*time.Millisecond, "119s"},
		"TwoMinutes":    {"no zero seconds", 2 * time.Minute, "2m"},
		"Minutes":       {"two units", 2*time.Minute + time.Second, "2m1s"},
		"TenMinutes":    {"seconds no longer matter", 10*time.Minute + 59*time.Second, "10m"},
		"Hours":         {"two units", 3*time.Hour + 5*time.Minute, "3h5m"},
		"EightHours":    {"minutes no longer matter", 8*time.Hour + 59*time.Minute, "8h"},
		"TwoDays":       {"two units", 2*day + time.Hour, "2d1h"},
		"EightDays":     {"hours no longer matter", 8*day + 5*time.Hour, "8d"},
		"NearlyTwoYear": {"still days", 729 * day, "729d"},
		"TwoYears":      {"two units", 731 * day, "2y1d"},
		"EightYears":    {"days no longer matter", 8*365*day + 100*day, "8y"},
	}
	for name, tc := range cases {
		if got := Age(tc.d); got != tc.want {
			t.Errorf("%s: %s: got %s, want %s", name, tc.reason, got, tc.want)
		}
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if got := Since(now, time.Time{}) + Since(now, now.Add(-time.Minute)); got != "-60s" {
		t.Errorf("got %s", got)
	}
}

func TestWantsColour(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		env    map[string]string
		tty    bool
		want   bool
	}{
		"Terminal":      {"the normal case", nil, true, true},
		"Pipe":          {"others read it", nil, false, false},
		"NoColor":       {"the user said so", map[string]string{"NO_COLOR": "1"}, true, false},
		"NoColorEmpty":  {"an empty value says nothing", map[string]string{"NO_COLOR": ""}, true, true},
		"Force":         {"the user said so", map[string]string{"CLICOLOR_FORCE": "1", "TERM": "dumb"}, false, true},
		"ForceZero":     {"zero says nothing", map[string]string{"CLICOLOR_FORCE": "0"}, false, false},
		"NoBeatsForce":  {"no is the safer of the two", map[string]string{"NO_COLOR": "1", "CLICOLOR_FORCE": "1"}, true, false},
		"Dumb":          {"it can not", map[string]string{"TERM": "dumb"}, true, false},
		"DumbPipe":      {"it can not", map[string]string{"TERM": "dumb"}, false, false},
		"OrdinaryXterm": {"it can", map[string]string{"TERM": "xterm"}, true, true},
	}
	for name, tc := range cases {
		env := func(key string) (string, bool) { v, ok := tc.env[key]; return v, ok }
		if got := WantsColour(env, tc.tty); got != tc.want {
			t.Errorf("%s: %s: got %t", name, tc.reason, got)
		}
	}
}

func TestPhases(t *testing.T) {
	t.Parallel()
	seen := map[string]v1.Phase{}
	for _, p := range []v1.Phase{v1.PhasePending, v1.PhaseProvisioning, v1.PhaseReady, v1.PhaseFailed, v1.PhaseDeleting, "Paused"} {
		symbol := PhaseSymbol(p)
		if other, ok := seen[symbol]; ok || symbol == "" {
			t.Errorf("%s and %s share the symbol %q", p, other, symbol)
		}
		seen[symbol] = p
	}
	if PhaseStyle(v1.PhaseReady) != Good || PhaseStyle(v1.PhaseFailed) != Bad || PhaseStyle("Paused") != Plain {
		t.Error("a phase has the wrong style")
	}
	for style, want := range map[Style]string{Bold: "\x1b[1m", Faint: "\x1b[2m", Good: "\x1b[32m", Busy: "\x1b[33m"} {
		if got := style.Paint("x"); got != want+"x\x1b[0m" {
			t.Errorf("style %d gives %q", style, got)
		}
	}
	if PhaseStyle(v1.PhasePending) != Faint || PhaseStyle(v1.PhaseDeleting) != Busy {
		t.Error("a phase has the wrong style")
	}
	if Good.Paint("") != "" || Plain.Paint("x") != "x" || Bad.Paint("x") != "\x1b[31mx\x1b[0m" {
		t.Error("paint")
	}
}

func TestClean(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, text, want string }{
		"Plain":     {"most is left as it is", "us-east é 漢 ● 👩‍👩‍👧", "us-east é 漢 ● 👩‍👩‍👧"},
		"Escape":    {"a title is not to be set", "a\x1b]0;owned\x07b", "a�]0;owned�b"},
		"C1":        {"an escape in one byte's place", "a\u009b31mb", "a�31mb"},
		"NewLine":   {"a row is one line", "a\nb\tc", "a�b�c"},
		"Direction": {"text is not to be turned around", "a\u202eb", "a�b"},
		"NotUTF8":   {"bytes that are no text", "a\xffb", "a�b"},
	}
	for name, tc := range cases {
		if got := ReplaceUnprintable(tc.text); got != tc.want {
			t.Errorf("%s: %s: got %q, want %q", name, tc.reason, got, tc.want)
		}
	}
}

func TestCleanIsHarmless(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOf(rapid.Byte()).Draw(t, "text"))
		got := ReplaceUnprintable(text)
		if strings.ContainsFunc(got, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }) || !utf8.ValidString(got) {
			t.Fatalf("%q became %q", text, got)
		}
		if ReplaceUnprintable(got) != got {
			t.Fatalf("%q is not clean after all", got)
		}
	})
}

func TestClipAndPad(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text, width := rapid.String().Draw(t, "text"), rapid.IntRange(-1, 20).Draw(t, "width")
		if n := utf8.RuneCountInString(ClipWithEllipsis(text, width)); n > max(width, 0) {
			t.Fatalf("Clip(%q, %d) is %d long", text, width, n)
		}
		if n := utf8.RuneCountInString(Pad(text, width)); n < width || n > max(width, utf8.RuneCountInString(text)) {
			t.Fatalf("Pad(%q, %d) is %d long", text, width, n)
		}
	})
	if ClipWithEllipsis("abc", 3) != "abc" || ClipWithEllipsis("abcd", 3) != "ab…" || Pad("a", 2) != "a " {
		t.Error("clip or pad")
	}
}
