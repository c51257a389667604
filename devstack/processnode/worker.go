package processnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A worker runs one pod. It repeatedly performs the steps that are possible, reports
// the status, and waits for a change. Its fields belong to its goroutine, except the
// channels.
type worker struct {
	node    *Node
	dir     string
	updates chan *corev1.Pod // the latest unread version
	deleted chan struct{}    // closed when the pod's object is deleted
	forget  func()           // closes deleted, once
	poke    chan struct{}    // signals a change on this node

	pod        *corev1.Pod
	volumes    *PodVolumes
	refreshAt  time.Time // time of the next update of the volumes
	started    metav1.Time
	inits      []*container
	containers []*container
	stop       *stop  // set while the pod is being ended
	over       bool   // the pod's phase is final
	reason     string // why the whole pod failed, as in its status
	message    string
	sent       corev1.PodStatus // last status sent to the API server
	removed    bool             // the API server was told to remove the pod
}

// Delays between attempts after an error or for a missing object.
const (
	retryAPI   = 500 * time.Millisecond
	retryStart = time.Second
	never      = time.Hour
)

// Reasons as in kubelets, and one additional one.
const (
	reasonUnsupported   = "Unsupported"
	reasonDeadline      = "DeadlineExceeded"
	reasonCompleted     = "Completed"
	reasonError         = "Error"
	reasonUnknown       = "ContainerStatusUnknown"
	reasonCreating      = "ContainerCreating"
	reasonInitializing  = "PodInitializing"
	reasonConfigError   = "CreateContainerConfigError"
	reasonImageMissing  = "ErrImagePull"
	reasonCrashLoop     = "CrashLoopBackOff"
	reasonPodCompleted  = "PodCompleted"
	reasonPodFailed     = "PodFailed"
	reasonNotReady      = "ContainersNotReady"
	reasonNotInitalized = "ContainersNotInitialized"
)

func newWorker(n *Node, pod *corev1.Pod) *worker {
	w := &worker{
		node: n, dir: n.podDir(pod), pod: pod, sent: pod.Status,
		updates: make(chan *corev1.Pod, 1), deleted: make(chan struct{}), poke: make(chan struct{}, 1),
	}
	w.forget = sync.OnceFunc(func() { close(w.deleted) })
	w.volumes = n.source.NewVolumes(commandBuilder{w}.podPath("volumes"))
	w.restoreStatus()
	n.logs.addPod(pod, w.dir)
	return w
}

// restoreStatus restores the status that an earlier agent reported. Its processes have
// died with it.
func (w *worker) restoreStatus() {
	w.started = metav1.Now().Rfc3339Copy()
	if t := w.pod.Status.StartTime; t != nil {
		w.started = *t
	}
	w.over = w.pod.Status.Phase == corev1.PodSucceeded || w.pod.Status.Phase == corev1.PodFailed
	w.reason, w.message = w.pod.Status.Reason, w.pod.Status.Message
	for i := range w.pod.Spec.InitContainers {
		w.inits = append(w.inits, w.newContainer(&w.pod.Spec.InitContainers[i], w.pod.Status.InitContainerStatuses))
	}
	for i := range w.pod.Spec.Containers {
		w.containers = append(w.containers, w.newContainer(&w.pod.Spec.Containers[i], w.pod.Status.ContainerStatuses))
	}
}

// queueLatestPod passes on a version of the pod; only the latest counts.
func (w *worker) queueLatestPod(pod *corev1.Pod) {
	for {
		select {
		case w.updates <- pod:
			return
		default:
		}
		select {
		case <-w.updates:
		default:
		}
	}
}

func (w *worker) wakeWorker() {
	select {
	case w.poke <- struct{}{}:
	default:
	}
}

// runUntilDeleted runs the pod until it is deleted or ctx ends. It leaves no process.
func (w *worker) runUntilDeleted(ctx context.Context) {
	defer w.killContainersAndRemoveFolder(ctx)
	for {
		pause := w.runPossibleSteps(ctx)
		if err := w.reportStatusDeleteIfEnded(ctx); err != nil {
			if ctx.Err() == nil {
				w.node.log.WarnContext(ctx, "update pod status failed, retrying", "pod", w.podName(), "err", err)
			}
			pause = min(pause, retryAPI)
		}
		t := time.NewTimer(max(pause, 0))
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-w.deleted:
			t.Stop()
			return
		case w.pod = <-w.updates:
		case <-w.poke:
		case <-t.C:
		}
		t.Stop()
	}
}

func (w *worker) podName() string { return w.pod.Namespace + "/" + w.pod.Name }

// killContainersAndRemoveFolder kills the running containers and removes the pod's folder.
func (w *worker) killContainersAndRemoveFolder(ctx context.Context) {
	for _, c := range w.allContainers() {
		if c.proc == nil {
			continue
		}
		if err := c.proc.Kill(); err != nil {
			w.node.log.ErrorContext(ctx, "kill container failed", "pod", w.podName(), "container", c.spec.Name, "err", err)
			continue
		}
		<-c.proc.Done()
		c.probes.waitForProbes()
		w.node.logs.markLogClosed(logFile(w.dir, c.spec.Name, c.restarts))
	}
	w.node.logs.removePod(w.pod, w.dir)
	if err := os.RemoveAll(w.dir); err != nil {
		w.node.log.ErrorContext(ctx, "remove pod directory failed", "pod", w.podName(), "err", err)
	}
}

