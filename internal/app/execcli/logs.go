package execcli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/kube/executions"
)

type logsOptions struct {
	follow, timestamps, prefix bool
	tail                       int64
	since                      time.Duration
}

func newLogsCommand(s *session) *cobra.Command {
	var o logsOptions
	cmd := &cobra.Command{
		Use:   "logs EXECUTION",
		Short: "Print the logs of the Pods of an execution",
		Long: "Print the logs of the Pods of an execution, in the order of their creation: the dry run, the action and its\n" +
			"retries. Each line begins with the purpose and the name of the Pod.\n\n" +
			"With --follow, print new lines until the execution ends, including the wait for approval. The exit code does not\n" +
			"depend on the result of the execution. Pods are deleted with the execution.",
		Example: "  fleetloop logs scale-deployment-x7kq2\n" +
			"  fleetloop logs scale-deployment-x7kq2 --follow --timestamps\n" +
			"  fleetloop logs scale-deployment-x7kq2 --tail 20 --since 10m",
		Args:              requireName,
		ValidArgsFunction: s.completeExecutionNames,
		RunE:              func(cmd *cobra.Command, args []string) error { return runLogs(s, cmd, args[0], o) },
	}
	f := cmd.Flags()
	f.BoolVarP(&o.follow, "follow", "f", false, "print new lines until the execution ends")
	f.Int64Var(&o.tail, "tail", -1, "`number` of lines of each Pod to print from the end; -1 for all")
	f.DurationVar(&o.since, "since", 0, "print only lines that are newer than this `duration`, such as 10m; 0 for all")
	f.BoolVar(&o.timestamps, "timestamps", false, "print the time of each line")
	f.BoolVar(&o.prefix, "prefix", true, "begin each line with the purpose and the name of the Pod")
	return cmd
}

func runLogs(s *session, cmd *cobra.Command, name string, o logsOptions) error {
	switch {
	case o.tail < -1:
		return usageErrorf(cmd, "--tail %d is negative", o.tail)
	case o.since < 0:
		return usageErrorf(cmd, "--since %s is negative", o.since)
	}
	c, err := s.newClusterClient()
	if err != nil {
		return err
	}
	pods, err := s.where.ConnectToPods(s.env.Env)
	if err != nil {
		return err
	}
	ke, err := c.getExecution(cmd.Context(), name)
	if err != nil {
		return err
	}
	l := &logReader{session: s, cluster: c, pods: pods, o: o, seen: map[types.UID]bool{}}
	if o.follow {
		return l.followLogs(cmd.Context(), ke)
	}
	return l.printLogs(cmd.Context(), ke)
}

// A logReader prints the logs of the Pods of one execution.
type logReader struct {
	*session

	cluster *cluster
	pods    rest.Interface
	o       logsOptions
	seen    map[types.UID]bool // Pods whose logs are printed
}

// listPods returns the Pods of an execution, the oldest first.
func (l *logReader) listPods(ctx context.Context, ke *v1alpha1.KubernetesExecution) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := l.cluster.List(ctx, &list, client.InNamespace(ke.Namespace), client.MatchingLabels{v1alpha1.LabelExecutionUID: string(ke.UID)})
	if err != nil {
		return nil, l.cluster.explainErrorWithRole(err, "list the Pods of execution "+ke.Name, v1alpha1.ViewerRole)
	}
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	return list.Items, nil
}

// printLogs prints the logs as they are now.
func (l *logReader) printLogs(ctx context.Context, ke *v1alpha1.KubernetesExecution) error {
	pods, err := l.listPods(ctx, ke)
	if err != nil {
		return err
	}
	if len(pods) == 0 {
		return noPodsError(ke)
	}
	for i := range pods {
		if !hasStarted(&pods[i]) {
			l.printToStderr("Pod %s has not started; its phase is %s.", pods[i].Name, pods[i].Status.Phase)
			continue
		}
		if err := l.copyLog(ctx, &pods[i]); err != nil {
			return err
		}
	}
	return nil
}

