package execcli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/kube/executions"
)

// formatText prints the result in a few words.
const formatText = "text"

func changeOutputFormats() []string {
	return []string{formatText, terminal.FormatJSON, terminal.FormatYAML, terminal.FormatName}
}

// addOutputFlag adds -o with one of the given formats. The first is the default.
func addOutputFlag(cmd *cobra.Command, format *string, formats []string) {
	cli.AddOutputFlag(cmd, format, formats)
}

func (w *waitOptions) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&w.wait, "wait", false, "wait until the execution ends")
	cmd.Flags().DurationVar(&w.timeout, "timeout", 0, "maximum `duration` of --wait; 0 waits without a limit")
}

// execOptions holds the flags beside an action and its parameters.
type execOptions struct {
	waitOptions

	format, file                     string
	objectName, reason               string
	target, agent                    string
	dryRun, alwaysDryRun             bool
	environment, correlation, mode   string
	timeout, approvalTimeout         time.Duration
	retries                          int32
	keep                             time.Duration
	retriesSet, keepSet, approvalSet bool
}

func newExecCommand(s *session) *cobra.Command {
	var o execOptions
	cmd := &cobra.Command{
		Use:   "exec ACTION [name=value ...]",
		Short: "Run one action on one object, with checks, approval and audit",
		Long: `Create an execution: one action on one object. The controller runs checks, evaluates the policies,
waits for approval if required, and runs the action with the service account of the action.
fleetloop exec actions lists the actions, fleetloop exec actions NAME shows the parameters of one.

Parameters:
    replicas=5           a number, string, boolean or quantity
    patch='{"spec": …}'  an object or a list, as JSON
    manifest=@web.yaml   content of a file; @- reads standard input, @@ starts a value with @
    data.key=value       one string entry of an object; data.key- removes the entry
-f reads parameters from a file with one JSON or YAML object; arguments override the file.

` + waitHelp,
		Example: "  fleetloop exec scale_deployment namespace=shop deployment=web replicas=5 --reason='more traffic' --wait\n" +
			"  fleetloop exec patch_configmap namespace=shop configmap=web data.level=debug --dry-run --wait\n" +
			"  fleetloop exec drain_node -f drain.json --action-timeout=10m\n" +
			"  fleetloop exec describe scale-deployment-x7kq2",
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: completeActionsAndParameters,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			o.retriesSet = cmd.Flags().Changed("retries")
			o.keepSet = cmd.Flags().Changed("ttl")
			o.approvalSet = cmd.Flags().Changed("approval-timeout")
			return runCreateExecution(s, cmd, args, o)
		},
	}
	o.addFlags(cmd)
	cmd.AddCommand(
		newGetCommand(s), newDescribeCommand(s), newWatchCommand(s), newCancelCommand(s), newEndRollbackWindowCommand(s),
		newActionsCommand(s), newEmergencyStopCommand(s), newEndEmergencyStopCommand(s),
	)
	return cmd
}

func (o *execOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&o.file, "filename", "f", "", "`file` with parameters as one JSON or YAML object; - reads standard input")
	f.StringVar(&o.objectName, "name", "", "`name` of the execution (default: name of the action and a random suffix)")
	f.StringVar(&o.reason, "reason", "", "`text` that says why, for approvers and the audit")
	f.StringVar(&o.target, "target", "", "object of the action as `kind/namespace/name`, or kind/name; parameters can name it, too")
	f.StringVar(&o.agent, "agent", "", "`name` and version of the assistant that makes the request for you; you cannot approve it then")
	cli.AddDryRunFlag(cmd, &o.dryRun, "run only the checks, the policies and the dry run of the action, and change nothing")
	f.BoolVar(&o.alwaysDryRun, "always-dry-run", false, "dry-run the action before it runs, even if the policies do not require it")
	f.DurationVar(&o.timeout, "action-timeout", 0, "maximum `duration` of the action (default: that of the action)")
	f.DurationVar(
		&o.approvalTimeout,
		"approval-timeout",
		0,
		"maximum `duration` of the wait for approval (default, and 0: that of the controller)",
	)
	f.Int32Var(&o.retries, "retries", 0, "number of retries (default: that of the action)")
	f.StringVar(&o.mode, "mode", "", "`place` where the action runs: job or inline (default: that of the controller)")
	f.StringVar(&o.environment, "environment", "", "environment of the target, for policies (default: label of its namespace)")
	f.StringVar(&o.correlation, "correlation-id", "", "`id` of a related incident or alert")
	f.DurationVar(&o.keep, "ttl", 0, "`duration` for which the execution is retained after its end (default: that of the controller)")
	o.waitOptions.addFlags(cmd)
	addOutputFlag(cmd, &o.format, changeOutputFormats())
}

