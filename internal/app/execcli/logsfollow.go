package execcli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/kube/executions"
)

// A logFollower prints the logs of an execution while it runs. After a lost connection it continues behind the
// last printed line, of which the server says the time.
type logFollower struct {
	*logReader

	read  map[types.UID]*podLog
	noted string // the newest note; empty after a line of a log
}

// maxLogRetries is the maximum number of consecutive retries for the logs of an execution that has ended.
const maxLogRetries = 5

// A podLog is how far the log of a Pod is printed.
type podLog struct {
	begun    bool      // a line is printed
	complete bool      // all lines are printed
	lastLine time.Time // when it was written; zero if the server does not say it
}

func newLogFollower(l *logReader) *logFollower {
	return &logFollower{logReader: l, read: map[types.UID]*podLog{}}
}

// followLogsUntilSettled prints logs until the execution has ended and all of them are printed, or ctx ends.
func (l *logFollower) followLogsUntilSettled(ctx context.Context, ke *v1alpha1.KubernetesExecution) error {
	failures := 0 // in a row
	for {
		ended := executions.IsSettled(ke) // before the Pods are listed, so that none is missed
		pods, err := l.listPods(ctx, ke)
		if err == nil {
			err = l.followPodsSequentially(ctx, pods)
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && ended && len(l.read) == 0:
			return noPodsError(ke)
		case err == nil && ended:
			return nil
		case err == nil:
			failures = 0
			l.noteWaitingForLogs(ke, pods)
		case ended && failures == maxLogRetries: // its node may never come back
			return err
		case isTransient(err) || errors.Is(err, errLogInterrupted):
			failures++
			l.note("warning: " + err.Error() + "; retrying")
		default:
			return err
		}
		ke, err = getSameExecutionWithRetry(ctx, l.cluster, ke.Name, ke.UID)
		switch {
		case errors.Is(err, errGone):
			l.note("Execution " + ke.Name + " was deleted.")
			return nil
		case err != nil:
			return err
		}
	}
}

// noteWaitingForLogs says what no line is printed for.
func (l *logFollower) noteWaitingForLogs(ke *v1alpha1.KubernetesExecution, pods []corev1.Pod) {
	text := "its phase is " + cmp.Or(string(ke.Status.Phase), "new")
	for i := range pods {
		if !hasStarted(&pods[i]) {
			text = fmt.Sprintf("Pod %s has not started", pods[i].Name)
		}
	}
	l.note(fmt.Sprintf("Waiting for logs of execution %s: %s.", ke.Name, text))
}

// note prints a text on standard error, unless it is the newest one.
func (l *logFollower) note(text string) {
	if text != l.noted {
		l.noted = text
		l.printToStderr("%s", text)
	}
}

// followPodsSequentially prints the logs of the Pods that have started and are not complete, each until its end.
func (l *logFollower) followPodsSequentially(ctx context.Context, pods []corev1.Pod) error {
	for i := range pods {
		if !hasStarted(&pods[i]) {
			continue
		}
		state := l.read[pods[i].UID]
		if state == nil {
			state = &podLog{}
			l.read[pods[i].UID] = state
		}
		if state.complete {
			continue
		}
		if err := l.followPodOnce(ctx, &pods[i], state); err != nil {
			return err
		}
	}
	return nil
}

// errLogInterrupted means that a log can be continued.
var errLogInterrupted = errors.New("connection lost")

// followPodOnce prints the log of a Pod until the end of the stream. The log is complete if the container had ended
// before. Otherwise, servers end streams for other reasons, and the next call continues.
func (l *logFollower) followPodOnce(ctx context.Context, pod *corev1.Pod, state *podLog) error {
	params := url.Values{}
	switch {
	case !state.begun:
		params = l.o.tailAndSinceParams()
	case !state.lastLine.IsZero():
		params.Set("sinceTime", state.lastLine.UTC().Format(time.RFC3339))
	}
	params.Set("follow", "true")
	params.Set("timestamps", "true") // to continue
	stream, err := l.openLog(ctx, pod, params)
	switch {
	case apierrors.IsNotFound(err):
		l.printToStderr("Pod %s was deleted.", pod.Name)
		state.complete = true
		return nil
	case err != nil:
		return l.explainLogError(err, pod)
	}
	defer func() { _ = stream.Close() }() // it was only read
	connectionLost, err := l.printNewLines(stream, pod, state)
	canContinue := !state.begun || !state.lastLine.IsZero()
	switch {
	case err == nil:
		state.complete = hasEnded(pod) || !canContinue
		return nil
	case !connectionLost:
		return err
	case canContinue:
		return fmt.Errorf("%w: %w", errLogInterrupted, err)
	}
	return cli.NewError(err, cli.CodeFailed, "run the command again with --since or --tail to see the rest")
}

// printNewLines prints the lines behind the last one as they arrive. connectionLost is true if the error is one of
// reading.
func (l *logFollower) printNewLines(from io.Reader, pod *corev1.Pod, state *podLog) (connectionLost bool, err error) {
	lines := bufio.NewReader(from)
	printedUntil := state.lastLine
	for {
		line, err := lines.ReadString('\n')
		isComplete := err == nil || errors.Is(err, io.EOF)
		if line != "" && isComplete {
			if err := l.printNewLine(pod, state, printedUntil, line); err != nil {
				return false, err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return false, nil
		case err != nil:
			return true, fmt.Errorf("read the log of Pod %s: %w", pod.Name, err)
		}
	}
}

// timestampLayout is the layout of the times that kubelets put before lines.
const timestampLayout = "2006-01-02T15:04:05.000000000Z07:00"

// printNewLine prints a line that is newer than the lines that were printed before the stream began.
func (l *logFollower) printNewLine(pod *corev1.Pod, state *podLog, printedUntil time.Time, line string) error {
	stamp, text, _ := strings.Cut(line, " ")
	at, noTime := time.Parse(timestampLayout, stamp)
	switch {
	case noTime != nil: // the server does not say it, so the line is printed as it is
	case !at.After(printedUntil):
		return nil
	case !l.o.timestamps:
		line = text
	}
	if err := l.printLine(pod, line); err != nil {
		return err
	}
	state.begun = true
	l.noted = ""
	if noTime == nil {
		state.lastLine = at
	}
	return nil
}
