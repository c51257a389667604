package payload

import (
	"errors"
	"fmt"
	"text/template/parse"
)

// A fieldCallRewriter changes a parsed template so that a missing field is recorded
// instead of rendered as "<no value>" or an error.
//
//	{{.a.b}}           becomes {{_field . "a" "b" | _show}}
//	{{printf "%s" .a}} becomes {{printf "%s" (_field . "a") | _show}}
//	{{if .a.b}}        becomes {{if _test . "a" "b"}}, because a test is not an error
//	{{if eq .a "x"}}   becomes {{if eq (_quiet . "a") "x"}}
//	{{range .a}}       becomes {{range _test . "a"}}
type fieldCallRewriter struct {
	tree *parse.Tree
	at   parse.Pos // current position, for errors

	// needed holds the fields that the template uses. It includes fields of values other than the
	// resource, which is harmless.
	needed neededFields
}

// The functions that the rewriter inserts.
const (
	fnField = "_field" // a missing field is recorded, and is ""
	fnTest  = "_test"  // nil if the field is missing
	fnQuiet = "_quiet" // "" if the field is missing
	fnShow  = "_show"
)

func (rw *fieldCallRewriter) rewriteNodes(l *parse.ListNode) error {
	if l == nil {
		return nil
	}
	for _, n := range l.Nodes {
		if err := rw.rewriteNode(n); err != nil {
			return err
		}
	}
	return nil
}

func (rw *fieldCallRewriter) rewriteNode(n parse.Node) error {
	rw.at = n.Position()
	switch n := n.(type) {
	case *parse.ActionNode:
		if err := rw.rewritePipe(n.Pipe, fnField, fnField); err != nil {
			return err
		}
		if len(n.Pipe.Decl) == 0 {
			n.Pipe.Cmds = append(n.Pipe.Cmds, rw.newCall(n.Pos, fnShow))
		}
		return nil
	case *parse.IfNode:
		return rw.rewriteBranch(&n.BranchNode)
	case *parse.WithNode:
		return rw.rewriteBranch(&n.BranchNode)
	case *parse.RangeNode:
		return rw.rewriteBranch(&n.BranchNode)
	case *parse.TemplateNode:
		return errors.New("template is not allowed")
	}
	return nil // texts, comments, break and continue
}

func (rw *fieldCallRewriter) rewriteBranch(n *parse.BranchNode) error {
	if err := rw.rewritePipe(n.Pipe, fnTest, fnQuiet); err != nil {
		return err
	}
	if err := rw.rewriteNodes(n.List); err != nil {
		return err
	}
	return rw.rewriteNodes(n.ElseList)
}

// rewritePipe rewrites the fields of a pipeline. It uses aloneFn if the pipeline is a
// single field, and the function argument otherwise.
func (rw *fieldCallRewriter) rewritePipe(p *parse.PipeNode, aloneFn, argumentFn string) error {
	if len(p.Cmds) == 1 && len(p.Cmds[0].Args) == 1 {
		argumentFn = aloneFn
	}
	for _, cmd := range p.Cmds {
		for i, arg := range cmd.Args {
			rw.at = arg.Position()
			if i == 0 && len(cmd.Args) > 1 && isFieldAccess(arg) {
				return fmt.Errorf("%s is a field and takes no arguments", arg)
			}
			var err error
			if cmd.Args[i], err = rw.rewriteArg(arg, argumentFn); err != nil {
				return err
			}
		}
	}
	return nil
}

func isFieldAccess(n parse.Node) bool {
	switch n := n.(type) {
	case *parse.FieldNode, *parse.ChainNode:
		return true
	case *parse.VariableNode:
		return len(n.Ident) > 1
	}
	return false
}

// rewriteArg rewrites one argument; fn is the function for a field.
func (rw *fieldCallRewriter) rewriteArg(n parse.Node, fieldFn string) (rewritten parse.Node, err error) {
	switch n := n.(type) {
	case *parse.DotNode:
		rw.needed.all = true
	case *parse.FieldNode:
		rw.needed.names[n.Ident[0]] = true
		dot := &parse.DotNode{NodeType: parse.NodeDot, Pos: n.Pos}
		return rw.newFieldCall(fieldFn, dot, n.Ident), nil
	case *parse.VariableNode:
		if len(n.Ident) == 1 {
			rw.needed.all = rw.needed.all || n.Ident[0] == "$"
			return n, nil
		}
		rw.needed.names[n.Ident[1]] = true
		variable := &parse.VariableNode{NodeType: parse.NodeVariable, Pos: n.Pos, Ident: n.Ident[:1]}
		return rw.newFieldCall(fieldFn, variable, n.Ident[1:]), nil
	case *parse.ChainNode:
		of, err := rw.rewriteArg(n.Node, fnTest)
		if err != nil {
			return nil, err
		}
		return rw.newFieldCall(fieldFn, of, n.Field), nil
	case *parse.PipeNode: // in parentheses
		if fieldFn == fnTest {
			return n, rw.rewritePipe(n, fnTest, fnQuiet)
		}
		return n, rw.rewritePipe(n, fieldFn, fieldFn)
	}
	return n, nil
}

// newFieldCall returns the call (fn of "a" "b").
func (rw *fieldCallRewriter) newFieldCall(fn string, of parse.Node, names []string) parse.Node {
	call := rw.newCall(of.Position(), fn)
	call.Args = append(call.Args, of)
	for _, name := range names {
		call.Args = append(call.Args, &parse.StringNode{
			NodeType: parse.NodeString, Pos: of.Position(), Quoted: fmt.Sprintf("%q", name), Text: name,
		})
	}
	return &parse.PipeNode{NodeType: parse.NodePipe, Pos: of.Position(), Cmds: []*parse.CommandNode{call}}
}

func (rw *fieldCallRewriter) newCall(pos parse.Pos, fn string) *parse.CommandNode {
	id := parse.NewIdentifier(fn).SetPos(pos).SetTree(rw.tree)
	return &parse.CommandNode{NodeType: parse.NodeCommand, Pos: pos, Args: []parse.Node{id}}
}
