package bounds

import (
	"maps"

	"github.com/open-policy-agent/opa/v1/ast"
)

// maxExpansion bounds how often a value of a module can have others in it.
const maxExpansion = 1 << 18

// sizes estimates, from above, how large the values of a module can get for
// what it is written with: x := [y, y] has twice the size of y. Open Policy
// Agent writes such values out in one go, for which forty lines take longer than
// anybody lives, and more memory than anybody has.
//
// An input, a constant and what is iterated over counts once: those are bounded
// elsewhere, and an iteration can be interrupted.
type sizes struct {
	compiler *ast.Compiler
	rules    map[*ast.Rule]int
	worst    int
}

// env is how large the variables of a body are that have a value so far.
type env map[ast.Var]int

// Expansion refuses modules with a value that would grow beyond maxExpansion.
// It looks at bodies after the compiler has put them into the order in which
// they are evaluated.
func Expansion(c *ast.Compiler) *ast.Error {
	s := &sizes{compiler: c, rules: map[*ast.Rule]int{}}
	var refused *ast.Error
	for _, m := range c.Modules {
		for _, r := range m.Rules {
			if s.rule(r); s.worst >= maxExpansion && refused == nil {
				refused = ast.NewError(ast.CompileErr, r.Location, "a value of rule %s contains others more than %d times", r.Head.Ref(), maxExpansion)
			}
		}
	}
	return refused
}

func (s *sizes) bounded(n int) int {
	s.worst = max(s.worst, n)
	return min(max(n, 1), maxExpansion)
}

func (s *sizes) rule(r *ast.Rule) int {
	if n, ok := s.rules[r]; ok {
		return n
	}
	s.rules[r] = 1 // rules are not recursive: a reference that looks so leads elsewhere
	known := env{}
	for _, arg := range r.Head.Args {
		s.bind(known, arg, 1)
	}
	s.body(known, r.Body)
	n := s.term(known, r.Head.Value) + s.term(known, r.Head.Key)
	for _, t := range r.Head.Reference[min(1, len(r.Head.Reference)):] {
		n += s.term(known, t)
	}
	if r.Else != nil {
		n += s.rule(r.Else)
	}
	s.rules[r] = s.bounded(n)
	return s.rules[r]
}

func (s *sizes) body(known env, b ast.Body) {
	for _, e := range b {
		switch terms := e.Terms.(type) {
		case *ast.Term:
			s.term(known, terms)
		case *ast.Every:
			n := s.term(known, terms.Domain)
			inner := maps.Clone(known)
			s.bind(inner, terms.Key, n)
			s.bind(inner, terms.Value, n)
			s.body(inner, terms.Body)
		case []*ast.Term:
			s.call(known, e, terms)
		}
	}
}

func (s *sizes) call(known env, e *ast.Expr, terms []*ast.Term) {
	if len(terms) == 3 && (e.IsEquality() || e.IsAssignment()) {
		left, right := s.term(known, terms[1]), s.term(known, terms[2])
		s.bind(known, terms[1], right)
		s.bind(known, terms[2], left)
		return
	}
	// A function can have its arguments in its value as often as its value has
	// parts. The last of the terms may be where the value goes.
	n := 0
	for _, arg := range terms[1:] {
		n += s.term(known, arg)
	}
	n = s.bounded(n * s.term(known, terms[0]))
	s.bind(known, terms[len(terms)-1], n)
}

// bind gives the variables of a term that have no value yet the size of what the
// term is unified with.
func (s *sizes) bind(known env, t *ast.Term, n int) {
	if t == nil {
		return
	}
	ast.WalkVars(t, func(v ast.Var) bool {
		if _, ok := known[v]; !ok {
			known[v] = n
		}
		return false
	})
}

func (s *sizes) term(known env, t *ast.Term) int {
	if t == nil {
		return 0
	}
	n := 0
	each := func(t *ast.Term) { n = s.bounded(n + s.term(known, t)) }
	switch v := t.Value.(type) {
	case ast.Var:
		n = known[v]
	case ast.Ref:
		n = s.reference(known, v)
	case *ast.Array:
		v.Foreach(each)
	case ast.Set:
		v.Foreach(each)
	case ast.Object:
		v.Foreach(func(k, t *ast.Term) {
			each(k)
			each(t)
		})
	case *ast.ArrayComprehension:
		n = s.comprehension(known, v.Body, v.Term)
	case *ast.SetComprehension:
		n = s.comprehension(known, v.Body, v.Term)
	case *ast.ObjectComprehension:
		n = s.comprehension(known, v.Body, v.Key, v.Value)
	case ast.Call:
		for _, arg := range v[1:] {
			each(arg)
		}
		n = max(n, 1) * s.term(known, v[0])
	}
	return s.bounded(n)
}

func (s *sizes) comprehension(known env, b ast.Body, heads ...*ast.Term) int {
	inner := maps.Clone(known)
	s.body(inner, b)
	n := 0
	for _, t := range heads {
		n += s.term(inner, t)
	}
	return n
}

// reference gives the size of what a reference leads to: a part of a variable,
// or rules. Variables within it get their values from there.
func (s *sizes) reference(known env, ref ast.Ref) int {
	n := 1
	switch head := ref[0].Value.(type) {
	case ast.Var:
		if ref.HasPrefix(ast.DefaultRootRef) {
			for _, r := range s.compiler.GetRules(ref) {
				n = s.bounded(n + s.rule(r))
			}
		} else {
			n = max(n, known[head])
		}
	default:
		n = s.term(known, ref[0])
	}
	for _, t := range ref[1:] {
		s.bind(known, t, n)
	}
	return n
}
