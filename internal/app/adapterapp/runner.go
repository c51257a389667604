package adapterapp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fleetloop/fleetloop/adapter"
	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// maxMessage limits a message of a report in bytes.
const maxMessage = 2048

// RunnerDeps holds what actions use.
type RunnerDeps struct {
	// Env returns a variable of the environment.
	Env func(name string) (string, bool)

	// Kube is the client of the host cluster. It is only needed if File.usesKubernetes.
	Kube client.Client
}

// A Runner is the Reconciler of a file. It is safe for concurrent use.
type Runner struct {
	secret         func(name string) (string, error)
	condition      func(*scope) (bool, error)
	waitingMessage string // of the report while the condition is false
	work           action
	report         report

	// What happens to a deleted resource.
	cleanup        action // nil if there is nothing to clean up
	finalized      func(*scope) (bool, error)
	cleanupMessage func(*scope) (string, error)
}

// An action is a compiled action.
type action interface {
	// prepareStep evaluates the expressions. Errors are those of expressions.
	prepareStep(s *scope) (step, error)
}

// A step is an action with its values.
type step interface {
	// describeForDryRun returns what run does, as a value of JSON.
	describeForDryRun() map[string]any
	// runStep does it, and returns the variable result.
	runStep(ctx context.Context) (map[string]any, error)
}

// usesKubernetes reports whether an action needs a host cluster.
func (f File) usesKubernetes() bool {
	return f.Action.usesKubernetes() || f.Delete.usesKubernetes()
}

func (a Action) usesKubernetes() bool {
	return isSectionGiven(a.Apply) || isSectionGiven(a.Remove) || isSectionGiven(a.Job)
}

// isSectionGiven reports whether the file has any value in a section.
func isSectionGiven(section any) bool { return !reflect.ValueOf(section).IsZero() }

// NewRunner checks and compiles a file that report was loaded for. The error joins one for each problem,
// with its position.
func NewRunner(f File, report *settings.Report, deps RunnerDeps) (*Runner, error) {
	c, err := newCompiler(report, f.Secrets)
	if err != nil {
		return nil, err
	}
	c.checkSecrets(f.Secrets)
	r := &Runner{
		secret:         newSecretReader(f.Secrets, deps.Env),
		waitingMessage: textOrFallback(f.Waiting, "Waiting until the condition is true"),
	}

	// The work. The compiler collects the errors of all sections.
	r.condition = c.compileCondition("condition", f.Condition, "true", c.resource)
	r.work = c.compileAction("action", f.Action, f.Name, deps)
	r.report = c.compileReport(f.Report, defaultCompletionExpr(f.Action))

	// The cleanup.
	switch {
	case !f.Delete.Nothing:
		r.cleanup = c.compileAction("delete", f.Delete.Action, f.Name, deps)
	case isSectionGiven(f.Delete.Action):
		c.recordError("delete.nothing", errors.New("is set together with an action; remove one of them"))
	}
	isFinalized := defaultCompletionExpr(f.Delete.Action)
	r.finalized = c.compileCondition("delete.finalized", f.Delete.Finalized, isFinalized, c.result)
	message := textOrFallback(f.Delete.Message, "Cleanup complete")
	r.cleanupMessage = c.compileText("delete.message", message, c.result)
	if err := errors.Join(c.errs...); err != nil {
		return nil, err
	}
	return r, nil
}

// defaultCompletionExpr returns the expression for the completion of an action, if the file has none.
func defaultCompletionExpr(a Action) string {
	switch {
	case isSectionGiven(a.Remove):
		return "!result.exists"
	case isSectionGiven(a.Job):
		return "result.state == 'Succeeded'"
	}
	return "true"
}

func textOrFallback(text, fallback string) string {
	if text == "" {
		return fallback
	}
	return text
}

func (c *compiler) checkSecrets(secrets map[string]Secret) {
	for name, s := range secrets {
		key := "secrets[" + name + "]"
		if !regexp.MustCompile(`^[a-z_][a-z0-9_]*$`).MatchString(name) {
			c.recordError(key, errors.New("the name must be lower-case letters, digits and underscores"))
		}
		if (s.Env == "") == (s.File == "") {
			c.recordError(key, errors.New("set either env or file"))
		}
	}
}

