package show

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// policies is the ConfigMap with the policies, unless an installation has
// another name for it.
const policies = "safety-policies"

// A Step is a command that is worth running now.
type Step struct {
	Command string
	What    string // it does or tells
}

// Advice is how an execution stands in words, and what to do.
type Advice struct {
	Says []string
	Do   []Step
}

func (a *Advice) say(format string, args ...any) {
	a.Says = append(a.Says, fmt.Sprintf(format, args...))
}

func (a *Advice) do(command, what string) { a.Do = append(a.Do, Step{command, what}) }

// command is a command of ours about an execution.
func (o Options) command(verb string, ke *v1alpha1.KubernetesExecution, more ...string) string {
	words := append([]string{"fleetloop", verb, ke.Name}, more...)
	if ke.Namespace != o.Namespace {
		words = append(words, "--namespace="+ke.Namespace)
	}
	return strings.Join(words, " ")
}

// Next says what an execution waits for, and what to do about it.
func Next(ke *v1alpha1.KubernetesExecution, o Options) Advice {
	var a Advice
	if ke.Spec.Cancel && !Settled(ke) {
		a.say("It is being cancelled%s.", byWhom(ke))
	}
	switch ke.Status.Phase {
	case v1alpha1.PhaseNew:
		unseen(&a, ke, o)
	case v1alpha1.PhaseValidating:
		validating(&a, ke, o)
	case v1alpha1.PhaseValidated:
		turn(&a, ke, o)
	case v1alpha1.PhaseWaitingApproval:
		waiting(&a, ke, o)
	case v1alpha1.PhaseExecuting:
		executing(&a, ke, o)
	case v1alpha1.PhaseRollbackReady:
		ready(&a, ke, o)
	case v1alpha1.PhaseCompleted:
		completed(&a, ke, o)
	case v1alpha1.PhaseFailed:
		failed(&a, ke, o)
	}
	return a
}

// unseen is for one that no controller has seen. Each looks at one namespace.
func unseen(a *Advice, ke *v1alpha1.KubernetesExecution, o Options) {
	if ke.Namespace != o.Namespace {
		a.say("No controller has seen it yet. A controller looks at one namespace alone, which is %s unless an installation has another: if that is not %s, nothing will come of it.", o.Namespace, ke.Namespace)
		a.do("kubectl --namespace="+ke.Namespace+" delete kubernetesexecution "+ke.Name, "takes it away, to ask again in the other namespace")
	} else {
		a.say("No controller has seen it yet. If that lasts, none runs.")
	}
	a.do("kubectl --namespace="+ke.Namespace+" get pods,leases", "shows whether one runs")
}

func validating(a *Advice, ke *v1alpha1.KubernetesExecution, o Options) {
	if open := open(preResults(ke)); len(open) > 0 {
		a.say("It waits for its preconditions to hold: %s.", strings.Join(open, ", "))
	} else {
		a.say("The checks are under way.")
	}
	hold(a, ke, o)
	if !ke.Spec.Cancel {
		a.do(o.command("exec cancel", ke), "gives it up")
	}
}

func preResults(ke *v1alpha1.KubernetesExecution) []v1alpha1.ConditionResult {
	if ke.Status.ValidationResults == nil {
		return nil
	}
	return ke.Status.ValidationResults.PreConditionResults
}

func postResults(ke *v1alpha1.KubernetesExecution) []v1alpha1.ConditionResult {
	if ke.Status.ValidationResults == nil {
		return nil
	}
	return ke.Status.ValidationResults.PostConditionResults
}

// open are the required conditions that do not hold.
func open(list []v1alpha1.ConditionResult) []string {
	var names []string
	for _, c := range list {
		if c.Required && !c.Passed {
			names = append(names, c.ConditionType)
		}
	}
	return names
}

// turn is for one that may run and is not let in.
func turn(a *Advice, ke *v1alpha1.KubernetesExecution, o Options) {
	a.say("The checks passed; it is to run when its turn comes.")
	hold(a, ke, o)
	if !ke.Spec.Cancel {
		a.do(o.command("exec cancel", ke), "gives it up")
	}
}

