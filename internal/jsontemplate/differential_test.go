package jsontemplate_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/fleetloop/fleetloop/internal/jsontemplate"
)

var errFunction = errors.New("function failed")

// stdFuncs and funcs are the same functions, for text/template and for this package.
var (
	stdFuncs = template.FuncMap{
		"same": func(v any) any { return v },
		"none": func() any { return nil },
		"fail": func(...any) (any, error) { return nil, errFunction },
	}
	funcs = map[string]jsontemplate.Func{
		"same": func(args []any) (any, error) {
			if err := jsontemplate.CheckArgCount(args, 1, 1); err != nil {
				return nil, err
			}
			return args[0], nil
		},
		"none": func(args []any) (any, error) { return nil, jsontemplate.CheckArgCount(args, 0, 0) },
		"fail": func([]any) (any, error) { return nil, errFunction },
	}
)

// limitedWriter stops a template that would fill the memory.
type limitedWriter struct{ strings.Builder }

var errFull = errors.New("full")

func (w *limitedWriter) Write(p []byte) (int, error) {
	if w.Len()+len(p) > 1<<20 {
		return 0, errFull
	}
	return w.Builder.Write(p)
}

func (w *limitedWriter) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

// execute returns the output of this package. It skips templates that exceed a limit, because text/template has none.
func execute(tb testing.TB, text string, data any) (string, error) {
	tb.Helper()
	tmpl, err := jsontemplate.Parse(text, jsontemplate.Config{Name: "main", Funcs: funcs, MaxIterations: 1000, MaxText: 64 << 10})
	if err != nil {
		return "", err
	}
	var out limitedWriter
	err = tmpl.Execute(&out, data)
	if errors.Is(err, errFull) || errors.Is(err, jsontemplate.ErrTextTooLong) || err != nil && strings.Contains(err.Error(), "more than 1000") {
		tb.Skip(err)
	}
	return out.String(), err
}

func executeStandard(text string, data any) (string, error) {
	tmpl, err := template.New("main").Funcs(stdFuncs).Parse(text)
	if err != nil {
		return "", err
	}
	var out limitedWriter
	err = tmpl.Execute(&out, data)
	return out.String(), err
}

// fieldAsIndex is the error of text/template for a field as an index of slice.
const fieldAsIndex = "error calling slice: cannot index slice/array with type interface {}"

// compareWithStandard checks that both executors write the same or both fail.
func compareWithStandard(tb testing.TB, text string, data any) {
	tb.Helper()
	got, err := execute(tb, text, data)
	want, wantErr := executeStandard(text, data)
	if wantErr != nil && strings.Contains(wantErr.Error(), fieldAsIndex) {
		return // see TestFieldAsIndex
	}
	if (err != nil) != (wantErr != nil) || got != want {
		raw, _ := json.Marshal(data)
		tb.Fatalf("template %s\ndata %s\n got %q, %v\nwant %q, %v", text, raw, got, err, want, wantErr)
	}
}

// Numbers of the sentinel have their own types.
type (
	floatNumber float64
	digits      string
)

func (f floatNumber) String() string { return fmt.Sprintf("%.3f", float64(f)) }

// A generator makes templates and data from the bytes of the fuzzer.
type generator struct {
	bytes  []byte
	b      strings.Builder
	vars   []string
	depth  int // of lists
	loops  int // around the current node
	parens int
}

// choose returns a number below n. Without bytes it is 0.
func (g *generator) choose(n int) int {
	if len(g.bytes) == 0 {
		return 0
	}
	c := int(g.bytes[0])
	g.bytes = g.bytes[1:]
	return c % n
}

func (g *generator) pick(texts ...string) string { return texts[g.choose(len(texts))] }

