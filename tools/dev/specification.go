package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// pieceFolder is the folder of the pieces, from the root of the repository.
const pieceFolder = "test/specification"

// parseFlagsAndWriteSpecExcerpts cuts manifests, configuration files, examples and tables out of the sentinel's two
// specifications, byte for byte, for tests to use unchanged.
//
//	go run ./tools/dev specification -from DIR
//
// DIR contains the specifications as text files whose names begin with 000_ and 001_. The pieces are
// written to test/specification. A test of this package compares the committed pieces with the
// specifications; it runs if SPECIFICATION_DIR is set to their folder.
func parseFlagsAndWriteSpecExcerpts(_ context.Context, args []string, _ io.Writer) error {
	flags := flag.NewFlagSet("specification", flag.ExitOnError)
	from := flags.String("from", "", "`directory` with the specifications")
	to := flags.String("to", pieceFolder, "output `directory`")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return writeSpecificationExcerpts(*from, *to)
}

func writeSpecificationExcerpts(from, to string) error {
	if from == "" {
		return errors.New("-from is required: set it to the directory with the specifications")
	}
	cut, err := cutSpecificationExcerpts(from)
	if err != nil {
		return err
	}
	for name, text := range cut {
		file := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			return fmt.Errorf("write pieces: %w", err)
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return fmt.Errorf("write pieces: %w", err)
		}
	}
	return nil
}

// A specificationExcerpt is a part of one specification.
type specificationExcerpt struct {
	file string // below pieceFolder
	spec string // prefix of the name of the specification

	// block counts the fenced blocks from 1. document counts the YAML documents
	// in the block from 1; 0 is the whole block.
	block, document int

	// first and after are prefixes of lines: a piece outside a fenced block starts with the first
	// and ends before the second.
	first, after string
}

// listSpecificationExcerpts returns the pieces in the order of the specifications.
func listSpecificationExcerpts() []specificationExcerpt {
	const operator, service = "000_", "001_"
	return []specificationExcerpt{
		{file: "operator/sentinelconfig.yaml", spec: operator, block: 4},
		{file: "operator/abbreviated.yaml", spec: operator, block: 6},
		{file: "operator/crd.yaml", spec: operator, block: 7},
		{file: "operator/deployment.yaml", spec: operator, block: 9},
		{file: "operator/rbac.yaml", spec: operator, block: 10},
		{file: "operator/metrics.md", spec: operator, first: "| Metric Name |"},

		{file: "service/sentinel-config.yaml", spec: service, block: 8, document: 1},
		{file: "service/broker-pubsub.yaml", spec: service, block: 8, document: 2},
		{file: "service/broker-rabbitmq.yaml", spec: service, block: 8, document: 3},
		{file: "service/report.json", spec: service, block: 10},
		{file: "service/sentinel-us-east-config.yaml", spec: service, block: 12, document: 1},
		{file: "service/sentinel-us-west-config.yaml", spec: service, block: 12, document: 2},
		{file: "service/sentinel-nodepools-config.yaml", spec: service, block: 12, document: 3},
		{file: "service/decision-tests.md", spec: service, first: "### Generation-Based Reconciliation Tests", after: "### Test Requirements"},
	}
}

// cutSpecificationExcerpts cuts every piece out of the specifications in a folder.
func cutSpecificationExcerpts(from string) (map[string][]byte, error) {
	texts := map[string][]byte{}
	cut := map[string][]byte{}
	for _, p := range listSpecificationExcerpts() {
		if texts[p.spec] == nil {
			text, err := readSpecification(from, p.spec)
			if err != nil {
				return nil, err
			}
			texts[p.spec] = text
		}
		text, err := p.cutExcerpt(texts[p.spec])
		if err != nil {
			return nil, fmt.Errorf("cut %s: %w", p.file, err)
		}
		cut[p.file] = text
	}
	return cut, nil
}

func readSpecification(from, namePrefix string) ([]byte, error) {
	found, err := filepath.Glob(filepath.Join(from, namePrefix+"*.txt"))
	if err != nil {
		return nil, fmt.Errorf("find specification: %w", err)
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("found %d files in %q named %s*.txt, want 1", len(found), from, namePrefix)
	}
	text, err := os.ReadFile(found[0]) //nolint:gosec // the user names the folder
	if err != nil {
		return nil, fmt.Errorf("read specification: %w", err)
	}
	return text, nil
}

func (p specificationExcerpt) cutExcerpt(text []byte) ([]byte, error) {
	if p.first != "" {
		return cutLines(text, p.first, p.after)
	}
	blocks := fencedBlocks(text)
	if p.block > len(blocks) {
		return nil, fmt.Errorf("found %d fenced blocks, want number %d", len(blocks), p.block)
	}
	block := blocks[p.block-1]
	if p.document == 0 {
		return block, nil
	}
	documents := bytes.Split(block, []byte("\n---\n"))
	if p.document > len(documents) {
		return nil, fmt.Errorf("found %d documents in block %d, want number %d", len(documents), p.block, p.document)
	}
	document := documents[p.document-1]
	if p.document < len(documents) {
		document = slices.Concat(document, []byte("\n")) // the separator contains it
	}
	return document, nil
}

// cutLines returns the lines from the one that begins with first up to the
// next that begins with after. An empty after is an empty line.
func cutLines(text []byte, firstLinePrefix, endLinePrefix string) ([]byte, error) {
	var out []byte
	for line := range bytes.Lines(text) {
		begins := bytes.HasPrefix(line, []byte(firstLinePrefix))
		ends := bytes.HasPrefix(line, []byte(endLinePrefix))
		if endLinePrefix == "" {
			ends = len(bytes.TrimSpace(line)) == 0
		}
		switch {
		case out == nil && !begins:
		case out != nil && ends:
			return out, nil
		default:
			out = append(out, line...)
		}
	}
	if out == nil {
		return nil, fmt.Errorf("no line begins with %q", firstLinePrefix)
	}
	return out, nil
}

// fencedBlocks returns the content of the fenced blocks of a Markdown text.
func fencedBlocks(text []byte) [][]byte {
	var blocks [][]byte
	inside := false
	for line := range bytes.Lines(text) {
		switch fence := bytes.HasPrefix(bytes.TrimLeft(line, " "), []byte("```")); {
		case fence && !inside:
			blocks = append(blocks, []byte{})
			inside = true
		case fence:
			inside = false
		case inside:
			blocks[len(blocks)-1] = append(blocks[len(blocks)-1], line...)
		}
	}
	return blocks
}
