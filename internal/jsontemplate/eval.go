package jsontemplate

import (
	"strings"
	"text/template/parse"
)

// evalPipeline returns the value of a pipeline and sets its variables.
func (e *execution) evalPipeline(dot any, pipe *parse.PipeNode) (any, error) {
	if pipe == nil {
		return nil, nil
	}
	e.node = pipe
	var value any = noValue{}
	for _, cmd := range pipe.Cmds {
		v, err := e.evalCommand(dot, cmd, value)
		if err != nil {
			return nil, err
		}
		value = nilIfNull(v)
	}
	for _, decl := range pipe.Decl {
		if !pipe.IsAssign {
			e.pushVariable(decl.Ident[0], value)
			continue
		}
		v, err := e.findVariable(decl.Ident[0])
		if err != nil {
			return nil, err
		}
		v.value = value
	}
	return value, nil
}

// evalCommand returns the value of a command. The value of the previous command is its last argument.
func (e *execution) evalCommand(dot any, cmd *parse.CommandNode, previous any) (any, error) {
	first := cmd.Args[0]
	_, none := previous.(noValue)
	hasArgs := len(cmd.Args) > 1 || !none
	switch n := first.(type) {
	case *parse.IdentifierNode:
		return e.callFunction(dot, cmd, cmd.Args, previous)
	case *parse.FieldNode:
		e.node = n
		return e.getNestedFieldOrNil(dot, n.Ident, hasArgs)
	case *parse.ChainNode:
		return e.evalChain(dot, n, hasArgs)
	case *parse.VariableNode:
		return e.evalVariable(n, hasArgs)
	}
	if hasArgs {
		e.node = first
		return nil, e.errorf("can't give argument to non-function %s", first)
	}
	if first.Type() == parse.NodeNil {
		e.node = first
		return nil, e.errorf("nil is not a command")
	}
	return e.evalArgument(dot, first)
}

// evalArgument returns the value of an operand without arguments.
func (e *execution) evalArgument(dot any, n parse.Node) (any, error) {
	e.node = n
	switch n := n.(type) {
	case *parse.DotNode:
		return dot, nil
	case *parse.FieldNode:
		return e.getNestedFieldOrNil(dot, n.Ident, false)
	case *parse.VariableNode:
		return e.evalVariable(n, false)
	case *parse.StringNode:
		return n.Text, nil
	case *parse.PipeNode:
		return e.evalPipeline(dot, n)
	case *parse.ChainNode:
		return e.evalChain(dot, n, false)
	case *parse.IdentifierNode:
		return e.callFunction(dot, n, []parse.Node{n}, noValue{})
	case *parse.NumberNode:
		return e.evalNumber(n)
	case *parse.BoolNode:
		return n.True, nil
	case *parse.NilNode:
		return nil, nil
	}
	return nil, e.errorf("can't evaluate %s", n)
}

func (e *execution) evalVariable(n *parse.VariableNode, hasArgs bool) (any, error) {
	e.node = n
	v, err := e.findVariable(n.Ident[0])
	if err != nil {
		return nil, err
	}
	if len(n.Ident) == 1 && hasArgs {
		return nil, e.errorf("can't give argument to non-function %s", n)
	}
	return e.getNestedFieldOrNil(v.value, n.Ident[1:], hasArgs)
}

func (e *execution) evalChain(dot any, n *parse.ChainNode, hasArgs bool) (any, error) {
	e.node = n
	if n.Node.Type() == parse.NodeNil {
		return nil, e.errorf("indirection through explicit nil in %s", n)
	}
	v, err := e.evalArgument(dot, n.Node)
	if err != nil {
		return nil, err
	}
	e.node = n
	return e.getNestedFieldOrNil(v, n.Field, hasArgs)
}

// getNestedFieldOrNil follows names from a value. The result is nil if a field is missing, and null{} if the
// last one is null.
func (e *execution) getNestedFieldOrNil(v any, names []string, hasArgs bool) (any, error) {
	for i, name := range names {
		switch object := v.(type) {
		case nil:
			return nil, nil
		case null:
			return nil, e.errorf("nil pointer evaluating interface {}.%s", name)
		case map[string]any:
			if hasArgs && i == len(names)-1 {
				return nil, e.errorf("%s is not a method but has arguments", name)
			}
			field, ok := object[name]
			if !ok {
				return nil, nil
			}
			v = nullIfNil(field)
		default:
			return nil, e.errorf("can't evaluate field %s in type %T", name, v)
		}
	}
	return v, nil
}

// callFunction calls the function that the first operand names. The value of the previous command, if
// any, is the last argument. Errors of the function name the call.
func (e *execution) callFunction(dot any, call parse.Node, operands []parse.Node, previous any) (any, error) {
	n, _ := operands[0].(*parse.IdentifierNode)
	args := operands[1:]
	e.node = n
	f, ok := e.template.funcs[n.Ident]
	if !ok && (n.Ident == "and" || n.Ident == "or") {
		return e.evalAndOr(dot, n, args, previous)
	}
	if !ok {
		return nil, e.errorf("%q is not a defined function", n.Ident)
	}
	values := make([]any, 0, len(args)+1)
	for _, arg := range args {
		v, err := e.evalArgument(dot, arg)
		if err != nil {
			return nil, err
		}
		values = append(values, nilIfNull(v))
	}
	if _, none := previous.(noValue); !none {
		values = append(values, previous)
	}
	v, err := f.call(values)
	if err == nil && f.makesText {
		err = e.countTextBytes(v)
	}
	if err != nil {
		e.node = call
		return nil, e.errorf("error calling %s: %w", n.Ident, err)
	}
	return nullIfNil(v), nil
}

// evalAndOr returns the first argument that decides, or the last one.
func (e *execution) evalAndOr(dot any, n *parse.IdentifierNode, args []parse.Node, previous any) (v any, err error) {
	for _, arg := range args {
		if v, err = e.evalArgument(dot, arg); err != nil {
			return nil, err
		}
		v = nilIfNull(v)
		if isTrue(v) == (n.Ident == "or") {
			return v, nil
		}
	}
	if _, none := previous.(noValue); !none {
		return previous, nil
	}
	if len(args) == 0 {
		return nil, e.errorf("wrong number of args for %s: want at least 1 got 0", n.Ident)
	}
	return v, nil
}

// evalNumber returns a constant. Its syntax determines the type.
func (e *execution) evalNumber(n *parse.NumberNode) (any, error) {
	isHex := strings.HasPrefix(strings.ToLower(n.Text), "0x") && !strings.ContainsAny(n.Text, "pP")
	isRune := strings.HasPrefix(n.Text, "'")
	if n.IsComplex {
		return n.Complex128, nil
	}
	if n.IsFloat && !isHex && !isRune && strings.ContainsAny(n.Text, ".eEpP") {
		return n.Float64, nil
	}
	if !n.IsInt || int64(int(n.Int64)) != n.Int64 {
		return nil, e.errorf("%s overflows int", n.Text)
	}
	return int(n.Int64), nil
}