func (w *worker) allContainers() []*container {
	return append(append([]*container(nil), w.inits...), w.containers...)
}

// runPossibleSteps performs the steps that are possible now, and returns the longest delay until
// the next check.
func (w *worker) runPossibleSteps(ctx context.Context) (again time.Duration) {
	now := time.Now()
	for _, c := range w.allContainers() {
		containerRunner{w}.recordExitIfEnded(c, now)
	}
	if w.over {
		return never
	}
	if err := checkSupported(w.pod); err != nil {
		w.over, w.reason, w.message = true, reasonUnsupported, "process node does not support this pod: "+err.Error()
		return never
	}
	if pause, stopping := w.beginOrContinueStopIfDue(ctx, now); stopping {
		return pause
	}
	if pause, ok := w.prepareVolumes(ctx, now); !ok {
		return pause
	}
	pause := min(w.timeUntilDeadline(now), w.refreshAt.Sub(now))
	initialized, again := w.runInitContainers(ctx, now)
	pause = min(pause, again)
	if initialized {
		pause = min(pause, w.runContainers(ctx, now))
	}
	w.over = statusBuilder{w}.podPhase() == corev1.PodSucceeded || statusBuilder{w}.podPhase() == corev1.PodFailed
	return pause
}

// prepareVolumes creates the pod's volumes, and updates them from time to time.
func (w *worker) prepareVolumes(ctx context.Context, now time.Time) (again time.Duration, ready bool) {
	if now.Before(w.refreshAt) {
		return 0, true
	}
	err := errors.Join(os.MkdirAll(commandBuilder{w}.podPath("tmp"), 0o700), w.volumes.Sync(ctx, w.pod))
	if err == nil {
		w.refreshAt = now.Add(VolumeRefreshInterval)
		return 0, true
	}
	if w.hasStartedContainer() { // the existing content remains usable for a while
		w.refreshAt = now.Add(retryStart)
		w.node.log.WarnContext(ctx, "update pod volumes failed, retrying", "pod", w.podName(), "err", err)
		return 0, true
	}
	for _, c := range w.allContainers() {
		c.setWaiting(reasonCreating, "volumes not ready: "+err.Error())
	}
	return min(retryStart, w.timeUntilDeadline(now)), false
}

func (w *worker) hasStartedContainer() bool {
	for _, c := range w.allContainers() {
		if c.proc != nil || c.ended != nil || c.restarts > 0 {
			return true
		}
	}
	return false
}

// runInitContainers runs the init containers in order and reports whether all have succeeded.
func (w *worker) runInitContainers(ctx context.Context, now time.Time) (initialized bool, again time.Duration) {
	for _, c := range w.inits {
		if c.succeeded() {
			continue
		}
		if c.ended != nil && w.pod.Spec.RestartPolicy == corev1.RestartPolicyNever {
			return false, never // the pod has failed
		}
		return false, containerRunner{w}.ensureRunningAndLive(ctx, c, now)
	}
	return true, never
}

func (w *worker) runContainers(ctx context.Context, now time.Time) (nextCheck time.Duration) {
	pause := never
	for _, c := range w.containers {
		if c.ended != nil && !w.shouldRestart(c) {
			continue
		}
		pause = min(pause, containerRunner{w}.ensureRunningAndLive(ctx, c, now))
	}
	return pause
}

// shouldRestart reports whether a container that has ended restarts.
func (w *worker) shouldRestart(c *container) bool {
	switch w.pod.Spec.RestartPolicy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return c.ended.ExitCode != 0
	case corev1.RestartPolicyAlways:
		return true
	}
	return true
}

// timeUntilDeadline returns how long the pod may still run.
func (w *worker) timeUntilDeadline(now time.Time) time.Duration {
	seconds := w.pod.Spec.ActiveDeadlineSeconds
	if seconds == nil {
		return never
	}
	return w.started.Add(time.Duration(*seconds) * time.Second).Sub(now)
}

// checkSupported returns an error with a feature of the pod that this node lacks.
func checkSupported(pod *corev1.Pod) error {
	if err := CheckVolumes(pod); err != nil {
		return err
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			return fmt.Errorf("init container %q is a sidecar", c.Name)
		}
		if err := checkContainerSupported(c); err != nil {
			return err
		}
	}
	for i := range pod.Spec.Containers {
		if err := checkContainerSupported(&pod.Spec.Containers[i]); err != nil {
			return err
		}
	}
	return nil
}

func checkContainerSupported(c *corev1.Container) error {
	for kind, p := range map[string]*corev1.Probe{"readiness": c.ReadinessProbe, "liveness": c.LivenessProbe, "startup": c.StartupProbe} {
		if p != nil && p.HTTPGet == nil && p.TCPSocket == nil {
			return fmt.Errorf("the %s probe of container %q is not httpGet or tcpSocket", kind, c.Name)
		}
	}
	if l := c.Lifecycle; l != nil && (l.PostStart != nil || l.PreStop != nil && l.PreStop.Sleep == nil) {
		return fmt.Errorf("container %q has a lifecycle hook other than preStop sleep", c.Name)
	}
	if len(c.VolumeDevices) > 0 || len(c.Resources.Claims) > 0 {
		return fmt.Errorf("container %q requests devices", c.Name)
	}
	return nil
}
