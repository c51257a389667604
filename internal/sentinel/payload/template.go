package payload

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"sync"

	"github.com/fleetloop/fleetloop/internal/jsontemplate"
)

// maxSteps is the maximum number of loop iterations of a rendering, over all loops.
const maxSteps = 10_000

// goTemplate renders a Go template. The functions of a template keep the state of one rendering, so
// concurrent executions need separate renderings. Unused renderings are in the pool.
type goTemplate struct {
	tmpl  *jsontemplate.Template
	pool  sync.Pool
	looks neededFields
}

func (t *goTemplate) appendJSON(dst []byte, in Input, resource map[string]any) ([]byte, error) {
	r, _ := t.pool.Get().(*rendering)
	if r == nil {
		r = &rendering{}
		r.tmpl = t.tmpl.WithFuncs(r.templateFuncs())
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

// A rendering is a template with the state of one execution.
type rendering struct {
	tmpl    *jsontemplate.Template
	out     strings.Builder
	in      Input
	missing []string
}

// compileTemplate parses a template and rewrites it.
func compileTemplate(source string) (value, error) {
	tmpl, err := parseTemplate(source)
	if err != nil {
		line, column := locateParseError(source, err)
		return nil, fmt.Errorf("template: line %d, column %d: %s", line, column, trimParsePrefix(err))
	}
	if at := regexp.MustCompile(`\{\{-?\s*(define|block)\b`).FindStringIndex(source); at != nil {
		line, column := lineAndColumnOf(source, at[0])
		return nil, fmt.Errorf("template: line %d, column %d: define and block are not allowed", line, column)
	}
	rw := fieldCallRewriter{tree: tmpl.Tree(), looks: neededFields{names: map[string]bool{}}}
	if err := rw.rewriteNodes(tmpl.Tree().Root); err != nil {
		line, column := lineAndColumnOf(source, int(rw.at))
		return nil, fmt.Errorf("template: line %d, column %d: %w", line, column, err)
	}
	return &goTemplate{tmpl: tmpl, looks: rw.looks}, nil
}

func parseTemplate(source string) (*jsontemplate.Template, error) {
	// The name must not contain a colon; see trimParsePrefix.
	return jsontemplate.Parse(source, jsontemplate.Config{
		Name: "template", Funcs: (&rendering{}).templateFuncs(), MaxIterations: maxSteps, MaxText: maxValue,
	})
}

func (r *rendering) executeTemplate(in Input, resource map[string]any) (string, error) {
	r.out.Reset()
	r.in, r.missing = in, nil
	defer func() { r.in = Input{} }() // it must not outlive the page in the pool
	err := r.tmpl.Execute(r, resource)
	if errors.Is(err, errTooLong) || errors.Is(err, jsontemplate.ErrTextTooLong) {
		return "", errTooLong
	}
	if err != nil {
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

// WriteString is Write for a text.
func (r *rendering) WriteString(s string) (int, error) {
	if r.out.Len()+len(s) > maxValue {
		return 0, errTooLong
	}
	return r.out.WriteString(s)
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
		_, shorter := parseTemplate(source[:end-1])
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