func (g *generator) value(depth int) any {
	n := 13
	if depth == 0 {
		n = 10
	}
	switch g.choose(n) {
	case 1:
		return g.choose(2) == 0
	case 2:
		return g.pick("", "a", "text", "<&\"'>", "é\x00\xff")
	case 3:
		return int64(g.choose(5) - 1)
	case 4:
		return float64(g.choose(9)-4) / 2
	case 5:
		return g.choose(4)
	case 6:
		return floatNumber(g.choose(3)) / 2
	case 7:
		return digits(g.pick("", "18446744073709551616"))
	case 8:
		return []any{}
	case 9:
		return map[string]any{}
	case 10:
		list := []any{}
		for range g.choose(4) {
			list = append(list, g.value(depth-1))
		}
		return slices.Clip(list) // slice of text/template shows what is behind the end
	case 11, 12:
		object := map[string]any{}
		for range g.choose(5) {
			object[g.pick("a", "b", "c", "d")] = g.value(depth - 1)
		}
		return object
	}
	return nil
}

func (g *generator) list() {
	if g.depth > 4 {
		return
	}
	g.depth++
	for range g.choose(5) {
		g.node()
	}
	g.depth--
}

func (g *generator) node() {
	mark := len(g.vars)
	switch g.choose(13) {
	case 0:
		g.b.WriteString(g.pick("text", " x ", "\n", "", "}}"))
	case 1, 2, 3:
		g.action(g.pick("", "- ") + g.pipeline())
	case 4:
		name := g.pick("$x", "$y")
		g.action(name + g.pick(" := ", " = ") + g.pipeline())
		g.vars = append(g.vars, name)
	case 5:
		g.branch("if", "if")
		g.vars = g.vars[:mark]
	case 6:
		g.branch("with", "with")
		g.vars = g.vars[:mark]
	case 7, 8:
		g.rangeLoop()
		g.vars = g.vars[:mark]
	case 9:
		g.action(`template "` + g.pick("t", "v", "main", "t", "v", "nope", "u", "t") + `" ` + g.pick("", g.pipeline()))
	case 10:
		if g.depth > 1 {
			return // only the parser of the first level knows define
		}
		g.action(`define "` + g.pick("t", "u") + `"`)
		g.body()
	case 11:
		g.action(`block "` + g.pick("t", "v") + `" ` + g.pipeline())
		g.body()
	case 12:
		if g.loops > 0 {
			g.action(g.pick("break", "continue"))
		} else {
			g.action("/* comment */")
		}
	}
}

// body writes the body of a template, which sees no variables, and its end.
func (g *generator) body() {
	vars, loops := g.vars, g.loops
	g.vars, g.loops = nil, 0
	g.list()
	g.vars, g.loops = vars, loops
	g.action("end")
}

func (g *generator) action(text string) { g.b.WriteString("{{" + text + g.pick("}}", " -}}")) }

func (g *generator) branch(keyword, elseKeyword string) {
	declare := g.pick("", "", "$x := ", "$x = ")
	g.action(keyword + " " + declare + g.pipeline())
	if declare != "" {
		g.vars = append(g.vars, "$x")
	}
	g.list()
	switch g.choose(3) {
	case 1:
		g.action("else")
		g.list()
	case 2:
		g.action("else " + elseKeyword + " " + g.pipeline())
		g.list()
	}
	g.action("end")
}

func (g *generator) rangeLoop() {
	declare := g.pick("", "$x := ", "$x, $y := ", "$y, $x = ", "$x = ", "$x, $x := ")
	g.action("range " + declare + g.pipeline())
	if declare != "" {
		g.vars = append(g.vars, "$x")
	}
	g.loops++
	g.list()
	g.loops--
	if g.choose(2) == 1 {
		g.action("else")
		g.list()
	}
	g.action("end")
}

func (g *generator) pipeline() string {
	text := g.command()
	for range g.choose(6) / 3 {
		text += " | " + g.function(1)
	}
	return text
}

