package hosts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/console"
	"github.com/fleetloop/fleetloop/internal/kube"
)

const (
	faultGroup = "fleetloop.io"
	faultsName = "nodefaults"
)

var errMayNotList = errors.New("you may not list these objects of the host cluster")

// Node is a faulty node in the console.
type Node struct {
	Host     string     `json:"host"`
	Name     string     `json:"name"`
	Stage    string     `json:"stage"`
	Since    *time.Time `json:"since,omitempty"`
	Reason   string     `json:"reason,omitempty"`
	Blocking []Blocking `json:"blocking"`
	Fault    Fault      `json:"fault"`

	UndeliveredChangeEvents int `json:"undelivered_change_events,omitempty"`

	Can     map[string]Permission `json:"can,omitempty"`
	Command map[string]string     `json:"command,omitempty"`
	// Object has the faults, the drain and the history.
	Object *v1alpha1.NodeFault `json:"object"`
}

// Blocking is a pod that blocks a drain.
type Blocking struct {
	Pod       string    `json:"pod"`
	Namespace string    `json:"namespace"`
	Budget    string    `json:"budget,omitempty"`
	Message   string    `json:"message,omitempty"`
	Since     time.Time `json:"since"`
}

// Fault is the summary of a NodeFault.
type Fault struct {
	Phase   v1alpha1.Phase `json:"phase"`
	Code    string         `json:"code,omitempty"`
	Session string         `json:"session,omitempty"`
	Faults  int            `json:"faults"`
	Remedy  string         `json:"remedy,omitempty"`
}

// repairStageOf returns the stage of the repair. A deleted node has none.
func repairStageOf(phase v1alpha1.Phase) string {
	switch phase {
	case v1alpha1.PhaseQuarantined:
		return "cordoned"
	case v1alpha1.PhaseDraining:
		return "draining"
	case v1alpha1.PhaseRemediating, v1alpha1.PhaseStuck:
		return "repairing"
	case v1alpha1.PhaseRecovering:
		return "returning"
	case v1alpha1.PhaseHeld:
		return "held"
	case v1alpha1.PhaseHealthy, v1alpha1.PhaseOverridden:
		return "back"
	case v1alpha1.PhaseGone:
		return ""
	case v1alpha1.PhaseObserved, v1alpha1.PhasePending, v1alpha1.PhaseDryRun:
	}
	return "detected"
}

func toNode(host string, fault *v1alpha1.NodeFault) Node {
	st := &fault.Status
	n := Node{
		Host: host, Name: fault.Name, Stage: repairStageOf(st.Phase), Reason: st.Message, Blocking: []Blocking{},
		Fault:                   Fault{Phase: st.Phase, Code: st.FaultCode, Session: st.Session, Faults: len(fault.Spec.Faults)},
		UndeliveredChangeEvents: int(st.UndeliveredChangeEvents), Object: fault.DeepCopy(),
	}
	n.Object.ManagedFields = nil
	if st.PhaseChangedAt != nil {
		at := st.PhaseChangedAt.UTC()
		n.Since = &at
	}
	if r := st.Remediation; r != nil {
		n.Fault.Remedy = fmt.Sprintf("%s #%d %s", r.Action, r.Attempt, strings.ToLower(string(r.State)))
	}
	if d := st.Drain; d != nil && st.Phase == v1alpha1.PhaseDraining {
		for _, b := range d.BlockedPods {
			namespace, pod, _ := strings.Cut(b.Pod, "/")
			n.Blocking = append(
				n.Blocking,
				Blocking{Pod: pod, Namespace: namespace, Budget: b.BlockedBy, Message: b.Message, Since: d.StartedAt.UTC()},
			)
		}
	}
	return n
}

// addNodePermissionsAndCommands adds what a person may do with a node.
func (v *accessReviewer) addNodePermissionsAndCommands(ctx context.Context, person console.Person, n *Node) {
	n.Command = map[string]string{
		"hold":    "kubectl annotate node " + n.Name + " " + v1alpha1.AnnotationHold + "=REASON",
		"release": "fleetloop faults release " + n.Name + " --reason=TEXT",
	}
	n.Can = map[string]Permission{}
	for action, verb := range map[string]string{"hold": "patch", "release": "update"} {
		me, err := v.lookUpTokenUser(ctx, person)
		if err != nil {
			n.Can[action] = Permission{Reason: explainClusterAccessError(err)}
			continue
		}
		ok, err := v.personHasAccess(ctx, person, authorizationv1.ResourceAttributes{Verb: verb, Resource: "nodes"})
		switch {
		case err != nil:
			n.Can[action] = Permission{Reason: "your rights are not known now: " + err.Error()}
		case !ok:
			n.Can[action] = Permission{Reason: fmt.Sprintf("%s may not %s nodes", me.Name, verb)}
		default:
			n.Can[action] = Permission{Allowed: true}
		}
	}
}

