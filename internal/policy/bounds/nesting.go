package bounds

import (
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"
)

const (
	maxBodies = 8  // a compiler takes about three times as long for each comprehension within another
	maxTerms  = 64 // for each call within another it makes a variable, and looks at all of them
)

// Nesting says that a module is nested too deeply to be compiled in time.
func Nesting(m *ast.Module) error {
	bodies, terms, mostBodies, mostTerms := 0, 0, 0, 0
	count := func(x any, n int) {
		switch x.(type) {
		case *ast.ArrayComprehension, *ast.SetComprehension, *ast.ObjectComprehension, *ast.Every:
			bodies += n
		case *ast.Term:
			terms += n
		}
		mostBodies, mostTerms = max(mostBodies, bodies), max(mostTerms, terms)
	}
	ast.NewBeforeAfterVisitor(func(x any) bool {
		count(x, 1)
		return false
	}, func(x any) { count(x, -1) }).Walk(m)
	if mostBodies > maxBodies || mostTerms > maxTerms {
		return fmt.Errorf("it is nested too deeply: comprehensions %d times, at most %d are taken; terms %d times, at most %d", mostBodies, maxBodies, mostTerms, maxTerms)
	}
	return nil
}