// compileAction compiles the one action of a section.
func (c *compiler) compileAction(key string, a Action, adapterName string, deps RunnerDeps) action {
	var found []action
	if isSectionGiven(a.HTTP) {
		found = append(found, c.compileHTTPAction(key+".http", a.HTTP, adapterName))
	}
	if isSectionGiven(a.Command) {
		found = append(found, c.compileCommand(key+".command", a.Command, deps.Env))
	}
	if isSectionGiven(a.Apply) {
		apply := kubeAction{kube: deps.Kube, manager: textOrFallback(a.Apply.FieldManager, adapterName)}
		found = append(found, c.compileObjectAction(key+".apply", apply, a.Apply.Manifest))
	}
	if isSectionGiven(a.Remove) {
		remove := kubeAction{kube: deps.Kube, manager: textOrFallback(a.Remove.FieldManager, adapterName), remove: true}
		found = append(found, c.compileObjectAction(key+".remove", remove, a.Remove.Manifest))
	}
	if isSectionGiven(a.Job) {
		found = append(found, c.compileJobAction(key, adapterName, a.Job, deps.Kube))
	}
	if len(found) == 1 {
		return found[0]
	}
	hint := ""
	if key == "delete" {
		hint = ", or nothing: true"
	}
	c.recordError(key, fmt.Errorf("has %d actions; set exactly one of http, command, apply, remove and job%s", len(found), hint))
	return nil
}

// Reconcile implements adapter.Reconciler.
func (r *Runner) Reconcile(ctx context.Context, resource adapter.Resource) (adapter.Report, error) {
	s, err := newScope(resource, r.secret)
	if err != nil {
		return adapter.Report{}, err
	}
	if resource.Deleting() {
		return r.finalize(ctx, s)
	}
	due, err := r.condition(s)
	if err != nil {
		return adapter.Report{}, s.markPermanentUnlessSecretFailed(err)
	}
	if !due {
		return adapter.Waiting(r.waitingMessage), nil
	}
	if err := s.runActionAndStoreResult(ctx, r.work); err != nil {
		return adapter.Report{}, err
	}
	return r.report.evaluateReport(s)
}

// runActionAndStoreResult runs an action, and sets the variable result.
func (s *scope) runActionAndStoreResult(ctx context.Context, a action) error {
	step, err := a.prepareStep(s)
	if err != nil {
		return s.markPermanentUnlessSecretFailed(err)
	}
	result, err := step.runStep(ctx)
	s.vars[varResult] = result
	return err
}

// finalize cleans up after a deleted resource.
func (r *Runner) finalize(ctx context.Context, s *scope) (adapter.Report, error) {
	s.vars[varResult] = map[string]any{} // for the message without a cleanup
	if r.cleanup != nil {
		if err := s.runActionAndStoreResult(ctx, r.cleanup); err != nil {
			return adapter.Report{}, err
		}
		finalized, err := r.finalized(s)
		if err != nil {
			return adapter.Report{}, err
		}
		if !finalized {
			return adapter.InProgress("Cleanup in progress"), nil
		}
	}
	message, err := r.cleanupMessage(s)
	return adapter.Finalized(truncateMessage(message)), err
}

// A report is a compiled Report.
type report struct {
	available  func(*scope) (bool, error)
	message    func(*scope) (string, error) // nil for the usual one
	data       value
	conditions []condition
}

type condition struct {
	name            string
	status          func(*scope) (bool, error)
	reason, message func(*scope) (string, error)
}

