package hosts

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/console"
	"github.com/fleetloop/fleetloop/internal/kube/executions"
)

// requestBody is the body of every request about an object.
type requestBody struct {
	Reason   string `json:"reason"`
	PlanHash string `json:"plan_hash"`
	// View is the page from which the person acts, for the timeline.
	View string `json:"view"`
}

// applyRequestToExecution sends a request about an execution with the token of the person.
func (h *Host) applyRequestToExecution(w http.ResponseWriter, r *http.Request) error {
	var body requestBody
	send := map[string]func(*personRequest) (*v1alpha1.KubernetesExecution, error){
		"approve":  (*personRequest).approvePlan,
		"reject":   (*personRequest).rejectPlan,
		"cancel":   (*personRequest).cancelExecution,
		"rollback": (*personRequest).createRollback,
	}[r.PathValue("request")]
	if send == nil {
		console.WriteProblemJSON(w, http.StatusNotFound, "An execution has no such request.", "")
		return nil
	}
	if !console.DecodeJSONOrWriteProblem(w, r, &body) {
		return nil
	}
	who := console.PersonFromContext(r.Context())
	c, _, err := h.newPersonClient(who.Token)
	if err != nil {
		return err
	}
	p := &personRequest{r: r, c: c, body: body, ke: &v1alpha1.KubernetesExecution{}}
	if p.name, p.groups, err = executions.CurrentUser(r.Context(), c); err != nil {
		return fmt.Errorf("get the name of the person: %w", err)
	}
	// The cache may be behind: a decision is about what is there now.
	if err := c.Get(r.Context(), client.ObjectKey{Namespace: r.PathValue("ns"), Name: r.PathValue("name")}, p.ke); err != nil {
		return fmt.Errorf("get execution: %w", err)
	}
	ke, err := send(p)
	if err != nil {
		return err
	}
	recordPersonAction(r, console.Action{
		Host: h.cfg.Name, Action: "execution-" + r.PathValue("request") + "-requested", By: p.name, Object: ke.Namespace + "/" + r.PathValue("name"), Reason: body.Reason, View: body.View,
	})
	console.WriteJSON(w, http.StatusOK, h.toExecutionDetails(r.Context(), who, ke))
	return nil
}

// personRequest is a request of a person about an execution.
type personRequest struct {
	r      *http.Request
	c      client.Client
	name   string
	groups []string
	body   requestBody
	ke     *v1alpha1.KubernetesExecution
}

func (p *personRequest) approvePlan() (*v1alpha1.KubernetesExecution, error) {
	return p.recordDecision(v1alpha1.Approve)
}

func (p *personRequest) rejectPlan() (*v1alpha1.KubernetesExecution, error) {
	if p.body.Reason == "" {
		return nil, errNoReason
	}
	return p.recordDecision(v1alpha1.Reject)
}

var (
	errNoReason   = errors.New("a reason is required: others see it")
	errNoPlanHash = errors.New("plan_hash is required: it names the plan that the person has seen")
	errHidden     = errors.New("there is no such object, or you may not see it")
	errAnswered   = errors.New("the request is answered")
)

func (p *personRequest) recordDecision(decision v1alpha1.ApprovalDecision) (*v1alpha1.KubernetesExecution, error) {
	if decision == v1alpha1.Approve && p.body.PlanHash == "" {
		return nil, errNoPlanHash
	}
	if err := executions.CheckDecidable(p.ke, ""); err != nil {
		return nil, err
	}
	if p.body.PlanHash != "" && p.body.PlanHash != p.ke.Status.Plan.Hash {
		return nil, &executions.StateError{Message: "the plan has changed since you saw it", Hint: "Look at the current plan."}
	}
	return executions.Decide(p.r.Context(), p.c, p.ke, v1alpha1.Approval{Approver: p.name, Decision: decision, Reason: p.body.Reason})
}

func (p *personRequest) cancelExecution() (*v1alpha1.KubernetesExecution, error) {
	if err := executions.CheckCancellable(p.ke); err != nil {
		return nil, err
	}
	return p.ke, executions.Cancel(p.r.Context(), p.c, p.ke, p.name)
}

// createRollback returns the execution that rolls back.
func (p *personRequest) createRollback() (*v1alpha1.KubernetesExecution, error) {
	if err := executions.CheckReversible(p.ke); err != nil {
		return nil, err
	}
	back := executions.NewRollback(p.ke, "", p.body.Reason)
	return back, executions.SetRequesterAndCreate(p.r.Context(), p.c, back, p.name, p.groups)
}

