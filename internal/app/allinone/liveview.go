package allinone

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// DefaultRepaintInterval is how often a LiveView repaints when its Interval is zero.
const DefaultRepaintInterval = 250 * time.Millisecond

// The size used if the terminal size is unknown.
const (
	defaultWidth  = 80
	defaultHeight = 24
)

// The control sequences of a LiveView.
const (
	// The alternate screen preserves the content of the main screen.
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[2J"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	// A terminal that supports these shows only complete frames;
	// others ignore them.
	frameBegin = "\x1b[?2026h\x1b[H"
	frameEnd   = "\x1b[J\x1b[?2026l"
	lineEnd    = "\x1b[K\r\n"
)

// A LiveView shows a fleet on a terminal and repaints it in place, a few times a second.
//
// It restores the terminal at the end, also after a panic in the program. Other output to the
// terminal spoils the picture until the next repaint, so logs belong elsewhere.
type LiveView struct {
	// Out is the terminal.
	Out io.Writer

	// Size returns the columns and lines of the terminal. Values below one mean unknown. It is
	// called before every repaint.
	Size func() (width, height int)

	// Snapshot returns the content. PerSecond may stay zero.
	Snapshot func() FleetSnapshot

	// Colour enables colours.
	Colour bool

	// Interval is the time between repaints. Zero means DefaultRepaintInterval.
	Interval time.Duration
}

// Run repaints until ctx ends and then restores the terminal. It returns early only if the terminal
// cannot be written.
func (v LiveView) Run(ctx context.Context) (err error) {
	if v.Interval <= 0 {
		v.Interval = DefaultRepaintInterval
	}
	if _, err := io.WriteString(v.Out, enterScreen); err != nil {
		return fmt.Errorf("write to the terminal: %w", err)
	}
	// Deferred, so that a panic of Snapshot appears on the main screen.
	defer func() {
		if _, werr := io.WriteString(v.Out, leaveScreen); werr != nil {
			err = errors.Join(err, fmt.Errorf("restore the terminal: %w", werr))
		}
	}()

	ticker := time.NewTicker(v.Interval)
	defer ticker.Stop()
	var m rateMeter
	for {
		if err := v.paintFrame(&m); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (v LiveView) paintFrame(m *rateMeter) error {
	s := v.Snapshot()
	if s.PerSecond == 0 {
		s.PerSecond = m.updateRate(s.Now, s.Published)
	}
	width, height := v.Size()
	if width < 1 || height < 1 {
		width, height = defaultWidth, defaultHeight
	}
	// The last column stays free. Many terminals erase a character in it when
	// the rest of the line is erased.
	picture := RenderFleet(s, width-1, height, v.Colour)
	frame := frameBegin + strings.ReplaceAll(picture, "\n", lineEnd) + "\x1b[K" + frameEnd
	if _, err := io.WriteString(v.Out, frame); err != nil {
		return fmt.Errorf("write to the terminal: %w", err)
	}
	return nil
}

// A rateMeter measures the rate of a growing count over the last ten seconds.
type rateMeter struct {
	samples []rateSample // the oldest first
}

type rateSample struct {
	at    time.Time
	count uint64
}

func (m *rateMeter) updateRate(now time.Time, total uint64) (perSecond float64) {
	const window = 10 * time.Second
	if n := len(m.samples); n > 0 && total < m.samples[n-1].count {
		m.samples = nil // the counter was reset
	}
	m.samples = append(m.samples, rateSample{now, total})
	first := 0
	for first < len(m.samples)-2 && now.Sub(m.samples[first].at) > window {
		first++
	}
	m.samples = append(m.samples[:0], m.samples[first:]...)
	elapsed := now.Sub(m.samples[0].at).Seconds()
	if elapsed <= 0 {
		return 0
	}
	return float64(total-m.samples[0].count) / elapsed
}