func (g *generator) command() string {
	switch g.choose(16) {
	case 0, 1, 2, 3, 4, 5, 6:
		return g.operand()
	case 7:
		return g.operand() + " " + g.operand()
	}
	return g.function(0)
}

// function returns a call, which mostly has the right number of arguments together with the piped ones.
func (g *generator) function(piped int) string {
	call := g.pick("and 2", "or 2", "not 1", "eq 2", "eq 3", "ne 2", "lt 2", "le 2", "gt 2", "ge 2", "index 2", "slice 1", "len 1", "print 2", "printf 1",
		"println 1", "html 1", "js 1", "urlquery 1", "call 1", "same 1", "none 0", "fail 0", ".a 0", ".a.b 0", "$ 0", "$.a 0", `printf "%v %T" 2`,
		`printf "%d|%s" 2`, "index .a 1", `index .b 0 0`, "slice .b 1", `slice "text" 1`, "len .a 0", "eq .a 1")
	at := strings.LastIndexByte(call, ' ')
	n := max(int(call[at+1]-'0')-piped, 0)
	if g.choose(16) == 15 {
		n = g.choose(4)
	}
	var text strings.Builder
	text.WriteString(call[:at])
	for range n {
		text.WriteString(" " + g.operand())
	}
	return text.String()
}

func (g *generator) operand() string {
	if g.parens < 2 && g.choose(4) == 3 {
		g.parens++
		defer func() { g.parens-- }()
		return "(" + g.pipeline() + ")" + g.pick("", "", "", ".a", ".a.b")
	}
	if len(g.vars) > 0 && g.choose(3) == 2 {
		return g.vars[g.choose(len(g.vars))] + g.pick("", "", "", ".a", ".b.c")
	}
	if g.choose(32) == 31 {
		return g.pick("9223372036854775808", "none.a", "print.a", ".a.b.c", "$.d.c")
	}
	return g.pick(".", "$", "$.a", "$.b", "$.c", "$.d", "$.a.b", "$.a.c", ".", "nil", "true", "false", "0", "1", "2", "-1", "1.5", "1e3", "0x1F", "'a'",
		"2i", "1+0i", "1_000", `""`, `"a"`, `"b"`, "`raw`", `"%d"`, `"%v"`, "none", ".a", ".b")
}

// FuzzGenerated compares the executors with templates of a grammar.
func FuzzGenerated(f *testing.F) {
	f.Add([]byte("\x0b\x02\x00\x0b\x01\x02\x01\x03\x01\x07\x01\x0a\x02\x02\x02"))
	f.Add([]byte{12, 4, 0, 3, 1, 2, 1, 5, 2, 10, 3, 2, 1, 3, 2, 1, 1, 3, 3, 1, 2, 0, 7, 2, 0, 1, 1, 3, 1, 0, 2})
	f.Fuzz(func(t *testing.T, choices []byte) {
		g := generator{bytes: choices[:min(len(choices), 400)]} // more would only take longer
		data := map[string]any{"a": map[string]any{"b": g.value(2), "c": g.value(1)}, "b": []any{g.value(1), g.value(2)}, "c": g.value(3), "d": g.value(0)}
		for range 1 + g.choose(3) {
			g.list()
		}
		compareWithStandard(t, g.b.String(), data)
	})
}

// FuzzText compares the executors with any template.
func FuzzText(f *testing.F) {
	for _, c := range cases {
		f.Add(c.text, cmp.Or(c.data, document))
	}
	f.Fuzz(func(t *testing.T, text, raw string) {
		var data any
		if json.Unmarshal([]byte(raw), &data) != nil {
			t.Skip("not JSON")
		}
		compareWithStandard(t, text, clipLists(data))
	})
}

// clipLists removes the capacity behind the end of lists.
func clipLists(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key := range v {
			v[key] = clipLists(v[key])
		}
	case []any:
		for i := range v {
			v[i] = clipLists(v[i])
		}
		return slices.Clip(v)
	}
	return v
}