// hold says what keeps an execution back. What ends one is told by failed.
func hold(a *Advice, ke *v1alpha1.KubernetesExecution, o Options) {
	switch ke.Status.ReasonDetail {
	case v1alpha1.DetailTargetBusy:
		a.say("Another execution is at the same target; they take turns.")
		a.do("fleetloop exec get --phase=executing"+o.In(ke), "shows who is at work")
	case v1alpha1.DetailCooldown:
		a.say("The same was done to the target a short time ago; there is a pause between two.")
	case v1alpha1.DetailBudgetExceeded:
		a.say("As much is going on as may at a time.")
		a.do("fleetloop exec get --phase=executing"+o.In(ke), "shows who is at work")
	case v1alpha1.DetailCircuitOpen:
		a.say("The same action on the same target has failed too often lately.")
	case v1alpha1.DetailEmergencyStop:
		a.say("Everything is stopped.")
		a.do("kubectl --namespace="+ke.Namespace+" get configmap emergency-stop -o yaml", "says why")
		a.do("fleetloop exec resume"+o.In(ke), "ends the stop")
	case v1alpha1.DetailPolicyUnavailable:
		a.say("There is no policy that could be asked, and so nothing may be done.")
		a.do("kubectl --namespace="+ke.Namespace+" get configmap "+policies, "shows whether they are there, unless they have another name here; the log of the controller says what is wrong with them")
	case v1alpha1.DetailGuardMissing:
		a.say("Approvals count while the admission policies of deploy/guard are in force. An administrator applies them where they are missing or changed; then it is asked for approval again.")
	case v1alpha1.DetailExecutorUnavailable:
		a.say("The action cannot be started at the moment.")
	case v1alpha1.DetailUnknownAction, v1alpha1.DetailInvalidParameters, v1alpha1.DetailRBACDenied, v1alpha1.DetailAdmissionDenied, v1alpha1.DetailTargetNotFound,
		v1alpha1.DetailTargetState, v1alpha1.DetailTargetProtected, v1alpha1.DetailPolicyDenied, v1alpha1.DetailPreConditionFailed,
		v1alpha1.DetailResultUnknown, v1alpha1.DetailTargetChanged, v1alpha1.DetailPartial, v1alpha1.DetailRequesterUnverified, v1alpha1.DetailConditionKilled:
	}
}

// In names the namespace of an execution where commands would not find it.
func (o Options) In(ke *v1alpha1.KubernetesExecution) string {
	if ke.Namespace == o.Namespace {
		return ""
	}
	return " --namespace=" + ke.Namespace
}

func waiting(a *Advice, ke *v1alpha1.KubernetesExecution, o Options) {
	status := ke.Status.Approval
	if status == nil || status.State == v1alpha1.ApprovalApproved {
		a.say("It was approved and is to run when its turn comes.")
		hold(a, ke, o)
	} else {
		a.say("%s", wanted(ke, o))
		hold(a, ke, o)
		a.do(o.command("approve", ke, "--reason=TEXT"), "shows the plan and approves of it")
		a.do(o.command("reject", ke, "--reason=TEXT"), "ends it")
	}
	if !ke.Spec.Cancel {
		a.do(o.command("exec cancel", ke), "gives it up")
	}
}

// wanted says whose approvals are missing.
func wanted(ke *v1alpha1.KubernetesExecution, o Options) string {
	status := ke.Status.Approval
	missing := max(0, needed(status)-len(approvers(status)))
	text := fmt.Sprintf("It waits for %d more approvals", missing)
	if missing == 1 {
		text = "It waits for 1 more approval"
	}
	if len(status.Groups) > 0 {
		text += ", of members of " + strings.Join(status.Groups, " or ")
	}
	if status.FourEyes {
		text += ", not of " + cmp.Or(ke.Spec.RequestedBy, "whoever asked")
	}
	if already := approvers(status); len(already) > 0 {
		text += fmt.Sprintf(" (there is that of %s)", strings.Join(already, ", "))
	}
	if status.Deadline == nil {
		return text + ", without end."
	}
	left := status.Deadline.Sub(o.Now)
	if left <= 0 {
		return text + "; the time for it is over."
	}
	return fmt.Sprintf("%s, until %s (in %s).", text, status.Deadline.UTC().Format(time.RFC3339), terminal.Age(left))
}