// Stop is the emergency stop of a host cluster.
type Stop struct {
	Stopped bool `json:"stopped"`
	// By is the user who set the stop, or empty if unknown.
	By     string     `json:"by,omitempty"`
	Reason string     `json:"reason,omitempty"`
	Since  *time.Time `json:"since,omitempty"`

	Can     Permission        `json:"can"`
	Command map[string]string `json:"command"`
}

// serveEmergencyStopState serves the emergency stop, read with the token of the person.
func (h *Host) serveEmergencyStopState(w http.ResponseWriter, r *http.Request) error {
	ctx, who := r.Context(), console.PersonFromContext(r.Context())
	c, _, err := h.newPersonClient(who.Token)
	if err != nil {
		return err
	}
	in := " --namespace=" + h.cfg.ExecutionNamespace
	answer := Stop{Command: map[string]string{
		"stop":   "fleetloop exec stop --reason=TEXT" + in,
		"resume": "fleetloop exec end-stop" + in,
	}}
	verb := "create"
	var m corev1.ConfigMap
	err = c.Get(ctx, client.ObjectKey{Namespace: h.cfg.ExecutionNamespace, Name: v1alpha1.EmergencyStop}, &m)
	switch {
	case err == nil:
		at := m.CreationTimestamp.UTC()
		answer.Stopped, answer.By, answer.Reason, answer.Since = true, m.Data[v1alpha1.StopBy], m.Data[v1alpha1.StopReason], &at
		verb = "delete"
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("read the emergency stop: %w", err)
	}
	allowed, err := h.reviews.personHasAccess(ctx, who, authorizationv1.ResourceAttributes{
		Verb: verb, Resource: "configmaps", Namespace: h.cfg.ExecutionNamespace, Name: v1alpha1.EmergencyStop,
	})
	switch {
	case err != nil:
		answer.Can.Reason = "your rights are not known now: " + err.Error()
	case !allowed:
		answer.Can.Reason = "you may not " + verb + " the emergency stop"
	default:
		answer.Can.Allowed = true
	}
	console.WriteJSON(w, http.StatusOK, answer)
	return nil
}

