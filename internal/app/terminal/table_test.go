package terminal

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestTableLinesUp holds for any cells: a column begins at the same place in
// all rows that are written together.
func TestTableLinesUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var out strings.Builder
		var tab Table
		n := rapid.IntRange(1, 5).Draw(t, "columns")
		var rows [][]Cell
		for range rapid.IntRange(1, 6).Draw(t, "rows") {
			rows = append(rows, PlainRow(rapid.SliceOfN(rapid.String(), n, n).Draw(t, "cells")...))
		}
		if err := tab.WriteRows(&out, rows); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if len(lines) != len(rows) {
			t.Fatalf("%d rows became %d lines", len(rows), len(lines))
		}
		for i, line := range lines {
			runes, at := []rune(line), 0
			for j, cell := range rows[i] {
				if cell.Text != "" && !strings.HasPrefix(string(runes[at:]), cell.Text) {
					t.Fatalf("cell %q does not begin at %d of %q", cell.Text, at, line)
				}
				at += tab.widths[j] + columnGap
			}
			if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' }) {
				t.Fatalf("a line that drives a terminal: %q", line)
			}
		}
	})
}

func TestTableKeepsItsWidths(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	tab := Table{Colour: true}
	first := []Cell{{Text: "long name"}, {Text: "Ready", Style: Good}, {}}
	if err := tab.WriteRows(&out, [][]Cell{PlainRow("NAME", "PHASE", "LABELS"), first}); err != nil {
		t.Fatal(err)
	}
	if err := tab.WriteRows(&out, [][]Cell{PlainRow("a", "", "x=y")}); err != nil {
		t.Fatal(err)
	}
	want := "NAME        PHASE   LABELS\nlong name   \x1b[32mReady\x1b[0m\na           -       x=y\n"
	if out.String() != want {
		t.Errorf("got\n%q\nwant\n%q", out.String(), want)
	}
}