func runCreateExecution(s *session, cmd *cobra.Command, args []string, o execOptions) error {
	if err := cli.CheckFormat(cmd, o.format, changeOutputFormats()); err != nil {
		return err
	}
	ke, err := s.newExecution(cmd, args, o)
	if err != nil {
		return err
	}
	return createThenFollowIfAsked(s, cmd, ke, o.format, o.waitOptions)
}

// newExecution returns the execution for a command line.
func (s *session) newExecution(cmd *cobra.Command, args []string, o execOptions) (*v1alpha1.KubernetesExecution, error) {
	a, ok := action.Find(args[0])
	if !ok {
		return nil, unknownActionError(cmd, args[0])
	}
	raw, err := ParameterReader{Stdin: s.env.Stdin}.Read(a.Parameters(), o.file, args[1:])
	if err != nil {
		return nil, cli.NewUsageError(err, "fleetloop exec actions "+a.Name+"   describes the parameters")
	}
	ke := &v1alpha1.KubernetesExecution{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.where.namespace, Name: o.objectName},
		Spec: v1alpha1.KubernetesExecutionSpec{
			Action: args[0], Parameters: &runtime.RawExtension{Raw: raw}, // an alias may set the kind
			Reason: o.reason, Environment: o.environment, CorrelationID: o.correlation, RequestedByAgent: o.agent,
		},
	}
	if o.objectName == "" {
		ke.GenerateName = strings.ReplaceAll(a.Name, "_", "-") + "-"
	}
	if err := o.fillSpecFromFlags(cmd, &ke.Spec); err != nil {
		return nil, err
	}
	if err := validateParameters(&ke.Spec); err != nil {
		return nil, cli.NewUsageError(err, "fleetloop exec actions "+a.Name+"   describes the parameters")
	}
	return ke, nil
}

// validateParameters validates the parameters as the controller does. It discards the parsed form,
// because the execution records the original request.
func validateParameters(spec *v1alpha1.KubernetesExecutionSpec) error {
	_, err := action.Parse(spec.DeepCopy())
	if invalid, ok := errors.AsType[*action.InvalidError](err); ok {
		var list []error
		for _, p := range invalid.Problems {
			list = append(list, errors.New(p))
		}
		return errors.Join(list...)
	}
	return err
}

// fillSpecFromFlags copies the given flags into the spec.
func (o *execOptions) fillSpecFromFlags(cmd *cobra.Command, spec *v1alpha1.KubernetesExecutionSpec) error {
	var err error
	if spec.Target, err = parseTarget(cmd, o.target); err != nil {
		return err
	}
	switch {
	case o.dryRun:
		spec.DryRunMode = v1alpha1.DryRunOnly
	case o.alwaysDryRun:
		spec.DryRunMode = v1alpha1.DryRunAlways
	default:
		spec.DryRunMode = v1alpha1.DryRunPolicy
	}
	switch strings.ToLower(o.mode) {
	case "": // that of the controller
	case "job":
		spec.ExecutionMode = v1alpha1.ExecuteInJob
	case "inline":
		spec.ExecutionMode = v1alpha1.ExecuteInline
	default:
		return usageErrorf(cmd, "invalid --mode %q: want job or inline", o.mode)
	}
	switch {
	case o.timeout < 0 || o.approvalTimeout < 0 || o.keep < 0 || o.waitOptions.timeout < 0:
		return usageErrorf(cmd, "a duration flag is negative: use a duration such as 5m")
	case cmd.Flags().Changed("agent") && strings.TrimSpace(o.agent) == "": // a request without a mark would be one of the user
		return usageErrorf(cmd, "--agent is empty: give the name of the assistant, or omit the flag")
	case o.retriesSet && o.retries < 0:
		return usageErrorf(cmd, "invalid --retries %d: must not be negative", o.retries)
	}
	if o.timeout > 0 {
		spec.Timeout = &metav1.Duration{Duration: o.timeout}
	}
	if o.approvalSet {
		spec.ApprovalTimeout = &metav1.Duration{Duration: o.approvalTimeout}
	}
	if o.retriesSet {
		spec.MaxRetries = &o.retries
	}
	if o.keepSet {
		seconds := int32(min(o.keep/time.Second, 1<<31-1))
		spec.TTLSecondsAfterFinished = &seconds
	}
	return nil
}