// activateEmergencyStop activates the emergency stop with the token of the person.
func (h *Host) activateEmergencyStop(w http.ResponseWriter, r *http.Request) error {
	body, c, err := h.readChangeRequest(w, r)
	if err != nil {
		return err
	}
	if _, _, err := executions.ActivateEmergencyStop(r.Context(), c, h.cfg.ExecutionNamespace, body.Reason, false); err != nil {
		return fmt.Errorf("stop executions: %w", err)
	}
	recordPersonAction(r, console.Action{Host: h.cfg.Name, Action: "emergency-stop-activated", Object: h.cfg.ExecutionNamespace, Reason: body.Reason, View: body.View})
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// endEmergencyStop ends the emergency stop with the token of the person.
func (h *Host) endEmergencyStop(w http.ResponseWriter, r *http.Request) error {
	body, c, err := h.readChangeRequest(w, r)
	if err != nil {
		return err
	}
	wasActive, err := executions.EndEmergencyStop(r.Context(), c, h.cfg.ExecutionNamespace)
	if err != nil {
		return fmt.Errorf("resume executions: %w", err)
	}
	if wasActive {
		recordPersonAction(r, console.Action{Host: h.cfg.Name, Action: "emergency-stop-ended", Object: h.cfg.ExecutionNamespace, Reason: body.Reason, View: body.View})
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// readChangeRequest returns the body of a change, which needs a reason, and a client with the token of the
// person. It returns errAnswered if it has refused the body itself.
func (h *Host) readChangeRequest(w http.ResponseWriter, r *http.Request) (body requestBody, c client.Client, err error) {
	if !console.DecodeJSONOrWriteProblem(w, r, &body) {
		return body, nil, errAnswered
	}
	if body.Reason == "" {
		return body, nil, errNoReason
	}
	c, _, err = h.newPersonClient(console.PersonFromContext(r.Context()).Token)
	return body, c, err
}

// recordPersonAction reports what a person did. An action without a name is that of the signed-in person.
func recordPersonAction(r *http.Request, action console.Action) {
	if action.By == "" {
		action.By = console.PersonFromContext(r.Context()).Name
	}
	console.RecordActionFromContext(r.Context(), action)
}

// serveExecutionLog serves the log of an execution's Pod, read with the token of the person.
func (h *Host) serveExecutionLog(w http.ResponseWriter, r *http.Request) error {
	ke, err := h.getExecutionIfAllowed(r)
	if err != nil {
		return err
	}
	c, cfg, err := h.newPersonClient(console.PersonFromContext(r.Context()).Token)
	if err != nil {
		return err
	}
	var pods corev1.PodList
	if err := c.List(r.Context(), &pods, client.InNamespace(ke.Namespace), client.MatchingLabels{v1alpha1.LabelExecutionUID: string(ke.UID)}); err != nil {
		return fmt.Errorf("list the Pods of the execution: %w", err)
	}
	if len(pods.Items) == 0 {
		return &executions.StateError{Message: "the execution has no Pod: it has not started, or the Pod is deleted"}
	}
	cfg.Timeout = 0 // a log that is followed lasts
	core, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	newest := slices.MaxFunc(pods.Items, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	follow := r.URL.Query().Get("follow") == "true"
	log, err := core.CoreV1().Pods(ke.Namespace).GetLogs(newest.Name, &corev1.PodLogOptions{Follow: follow}).Stream(r.Context())
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	defer func() { _ = log.Close() }()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = io.Copy(flushingWriter{w, http.NewResponseController(w)}, log) // the client or the Pod may be gone
	return nil
}

// flushingWriter flushes each part of an answer, and lets it last.
type flushingWriter struct {
	w       io.Writer
	control *http.ResponseController
}

func (f flushingWriter) Write(p []byte) (int, error) {
	_ = f.control.SetWriteDeadline(time.Now().Add(requestTimeout)) // connections of a server support it
	n, err := f.w.Write(p)
	if err == nil {
		err = f.control.Flush()
	}
	return n, err
}

// explainClusterAccessError returns why a person cannot change a host cluster through the console.
func explainClusterAccessError(err error) string {
	switch {
	case errors.Is(err, errNoToken):
		return "You are signed in without a token. Use the commands of the command line."
	case errors.Is(err, errNotAccepted):
		return "The API server of this host cluster does not trust the issuer of your token. Use the commands of the command line."
	}
	return "The host cluster cannot be reached now: " + err.Error()
}

// writeErrorProblem answers with the status that fits an error.
func writeErrorProblem(log *slog.Logger, w http.ResponseWriter, r *http.Request, err error) {
	state, isState := errors.AsType[*executions.StateError](err)
	status, isStatus := errors.AsType[*apierrors.StatusError](err)
	_, offline := errors.AsType[*url.Error](err)
	switch {
	case errors.Is(err, errAnswered):
		// There is nothing to add.
	case isState:
		console.WriteProblemJSON(w, http.StatusConflict, capitalizeFirst(state.Message)+".", state.Hint)
	case errors.Is(err, console.ErrToken):
		if err := console.EndSessionFromContext(r.Context()); err != nil {
			log.WarnContext(r.Context(), "session not ended", "err", err)
		}
		console.WriteProblemJSON(w, http.StatusUnauthorized, "The fleet API does not accept your token any more.", "Sign in again.")
	case errors.Is(err, errNoReason), errors.Is(err, errNoPlanHash):
		console.WriteProblemJSON(w, http.StatusBadRequest, capitalizeFirst(err.Error())+".", "")
	case errors.Is(err, errHidden), apierrors.IsNotFound(err):
		console.WriteProblemJSON(w, http.StatusNotFound, capitalizeFirst(errHidden.Error())+".", "")
	case errors.Is(err, errNoToken), errors.Is(err, errNotAccepted), apierrors.IsUnauthorized(err):
		console.WriteProblemJSON(w, http.StatusForbidden, explainClusterAccessError(errors.Join(err, errNotAccepted)), "")
	case errors.Is(err, errMayNotList):
		console.WriteProblemJSON(
			w,
			http.StatusForbidden,
			capitalizeFirst(err.Error())+".",
			"Ask an administrator of the host cluster for a role.",
		)
	case isStatus && isRefusedByAPIServer(err):
		console.WriteProblemJSON(w, int(status.Status().Code), status.Status().Message, "")
	case errors.Is(err, errNoAudit):
		console.WriteProblemJSON(
			w,
			http.StatusNotFound,
			capitalizeFirst(err.Error())+".",
			"Set audit_database_url of the host cluster, or run: fleetloop audit get",
		)
	case errors.Is(err, errAuditUnavailable):
		log.WarnContext(r.Context(), "audit not read", "path", r.URL.Path, "err", err)
		console.WriteProblemJSON(
			w,
			http.StatusServiceUnavailable,
			"The audit cannot be read now.",
			"Try again. If this lasts, look at the log of the console.",
		)
	case errors.Is(r.Context().Err(), err):
		// The client is gone.
	default:
		log.WarnContext(r.Context(), "request to the host cluster failed", "path", r.URL.Path, "offline", offline, "err", err)
		console.WriteProblemJSON(
			w,
			http.StatusServiceUnavailable,
			"The host cluster cannot be reached now, or has not been listed yet.",
			"Try again. If this lasts, look at the log of the console.",
		)
	}
}

func isRefusedByAPIServer(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}

func capitalizeFirst(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
