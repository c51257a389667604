package policy

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
)

const (
	// DecisionPath is the document that a policy set must define.
	DecisionPath = "data.fleetloop.safety.decision"

	// DefaultTimeout is the default timeout of one decision.
	DefaultTimeout = time.Second

	// DefaultTrialCPUTime is the default of Options.TrialCPUTime.
	DefaultTrialCPUTime = 30 * time.Second

	maxFiles     = 128
	maxFileBytes = 256 << 10
	maxSetBytes  = 1 << 20 // the capacity of a ConfigMap
	maxErrors    = 10      // reported errors of a compilation
)

// Options configure a Set. The zero value enforces, within DefaultTimeout.
type Options struct {
	Mode    Mode
	Timeout time.Duration // of one decision; zero means DefaultTimeout

	// TrialCPUTime limits the CPU time of the set's tests and canaries. It is CPU time of the
	// process, because a pause of the process has nothing to do with the set. Zero means
	// DefaultTrialCPUTime.
	TrialCPUTime time.Duration
}

func (o Options) withDefaults() Options {
	if o.Mode == "" {
		o.Mode = Enforce
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.TrialCPUTime <= 0 {
		o.TrialCPUTime = DefaultTrialCPUTime
	}
	return o
}

// A Set is a compiled set of policies that passes its tests and denies the canaries. It is safe for
// concurrent use.
type Set struct {
	hash    string
	names   []string
	tests   int
	mode    Mode
	shape   *inputShape
	unseen  *inputShape
	query   *preparedQuery
	timeout time.Duration
}

// CompileAndTest compiles a set of files with the names of a ConfigMap's keys. *.rego is a module,
// *_test.rego one with tests of the others, *.v0.rego (and *_test.v0.rego) one in the syntax before
// version 1. The error names file, line and test; it wraps ErrUnfinished if the tests did not run
// to completion.
func CompileAndTest(ctx context.Context, files map[string]string, options Options) (*Set, error) {
	options = options.withDefaults()
	if _, err := ParseMode(string(options.Mode)); err != nil {
		return nil, err
	}
	if err := checkFileNamesAndSizes(files); err != nil {
		return nil, fmt.Errorf("read policies: %w", err)
	}
	s := &Set{hash: hashFiles(files), names: slices.Sorted(maps.Keys(files)), mode: options.Mode, timeout: options.Timeout}
	var err error
	if s.shape, err = newPolicyInputShape(); err != nil {
		return nil, err
	}
	compiler, err := compileWithoutTests(files, s.shape)
	if err != nil {
		return nil, fmt.Errorf("compile policies: %w", err)
	}
	s.unseen = s.shape.FindTargetObjectIfUnreferenced(compiler)
	if s.query, err = prepareQuery(ctx, compiler, DecisionPath); err != nil {
		return nil, fmt.Errorf("compile policies: %w", err)
	}
	ctx, done := withProcessCPUTimeLimit(ctx, options.TrialCPUTime)
	defer done()
	if s.tests, err = runPolicyTests(ctx, files, s.shape); err != nil {
		return nil, fmt.Errorf("test policies: %w", wrapIfContextEnded(ctx, err))
	}
	if err := s.checkCanariesDenied(ctx); err != nil {
		return nil, fmt.Errorf("self-test policies: %w", wrapIfContextEnded(ctx, err))
	}
	return s, nil
}

// wrapIfContextEnded adds why ctx ended to an error that it caused. The result wraps ErrUnfinished.
func wrapIfContextEnded(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case cause == nil:
		return err
	case !errors.Is(cause, ErrUnfinished):
		cause = fmt.Errorf("%w: %w", ErrUnfinished, cause)
	}
	return fmt.Errorf("%w: %w", cause, err)
}

// ContentHash returns the SHA-256 of the names and texts of all files, in hexadecimal.
func (s *Set) ContentHash() string { return s.hash }

// Decide returns the decision about an input, see ExamplePolicyInput. An error is never a permission.
func (s *Set) Decide(ctx context.Context, input json.RawMessage, now time.Time) (Decision, error) {
	d, _, err := s.decideAndReturnInput(ctx, input, now)
	return d, err
}

