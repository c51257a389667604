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

	"github.com/fleetloop/fleetloop/internal/policy/document"
)

const (
	// DecisionPath is the document that a set of policies must define.
	DecisionPath = "data.fleetloop.safety.decision"

	// DefaultTimeout bounds one decision.
	DefaultTimeout = time.Second

	// DefaultTrialCPUTime is what an empty Options.TrialCPUTime means.
	DefaultTrialCPUTime = 30 * time.Second

	maxFiles     = 128
	maxFileBytes = 256 << 10
	maxSetBytes  = 1 << 20 // what a ConfigMap holds
	maxErrors    = 10      // of a compilation that are told
)

// Options are how a set decides. The zero value enforces, within
// DefaultTimeout.
type Options struct {
	Mode    Mode
	Timeout time.Duration // of one decision; zero is DefaultTimeout

	// TrialCPUTime bounds what the set is tried with, its tests and the canaries, in
	// CPU time of the process: a pause of it says nothing of the set. Zero is
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

// A Set is a set of policies that compiles, passes its tests and denies the
// canaries. It is safe for concurrent use.
type Set struct {
	hash    string
	names   []string
	tests   int
	mode    Mode
	shape   *document.Shape
	unseen  *document.Shape
	query   *query
	timeout time.Duration
}

// Compile makes a set of files, whose names are as in a ConfigMap: *.rego is a
// module, *_test.rego one with tests of the others, *.v0.rego (and
// *_test.v0.rego) one in the syntax before version 1. The error names file,
// line and test; it wraps ErrUnfinished if the tests were not run to their end.
func Compile(ctx context.Context, files map[string]string, o Options) (*Set, error) {
	o = o.withDefaults()
	if _, err := ParseMode(string(o.Mode)); err != nil {
		return nil, err
	}
	if err := checkFiles(files); err != nil {
		return nil, fmt.Errorf("read policies: %w", err)
	}
	s := &Set{hash: hashOf(files), names: slices.Sorted(maps.Keys(files)), mode: o.Mode, timeout: o.Timeout}
	var err error
	if s.shape, err = document.ForPolicies(); err != nil {
		return nil, err
	}
	compiler, err := compilePolicies(files, s.shape)
	if err != nil {
		return nil, fmt.Errorf("compile policies: %w", err)
	}
	s.unseen = s.shape.Unseen(compiler)
	if s.query, err = prepareQuery(ctx, compiler, DecisionPath); err != nil {
		return nil, fmt.Errorf("compile policies: %w", err)
	}
	ctx, done := withCPUTime(ctx, o.TrialCPUTime)
	defer done()
	if s.tests, err = runTests(ctx, files, s.shape); err != nil {
		return nil, fmt.Errorf("test policies: %w", unfinished(ctx, err))
	}
	if err := s.runCanaries(ctx); err != nil {
		return nil, fmt.Errorf("self-test policies: %w", unfinished(ctx, err))
	}
	return s, nil
}

// unfinished is an error as ErrUnfinished if ctx ended, which is then why.
func unfinished(ctx context.Context, err error) error {
	if ctx.Err() == nil || errors.Is(err, ErrUnfinished) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnfinished, err)
}

// Hash is the SHA-256 of the names and texts of all files, in hexadecimal.
func (s *Set) Hash() string { return s.hash }

// Decide decides about an input, see ExampleInput. An error means that there is
// no decision, which is never a leave.
func (s *Set) Decide(ctx context.Context, input json.RawMessage, now time.Time) (Decision, error) {
	d, _, err := s.decideWithInput(ctx, input, now)
	return d, err
}

// decideWithInput gives the input as well, for those who count.
func (s *Set) decideWithInput(ctx context.Context, input []byte, now time.Time) (Decision, ast.Value, error) {
	v, err := s.shape.Read(input, s.unseen)
	if err != nil {
		return Decision{}, nil, err
	}
	raw, err := s.evaluateDecision(ctx, v, now, s.timeout)
	if err != nil {
		return Decision{}, v, fmt.Errorf("evaluate %s: %w", DecisionPath, err)
	}
	return raw.inMode(s.mode), v, nil
}

// evaluateDecision gives the decision as the set has it, in whatever mode. It may take most;
// zero leaves that to ctx.
func (s *Set) evaluateDecision(ctx context.Context, input ast.Value, now time.Time, most time.Duration) (Decision, error) {
	t, err := s.query.evaluateQuery(ctx, input, now, most)
	if err != nil {
		return Decision{}, err
	}
	return decodeDecision(t.Value)
}

// hashOf covers lengths, so that no text can pass for another with its name.
func hashOf(files map[string]string) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for _, part := range []string{name, files[name]} {
			var size [8]byte
			binary.BigEndian.PutUint64(size[:], uint64(len(part)))
			_, _ = h.Write(size[:]) // a hash takes everything
			_, _ = h.Write([]byte(part))
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

func checkFiles(files map[string]string) error {
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

func isTest(name string) bool {
	return strings.HasSuffix(name, "_test.rego") || strings.HasSuffix(name, "_test.v0.rego")
}

// parseModules makes modules of files. They belong to whoever compiles them: a
// compiler writes into them.
func parseModules(files map[string]string, caps *ast.Capabilities) (map[string]*ast.Module, error) {
	modules := map[string]*ast.Module{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(files)) {
		version := ast.RegoV1
		if strings.HasSuffix(name, ".v0.rego") {
			version = ast.RegoV0
		}
		m, err := ast.ParseModuleWithOpts(name, files[name], ast.ParserOptions{RegoVersion: version, Capabilities: caps})
		switch {
		case err != nil:
			errs = append(errs, explainErrors(err))
		case m == nil:
			errs = append(errs, fmt.Errorf("%s is empty", name))
		default:
			modules[name] = m
		}
	}
	return modules, errors.Join(errs...)
}

// compilePolicies compiles what decides: tests are not part of it, so that none
// of them can change a decision.
func compilePolicies(files map[string]string, s *document.Shape) (*ast.Compiler, error) {
	policies := maps.Clone(files)
	maps.DeleteFunc(policies, func(name, _ string) bool { return isTest(name) })
	caps := policyCapabilities()
	modules, err := parseModules(policies, caps)
	if err != nil {
		return nil, err
	}
	c := newCompiler(caps, s)
	if c.Compile(modules); c.Failed() {
		return nil, explainErrors(c.Errors)
	}
	if len(c.GetRulesExact(ast.MustParseRef(DecisionPath))) == 0 {
		return nil, fmt.Errorf("no module defines the rule %s", DecisionPath)
	}
	return c, nil
}

// newCompiler does not look at annotations: with those, a module could give
// itself another schema.
func newCompiler(caps *ast.Capabilities, s *document.Shape) *ast.Compiler {
	return ast.NewCompiler().WithCapabilities(caps).WithSchemas(s.Schemas()).WithStrict(true)
}

// explainErrors puts what is wrong into few lines, each with file and line.
func explainErrors(err error) error {
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
