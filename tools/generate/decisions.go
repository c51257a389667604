package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const decisionsPattern = "docs/adr/[0-9]*.md"

const aboutDecisions = `# Decisions

Architecture decision records: why Fleetloop is built as it is. Each record has at most one page.

`

// renderDecisionIndex lists the decision records by their titles.
func renderDecisionIndex() ([]byte, error) {
	paths, err := filepath.Glob(decisionsPattern)
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no file matches %s", decisionsPattern)
	}
	var buf bytes.Buffer
	buf.WriteString(generated + aboutDecisions)
	for _, path := range paths {
		raw, err := os.ReadFile(path) //nolint:gosec // a file of the repository
		if err != nil {
			return nil, err
		}
		first, _, _ := strings.Cut(string(raw), "\n")
		number, title, ok := strings.Cut(strings.TrimPrefix(first, "# "), ". ")
		prefix, _, _ := strings.Cut(filepath.Base(path), "-")
		if !ok || strings.TrimLeft(prefix, "0") != number {
			return nil, fmt.Errorf("read %s: the first line is %q, want \"# NUMBER. TITLE\"", path, first)
		}
		fmt.Fprintf(&buf, "- %s. [%s](%s)\n", number, title, filepath.Base(path))
	}
	return buf.Bytes(), nil
}
