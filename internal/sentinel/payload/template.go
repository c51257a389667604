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

// goTemplate renders a Go template. Template functions get no argument that tells one execution
// from another, so their state belongs to the functions, and each concurrent execution needs its
// own functions. A rendering has them.
type goTemplate struct {
	tmpl   *jsontemplate.Template // parsed and rewritten; never executed itself
	pool   sync.Pool              // renderings that are not in use
	needed neededFields
}

// A rendering executes a template, one execution at a time. It is
//
//   - an object of the pool, because a copy of the template with its functions is costly,
//   - the state of the template functions, which read in and add to missing (see templateFuncs), and
//   - the io.Writer of the output, which it limits.
//
// executeTemplate resets all of this at its beginning.
type rendering struct {
	tmpl    *jsontemplate.Template // a copy of the goTemplate's, with the functions of this rendering
	in      Input
	missing []string // paths of fields that the resource does not have
	out     strings.Builder
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
	rw := fieldCallRewriter{tree: tmpl.Tree(), needed: neededFields{names: map[string]bool{}}}
	if err := rw.rewriteNodes(tmpl.Tree().Root); err != nil {
		line, column := lineAndColumnOf(source, int(rw.at))
		return nil, fmt.Errorf("template: line %d, column %d: %w", line, column, err)
	}
	return &goTemplate{tmpl: tmpl, needed: rw.needed}, nil
}

func parseTemplate(source string) (*jsontemplate.Template, error) {
	// The name must not contain a colon; see trimParsePrefix.
	return jsontemplate.Parse(source, jsontemplate.Config{
		Name: "template", Funcs: (&rendering{}).templateFuncs(), MaxIterations: maxSteps, MaxText: maxValue,
	})
}

func (t *goTemplate) newRendering() *rendering {
	r := &rendering{}
	r.tmpl = t.tmpl.WithFuncs(r.templateFuncs())
	return r
}

func (t *goTemplate) addNeededFields(n *neededFields) {
	n.all = n.all || t.needed.all
	maps.Copy(n.names, t.needed.names)
}

func (t *goTemplate) appendJSON(dst []byte, in Input, resource map[string]any) ([]byte, error) {
	r, _ := t.pool.Get().(*rendering)
	if r == nil {
		r = t.newRendering()
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

// executeTemplate returns the output for a resource. Afterwards, missing holds the fields that the
// resource does not have.
func (r *rendering) executeTemplate(in Input, resource map[string]any) (string, error) {
	r.in, r.missing = in, nil
	r.out.Reset()
	// While the rendering is in the pool, it must not keep the page of resources in memory.
	defer func() { r.in = Input{} }()

	// The template calls the functions of r, and writes to r.
	err := r.tmpl.Execute(r, resource)
	if errors.Is(err, errTooLong) || errors.Is(err, jsontemplate.ErrTextTooLong) {
		return "", errTooLong
	}
	if err != nil {
		return "", err
	}
	return r.out.String(), nil
}

// Write stores output of the template, up to its limit.
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

// locateParseError finds the position of a parser error, because the error has only the line. It
// cuts the source from its end as long as the error stays the same. What was cut is not the cause, so
// the last byte that is left is the position. For example, these prefixes of {{nope .b}} fail:
//
//	{{nope .b   function "nope" not defined
//	{{nope      function "nope" not defined; the position is that of its last letter
//	{{nop       function "nop" not defined, which is another error
func locateParseError(source string, err error) (line, column int) {
	end := len(source)
	for end > 1 {
		_, shorterErr := parseTemplate(source[:end-1])
		if shorterErr == nil || trimParsePrefix(shorterErr) != trimParsePrefix(err) {
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
