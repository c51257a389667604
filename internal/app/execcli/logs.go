package execcli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/execution/job"
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
			"With --follow, print new lines until the execution ends or the command is interrupted, which exits with 0. A lost\n" +
			"connection is reopened. The exit code does not depend on the result of the execution; 'fleetloop exec watch' has\n" +
			"one that does. Pods are deleted with the execution.",
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
	pods, err := s.where.NewCoreRESTClient(s.env)
	if err != nil {
		return err
	}
	ke, err := c.getExecution(cmd.Context(), name)
	if err != nil {
		return err
	}
	l := &logReader{session: s, cluster: c, pods: pods, o: o}
	if !o.follow {
		return l.printCurrentLogs(cmd.Context(), ke)
	}
	if err := newLogFollower(l).followLogsUntilSettled(cmd.Context(), ke); cmd.Context().Err() == nil {
		return err
	}
	return nil // an interrupt is the normal end; the execution continues
}

// A logReader prints the logs of the Pods of one execution.
type logReader struct {
	*session

	cluster *cluster
	pods    rest.Interface
	o       logsOptions
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

// printCurrentLogs prints the logs as they are now.
func (l *logReader) printCurrentLogs(ctx context.Context, ke *v1alpha1.KubernetesExecution) error {
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
		if err := l.printLog(ctx, &pods[i]); err != nil {
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
	return cli.NewError(
		fmt.Errorf("execution %q has no logs: %s", ke.Name, why),
		cli.CodePrecondition,
		"fleetloop exec describe "+ke.Name+"   shows its status",
	)
}

// logContainer returns the container whose log is printed. Admission webhooks may have added others. Empty means
// the only one.
func logContainer(pod *corev1.Pod) string {
	if slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == job.Container }) {
		return job.Container
	}
	return ""
}

// hasStarted reports whether a Pod can have a log.
func hasStarted(pod *corev1.Pod) bool {
	return anyContainer(pod, func(s corev1.ContainerState) bool { return s.Running != nil || s.Terminated != nil })
}

// hasEnded reports whether the log of a Pod is complete.
func hasEnded(pod *corev1.Pod) bool {
	return !anyContainer(pod, func(s corev1.ContainerState) bool { return s.Terminated == nil })
}

func anyContainer(pod *corev1.Pod, match func(corev1.ContainerState) bool) bool {
	name := logContainer(pod)
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return (name == "" || c.Name == name) && match(c.State)
	})
}

// openLog opens the log of a Pod with the given parameters.
func (l *logReader) openLog(ctx context.Context, pod *corev1.Pod, params url.Values) (io.ReadCloser, error) {
	r := l.pods.Get().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("log")
	if name := logContainer(pod); name != "" {
		r = r.Param("container", name)
	}
	for name := range params {
		r = r.Param(name, params.Get(name))
	}
	return r.Stream(ctx)
}

// tailAndSinceParams returns the parameters of the first request for a log.
func (o *logsOptions) tailAndSinceParams() url.Values {
	params := url.Values{}
	if o.tail >= 0 {
		params.Set("tailLines", strconv.FormatInt(o.tail, 10))
	}
	if o.since > 0 {
		params.Set("sinceSeconds", strconv.FormatInt(int64(max(o.since, time.Second)/time.Second), 10))
	}
	return params
}

// printLog prints the log of a Pod as it is now.
func (l *logReader) printLog(ctx context.Context, pod *corev1.Pod) error {
	params := l.o.tailAndSinceParams()
	if l.o.timestamps {
		params.Set("timestamps", "true")
	}
	stream, err := l.openLog(ctx, pod, params)
	if apierrors.IsNotFound(err) {
		l.printToStderr("Pod %s was deleted.", pod.Name)
		return nil
	}
	if err != nil {
		return l.explainLogError(err, pod)
	}
	defer func() { _ = stream.Close() }() // it was only read
	lines := bufio.NewReader(stream)
	for {
		line, err := lines.ReadString('\n')
		if line != "" && (err == nil || errors.Is(err, io.EOF)) {
			if err := l.printLine(pod, line); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return l.explainLogError(err, pod)
		}
	}
}

func (l *logReader) explainLogError(err error, pod *corev1.Pod) error {
	return l.cluster.explainErrorWithRole(err, "read the log of Pod "+pod.Name, v1alpha1.ViewerRole)
}

// printLine prints a line of the log of a Pod. On a terminal it removes control sequences.
func (l *logReader) printLine(pod *corev1.Pod, line string) error {
	line = strings.TrimSuffix(line, "\n")
	if l.env.Terminal {
		line = terminal.ReplaceUnprintable(strings.ReplaceAll(line, "\t", "    "))
	}
	prefix := ""
	if l.o.prefix {
		prefix = "[" + terminal.ReplaceUnprintable(pod.Labels[v1alpha1.LabelPurpose]) + "/" + pod.Name + "] "
	}
	return l.printToStdout("%s%s", prefix, line)
}