func executing(a *Advice, ke *v1alpha1.KubernetesExecution, o Options) {
	results := ke.Status.ExecutionResults
	switch {
	case results != nil && results.EndTime != nil && len(ke.Spec.PostConditions) > 0:
		a.say("The action succeeded; its postconditions are looked at: %s.", strings.Join(cmpOr(open(postResults(ke)), conditionNames(ke.Spec.PostConditions)), ", "))
	case ke.Status.JobName != "":
		a.say("The Job %s runs the action.", ke.Status.JobName)
		a.do("kubectl --namespace="+ke.Namespace+" logs job/"+ke.Status.JobName+" --follow", "shows what it does")
		a.do("kubectl --namespace="+ke.Namespace+" describe jobs,pods --show-events --selector="+v1alpha1.LabelExecutionUID+"="+string(ke.UID), "shows why its pod does not start, if it does not")
	default:
		a.say("The action is being started.")
	}
	hold(a, ke, o)
	if !ke.Spec.Cancel {
		a.do(o.command("exec cancel", ke), "tells it to end")
	}
}

func cmpOr(one, other []string) []string {
	if len(one) > 0 {
		return one
	}
	return other
}

func conditionNames(list []v1alpha1.Condition) []string {
	var names []string
	for _, c := range list {
		names = append(names, c.Type)
	}
	return names
}

func ready(a *Advice, ke *v1alpha1.KubernetesExecution, o Options) {
	if ke.Status.Outcome == v1alpha1.OutcomeFailed {
		a.say("The action was done, and what must hold after it does not: %s. Nothing is taken back by itself.", strings.Join(cmpOr(open(postResults(ke)), []string{"see below"}), ", "))
	} else {
		a.say("The action was done. It can be taken back, now and later, as long as nobody else changes the target.")
	}
	if back(ke) {
		a.do(o.command("rollback", ke, "--reason=TEXT"), "takes it back")
	}
	if !ke.Spec.Finalize {
		a.do(o.command("exec finalize", ke), "leaves it at that; otherwise that comes by itself in a while")
	}
}

func back(ke *v1alpha1.KubernetesExecution) bool {
	return ke.Status.RollbackInformation != nil && ke.Status.RollbackInformation.Available
}

func completed(a *Advice, ke *v1alpha1.KubernetesExecution, o Options) {
	if TriedOut(ke) {
		a.say("The dry run is done; nothing was changed.")
		if ke.Spec.DryRun != v1alpha1.DryRunOnly {
			a.say("The controller runs with --dry-run: it tries everything out, and executes nothing.")
		}
		return
	}
	a.say("It is done.")
	if back(ke) {
		a.do(o.command("rollback", ke, "--reason=TEXT"), "takes it back, if nobody else has changed the target")
	}
}

// TriedOut says whether an execution has done no more than try out: because that
// was asked for, or because its controller executes nothing.
func TriedOut(ke *v1alpha1.KubernetesExecution) bool {
	return ke.Spec.DryRun == v1alpha1.DryRunOnly || slices.ContainsFunc(ke.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == v1alpha1.ConditionSucceeded && c.Reason == "DryRun"
	})
}

func failed(a *Advice, ke *v1alpha1.KubernetesExecution, o Options) {
	if ke.Status.ExecutionResults == nil {
		a.say("It has failed, and nothing was changed.")
	} else {
		a.say("It has failed.")
	}
	if text := remedy(ke, o); text != "" {
		a.say("%s", text)
	}
	if ke.Status.JobName != "" && ke.Status.ExecutionResults != nil {
		a.do("kubectl --namespace="+ke.Namespace+" logs job/"+ke.Status.JobName, "shows what the action said, as long as its pod is there")
	}
	if back(ke) {
		a.do(o.command("rollback", ke, "--reason=TEXT"), "takes back what was done, if nobody else has changed the target")
	}
}

// granting says how an action comes to the rights that it lacks. Two have none
// before somebody says on what.
func granting(ke *v1alpha1.KubernetesExecution) string {
	does := ke.Spec.Action
	if a, known := action.Find(does); known {
		does = a.Name
	}
	switch does {
	case "update_secret":
		return "An administrator names the Secret in the role of the action, as in deploy/rbac/actions-secrets.yaml or rbac.secretNames of the chart, and binds it in the namespace of the target"
	case "apply_manifest":
		return "An administrator names the kind in the role of the action, as in deploy/rbac/actions-manifests.yaml or rbac.manifestKinds of the chart, and binds it in the namespace of the target"
	}
	return "An administrator binds the role of the action in the namespace of the target"
}

