package processnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A container is the state of a container: it waits, runs (proc), or has ended.
type container struct {
	spec     *corev1.Container
	proc     *SandboxProcess
	probes   *probes
	killedAt time.Time // time of a failed liveness probe; zero otherwise
	startAt  metav1.Time
	ended    *corev1.ContainerStateTerminated
	last     *corev1.ContainerStateTerminated // of the previous run
	restarts int32
	waiting  corev1.ContainerStateWaiting

	notBefore time.Time     // earliest restart
	backoff   time.Duration // next delay of a restart
}

// newContainer returns a container in the state of its last reported status.
func (w *worker) newContainer(spec *corev1.Container, statuses []corev1.ContainerStatus) *container {
	c := &container{spec: spec, probes: newNoProbes(), waiting: corev1.ContainerStateWaiting{Reason: reasonCreating}}
	if len(w.pod.Spec.InitContainers) > 0 {
		c.waiting.Reason = reasonInitializing
	}
	for i := range statuses {
		s := &statuses[i]
		if s.Name != spec.Name {
			continue
		}
		c.restarts, c.last = s.RestartCount, s.LastTerminationState.Terminated
		switch {
		case s.State.Terminated != nil:
			c.ended = s.State.Terminated
		case s.State.Running != nil:
			c.ended = &corev1.ContainerStateTerminated{
				ExitCode: 128 + int32(syscall.SIGKILL), Reason: reasonUnknown, ContainerID: s.ContainerID,
				Message:   "the node agent stopped while the container was running",
				StartedAt: s.State.Running.StartedAt, FinishedAt: metav1.Now(),
			}
		}
	}
	return c
}

func (c *container) succeeded() bool { return c.ended != nil && c.ended.ExitCode == 0 }

// setWaiting sets why a container that has not started does not run yet.
func (c *container) setWaiting(reason, message string) {
	c.waiting = corev1.ContainerStateWaiting{Reason: reason, Message: message}
}

// markNeverRanUnlessEnded marks a container that was given up before its start as failed.
func (c *container) markNeverRanUnlessEnded(now time.Time) {
	if c.ended == nil {
		c.ended = &corev1.ContainerStateTerminated{
			ExitCode: 128 + int32(syscall.SIGKILL), Reason: reasonUnknown,
			Message: "the pod was stopped before the container started", FinishedAt: metav1.NewTime(now),
		}
	}
}

// logFile returns the path of the log of one of a container's runs.
func logFile(podDir, container string, life int32) string {
	return filepath.Join(podDir, "logs", container, fmt.Sprintf("%d.log", life))
}

// messageFile returns the path of the file at a container's terminationMessagePath.
func (b commandBuilder) messageFile(c *container) string {
	return filepath.Join(b.worker.dir, "logs", c.spec.Name, "termination")
}

func (b commandBuilder) podPath(parts ...string) string {
	return filepath.Join(append([]string{b.worker.dir}, parts...)...)
}

// A containerRunner starts the containers of a pod, and notices that they end.
type containerRunner struct{ worker *worker }

// ensureRunningAndLive starts a container that should run, and returns the delay of the next
// check.
func (cr containerRunner) ensureRunningAndLive(ctx context.Context, c *container, now time.Time) (nextCheck time.Duration) {
	if c.proc != nil {
		return cr.stopIfLivenessFailed(ctx, c, now)
	}
	if c.ended != nil && now.Before(c.notBefore) {
		return c.notBefore.Sub(now)
	}
	s, err := commandBuilder(cr).prepareSandboxCommand(ctx, c)
	if err != nil {
		reason := reasonConfigError
		if errors.Is(err, errNoProgram) {
			reason = reasonImageMissing
		}
		c.setWaiting(reason, err.Error())
		return retryStart
	}
	if err := cr.launchContainer(ctx, c, s); err != nil {
		c.setWaiting(reasonConfigError, err.Error())
		return retryStart
	}
	return never
}