func (c *compiler) compileReport(f Report, defaultAvailable string) report {
	r := report{available: c.compileCondition("report.available", f.Available, defaultAvailable, c.result)}
	if f.Message != "" {
		r.message = c.compileText("report.message", f.Message, c.result)
	}
	if _, ok := f.Data.Value.(map[string]any); !ok && f.Data.Value != nil {
		c.recordError("report.data", errors.New("must be a mapping"))
	}
	r.data = c.compileTree("report.data", f.Data.Value, c.result)
	for i, d := range f.Conditions {
		key := fmt.Sprintf("report.conditions[%d]", i)
		if d.Type == v1.ConditionAvailable || d.Type == v1.ConditionFinalized {
			c.recordError(key+".type", fmt.Errorf("%s has its own expression", d.Type))
		}
		r.conditions = append(r.conditions, condition{
			name:    d.Type,
			status:  c.compileCondition(key+".status", d.Status, "", c.result),
			reason:  c.compileText(key+".reason", textOrFallback(d.Reason, d.Type), c.result),
			message: c.compileText(key+".message", d.Message, c.result),
		})
	}
	return r
}

// evaluateReport returns the report on a resource after its action.
func (r report) evaluateReport(s *scope) (adapter.Report, error) {
	// The condition Available.
	available, err := r.available(s)
	if err != nil {
		return adapter.Report{}, err
	}
	message := "Work complete"
	if !available {
		message = "Work in progress"
	}
	if r.message != nil {
		if message, err = r.message(s); err != nil {
			return adapter.Report{}, err
		}
	}
	out := adapter.InProgress(truncateMessage(message))
	if available {
		out = adapter.Available(truncateMessage(message))
	}

	// The other conditions.
	for _, c := range r.conditions {
		condition, err := c.evaluateCondition(s)
		if err != nil {
			return adapter.Report{}, err
		}
		out.Conditions = replaceOrAddCondition(out.Conditions, condition)
	}

	// The data.
	data, err := r.data(s)
	if err == nil && data != nil {
		out.Data, err = json.Marshal(data)
	}
	if len(out.Data) > maxValue {
		err = fmt.Errorf("evaluate report.data: %w", errValueTooLong)
	}
	return out, err
}

// evaluateCondition returns a condition of the report.
func (c condition) evaluateCondition(s *scope) (v1.ReportCondition, error) {
	isTrue, statusErr := c.status(s)
	reason, reasonErr := c.reason(s)
	message, messageErr := c.message(s)
	if err := errors.Join(statusErr, reasonErr, messageErr); err != nil {
		return v1.ReportCondition{}, err
	}
	status := v1.ConditionFalse
	if isTrue {
		status = v1.ConditionTrue
	}
	return v1.ReportCondition{Type: c.name, Status: status, Reason: reason, Message: truncateMessage(message)}, nil
}

// replaceOrAddCondition adds a condition, or replaces that of its type.
func replaceOrAddCondition(list []v1.ReportCondition, c v1.ReportCondition) []v1.ReportCondition {
	for i := range list {
		if list[i].Type == c.Type {
			list[i] = c
			return list
		}
	}
	return append(list, c)
}

// truncateMessage limits a message, without cutting a character.
func truncateMessage(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage], "")
}

// DryRun writes the value of the condition, and what the action would do, as YAML. It does nothing. In
// place of each secret it writes the name of the secret.
func (r *Runner) DryRun(w io.Writer, resource adapter.Resource) error {
	s, err := newScope(resource, func(name string) (string, error) { return "<secret " + name + ">", nil })
	if err != nil {
		return err
	}
	out := map[string]any{}
	planned := r.work
	due := true
	if resource.Deleting() {
		out["deleted"] = true
		planned = r.cleanup
	} else {
		if due, err = r.condition(s); err != nil {
			return err
		}
		out["condition"] = due
	}
	if out["action"], err = describeAction(planned, s, due); err != nil {
		return err
	}
	text, err := yaml.Marshal(out)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// describeAction returns what an action would do. Before it is due, its expressions may fail.
func describeAction(a action, s *scope, due bool) (any, error) {
	if a == nil {
		return "nothing", nil
	}
	step, err := a.prepareStep(s)
	switch {
	case err == nil:
		return step.describeForDryRun(), nil
	case !due:
		return "unknown: " + err.Error(), nil
	}
	return nil, err
}
