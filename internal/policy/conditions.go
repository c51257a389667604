package policy

import (
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/fleetloop/fleetloop/internal/policy/bounds"
	"github.com/fleetloop/fleetloop/internal/policy/document"
)

const (
	// DefaultConditionTimeout bounds one evaluation of one condition.
	DefaultConditionTimeout = 250 * time.Millisecond

	maxConditionBytes = 32 << 10
	maxKeptBytes      = 2 << 20 // of text whose compiled form is kept; that is a hundred times as large
	maxMessageText    = 1024    // as long as a status has room for

	defaultConditionModules = 512
)

// ConditionOptions are how conditions are evaluated. The zero value works.
type ConditionOptions struct {
	Timeout time.Duration // of one evaluation; zero is DefaultConditionTimeout
	Modules int           // how many compiled modules are kept; zero is 512
}

// Conditions evaluates modules that come with executions. It is safe for
// concurrent use.
type Conditions struct {
	timeout time.Duration
	shape   *document.Shape

	mu     sync.Mutex
	most   int
	known  map[[sha256.Size]byte]*list.Element // of recent
	recent *list.List                          // of *condition, the last used first
	kept   int                                 // bytes of their text
}

// A condition is a compiled module, or why there is none: one that does not
// compile is looked at as often as one that does.
type condition struct {
	hash    [sha256.Size]byte
	size    int
	compile func() (*compiledCondition, error)
}

type compiledCondition struct {
	allow, message *query // message is nil where the module has none
	unseen         *document.Shape
}

// A CompileError is why a module can never be evaluated, whatever the input.
type CompileError struct{ Err error }

// Error says so.
func (e *CompileError) Error() string { return "compile condition: " + e.Err.Error() }

// Unwrap gives the cause.
func (e *CompileError) Unwrap() error { return e.Err }

// NewConditions makes an evaluator.
func NewConditions(o ConditionOptions) (*Conditions, error) {
	s, err := document.ForConditions()
	if err != nil {
		return nil, err
	}
	c := &Conditions{timeout: o.Timeout, shape: s, most: o.Modules, known: map[[sha256.Size]byte]*list.Element{}, recent: list.New()}
	if c.timeout <= 0 {
		c.timeout = DefaultConditionTimeout
	}
	if c.most <= 0 {
		c.most = defaultConditionModules
	}
	return c, nil
}

// Compile says why a module can never be evaluated, as a *CompileError.
func (c *Conditions) Compile(ctx context.Context, module string) error {
	_, err := c.compiled(ctx, module)
	return err
}

func (c *Conditions) compiled(ctx context.Context, module string) (*compiledCondition, error) {
	compiled, err := c.find(ctx, module).compile()
	if err != nil {
		return nil, &CompileError{err}
	}
	return compiled, nil
}

// Evaluate says whether the rule allow of a module, in whatever package, holds
// for an input, and what its rule message says, if it has one. An error, such
// as a rule that is undefined, never counts as holding; a *CompileError is that
// none ever will be.
func (c *Conditions) Evaluate(ctx context.Context, module string, input json.RawMessage, now time.Time) (passed bool, message string, err error) {
	compiled, err := c.compiled(ctx, module)
	if err != nil {
		return false, "", err
	}
	v, err := c.shape.Read(input, compiled.unseen)
	if err != nil {
		return false, "", err
	}
	t, err := compiled.allow.eval(ctx, v, now, c.timeout)
	if err != nil {
		return false, "", fmt.Errorf("evaluate allow: %w", err)
	}
	allow, ok := t.Value.(ast.Boolean)
	if !ok {
		return false, "", fmt.Errorf("evaluate allow: it is %s, want a boolean", ast.ValueName(t.Value))
	}
	message, err = compiled.say(ctx, v, now, c.timeout)
	if err != nil {
		return false, "", fmt.Errorf("evaluate message: %w", err)
	}
	return bool(allow), message, nil
}

// say gives the message. One that is undefined is none: rules often have
// something to say in one case only.
func (c *compiledCondition) say(ctx context.Context, input ast.Value, now time.Time, most time.Duration) (string, error) {
	if c.message == nil {
		return "", nil
	}
	t, err := c.message.eval(ctx, input, now, most)
	if errors.Is(err, errUndefined) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	s, ok := t.Value.(ast.String)
	if !ok {
		return "", fmt.Errorf("it is %s, want a string", ast.ValueName(t.Value))
	}
	return cut(string(s), maxMessageText), nil
}

// find gives the condition of a module. It is compiled by whoever asks first,
// and the others wait for that; the lock is not held meanwhile.
func (c *Conditions) find(ctx context.Context, module string) *condition {
	ctx = context.WithoutCancel(ctx) // what comes of it is for all who ask
	hash := sha256.Sum256([]byte(module))
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.known[hash]; ok {
		c.recent.MoveToFront(e)
		return valueOf(e)
	}
	found := &condition{hash: hash, size: min(len(module), maxConditionBytes), compile: sync.OnceValues(func() (*compiledCondition, error) { return compileCondition(ctx, module, c.shape) })}
	c.known[hash] = c.recent.PushFront(found)
	c.kept += found.size
	for c.recent.Len() > c.most || c.kept > maxKeptBytes && c.recent.Len() > 1 {
		last := valueOf(c.recent.Back())
		delete(c.known, last.hash)
		c.recent.Remove(c.recent.Back())
		c.kept -= last.size
	}
	return found
}

func valueOf(e *list.Element) *condition {
	found, _ := e.Value.(*condition)
	return found
}

// compileCondition takes a time that the length of the text bounds, and how deeply
// it is nested.
func compileCondition(ctx context.Context, module string, s *document.Shape) (compiled *compiledCondition, err error) {
	defer caught(&err)
	if len(module) > maxConditionBytes {
		return nil, fmt.Errorf("it has %d bytes, at most %d are taken", len(module), maxConditionBytes)
	}
	const name = "condition"
	caps := conditionCapabilities()
	modules, err := parse(map[string]string{name: module}, caps)
	if err != nil {
		return nil, err
	}
	if err := bounds.Nesting(modules[name]); err != nil {
		return nil, err
	}
	path := modules[name].Package.Path
	c := newCompiler(caps, s).WithStrict(false).
		WithStageAfterID(ast.StageResolveRefs, ast.CompilerStageDefinition{Name: "Bound", MetricName: "bound", Stage: bounds.Replace}).
		WithStageAfterID(ast.StageCheckRecursion, ast.CompilerStageDefinition{Name: "Expansion", MetricName: "expansion", Stage: bounds.Expansion})
	if c.Compile(modules); c.Failed() {
		return nil, tell(c.Errors)
	}
	has := func(rule string) (string, bool) {
		ref := path.Append(ast.StringTerm(rule))
		return ref.String(), len(c.GetRulesExact(ref)) > 0
	}
	allow, ok := has("allow")
	if !ok {
		return nil, fmt.Errorf("package %s has no rule allow", path)
	}
	compiled = &compiledCondition{unseen: s.Unseen(c)}
	if compiled.allow, err = prepare(ctx, c, allow, bounds.Functions()); err != nil {
		return nil, err
	}
	if message, ok := has("message"); ok {
		compiled.message, err = prepare(ctx, c, message, bounds.Functions())
	}
	return compiled, err
}