// noPodsError says why an execution has no Pods.
func noPodsError(ke *v1alpha1.KubernetesExecution) error {
	why := "its Pods were deleted"
	switch r := ke.Status.ExecutionResults; {
	case r != nil && r.Mode == v1alpha1.ExecuteInline:
		why = "it runs in the controller, without a Pod"
	case !executions.IsSettled(ke):
		why = "its phase is " + cmp.Or(string(ke.Status.Phase), "new")
	}
	return cli.NewError(fmt.Errorf("execution %q has no logs: %s", ke.Name, why), cli.CodePrecondition, "fleetloop exec describe "+ke.Name+"   shows its status")
}

// followLogs prints logs until the execution has ended and all of them are printed.
func (l *logReader) followLogs(ctx context.Context, ke *v1alpha1.KubernetesExecution) error {
	for {
		ended := executions.IsSettled(ke) // before the Pods are listed, so that none is missed
		pods, err := l.listPods(ctx, ke)
		if err == nil {
			err = l.followNewPods(ctx, pods)
		}
		if err == nil && ended {
			if len(l.seen) == 0 {
				return noPodsError(ke)
			}
			return nil
		}
		if err == nil || isTransient(err) {
			err = backoff.Sleep(ctx, again)
		}
		if ctx.Err() != nil {
			return cli.NewError(fmt.Errorf("execution %q continues: %w", ke.Name, ctx.Err()), cli.CodeInterrupted, "")
		}
		if err != nil {
			return err
		}
		l.o.tail, l.o.since = -1, 0 // they are for the Pods that existed at the start
		if ke, err = getWithRetry(ctx, l.cluster, ke.Name, ke.UID); errors.Is(err, errGone) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// followNewPods prints the logs of the Pods that have started and are not printed yet, each until its end.
func (l *logReader) followNewPods(ctx context.Context, pods []corev1.Pod) error {
	for i := range pods {
		if l.seen[pods[i].UID] || !hasStarted(&pods[i]) {
			continue
		}
		l.seen[pods[i].UID] = true
		if err := l.copyLog(ctx, &pods[i]); err != nil {
			return err
		}
	}
	return nil
}

// hasStarted reports whether a Pod can have a log.
func hasStarted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.State.Running != nil || c.State.Terminated != nil
	})
}

// copyLog prints the log of a Pod.
func (l *logReader) copyLog(ctx context.Context, pod *corev1.Pod) error {
	r := l.pods.Get().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("log")
	for name, value := range map[string]bool{"follow": l.o.follow, "timestamps": l.o.timestamps} {
		if value {
			r = r.Param(name, "true")
		}
	}
	if l.o.tail >= 0 {
		r = r.Param("tailLines", strconv.FormatInt(l.o.tail, 10))
	}
	if l.o.since > 0 {
		r = r.Param("sinceSeconds", strconv.FormatInt(int64(max(l.o.since, time.Second)/time.Second), 10))
	}
	stream, err := r.Stream(ctx)
	if apierrors.IsNotFound(err) {
		l.printToStderr("Pod %s was deleted.", pod.Name)
		return nil
	}
	if err != nil {
		return l.cluster.explainErrorWithRole(err, "read the log of Pod "+pod.Name, v1alpha1.ViewerRole)
	}
	defer func() { _ = stream.Close() }() // it was only read
	prefix := ""
	if l.o.prefix {
		prefix = "[" + terminal.Clean(pod.Labels[v1alpha1.LabelPurpose]) + "/" + pod.Name + "] "
	}
	return l.copyLines(stream, prefix)
}

// copyLines prints lines as they arrive. On a terminal it removes control sequences.
func (l *logReader) copyLines(from io.Reader, prefix string) error {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadString('\n')
		if line = strings.TrimSuffix(line, "\n"); line != "" || err == nil {
			if l.env.Terminal {
				line = terminal.Clean(strings.ReplaceAll(line, "\t", "    "))
			}
			if err := l.printToStdout("%s%s", prefix, line); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the log: %w", err)
		}
	}
}
