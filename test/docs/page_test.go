package docs_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// An environment is what a block of commands needs.
type environment string

const (
	envNone    environment = "none"
	envUp      environment = "up"
	envKube    environment = "kube"
	envCluster environment = "cluster"
	envDrill   environment = "drill" // run by TestRestoreDrill of test/e2e, between other steps
	envSkip    environment = "no"    // not run, for a reason
)

func environments() []environment {
	return []environment{envNone, envUp, envKube, envCluster, envDrill, envSkip}
}

// A block is one fenced block of a page.
type block struct {
	line   int // of the opening fence, from 1
	lines  []string
	env    environment
	reason string // why it is not run
	file   string // the file that a yaml block is written to, empty for commands
}

var (
	marker   = regexp.MustCompile(`^<!-- run: (\S+?)(?: \((.+)\))? -->$`)
	fence    = regexp.MustCompile("^(\\s*)(```+|~~~+)\\s*(\\S*)")
	fileName = regexp.MustCompile(`^# ([A-Za-z0-9_-]+\.ya?ml)$`)
)

// parsePage returns the commands and the files of a page, in page order.
func parsePage(text string) (blocks []block, err error) {
	lines := strings.Split(text, "\n")
	standard, next := block{env: envNone}, (*block)(nil)
	for i := 0; i < len(lines); i++ {
		if m := marker.FindStringSubmatch(strings.TrimSpace(lines[i])); m != nil {
			b := block{env: environment(m[1]), reason: m[2]}
			if !slices.Contains(environments(), b.env) || (b.env == envSkip) != (b.reason != "") {
				return nil, fmt.Errorf("line %d: %s is none of %v; %q takes a reason in parentheses", i+1, m[0], environments(), envSkip)
			}
			next = &b
			continue
		}
		m := fence.FindStringSubmatch(lines[i])
		if m == nil {
			if next != nil {
				standard, next = *next, nil
			}
			continue
		}
		open := i
		for i++; i < len(lines) && strings.TrimSpace(lines[i]) != m[2]; i++ {
		}
		if i == len(lines) {
			return nil, fmt.Errorf("line %d: the block has no end", open+1)
		}
		b := standard
		if next != nil {
			b, next = *next, nil
		}
		b.line = open + 1
		for _, line := range lines[open+1 : i] {
			b.lines = append(b.lines, strings.TrimPrefix(line, m[1]))
		}
		switch m[3] {
		case "sh":
			blocks = append(blocks, b)
		case "yaml":
			if name := fileName.FindStringSubmatch(strings.Join(b.lines[:min(1, len(b.lines))], "")); name != nil {
				b.file = name[1]
				blocks = append(blocks, b)
			}
		case "bash", "shell", "console":
			return nil, fmt.Errorf("line %d: write ```sh, so that the commands are run", b.line)
		}
	}
	return blocks, nil
}

// script returns a script in which each command of an environment has the line
// that it has on the page. Files are copied from a folder in page order.
func script(blocks []block, env environment, files string) string {
	var out []string
	put := func(line int, text string) {
		for len(out) < line {
			out = append(out, "")
		}
		out[line-1] = text
	}
	for _, b := range blocks {
		switch {
		case b.file != "":
			put(b.line, fmt.Sprintf("cp '%s/%d' '%s'", files, b.line, b.file))
		case b.env == env:
			for i, line := range b.lines {
				put(b.line+1+i, line)
			}
		}
	}
	return strings.Join(out, "\n") + "\n"
}
