package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Sequences that the live view writes around a frame.
const (
	frameBegin = "\x1b[?2026h"
	frameEnd   = "\x1b[?2026l"
)

// Sizes of the picture, in pixels.
const (
	charWidth  = 8.4
	lineHeight = 18
	padding    = 16
)

// A span is text in one colour on one line.
type span struct {
	text        string
	fill        string
	bold, faint bool
}

// firstFrameWithReadyShare returns the first frame in which the given share of the clusters
// is Ready.
func firstFrameWithReadyShare(typescript string, share float64) ([][]span, error) {
	clusters := regexp.MustCompile(`Clusters  (\d+)`)
	ready := regexp.MustCompile(`● Ready\s+(\d+)`)
	for _, part := range strings.Split(typescript, frameBegin)[1:] {
		frame, _, complete := strings.Cut(part, frameEnd)
		plain := stripEscapes(frame)
		total, now := parseFirstMatchAsInt(clusters, plain), parseFirstMatchAsInt(ready, plain)
		if complete && total > 0 && float64(now) >= share*float64(total) {
			return parseFrame(frame), nil
		}
	}
	return nil, fmt.Errorf("no frame shows %.0f%% of the clusters as Ready", 100*share)
}

func parseFirstMatchAsInt(pattern *regexp.Regexp, text string) int {
	m := pattern.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1]) // the pattern matches digits only
	return n
}

func escapePattern() *regexp.Regexp { return regexp.MustCompile(`\x1b\[([?0-9;]*)([A-Za-z])`) }

func stripEscapes(text string) string { return escapePattern().ReplaceAllString(text, "") }

// parseFrame splits a frame into lines and spans.
func parseFrame(frame string) [][]span {
	var lines [][]span
	for line := range strings.SplitSeq(strings.ReplaceAll(frame, "\r", ""), "\n") {
		var spans []span
		style, rest := span{}, line
		for rest != "" {
			at := escapePattern().FindStringSubmatchIndex(rest)
			text := rest
			if at != nil {
				text = rest[:at[0]]
			}
			if text != "" {
				spans = append(spans, span{text: text, fill: style.fill, bold: style.bold, faint: style.faint})
			}
			if at == nil {
				break
			}
			if rest[at[4]:at[5]] == "m" {
				style = applySGRCodeOrReset(style, rest[at[2]:at[3]])
			}
			rest = rest[at[1]:]
		}
		lines = append(lines, spans)
	}
	for len(lines) > 0 && len(lines[len(lines)-1]) == 0 {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// applySGRCodeOrReset applies one parameter of the sequence that selects a style.
func applySGRCodeOrReset(s span, code string) span {
	switch code {
	case "1":
		s.bold = true
	case "2":
		s.faint = true
	case "31":
		s.fill = "#ff7b72"
	case "32":
		s.fill = "#56d364"
	case "33":
		s.fill = "#e3b341"
	default:
		s = span{}
	}
	return s
}

// renderTerminalSVG draws lines of text as a terminal shows them.
func renderTerminalSVG(lines [][]span, columns int) string {
	width := int(float64(columns)*charWidth) + 2*padding
	height := len(lines)*lineHeight + 2*padding
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d"`, width, height)
	b.WriteString(` role="img" aria-label="The live view of fleetloop up --demo">` + "\n")
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="8" fill="#0d1117"/>`+"\n", width, height)
	b.WriteString(`<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"`)
	b.WriteString(` font-size="14" fill="#e6edf3" xml:space="preserve">` + "\n")
	for i, line := range lines {
		column := 0
		for _, s := range line {
			n := utf8.RuneCountInString(s.text)
			if strings.TrimSpace(s.text) != "" {
				fmt.Fprintf(&b, `<text x="%.1f" y="%d" textLength="%.1f"%s>%s</text>`+"\n",
					padding+float64(column)*charWidth, padding+i*lineHeight+14, float64(n)*charWidth, svgStyleAttributes(s), escapeXML(s.text))
			}
			column += n
		}
	}
	b.WriteString("</g>\n</svg>\n")
	return b.String()
}

func svgStyleAttributes(s span) string {
	var text string
	if s.fill != "" {
		text += ` fill="` + s.fill + `"`
	}
	if s.bold {
		text += ` font-weight="bold"`
	}
	if s.faint {
		text += ` opacity="0.55"`
	}
	return text
}

func escapeXML(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}
