package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Texts holds the counts of a tree, by kind of text.
type Texts struct {
	Markdown, Strings, Comments UnclearPhraseCount
}

// isSkipped reports whether a folder contains build output, third-party code or deliberately wrong
// files.
func isSkipped(name string) bool {
	return slices.Contains([]string{".git", "testdata", "vendor", "node_modules", ".cache", "bin", "dist"}, name)
}

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT`)

// countIdiomInTree counts all Markdown below root, and all Go files that are neither
// generated nor tests.
func countIdiomInTree(root string) (Texts, error) {
	texts := Texts{Markdown: newUnclearPhraseCount(), Strings: newUnclearPhraseCount(), Comments: newUnclearPhraseCount()}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if path != root && isSkipped(entry.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		isGo := strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go")
		if !isGo && !strings.HasSuffix(path, ".md") {
			return nil
		}
		raw, err := os.ReadFile(path) //nolint:gosec // reads the tree that it is given
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if !isGo {
			texts.Markdown.countMarkdownProse(name, string(raw))
			return nil
		}
		if generated.Match(raw) {
			return nil
		}
		texts.Comments.countComments(name, string(raw))
		return texts.Strings.countUserVisibleStrings(name, raw)
	})
	return texts, err
}

var fenced = regexp.MustCompile("(?s)```.*?```")

// countMarkdownProse counts the prose of a page: neither fenced blocks nor lines that
// are indented as code.
func (c *UnclearPhraseCount) countMarkdownProse(name, page string) {
	// The fences leave their line breaks, so that line numbers stay right.
	page = fenced.ReplaceAllStringFunc(page, func(block string) string {
		return strings.Repeat("\n", strings.Count(block, "\n"))
	})
	lines := strings.Split(page, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "    ") {
			lines[i] = ""
		}
	}
	c.CountWordsAndMatches(name, 1, strings.Join(lines, "\n"))
}

var comment = regexp.MustCompile(`(?:^|\s)//\s(.*)`)

// countComments counts line comments, line by line.
func (c *UnclearPhraseCount) countComments(name, source string) {
	for i, line := range strings.Split(source, "\n") {
		if m := comment.FindStringSubmatch(line); m != nil && !strings.HasPrefix(m[1], "Licensed") {
			c.CountWordsAndMatches(name, i+1, m[1])
		}
	}
}

// countUserVisibleStrings counts the string literals of a Go file that users read.
func (c *UnclearPhraseCount) countUserVisibleStrings(name string, source []byte) error {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("parse %s: %w", name, err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		for _, text := range userVisibleExprs(n) {
			for _, lit := range collectDirectStringLiterals(text) {
				c.CountWordsAndMatches(name, files.Position(lit.Pos()).Line, unquoteLiteral(lit))
			}
		}
		if field, ok := n.(*ast.Field); ok && field.Tag != nil {
			c.CountWordsAndMatches(name, files.Position(field.Tag.Pos()).Line, docOf(field.Tag.Value))
		}
		return true
	})
	return nil
}

// userVisibleExprs lists the expressions of a node that are texts for users.
func userVisibleExprs(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.CallExpr:
		if isUserOutputCall(n.Fun) {
			return n.Args
		}
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && helpField.MatchString(key.Name) {
			return []ast.Expr{n.Value}
		}
	}
	return nil
}

// unquoteLiteral returns the text of a string literal.
func unquoteLiteral(lit *ast.BasicLit) string {
	text, err := strconv.Unquote(lit.Value)
	if err != nil { // the parser rejects such a literal
		return lit.Value
	}
	return text
}

var (
	// messageFuncs matches the functions and methods, of any package, whose strings reach a user:
	// errors, log messages, events, output, flags, metrics.
	messageFuncs = regexp.MustCompile(
		`^(?:New|Newf|Errorf|(?:Debug|Info|Warn|Error)(?:Context)?|Event|Eventf|Fprintf?|Fprintln|Printf?|Println|` +
			`NewDesc|[cC]ounter(?:Vec|Func)?|[gG]auge(?:Vec|Func)?|[hH]istogram(?:Vec)?|desc|(?:String|Bool|Int|Int32|Int64|Uint|Float64|Duration|StringSlice|StringArray|StringToString|Var)(?:Var)?P?)$`,
	)
	// helpField matches the fields of command help, metric options and similar texts.
	helpField = regexp.MustCompile(`^(?:Use|Short|Long|Example|Help|Message|Title|Summary|Description|Reason|Hint)$`)
	docTag    = regexp.MustCompile(`(?:^|\s)doc:"((?:[^"\\]|\\.)*)"`)
)

func isUserOutputCall(fun ast.Expr) bool {
	switch f := fun.(type) {
	case *ast.SelectorExpr:
		return messageFuncs.MatchString(f.Sel.Name)
	case *ast.Ident:
		return f.Name != "New" && messageFuncs.MatchString(f.Name)
	}
	return false
}

// docOf returns the doc entry of a struct tag, which the generated reference shows.
func docOf(tag string) string {
	if m := docTag.FindStringSubmatch(strings.Trim(tag, "`")); m != nil {
		return m[1]
	}
	return ""
}

// collectDirectStringLiterals lists the string literals of an expression. Those inside a call or
// a key of their own are left out: they are counted there.
func collectDirectStringLiterals(n ast.Node) []*ast.BasicLit {
	var literals []*ast.BasicLit
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			return !isUserOutputCall(n.Fun)
		case *ast.FuncLit, *ast.KeyValueExpr:
			return false
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				literals = append(literals, n)
			}
		}
		return true
	})
	return literals
}