// remedy says what to do about a failure: by its detail, or else by its reason.
func remedy(ke *v1alpha1.KubernetesExecution, o Options) string {
	details := map[v1alpha1.Detail]string{
		v1alpha1.DetailUnknownAction:       "fleetloop exec actions lists the actions there are.",
		v1alpha1.DetailInvalidParameters:   "fleetloop exec actions " + ke.Spec.Action + " tells the parameters.",
		v1alpha1.DetailRBACDenied:          granting(ke) + "; then ask again.",
		v1alpha1.DetailAdmissionDenied:     "The cluster's admission control refuses it: a webhook, a policy or a quota, which the message names. Ask for something that it allows.",
		v1alpha1.DetailTargetNotFound:      "Ask again with a target that exists.",
		v1alpha1.DetailTargetState:         "The target is in no state for it; ask again when it is.",
		v1alpha1.DetailTargetProtected:     "The target is protected; that is not overridden from here.",
		v1alpha1.DetailPolicyDenied:        "The rules of the policy that spoke stand below; ask for something that they allow.",
		v1alpha1.DetailPolicyUnavailable:   "Nothing is done without a policy. Mend the policy, then ask again.",
		v1alpha1.DetailPreConditionFailed:  "What must hold before it does not: " + strings.Join(cmpOr(open(preResults(ke)), []string{"see below"}), ", ") + ". Ask again when it does.",
		v1alpha1.DetailConditionKilled:     "A condition needed more CPU time or memory than it may have. Make it simpler; then ask again.",
		v1alpha1.DetailTargetBusy:          "Others were at the same target all the time. Ask again.",
		v1alpha1.DetailCooldown:            "Ask again later.",
		v1alpha1.DetailBudgetExceeded:      "Too much was going on all the time. Ask again.",
		v1alpha1.DetailCircuitOpen:         "The same has failed too often on this target. Find out why before asking again.",
		v1alpha1.DetailEmergencyStop:       "Everything is stopped: fleetloop exec resume" + o.In(ke) + " ends that.",
		v1alpha1.DetailGuardMissing:        "An administrator applies deploy/guard; then ask again.",
		v1alpha1.DetailRequesterUnverified: "An administrator sees to it that the admission policies of deploy/guard are in force; then ask again.",
		v1alpha1.DetailExecutorUnavailable: "The action's pod could not be started; see whether its image can be pulled, whether a node has room, and whether a quota allows it.",
		v1alpha1.DetailResultUnknown:       "Whether the action was done is not known: look at the target before anything else.",
		v1alpha1.DetailTargetChanged:       "Somebody else has changed the target since; look at it before asking again.",
		v1alpha1.DetailPartial:             "Some of it was done: look at the target.",
	}
	if text, ok := details[ke.Status.ReasonDetail]; ok {
		return text
	}
	switch ke.Status.Reason {
	case v1alpha1.ReasonDryRunFailed:
		return "The API server would not take the change; it says below why."
	case v1alpha1.ReasonApprovalTimeout:
		return "Nobody approved in time. Ask again."
	case v1alpha1.ReasonApprovalRejected:
		return "It was rejected; those who did say below why."
	case v1alpha1.ReasonPlanStale:
		return "The target or the policy changed after the plan was approved, and so it was not carried out. Ask again."
	case v1alpha1.ReasonExecutionTimeout:
		return "It took longer than it may. Look at the target, then ask again with a longer --timeout."
	case v1alpha1.ReasonExecutionFailed:
		return "The result below says what went wrong."
	case v1alpha1.ReasonPostConditionFailed:
		return "The action was done; what must hold after it does not: " + strings.Join(cmpOr(open(postResults(ke)), []string{"see below"}), ", ") + "."
	case v1alpha1.ReasonCancelled:
		if ke.Status.ExecutionResults == nil {
			return "It was cancelled" + byWhom(ke) + ". To have it done after all, ask again under another name."
		}
		return "It was cancelled" + byWhom(ke) + " while it was at work: look at the target."
	case v1alpha1.ReasonValidationError:
	}
	return ""
}

// byWhom says who cancelled, where that is known.
func byWhom(ke *v1alpha1.KubernetesExecution) string {
	if ke.Spec.CancelledBy == "" {
		return ""
	}
	return " by " + ke.Spec.CancelledBy
}

// Settled says whether nothing more comes of an execution by itself: it has
// ended, or it can only be taken back.
func Settled(ke *v1alpha1.KubernetesExecution) bool {
	return slices.Contains([]v1alpha1.Phase{v1alpha1.PhaseRollbackReady, v1alpha1.PhaseCompleted, v1alpha1.PhaseFailed}, ke.Status.Phase)
}
