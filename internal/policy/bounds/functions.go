// Package bounds keeps modules that anybody may bring along from growing without
// bound: what they call (Builtins, Functions, Replace) and what they write
// (Nesting, Expansion). Open Policy Agent bounds neither, and what it does in one
// step, such as to compile, can not be interrupted.
package bounds

import (
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"
)

const (
	maxWeight  = 1 << 20  // of a value that a bounded function takes or gives: bytes, more or less
	maxProduct = 64 << 20 // of the weights of its arguments, which bounds what it can make of them
	maxWidth   = 1000     // that sprintf pads to, more or less

	prefix = "bounded."
)

// Grows says whether conditions do without a function: what it makes of a few
// characters has no bound, or none that its arguments show.
func Grows(name string) bool {
	for _, family := range []string{"graph.", "graphql.", "crypto.x509.", "crypto.parse_", "io.jwt.", "providers.", "yaml.", "numbers."} {
		if strings.HasPrefix(name, family) {
			return true
		}
	}
	switch name {
	case "bits.lsh", "net.cidr_expand", "net.cidr_merge", "net.cidr_contains_matches", "strings.render_template", "json.patch", "json.marshal_with_options", "regex.globs_match", "regex.template_match":
		return true
	}
	return false
}

// names are functions whose result is at most as long as the product of
// their arguments, or which take no more steps than that. In conditions each is
// replaced by one of the same name behind prefix that looks at its arguments
// first: applied to its own result, forty times on forty lines, it would fill the
// memory, and what compares each of one list with each of another would not end.
func names() []string {
	return []string{
		"concat", "sprintf", "replace", "strings.replace_n", "regex.replace", "format_int",
		"array.concat", "array.flatten", "object.union", "object.union_n",
		"json.marshal", "base64.encode", "base64url.encode", "base64url.encode_no_pad", "hex.encode", "urlquery.encode", "urlquery.encode_object",
		"plus", "minus", "mul", "div", "rem", "sum", "product", "round", "ceil", "floor", "abs", "to_number", "bits.rsh", "bits.and", "bits.or", "bits.xor", "bits.negate",
		"object.subset", "json.remove", "json.filter",
		"regex.match", "regex.is_valid", "regex.find_n", "regex.find_all_string_submatch_n", "regex.split", "glob.match",
		"units.parse", "units.parse_bytes", "trim", "trim_left", "trim_right",
	}
}

// Builtins are the bounded functions, for the capabilities of a compiler.
func Builtins() []*ast.Builtin {
	var all []*ast.Builtin
	for _, name := range names() {
		b := *ast.BuiltinMap[name]
		b.Name, b.Infix = prefix+name, ""
		all = append(all, &b)
	}
	return all
}

// Functions are the same, for evaluation.
func Functions() []func(*rego.Rego) {
	var all []func(*rego.Rego)
	for _, b := range Builtins() {
		original := topdown.GetBuiltin(strings.TrimPrefix(b.Name, prefix))
		all = append(all, rego.FunctionDyn(&rego.Function{Name: b.Name, Decl: b.Decl}, func(bctx rego.BuiltinContext, args []*ast.Term) (*ast.Term, error) {
			if format, ok := args[0].Value.(ast.String); ok && b.Name == prefix+ast.Sprintf.Name && wide(string(format)) {
				return nil, fmt.Errorf("it pads to more than %d characters", maxWidth)
			}
			if err := tooSlow(strings.TrimPrefix(b.Name, prefix), args); err != nil {
				return nil, err
			}
			return call(bctx, original, args)
		}))
	}
	return all
}

func call(bctx rego.BuiltinContext, f topdown.BuiltinFunc, args []*ast.Term) (*ast.Term, error) {
	product := 1
	for _, a := range args {
		w, err := weigh(a.Value, 0)
		if err != nil {
			return nil, err
		}
		if product *= max(1, w); product > maxProduct {
			return nil, fmt.Errorf("its arguments are too large together")
		}
	}
	var result *ast.Term
	err := f(bctx, args, func(t *ast.Term) error {
		result = t
		return nil
	})
	if err != nil || result == nil {
		return nil, err
	}
	if _, err := weigh(result.Value, 0); err != nil {
		return nil, err
	}
	return result, nil
}

// weigh is how long a value would be as text, more or less. It stops where that
// is too much: values are shared, and a few lines make one that takes days to
// walk.
func weigh(v ast.Value, w int) (int, error) {
	if w > maxWeight {
		return w, fmt.Errorf("a value has more than %d bytes", maxWeight)
	}
	var err error
	each := func(t *ast.Term) error {
		w, err = weigh(t.Value, w+1)
		return err
	}
	switch v := v.(type) {
	case ast.String:
		w += len(v)
	case ast.Number:
		w += len(v)
	case *ast.Array:
		err = v.Iter(each)
	case ast.Set:
		err = v.Iter(each)
	case ast.Object:
		err = v.Iter(func(k, t *ast.Term) error {
			if err := each(k); err != nil {
				return err
			}
			return each(t)
		})
	default:
		w++
	}
	if err == nil && w > maxWeight {
		err = fmt.Errorf("a value has more than %d bytes", maxWeight)
	}
	return w, err
}

// wide says whether a format pads to a width of many digits, or to one that an
// argument says.
func wide(format string) bool {
	verb, digits := false, 0
	for _, c := range format {
		switch {
		case c == '%':
			verb, digits = !verb, 0
		case verb && c == '*':
			return true
		case verb && '0' <= c && c <= '9':
			if digits++; digits >= len("1000") {
				return true
			}
		case verb && strings.ContainsRune("+-# .[]", c):
			digits = 0
		default:
			verb = false
		}
	}
	return false
}

// Replace has a compiler replace the functions of names, and refuse what
// would get around that.
func Replace(c *ast.Compiler) *ast.Error {
	bounded := names()
	var refused *ast.Error
	replace := func(terms []*ast.Term) {
		ref, ok := terms[0].Value.(ast.Ref)
		if !ok || !slices.Contains(bounded, ref.String()) {
			return
		}
		terms[0] = ast.NewTerm(ast.MustParseRef(prefix + ref.String())).SetLocation(terms[0].Location)
	}
	visit := ast.NewGenericVisitor(func(x any) bool {
		switch x := x.(type) {
		case *ast.Expr:
			if terms, ok := x.Terms.([]*ast.Term); ok {
				replace(terms)
			}
		case ast.Call:
			replace(x)
		case *ast.With:
			if ref, ok := x.Target.Value.(ast.Ref); !ok || !ref.HasPrefix(ast.InputRootRef) && !ref.HasPrefix(ast.DefaultRootRef) {
				refused = ast.NewError(ast.CompileErr, x.Location, "a condition can replace input and data, and no functions")
			}
		}
		return false
	})
	for _, m := range c.Modules {
		visit.Walk(m)
	}
	return refused
}
