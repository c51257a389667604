// Package jsontemplate executes Go templates over decoded JSON values.
//
// The parser is text/template/parse of the standard library. The executor is implemented here,
// because that of text/template calls methods by name: the linker then keeps every exported method
// of the program, 12 MB of a large binary.
//
// Values are nil, bool, string, int, int64, float64, map[string]any and []any, and other types whose
// kind is boolean, number or string. Templates have the syntax, the functions and the results
// of text/template. The differences are:
//
//   - Values have no methods, and call always fails.
//   - slice is limited by the length of a list, not by its capacity, and accepts a field as index.
//     text/template fails: "cannot index slice/array with type interface {}".
//   - Lists in lists, such as the bodies of if, range and template, are nested at most 10,000
//     deep. text/template permits 100,000 nested calls of templates.
//   - Functions get their arguments as a slice, so they check the number and the types.
//     A panic of a function is not recovered.
package jsontemplate

import (
	"errors"
	"fmt"
	"io"
	"text/template/parse"
)

// maxDepth is the maximum depth of nested lists. It stops endless recursion before the stack is full.
const maxDepth = 10_000

// A Func is a function of a template. Missing fields and null are nil. It must not keep args.
type Func func(args []any) (any, error)

// Config configures a template.
type Config struct {
	// Name is the name of the template, for errors and the template action.
	Name string

	// Funcs are functions in addition to those of text/template, or instead of them.
	Funcs map[string]Func

	// MaxIterations is the maximum number of loop iterations and template calls of an execution.
	// Zero means no limit.
	MaxIterations int

	// MaxText is the maximum length of a text that print, printf, println, html, js and urlquery
	// return, in bytes. All of them together return at most 16 times as much. Otherwise the
	// execution fails with ErrTextTooLong. Zero means no limit.
	MaxText int
}

// ErrTextTooLong is the error of a function whose text exceeds the limit.
var ErrTextTooLong = errors.New("functions return too much text")

// textsPerExecution is the maximum length of all texts of an execution, as a multiple of MaxText.
const textsPerExecution = 16

// A Template is a parsed template. It is safe for concurrent use.
type Template struct {
	config Config // Funcs is not used
	trees  map[string]*parse.Tree
	funcs  map[string]function
}

// A function is a Func of a caller or of this package.
type function struct {
	call      Func
	makesText bool // the text is counted
}

// Parse parses a template.
func Parse(text string, c Config) (*Template, error) {
	t := (&Template{config: c}).WithFuncs(c.Funcs)
	names := map[string]any{"and": true, "or": true} // the executor implements them, as they skip arguments
	for name := range t.funcs {
		names[name] = true
	}
	var err error
	if t.trees, err = parse.Parse(c.Name, text, "", "", names); err != nil {
		return nil, err
	}
	return t, nil
}

// WithFuncs returns a copy of the template with other functions of the same names. The copy shares
// the parse trees.
func (t *Template) WithFuncs(funcs map[string]Func) *Template {
	other := *t
	other.funcs = builtins()
	for name, f := range funcs {
		other.funcs[name] = function{call: f}
	}
	return &other
}

// Tree returns the parse tree of the template. A caller may change the tree before the first execution.
func (t *Template) Tree() *parse.Tree { return t.trees[t.config.Name] }

// Execute writes the output of the template for data. After an error, a part of the output may have
// been written. Errors of w are returned unchanged.
func (t *Template) Execute(w io.Writer, data any) error {
	e := execution{template: t, tree: t.Tree(), w: w}
	e.pushVariable("$", data)
	return e.walkList(data, e.tree.Root)
}

// An execution is the state of one execution.
type execution struct {
	template   *Template
	tree       *parse.Tree // of the template that is executed now
	w          io.Writer
	node       parse.Node // current node, for errors
	vars       []variable
	depth      int
	iterations int
	textBytes  int // length of the texts that functions returned
}

type variable struct {
	name  string
	value any
}

// Internal values. They are never arguments of functions.
type (
	null    struct{} // null in an object or a list, whose fields are errors; a pipeline turns it into nil
	noValue struct{} // no result of a previous command in the pipeline
)

// nullIfNil returns an element of an object or a list.
func nullIfNil(v any) any {
	if v == nil {
		return null{}
	}
	return v
}

// nilIfNull returns the value of an argument or a pipeline.
func nilIfNull(v any) any {
	if _, ok := v.(null); ok {
		return nil
	}
	return v
}

// errorf returns an error with the position and the text of the current node.
func (e *execution) errorf(format string, args ...any) error {
	location, text := e.tree.ErrorContext(e.node)
	return fmt.Errorf("template: %s: executing %q at <%s>: %w", location, e.tree.Name, text, fmt.Errorf(format, args...))
}

func (e *execution) pushVariable(name string, value any) {
	e.vars = append(e.vars, variable{name, value})
}

// findVariable returns the last variable with a name. The parser accepts some names that are not
// declared when they are used.
func (e *execution) findVariable(name string) (*variable, error) {
	for i := len(e.vars) - 1; i >= 0; i-- {
		if e.vars[i].name == name {
			return &e.vars[i], nil
		}
	}
	return nil, e.errorf("undefined variable: %s", name)
}

// countIteration counts a loop iteration or the call of a template.
func (e *execution) countIteration(n parse.Node) error {
	if e.iterations++; e.template.config.MaxIterations > 0 && e.iterations > e.template.config.MaxIterations {
		e.node = n
		return e.errorf("more than %d loop iterations", e.template.config.MaxIterations)
	}
	return nil
}

// countTextBytes counts a text that a function returned.
func (e *execution) countTextBytes(text any) error {
	limit := e.template.config.MaxText
	s, _ := text.(string)
	if e.textBytes += len(s); limit > 0 && (len(s) > limit || e.textBytes > textsPerExecution*limit) {
		return ErrTextTooLong
	}
	return nil
}

// Results of break and continue.
var (
	errBreak    = errors.New("break")
	errContinue = errors.New("continue")
)
