// Package runner is the program in the container of a Job. It executes a plan as the service
// account of its Pod and writes the result as the container's termination message.
//
// The plan is in the environment, see Input. No shell is used and no command is
// constructed. The runner ends before its Pod is killed: at its deadline, or when it is asked
// to stop, it stops between two requests and reports its result. Its exit code shows the Job
// whether another attempt may succeed.
package runner

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/version"
)

const (
	// reportTimeout limits how long an action may take to report its result after its
	// deadline or a stop request. The grace period of the Pod is ten seconds.
	reportTimeout = 7 * time.Second

	// kubeconfig is the variable with the path of a kubeconfig file. If it is unset,
	// the in-cluster configuration is used.
	kubeconfig = "KUBECONFIG"

	resultVersion = 1 // required by action.DecodeResult
	userAgent     = "fleetloop-action-runner"
)

// Run executes the plan in env and returns the exit code. It writes progress to out in the style of
// kubectl, and the result to the file terminationLog. The end of ctx asks the action to stop.
//
// An action that does not stop is abandoned, so the process has to exit after Run.
func Run(ctx context.Context, lookupEnv func(string) (string, bool), args []string, out io.Writer, terminationLog string) (exitCode int) {
	if slices.ContainsFunc(args, func(a string) bool { return a == "-h" || a == "-help" || a == "--help" }) {
		_ = (&invocation{out: out}).parseArguments(args) // prints the usage
		return int(action.CodeOK)
	}
	if slices.ContainsFunc(args, func(a string) bool { return a == "version" || a == "-version" || a == "--version" }) {
		_, _ = io.WriteString(out, version.Get().Text("action-runner"))
		return int(action.CodeOK)
	}
	result := executePlanFromEnv(ctx, lookupEnv, args, out)
	const mode = 0o600 // in a container, the file already exists with its own mode
	if err := os.WriteFile(terminationLog, []byte(action.EncodeBounded(result)), mode); err != nil {
		_, _ = fmt.Fprintf(out, "error: write result: %v\n", err)
	}
	return int(result.Code)
}

func executePlanFromEnv(ctx context.Context, lookupEnv func(string) (string, bool), args []string, out io.Writer) action.Result {
	w := invocation{started: time.Now().UTC(), out: out}
	err := w.parseArguments(args)
	if err != nil {
		return w.printAndReturnFailure(action.CodeInvalid, err.Error())
	}
	w.input, err = ReadInput(lookupEnv)
	if err != nil {
		return w.printAndReturnFailure(action.CodeInvalid, fmt.Sprintf("read the plan: %v", err))
	}
	client, err := newClient(lookupEnv)
	if err != nil { // the mounted files may be late
		return w.printAndReturnFailure(action.CodeTransient, err.Error())
	}
	return w.executeUntilDeadline(ctx, client)
}

// newClient creates a client for the account of the Pod.
func newClient(lookupEnv func(string) (string, bool)) (action.Client, error) {
	var cfg *rest.Config
	var err error
	if path, _ := lookupEnv(kubeconfig); path != "" {
		cfg, err = clientcmd.BuildConfigFromFlags("", path)
	} else {
		cfg, err = rest.InClusterConfig()
	}
	if err != nil {
		return action.Client{}, fmt.Errorf("find the API server: %w", err)
	}
	cfg.UserAgent = userAgent
	cfg.QPS = -1 // a plan sends few requests, and the API server limits them itself
	return action.NewClient(cfg)
}

// invocation is one run of the runner.
type invocation struct {
	started time.Time
	dryRun  bool
	input   Input
	out     io.Writer // for progress
}

// parseArguments parses the arguments. It accepts only the spelling of kubectl.
func (w *invocation) parseArguments(args []string) error {
	const none, server = "none", "server"
	flags := flag.NewFlagSet("action-runner", flag.ContinueOnError)
	flags.SetOutput(w.out)
	flags.Usage = func() {
		_, _ = fmt.Fprint(w.out, "Run the plan in the environment. Pods of executions run this program.\n\n"+
			"Usage:\n  action-runner [flags]\n\nFlags:\n")
		flags.PrintDefaults()
	}
	flags.Bool("version", false, "print the version and exit")
	mode := flags.String("dry-run", none, "none, or server: send all requests with dryRun=All and change nothing")
	if err := flags.Parse(args); err != nil {
		return err
	}
	w.dryRun = *mode == server
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("unknown argument %q: the plan is read from the environment", flags.Arg(0))
	case *mode != none && *mode != server:
		return fmt.Errorf("--dry-run=%s: must be none or server", *mode)
	}
	return nil
}

// printAndReturnFailure returns a result with only a code and a message, and prints the message.
func (w *invocation) printAndReturnFailure(code action.Code, message string) action.Result {
	_, _ = fmt.Fprintf(w.out, "error: %s\n", message)
	result := action.Result{
		Version: resultVersion,
		Code:    code,
		Message: message,
		Attempt: w.input.Attempt,
		Started: w.started,
		Ended:   time.Now().UTC(),
	}
	if w.input.Plan != nil {
		result.PlanHash = w.input.Plan.Hash
	}
	if w.dryRun {
		result.DryRun = &v1alpha1.DryRunResults{Warnings: []string{}, Errors: []string{message}}
	}
	return result
}

var errStopRequested = errors.New("the runner was asked to stop")

// executeUntilDeadline executes the plan up to its deadline, plus a short time to report its result. An
// action that has not ended by then is abandoned.
func (w *invocation) executeUntilDeadline(ctx context.Context, client action.Client) action.Result {
	deadline := w.started.Add(w.input.Within)
	results := make(chan action.Result, 1) // buffered, because nobody reads the result of an abandoned action
	go func() { results <- w.execute(ctx, client, deadline) }()

	code := action.CodeDeadline
	why := fmt.Errorf("the deadline of %s has passed", w.input.Within)
	abandon := time.NewTimer(time.Until(deadline) + reportTimeout)
	defer abandon.Stop()
	stopRequested := ctx.Done()
	for {
		select {
		case result := <-results:
			// The deadline prevented the remaining steps.
			if result.Code == action.CodePartial && !result.Ended.Before(deadline) {
				result.Code = action.CodeDeadline
			}
			return result
		case <-stopRequested:
			stopRequested = nil // a nil channel blocks, so that this case runs once
			if time.Now().Before(deadline) {
				code = action.CodeCancelled
				why = errStopRequested
				abandon.Reset(reportTimeout)
			}
		case <-abandon.C:
			message := fmt.Sprintf("%v, and the action did not stop: the result is unknown", why)
			result := w.printAndReturnFailure(code, message)
			result.Changed = !w.dryRun // the target may have changed
			return result
		}
	}
}

// execute runs the plan, or its dry run.
func (w *invocation) execute(ctx context.Context, client action.Client, deadline time.Time) action.Result {
	run := action.Run{
		Subject:  w.input.Subject,
		Attempt:  w.input.Attempt,
		Deadline: deadline,
		Output:   w.out,
	}
	if w.dryRun {
		return action.DryRun(ctx, client, w.input.Plan, run)
	}
	return action.Execute(ctx, client, w.input.Plan, run)
}