// budgetAnswer is how many nodes of a pool node-fault-controller has taken out of service.
type budgetAnswer struct {
	Pool string `json:"pool,omitempty"`
	Used int    `json:"used"`
	// Limit is absent if it is not known. Nodes that others cordoned and nodes that are not ready count
	// against it too.
	Limit *int32 `json:"limit,omitempty"`
	// BlockedSince is when the first node began to wait for the budget.
	BlockedSince *time.Time `json:"blocked_since,omitempty"`
}

// listPoolBudgets returns the budgets of the pools that have a node out of service or waiting, by name.
func listPoolBudgets(faults []v1alpha1.NodeFault) []budgetAnswer {
	pools := map[string]*budgetAnswer{}
	for i := range faults {
		status := &faults[i].Status
		isOutOfService, isWaiting := status.Owned != nil, status.Phase == v1alpha1.PhasePending
		if !isOutOfService && !isWaiting {
			continue
		}
		poolName := ""
		if status.Budget != nil {
			poolName = status.Budget.Pool
		}
		pool := pools[poolName]
		if pool == nil {
			pool = &budgetAnswer{Pool: poolName}
			pools[poolName] = pool
		}
		if status.Budget != nil {
			pool.Limit = &status.Budget.Limit
		}
		if isOutOfService {
			pool.Used++
		}
		if isWaiting && status.PhaseChangedAt != nil {
			pool.addWaitingSince(status.PhaseChangedAt.UTC())
		}
	}
	list := []budgetAnswer{}
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		list = append(list, *pools[name])
	}
	return list
}

func (b *budgetAnswer) addWaitingSince(since time.Time) {
	if b.BlockedSince == nil || since.Before(*b.BlockedSince) {
		b.BlockedSince = &since
	}
}

// serveFaultyNodes serves the faulty nodes to a person who may list NodeFaults.
func (h *Host) serveFaultyNodes(w http.ResponseWriter, r *http.Request) error {
	ctx, who := r.Context(), console.PersonFromContext(r.Context())
	f, err := h.reviews.newReadFilter(ctx, who, "list", faultGroup, faultsName)
	if err != nil {
		return err
	}
	if ok, err := f.allowsRead(ctx, "", ""); err != nil || !ok {
		return errors.Join(err, errMayNotList)
	}
	var all v1alpha1.NodeFaultList
	if err := h.reader.List(ctx, &all); err != nil {
		return fmt.Errorf("list node faults: %w", err)
	}
	slices.SortFunc(all.Items, func(a, b v1alpha1.NodeFault) int { return cmp.Compare(a.Name, b.Name) })
	answer := struct {
		Budgets []budgetAnswer `json:"budgets"`
		Items   []Node         `json:"items"`
		AsOf    time.Time      `json:"as_of"`
	}{Budgets: listPoolBudgets(all.Items), Items: []Node{}, AsOf: time.Now().UTC()}
	for i := range all.Items {
		fault := &all.Items[i]
		n := toNode(h.cfg.Name, fault)
		if n.Stage == "" {
			continue
		}
		h.reviews.addNodePermissionsAndCommands(ctx, who, &n)
		answer.Items = append(answer.Items, n)
	}
	console.WriteJSON(w, http.StatusOK, answer)
	return nil
}

// holdNodeAndRespond keeps a node out of service with the token of the person.
func (h *Host) holdNodeAndRespond(w http.ResponseWriter, r *http.Request) error {
	return h.changeNodeAndRecordAction(w, r, "node-hold-requested", func(n *corev1.Node, reason string) (*corev1.Node, bool) {
		if _, held := n.Annotations[v1alpha1.AnnotationHold]; held {
			return n, false
		}
		after := n.DeepCopy()
		if after.Annotations == nil {
			after.Annotations = map[string]string{}
		}
		after.Annotations[v1alpha1.AnnotationHold] = reason
		return after, true
	})
}

// releaseNodeAndRespond returns a node to service with the token of the person.
func (h *Host) releaseNodeAndRespond(w http.ResponseWriter, r *http.Request) error {
	return h.changeNodeAndRecordAction(w, r, "node-release-requested", func(n *corev1.Node, reason string) (*corev1.Node, bool) {
		after, changed := h.deps.ReleaseNode(n, time.Now(), reason)
		if _, held := after.Annotations[v1alpha1.AnnotationHold]; held {
			after, changed = after.DeepCopy(), true
			delete(after.Annotations, v1alpha1.AnnotationHold)
		}
		return after, changed
	})
}

func (h *Host) changeNodeAndRecordAction(
	w http.ResponseWriter, r *http.Request, action string, change func(*corev1.Node, string) (*corev1.Node, bool),
) error {
	body, c, err := h.readChangeRequest(w, r)
	if err != nil {
		return err
	}
	node, changed, err := kube.UpdateNodeRetryingConflicts(
		r.Context(),
		c,
		r.PathValue("name"),
		func(n *corev1.Node) (*corev1.Node, bool) { return change(n, body.Reason) },
	)
	if err != nil {
		return fmt.Errorf("change node: %w", err)
	}
	if changed {
		recordPersonAction(r, console.Action{Host: h.cfg.Name, Action: action, Node: node.Name, Reason: body.Reason, View: body.View})
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