// parseTarget parses --target. It returns nil for an empty one.
func parseTarget(cmd *cobra.Command, kindNamespaceName string) (*v1alpha1.Target, error) {
	if kindNamespaceName == "" {
		return nil, nil
	}
	parts := strings.Split(kindNamespaceName, "/")
	if len(parts) < 2 || len(parts) > 3 || slices.Contains(parts, "") {
		return nil, usageErrorf(
			cmd,
			"invalid --target %q: want kind/namespace/name, or kind/name for an object without a namespace",
			kindNamespaceName,
		)
	}
	t := &v1alpha1.Target{Kind: parts[0], Name: parts[len(parts)-1]}
	if len(parts) == 3 {
		t.Namespace = parts[1]
	}
	return t, nil
}

func unknownActionError(cmd *cobra.Command, name string) error {
	err := fmt.Errorf("unknown action %q", name)
	_, parseErr := action.Parse(&v1alpha1.KubernetesExecutionSpec{Action: name})
	unknown, ok := errors.AsType[*action.UnknownError](parseErr)
	suggestion := cli.FormatCommandSuggestion(cmd, name)
	switch {
	case suggestion != "":
		err = fmt.Errorf("%w%s", err, suggestion)
	case ok && unknown.Nearest != "":
		err = fmt.Errorf("%w; did you mean %s?", err, unknown.Nearest)
	}
	return cli.NewUsageError(err, "fleetloop exec actions   lists the available actions")
}

// createThenFollowIfAsked creates an execution in the name of the user, prints it, and follows it if requested.
func createThenFollowIfAsked(s *session, cmd *cobra.Command, ke *v1alpha1.KubernetesExecution, format string, w waitOptions) error {
	c, err := s.newClusterClient()
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	user, groups, err := executions.CurrentUser(ctx, c)
	if err != nil {
		return explainError(err, "get the current user")
	}
	err = executions.SetRequesterAndCreate(ctx, c, ke, user, groups)
	if apierrors.IsAlreadyExists(err) {
		exists := fmt.Errorf("request %s: execution %q already exists", ke.Spec.Action, ke.Name)
		describe := "fleetloop exec describe " + ke.Name + s.newOutputOptions().NamespaceFlag(ke)
		return cli.NewError(exists, cli.CodePrecondition, "use another --name or omit it; "+describe+"   shows the existing one")
	}
	if err != nil {
		return c.explainErrorWithRole(err, "request "+ke.Spec.Action, requesterRole(ke.Spec.Action))
	}
	return s.printCreatedThenFollowIfAsked(cmd, c, ke, format, w)
}

// requesterRole returns the smallest role that may request an action.
func requesterRole(name string) string {
	a, ok := action.Find(name)
	if !ok {
		return v1alpha1.RequesterRole
	}
	return v1alpha1.RequesterRole + "-" + string(a.Risk)
}

// printCreatedThenFollowIfAsked prints the new execution and follows it if requested.
func (s *session) printCreatedThenFollowIfAsked(
	cmd *cobra.Command,
	c *cluster,
	ke *v1alpha1.KubernetesExecution,
	format string,
	w waitOptions,
) error {
	if format == formatText {
		if err := s.printToStdout("execution/%s created", ke.Name); err != nil {
			return err
		}
	}
	if w.wait {
		return s.followExecution(cmd, c, ke, format, w)
	}
	if format != formatText {
		return WriteExecutionObjectsOrNames(s.env.Stdout, format, []v1alpha1.KubernetesExecution{*ke}, true)
	}
	return nil
}

// followExecution follows an execution and prints the result. Formats for programs are written
// once, in the final state.
func (s *session) followExecution(cmd *cobra.Command, c *cluster, ke *v1alpha1.KubernetesExecution, format string, w waitOptions) error {
	ke, failed := printProgressUntilEnd(cmd.Context(), s, c, ke, w)
	if format != formatText {
		return cmp.Or(WriteExecutionObjectsOrNames(s.env.Stdout, format, []v1alpha1.KubernetesExecution{*ke}, true), failed)
	}
	if failed != nil {
		return failed
	}
	return s.printToStdout("execution/%s %s", ke.Name, describeOutcome(ke))
}

// describeOutcome returns the result in a few words.
func describeOutcome(ke *v1alpha1.KubernetesExecution) string {
	text := string(ke.Status.Phase)
	r := ke.Status.ExecutionResults
	switch {
	case IsDryRun(ke):
		text += ": the dry run passed, nothing was changed"
	case r != nil && len(r.ResourcesAffected) > 0:
		a := r.ResourcesAffected[0]
		text += fmt.Sprintf(": %s %s %s", a.Kind, strings.TrimPrefix(a.Namespace+"/"+a.Name, "/"), a.Action)
		if a.Before != "" || a.After != "" {
			text += fmt.Sprintf(" (%s -> %s)", a.Before, a.After)
		}
		if more := int(r.ResourcesAffectedCount) - 1; more > 0 {
			text += fmt.Sprintf(", and %d more", more)
		}
	}
	return text
}