// decideAndReturnInput is like Decide and also returns the parsed input, for metrics.
func (s *Set) decideAndReturnInput(ctx context.Context, input []byte, now time.Time) (d Decision, parsed ast.Value, err error) {
	v, err := s.shape.ParseAndCheckInput(input, s.unseen)
	if err != nil {
		return Decision{}, nil, err
	}
	raw, err := s.evaluateDecision(ctx, v, now, s.timeout)
	if err != nil {
		return Decision{}, v, fmt.Errorf("evaluate %s: %w", DecisionPath, err)
	}
	return raw.applyMode(s.mode), v, nil
}

// evaluateDecision returns the set's decision, regardless of the mode. timeout limits the
// query; zero means that only ctx limits it.
func (s *Set) evaluateDecision(ctx context.Context, input ast.Value, now time.Time, timeout time.Duration) (Decision, error) {
	t, err := s.query.evaluateQuery(ctx, input, now, timeout)
	if err != nil {
		return Decision{}, err
	}
	return decodeDecision(t.Value)
}

// hashFiles hashes the lengths too, so that no two different sets have the same encoding.
func hashFiles(files map[string]string) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for _, part := range []string{name, files[name]} {
			var size [8]byte
			binary.BigEndian.PutUint64(size[:], uint64(len(part)))
			_, _ = h.Write(size[:]) // a hash accepts every write
			_, _ = h.Write([]byte(part))
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

func checkFileNamesAndSizes(files map[string]string) error {
	if len(files) > maxFiles {
		return fmt.Errorf("there are %d files, at most %d are allowed", len(files), maxFiles)
	}
	total := 0
	for _, name := range slices.Sorted(maps.Keys(files)) {
		size := len(files[name])
		total += size
		switch {
		case !strings.HasSuffix(name, ".rego"):
			return fmt.Errorf("%q is not a policy file: the name must end in .rego, _test.rego or .v0.rego", name)
		case size > maxFileBytes:
			return fmt.Errorf("%s has %d bytes, at most %d are allowed", name, size, maxFileBytes)
		case total > maxSetBytes:
			return fmt.Errorf("all files together have more than %d bytes", maxSetBytes)
		}
	}
	return nil
}

func isTestFile(name string) bool {
	return strings.HasSuffix(name, "_test.rego") || strings.HasSuffix(name, "_test.v0.rego")
}

// parseModules parses files into modules. They belong to the compiler that uses them, because it
// modifies them.
func parseModules(files map[string]string, capabilities *ast.Capabilities) (map[string]*ast.Module, error) {
	modules := map[string]*ast.Module{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(files)) {
		version := ast.RegoV1
		if strings.HasSuffix(name, ".v0.rego") {
			version = ast.RegoV0
		}
		m, err := ast.ParseModuleWithOpts(name, files[name], ast.ParserOptions{RegoVersion: version, Capabilities: capabilities})
		switch {
		case err != nil:
			errs = append(errs, shortenCompileErrors(err))
		case m == nil:
			errs = append(errs, fmt.Errorf("%s is empty", name))
		default:
			modules[name] = m
		}
	}
	return modules, errors.Join(errs...)
}

// compileWithoutTests compiles the policies without the tests, so that no test can change a decision.
func compileWithoutTests(files map[string]string, shape *inputShape) (*ast.Compiler, error) {
	policies := maps.Clone(files)
	maps.DeleteFunc(policies, func(name, _ string) bool { return isTestFile(name) })
	caps := newPolicyCapabilities()
	modules, err := parseModules(policies, caps)
	if err != nil {
		return nil, err
	}
	c := newCompiler(caps, shape)
	if c.Compile(modules); c.Failed() {
		return nil, shortenCompileErrors(c.Errors)
	}
	if len(c.GetRulesExact(ast.MustParseRef(DecisionPath))) == 0 {
		return nil, fmt.Errorf("no module defines the rule %s", DecisionPath)
	}
	return c, nil
}

// newCompiler returns a compiler that ignores annotations: with those, a module could choose
// another schema.
func newCompiler(capabilities *ast.Capabilities, shape *inputShape) *ast.Compiler {
	return ast.NewCompiler().WithCapabilities(capabilities).WithSchemas(shape.ToSchemaSet()).WithStrict(true)
}

// shortenCompileErrors shortens compilation errors to a few lines, each with file and line.
func shortenCompileErrors(err error) error {
	var all ast.Errors
	if !errors.As(err, &all) {
		return err
	}
	lines := make([]error, 0, min(len(all), maxErrors)+1)
	for i, e := range all {
		if i == maxErrors {
			lines = append(lines, fmt.Errorf("and %d more", len(all)-i))
			break
		}
		lines = append(lines, e)
	}
	return errors.Join(lines...)
}