// launchContainer starts a run of the container.
func (cr containerRunner) launchContainer(ctx context.Context, c *container, command SandboxCommand) error {
	life := c.restarts
	if c.ended != nil {
		life++
	}
	out, err := os.OpenFile(logFile(cr.worker.dir, c.spec.Name, life), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	command.Output = out
	proc, err := cr.worker.node.sandbox.Start(command)
	if err != nil {
		_, _ = fmt.Fprintln(out, err)
	}
	_ = out.Close() // the process has its own descriptor
	if c.ended != nil {
		c.last = c.ended
	}
	c.restarts, c.ended, c.startAt, c.killedAt = life, nil, metav1.Now(), time.Time{}
	if err != nil {
		cr.recordExitAndBackoff(c, ExitUnstartable, time.Now())
		cr.worker.wakeWorker()
		return nil //nolint:nilerr // it is how the container ended: its log says it
	}
	c.proc = proc
	cr.worker.node.logs.markLogOpen(out.Name())
	cr.worker.node.log.InfoContext(ctx, "container started", "pod", cr.worker.podName(), "container", c.spec.Name, "pid", proc.PID(), "restarts", life)
	c.probes = startProbes(context.WithoutCancel(ctx), c.spec, proc.Done(), cr.worker.wakeWorker)
	go func() {
		<-proc.Done()
		cr.worker.wakeWorker()
	}()
	return nil
}

// recordExitIfEnded records the end of a container that has ended.
func (cr containerRunner) recordExitIfEnded(c *container, now time.Time) {
	if c.proc == nil {
		return
	}
	select {
	case <-c.proc.Done():
	default:
		return
	}
	c.probes.waitForProbes()
	cr.worker.node.logs.markLogClosed(logFile(cr.worker.dir, c.spec.Name, c.restarts))
	cr.recordExitAndBackoff(c, c.proc.ExitCode(), now)
	c.proc, c.probes = nil, newNoProbes()
}

// recordExitAndBackoff records the result of a run of the container, and when the next may start.
func (cr containerRunner) recordExitAndBackoff(c *container, code int, now time.Time) {
	reason := reasonCompleted
	if code != 0 {
		reason = reasonError
	}
	c.ended = &corev1.ContainerStateTerminated{
		ExitCode: int32(code), //nolint:gosec // 0 to 255
		Reason:   reason, Message: cr.terminationMessage(c, code),
		StartedAt: c.startAt, FinishedAt: metav1.NewTime(now), ContainerID: cr.containerID(c),
	}
	if now.Sub(c.startAt.Time) > backoffForgotten {
		c.backoff = 0
	}
	c.notBefore = now.Add(c.backoff)
	c.backoff = max(cr.worker.node.o.RestartBackoff, min(2*c.backoff, maxBackoff))
	c.setWaiting(reasonCrashLoop, fmt.Sprintf("back-off %s restarting container %q", c.notBefore.Sub(now), c.spec.Name))
}

// containerScheme is the prefix of the containers' ids; the process id follows.
const containerScheme = "process://"

func (cr containerRunner) containerID(c *container) string {
	if c.proc == nil {
		return ""
	}
	return fmt.Sprint(containerScheme, c.proc.PID())
}

// PID returns the process id of a running container, for callers that want to kill it.
// It returns false if the container does not run on such a node.
func PID(s corev1.ContainerStatus) (int, bool) {
	text, ok := strings.CutPrefix(s.ContainerID, containerScheme)
	if !ok || s.State.Running == nil {
		return 0, false
	}
	var pid int
	_, err := fmt.Sscan(text, &pid)
	return pid, err == nil
}

// stopIfLivenessFailed ends a container whose liveness or startup probe failed; the restart
// policy determines whether it restarts.
func (cr containerRunner) stopIfLivenessFailed(ctx context.Context, c *container, now time.Time) (nextCheck time.Duration) {
	if !c.probes.hasFailedLiveness() {
		return never
	}
	grace := time.Duration(cr.worker.selectGracePeriod()) * time.Second
	var err error
	switch {
	case c.killedAt.IsZero():
		c.killedAt = now
		cr.worker.node.log.WarnContext(ctx, "liveness probe failed, stopping container", "pod", cr.worker.podName(), "container", c.spec.Name)
		err = c.proc.Signal(syscall.SIGTERM)
	case now.Sub(c.killedAt) >= grace:
		err = c.proc.Kill()
	}
	if err != nil {
		cr.worker.node.log.ErrorContext(ctx, "stop container failed", "pod", cr.worker.podName(), "container", c.spec.Name, "err", err)
	}
	return max(c.killedAt.Add(grace).Sub(now), retryStart)
}

// The kubelet's limits of termination messages.
const (
	maxMessage      = 4096
	maxMessageLog   = 2048
	maxMessageLines = 80
)

// terminationMessage returns the message that the container left for its status.
func (cr containerRunner) terminationMessage(c *container, code int) string {
	if text := readFileTail(commandBuilder(cr).messageFile(c), maxMessage); text != "" {
		return text
	}
	if code == 0 || c.spec.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError {
		return ""
	}
	text := readFileTail(logFile(cr.worker.dir, c.spec.Name, c.restarts), maxMessageLog)
	lines := strings.SplitAfter(text, "\n")
	return strings.Join(lines[max(0, len(lines)-1-maxMessageLines):], "")
}

// readFileTail returns the end of a file as valid text, empty if the file does not exist.
func readFileTail(path string, maxBytes int) string {
	text, err := os.ReadFile(path) //nolint:gosec // in the pod's folder
	if err != nil {
		return ""
	}
	return strings.ToValidUTF8(string(text[max(0, len(text)-maxBytes):]), "?")
}

// makeWorkFolderAndMessageFile creates the files and folders of a run of the container, and empties
// those that must be empty.
func (b commandBuilder) makeWorkFolderAndMessageFile(c *container) (work string, err error) {
	work = b.podPath("work", c.spec.Name)
	err = errors.Join(
		os.MkdirAll(filepath.Dir(b.messageFile(c)), 0o700),
		os.WriteFile(b.messageFile(c), nil, 0o600),
		os.MkdirAll(work, 0o700),
	)
	return work, err
}

// toPathMoves returns the mount paths of a container with their real paths.
func toPathMoves(mounts []SandboxMount) []PathMove {
	out := make([]PathMove, 0, len(mounts))
	for _, m := range mounts {
		out = append(out, PathMove{From: m.Target, To: m.Source})
	}
	return out
}
