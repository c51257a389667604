package processnode

import (
	"context"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A stop is the forced end of a pod.
type stop struct {
	began  time.Time
	termAt time.Time // SIGTERM, after the preStop sleep
	killAt time.Time // SIGKILL
	asked  bool      // SIGTERM was sent
}

// beginOrContinueStopIfDue ends the pod if that is due. It reports whether it is, and returns the
// delay of the next check.
func (w *worker) beginOrContinueStopIfDue(ctx context.Context, now time.Time) (again time.Duration, stopping bool) {
	switch {
	case w.pod.DeletionTimestamp != nil:
		grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
		if g := w.pod.DeletionGracePeriodSeconds; g != nil {
			grace = *g
		}
		w.beginOrShortenStop(now, grace)
	case w.stop == nil && w.timeUntilDeadline(now) <= 0:
		w.reason, w.message = reasonDeadline, "Pod was active on the node longer than the specified deadline"
		w.beginOrShortenStop(now, w.selectGracePeriod())
	case w.stop == nil:
		return 0, false
	}
	left := false
	for _, c := range w.allContainers() {
		if c.proc != nil {
			left = true
			w.signalContainerIfDue(ctx, c, now)
		}
	}
	if !left {
		w.over = true
		for _, c := range w.allContainers() {
			c.markNeverRanUnlessEnded(now)
		}
		return 0, true
	}
	if now.Before(w.stop.termAt) {
		return min(w.stop.termAt.Sub(now), w.stop.killAt.Sub(now)), true
	}
	w.stop.asked = true
	if now.Before(w.stop.killAt) {
		return w.stop.killAt.Sub(now), true
	}
	return retryStart, true // killed; the kernel may take a moment
}

func (w *worker) selectGracePeriod() (seconds int64) {
	if g := w.pod.Spec.TerminationGracePeriodSeconds; g != nil {
		return *g
	}
	return corev1.DefaultTerminationGracePeriodSeconds
}

// beginOrShortenStop begins the end, or shortens the grace period of one in progress.
func (w *worker) beginOrShortenStop(now time.Time, graceSeconds int64) {
	grace := time.Duration(graceSeconds) * time.Second
	if w.stop == nil {
		w.stop = &stop{began: now, termAt: now, killAt: now.Add(grace)}
		for i := range w.pod.Spec.Containers {
			if l := w.pod.Spec.Containers[i].Lifecycle; l != nil && l.PreStop != nil && l.PreStop.Sleep != nil {
				w.stop.termAt = laterOf(w.stop.termAt, now.Add(time.Duration(l.PreStop.Sleep.Seconds)*time.Second))
			}
		}
	}
	if sooner := w.stop.began.Add(grace); sooner.Before(w.stop.killAt) {
		w.stop.killAt = sooner
	}
}

func laterOf(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// signalContainerIfDue sends a container the signal that is due.
func (w *worker) signalContainerIfDue(ctx context.Context, c *container, now time.Time) {
	var err error
	switch {
	case !now.Before(w.stop.killAt):
		err = c.proc.Kill()
	case !now.Before(w.stop.termAt) && !w.stop.asked:
		err = c.proc.Signal(syscall.SIGTERM)
	}
	if err != nil {
		w.node.log.ErrorContext(ctx, "stop container failed", "pod", w.podName(), "container", c.spec.Name, "err", err)
	}
}
