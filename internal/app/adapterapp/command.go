package adapterapp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fleetloop/fleetloop/adapter"
)

const (
	defaultCommandTimeout = time.Minute
	commandStopTimeout    = 5 * time.Second // from SIGTERM to SIGKILL
	maxStderr             = 1024            // bytes of the end of the standard error, for messages
)

var errCommandTimeout = errors.New("the timeout of the command expired")

// A commandAction runs a program.
type commandAction struct {
	args      []func(*scope) (string, error)
	isExpr    []bool
	env       func(*scope) (map[string]string, error)
	inherited []string
	stdin     value
	hasStdin  bool
	timeout   time.Duration
	permanent []int
}

func (c *compiler) compileCommand(key string, f Command, lookupEnv func(string) (string, bool)) action {
	a := &commandAction{
		env:   c.compileTexts(key+".env", f.Env, c.secret),
		stdin: c.compileTree(key+".stdin", f.Stdin.Value, c.secret), hasStdin: f.Stdin.Value != nil,
		timeout: f.Timeout, permanent: f.PermanentExitCodes,
	}
	if a.timeout == 0 {
		a.timeout = defaultCommandTimeout
	}
	for _, name := range []string{"PATH", "HOME", "TMPDIR"} {
		if v, ok := lookupEnv(name); ok {
			a.inherited = append(a.inherited, name+"="+v)
		}
	}
	if len(f.Args) == 0 {
		c.recordError(key, errors.New("args is missing"))
	}
	for i, text := range f.Args {
		a.args = append(a.args, c.compileText(fmt.Sprintf("%s.args[%d]", key, i), text, c.resource))
		a.isExpr = append(a.isExpr, strings.HasPrefix(text, expressionPrefix))
	}
	if len(f.Args) > 0 && a.isExpr[0] {
		c.recordError(key+".args[0]", errors.New("the program must be a text, not an expression"))
	}
	return a
}

// prepareStep implements action.
func (a *commandAction) prepareStep(s *scope) (step, error) {
	out := commandStep{action: a}
	options := true // whether the program may still take an argument as an option
	for i, arg := range a.args {
		text, err := arg(s)
		if err != nil {
			return nil, err
		}
		if a.isExpr[i] && options && strings.HasPrefix(text, "-") {
			return nil, fmt.Errorf("the argument %d begins with -, so that the program could read it as an option: put -- before it", i)
		}
		if strings.Contains(text, "\x00") {
			return nil, fmt.Errorf("the argument %d has a zero byte", i)
		}
		options = options && text != "--"
		out.args = append(out.args, text)
	}
	env, err := a.env(s)
	if err != nil {
		return nil, err
	}
	out.env = env
	if a.hasStdin {
		if out.stdin, err = a.stdin(s); err == nil {
			out.encoded, err = encodeLimitedJSON(out.stdin)
		}
	}
	return out, err
}

type commandStep struct {
	action  *commandAction
	args    []string
	env     map[string]string
	stdin   any
	encoded []byte
}

// describeForDryRun implements step.
func (c commandStep) describeForDryRun() map[string]any {
	out := map[string]any{"args": c.args, "env": c.env}
	if c.action.hasStdin {
		out["stdin"] = c.stdin
	}
	return map[string]any{"command": out}
}

// runStep implements step. All processes of the command have ended when it returns.
func (c commandStep) runStep(ctx context.Context) (map[string]any, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.action.timeout, errCommandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.args[0], c.args[1:]...) //nolint:gosec // the program is a text of the file
	cmd.Env = slices.Clone(c.action.inherited)
	for name, v := range c.env {
		cmd.Env = append(cmd.Env, name+"="+v)
	}
	stdout, stderr := &limitedBuffer{}, &tailBuffer{}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(c.encoded), stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = commandStopTimeout
	err := cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what the program left behind
	}
	name := filepath.Base(c.args[0])
	if stdout.err != nil { // and the program ended by SIGPIPE
		err = stdout.err
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && context.Cause(ctx) == nil {
		err = fmt.Errorf("%s: %w%s", name, exit, stderr.colonAndLastLine())
		if slices.Contains(c.action.permanent, exit.ExitCode()) {
			err = adapter.Permanent(err)
		}
		return nil, err
	}
	if err != nil {
		return nil, addContextCause(ctx, fmt.Errorf("run %s: %w", name, err))
	}
	return map[string]any{"text": string(stdout.text), "json": decodeJSONOrNil(stdout.text)}, nil
}

// A limitedBuffer refuses more than maxOutput bytes.
type limitedBuffer struct {
	text []byte
	err  error
}

// Write implements io.Writer.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	if len(b.text)+len(p) > maxOutput {
		b.err = fmt.Errorf("the output exceeds %d bytes", maxOutput)
		return 0, b.err
	}
	b.text = append(b.text, p...)
	return len(p), nil
}

// A tailBuffer keeps the last maxStderr bytes.
type tailBuffer struct{ text []byte }

// Write implements io.Writer.
func (b *tailBuffer) Write(p []byte) (int, error) {
	b.text = append(b.text, p...)
	b.text = b.text[max(0, len(b.text)-maxStderr):]
	return len(p), nil
}

// colonAndLastLine returns the last line as the end of a message.
func (b *tailBuffer) colonAndLastLine() string {
	text := strings.TrimSpace(strings.ToValidUTF8(string(b.text), ""))
	if text == "" {
		return ""
	}
	return ": " + text[strings.LastIndexByte(text, '\n')+1:]
}
