package payload

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"sync"
	"text/template"
)

// maxSteps is the maximum number of loop iterations of a rendering, over all loops.
const maxSteps = 10_000

// maxWork is the maximum number of bytes that the functions of a rendering may produce in total. It
// stops a text that doubles in a loop.
const maxWork = 1 << 20

var errTooManySteps = fmt.Errorf("more than %d loop iterations", maxSteps)

// goTemplate renders a Go template. A rendering keeps its state with the functions of the parsed
// template, so concurrent executions need separate renderings. Unused renderings are in the pool.
type goTemplate struct {
	source string
	pool   sync.Pool
	looks  neededFields
}

// compileTemplate parses a template, and so proves that the pool can parse it.
func compileTemplate(source string) (value, error) {
	first, err := parseForRendering(source)
	if err != nil {
		return nil, err
	}
	t := &goTemplate{source: source, looks: first.looks}
	t.pool.Put(first)
	return t, nil
}

func (t *goTemplate) appendJSON(dst []byte, in Input, resource map[string]any) ([]byte, error) {
	r, _ := t.pool.Get().(*rendering)
	if r == nil {
		var err error
		if r, err = parseForRendering(t.source); err != nil {
			return dst, err
		}
	}
	defer t.pool.Put(r)
	out, err := r.executeTemplate(in, resource)
	if err != nil {
		return dst, err
	}
	dst = appendQuoted(dst, out)
	if len(r.missing) > 0 {
		return dst, fmt.Errorf("%w: %s", errMissing, strings.Join(r.missing, ", "))
	}
	return dst, nil
}

func (t *goTemplate) addNeededFields(n *neededFields) {
	n.all = n.all || t.looks.all
	maps.Copy(n.names, t.looks.names)
}

// A rendering is a parsed template with the state of one execution.
type rendering struct {
	tmpl  *template.Template
	looks neededFields

	out     strings.Builder
	in      Input
	missing []string
	steps   int
	work    int
}

func parseForRendering(source string) (*rendering, error) {
	r := &rendering{}
	// The name must not contain a colon; see trimParsePrefix.
	tmpl, err := template.New("template").Funcs(r.templateFuncs()).Parse(source)
	if err != nil {
		line, column := locateParseError(source, err)
		return nil, fmt.Errorf("template: line %d, column %d: %s", line, column, trimParsePrefix(err))
	}
	if at := regexp.MustCompile(`\{\{-?\s*(define|block)\b`).FindStringIndex(source); at != nil {
		line, column := lineAndColumnOf(source, at[0])
		return nil, fmt.Errorf("template: line %d, column %d: define and block are not allowed", line, column)
	}
	rw := rewriter{tree: tmpl.Tree, looks: neededFields{names: map[string]bool{}}}
	if err := rw.rewriteNodes(tmpl.Root); err != nil {
		line, column := lineAndColumnOf(source, int(rw.at))
		return nil, fmt.Errorf("template: line %d, column %d: %w", line, column, err)
	}
	r.tmpl, r.looks = tmpl, rw.looks
	return r, nil
}

func (r *rendering) executeTemplate(in Input, resource map[string]any) (string, error) {
	r.out.Reset()
	r.in, r.missing, r.steps, r.work = in, nil, 0, 0
	defer func() { r.in = Input{} }() // it must not outlive the page in the pool
	if err := r.tmpl.Execute(r, resource); err != nil {
		for _, known := range []error{errTooLong, errTooManySteps} {
			if errors.Is(err, known) {
				return "", known
			}
		}
		return "", err
	}
	return r.out.String(), nil
}

// Write stores the output of the template, up to its limit.
func (r *rendering) Write(p []byte) (int, error) {
	if r.out.Len()+len(p) > maxValue {
		return 0, errTooLong
	}
	return r.out.Write(p)
}

// trimParsePrefix returns the message of a parser's error, without the name and the line.
func trimParsePrefix(err error) string {
	parts := strings.SplitN(err.Error(), ":", 4)
	return strings.TrimSpace(parts[len(parts)-1])
}

// locateParseError finds the position of a parser error, because the error has only the line. The
// position is the end of the shortest prefix of the source that fails in the same way, however much
// of the source follows.
func locateParseError(source string, err error) (line, column int) {
	end := len(source)
	for end > 1 {
		_, shorter := template.New("template").Funcs((&rendering{}).templateFuncs()).Parse(source[:end-1])
		if shorter == nil || trimParsePrefix(shorter) != trimParsePrefix(err) {
			break
		}
		end--
	}
	return lineAndColumnOf(source, end-1)
}

// lineAndColumnOf returns the line and column of a byte, counted from 1.
func lineAndColumnOf(source string, offset int) (line, column int) {
	before := source[:min(max(offset, 0), len(source))]
	return 1 + strings.Count(before, "\n"), len(before) - strings.LastIndexByte(before, '\n')
}
