package jsontemplate

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"text/template/parse"
)

func (e *execution) walkList(dot any, list *parse.ListNode) error {
	if list == nil {
		return nil
	}
	if e.depth == maxDepth {
		return e.errorf("nested more than %d deep", maxDepth)
	}
	e.depth++
	for _, n := range list.Nodes {
		if err := e.walk(dot, n); err != nil {
			e.depth--
			return err
		}
	}
	e.depth--
	return nil
}

func (e *execution) walk(dot any, n parse.Node) error {
	e.node = n
	switch n := n.(type) {
	case *parse.TextNode:
		_, err := e.w.Write(n.Text)
		return err
	case *parse.ActionNode:
		v, err := e.evalPipeline(dot, n.Pipe)
		if err != nil || len(n.Pipe.Decl) > 0 {
			return err
		}
		return e.writeValueAsText(v)
	case *parse.IfNode:
		return e.walkBranch(dot, &n.BranchNode, false)
	case *parse.WithNode:
		return e.walkBranch(dot, &n.BranchNode, true)
	case *parse.RangeNode:
		return e.walkRange(dot, n)
	case *parse.TemplateNode:
		return e.walkTemplate(dot, n)
	case *parse.BreakNode:
		return errBreak
	case *parse.ContinueNode:
		return errContinue
	case *parse.CommentNode:
		return nil
	}
	return e.errorf("unknown node: %s", n)
}

func (e *execution) writeValueAsText(v any) (err error) {
	switch v := v.(type) {
	case nil:
		_, err = io.WriteString(e.w, "<no value>")
	case string:
		_, err = io.WriteString(e.w, v)
	default:
		_, err = fmt.Fprint(e.w, v)
	}
	return err
}

// walkBranch executes if or with.
func (e *execution) walkBranch(dot any, n *parse.BranchNode, setsDot bool) error {
	mark := len(e.vars)
	defer func() { e.vars = e.vars[:mark] }()
	v, err := e.evalPipeline(dot, n.Pipe)
	if err != nil {
		return err
	}
	if !isTrue(v) {
		return e.walkList(dot, n.ElseList)
	}
	if setsDot {
		dot = v
	}
	return e.walkList(dot, n.List)
}

func (e *execution) walkTemplate(dot any, n *parse.TemplateNode) error {
	tree := e.template.trees[n.Name]
	if tree == nil {
		return e.errorf("template %q not defined", n.Name)
	}
	if err := e.countIteration(n); err != nil {
		return err
	}
	dot, err := e.evalPipeline(dot, n.Pipe) // its variables persist
	if err != nil {
		return err
	}
	callerTree, callerVars := e.tree, e.vars
	e.tree, e.vars = tree, []variable{{"$", dot}}
	err = e.walkList(dot, tree.Root)
	e.tree, e.vars = callerTree, callerVars
	return err
}

func (e *execution) walkRange(dot any, n *parse.RangeNode) error {
	mark := len(e.vars)
	defer func() { e.vars = e.vars[:mark] }()
	v, err := e.evalPipeline(dot, n.Pipe)
	if err != nil {
		return err
	}
	elements, isNumber := elementsOf(v)
	if elements == nil {
		return e.errorf("range can't iterate over %v", v)
	}
	if isNumber && len(n.Pipe.Decl) > 1 {
		return e.errorf("can't use %v to iterate over more than one variable", v)
	}
	markInside := len(e.vars)
	empty := true
	for index, element := range elements {
		empty = false
		if err := e.countIteration(n.Pipe); err != nil {
			return err
		}
		if err := e.setRangeVariables(n.Pipe, index, element); err != nil {
			return err
		}
		err := e.walkList(element, n.List)
		e.vars = e.vars[:markInside]
		if errors.Is(err, errBreak) {
			break
		}
		if err != nil && !errors.Is(err, errContinue) {
			return err
		}
	}
	if !empty {
		return nil
	}
	// As in text/template, break in the else part ends this range and not the one around it.
	if err := e.walkList(dot, n.ElseList); !errors.Is(err, errBreak) {
		return err
	}
	return nil
}

// setRangeVariables sets the variables of a range, which the pipeline has pushed or found.
func (e *execution) setRangeVariables(pipe *parse.PipeNode, index, element any) error {
	values := [...]any{index, element}
	for i, decl := range pipe.Decl {
		v, err := e.findVariable(decl.Ident[0])
		if err != nil {
			return err
		}
		v.value = values[len(values)-len(pipe.Decl)+i]
	}
	return nil
}

// elementsOf returns the indexes and elements of a value, or nil.
func elementsOf(v any) (elements iter.Seq2[any, any], isNumber bool) {
	switch v := v.(type) {
	case nil:
		return func(func(any, any) bool) {}, false
	case []any:
		return func(yield func(any, any) bool) {
			for i, element := range v {
				if !yield(i, nullIfNil(element)) {
					return
				}
			}
		}, false
	case map[string]any:
		return func(yield func(any, any) bool) {
			for _, key := range slices.Sorted(maps.Keys(v)) {
				if !yield(key, nullIfNil(v[key])) {
					return
				}
			}
		}, false
	case int:
		return countTo(v), true
	case int64:
		return countTo(v), true
	case uint64:
		return countTo(v), true
	case byte:
		return countTo(v), true
	}
	return nil, false
}

func countTo[N int | int64 | uint64 | byte](n N) iter.Seq2[any, any] {
	return func(yield func(any, any) bool) {
		for i := N(0); i < n; i++ {
			if !yield(nil, i) {
				return
			}
		}
	}
}
