package main

import (
	"encoding/xml"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
)

// typescript is the output of the live view: two frames of three lines.
const typescript = "starting\r\n\x1b[?1049h\x1b[?25l\x1b[2J" +
	"\x1b[?2026h\x1b[H\x1b[1mClusters\x1b[0m  4\x1b[K\r\n\x1b[2m● Ready  0\x1b[0m\x1b[K\x1b[J\x1b[?2026l" +
	"\x1b[?2026h\x1b[H\x1b[1mClusters\x1b[0m  4\x1b[K\r\n\x1b[32m● Ready  2 <██>\x1b[0m\x1b[K\r\n\x1b[K\x1b[J\x1b[?2026l" +
	"\x1b[?1049l"

func TestChooseFrame(t *testing.T) {
	frame, err := firstFrameWithReadyShare(typescript, 0.5)
	if err != nil {
		t.Fatal(err)
	}
	want := [][]span{{{text: "Clusters", bold: true}, {text: "  4"}}, {{text: "● Ready  2 <██>", fill: "#56d364"}}}
	if !reflect.DeepEqual(frame, want) {
		t.Errorf("frame is %+v, want %+v", frame, want)
	}
	if _, err := firstFrameWithReadyShare(typescript, 0.75); err == nil {
		t.Error("a frame with three ready clusters was found")
	}
}

func TestDrawSVG(t *testing.T) {
	svg := renderTerminalSVG([][]span{{{text: "a & b", bold: true}, {text: "  "}, {text: "<c>", faint: true}}}, 10)
	decoder := xml.NewDecoder(strings.NewReader(svg))
	for {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("not XML: %v\n%s", err, svg)
		}
	}
	if !strings.Contains(svg, `x="74.8"`) { // 16 + 7 columns of 8.4
		t.Errorf("the third span is not at column 7:\n%s", svg)
	}
}
