package columns

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
)

// A shown execution is one with a status, and how kubectl shows it.
type shown struct {
	reason string
	action string
	by     string
	status v1alpha1.KubernetesExecutionStatus
	want   string // the cells but the age
}

// executions are some in each phase.
func executions() map[string]shown {
	asked := func(state string) *v1alpha1.ApprovalStatus {
		return &v1alpha1.ApprovalStatus{State: state, Required: state != v1alpha1.ApprovalNotRequired}
	}
	const web = "Deployment/shop/web"
	return map[string]shown{
		"new": {
			reason: "nobody has seen it yet", action: "scale_deployment",
			want: "new|<nil>|scale_deployment|<nil>|<nil>|<nil>|<nil>|<nil>|<nil>",
		},
		"validating": {
			reason: "it waits for the policies", action: "restart_deployment", by: "alice",
			status: v1alpha1.KubernetesExecutionStatus{Phase: v1alpha1.PhaseValidating, Target: web, ReasonDetail: v1alpha1.DetailPolicyUnavailable, Message: "checks could not run"},
			want:   "validating|validating|restart_deployment|Deployment/shop/web|<nil>|<nil>|policy_unavailable|alice|checks could not run",
		},
		"validated": {
			reason: "it waits for its turn", action: "scale_deployment", by: "alice",
			status: v1alpha1.KubernetesExecutionStatus{
				Phase: v1alpha1.PhaseValidated, Target: web, Approval: asked(v1alpha1.ApprovalNotRequired), ReasonDetail: v1alpha1.DetailTargetBusy, Message: "another one is ahead",
			},
			want: "validated|validated|scale_deployment|Deployment/shop/web|NotRequired|<nil>|target_busy|alice|another one is ahead",
		},
		"waiting": {
			reason: "somebody has to approve", action: "drain_node", by: "system:serviceaccount:ops:bot",
			status: v1alpha1.KubernetesExecutionStatus{Phase: v1alpha1.PhaseWaitingApproval, Target: "Node/n1", Approval: asked(v1alpha1.ApprovalPending), Message: "0 of 1 approved"},
			want:   "waiting|waiting_approval|drain_node|Node/n1|Pending|<nil>|<nil>|system:serviceaccount:ops:bot|0 of 1 approved",
		},
		"executing": {
			reason: "it runs", action: "scale_deployment", by: "alice",
			status: v1alpha1.KubernetesExecutionStatus{Phase: v1alpha1.PhaseExecuting, Target: web, Approval: asked(v1alpha1.ApprovalApproved)},
			want:   "executing|executing|scale_deployment|Deployment/shop/web|Approved|<nil>|<nil>|alice|<nil>",
		},
		"ready": {
			reason: "it is done, and what was to hold does not", action: "scale_deployment", by: "alice",
			status: v1alpha1.KubernetesExecutionStatus{
				Phase: v1alpha1.PhaseRollbackReady, Target: web, Approval: asked(v1alpha1.ApprovalApproved), Outcome: v1alpha1.OutcomeFailed,
				Reason: v1alpha1.ReasonPostConditionFailed, ReasonDetail: v1alpha1.Detail(v1alpha1.ReasonPostConditionFailed), Message: "six does not hold",
			},
			want: "ready|rollback_ready|scale_deployment|Deployment/shop/web|Approved|Failed|postcondition_failed|alice|six does not hold",
		},
		"completed": {
			reason: "it is over", action: "notify_only", by: "alice",
			status: v1alpha1.KubernetesExecutionStatus{
				Phase: v1alpha1.PhaseCompleted, Target: web, Approval: asked(v1alpha1.ApprovalNotRequired), Outcome: v1alpha1.OutcomePartial, Message: "told",
			},
			want: "completed|completed|notify_only|Deployment/shop/web|NotRequired|PartiallySucceeded|<nil>|alice|told",
		},
		"failed": {
			reason: "the detail says more than the reason", action: "scale_deployment", by: "alice",
			status: v1alpha1.KubernetesExecutionStatus{
				Phase: v1alpha1.PhaseFailed, Target: web, Approval: asked(v1alpha1.ApprovalExpired), Outcome: v1alpha1.OutcomeFailed,
				Reason: v1alpha1.ReasonValidationError, ReasonDetail: v1alpha1.DetailPolicyDenied, Message: "21 replicas are too many",
			},
			want: "failed|failed|scale_deployment|Deployment/shop/web|Expired|Failed|policy_denied|alice|21 replicas are too many",
		},
	}
}

// A shelf is a namespace with executions in it.
type shelf struct {
	testing.TB

	client    client.Client
	namespace string
}

// newShelf has one with all executions.
func newShelf(t *testing.T) shelf {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(kubebedtest.Bed(t).Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	s := shelf{t, c, kubebedtest.Namespace(t)}
	for name, e := range executions() {
		ke := &v1alpha1.KubernetesExecution{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
			Spec:       v1alpha1.KubernetesExecutionSpec{Action: e.action, RequestedBy: e.by},
		}
		if err := c.Create(t.Context(), ke); err != nil {
			t.Fatal(err)
		}
		if e.status.Phase == v1alpha1.PhaseNew {
			continue
		}
		ke.Status = e.status
		if err := c.Status().Update(t.Context(), ke); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// table is the table that kubectl asks for, of the executions that a selector
// of fields selects.
func (s shelf) table(selector string) *metav1.Table {
	s.Helper()
	cfg := kubebedtest.Bed(s.TB).Config()
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		s.Fatal(err)
	}
	at := fmt.Sprintf("%s/apis/%s/namespaces/%s/%s?fieldSelector=%s", cfg.Host, v1alpha1.GroupVersion, s.namespace, v1alpha1.Resource, url.QueryEscape(selector))
	req, err := http.NewRequestWithContext(s.Context(), http.MethodGet, at, http.NoBody)
	if err != nil {
		s.Fatal(err)
	}
	req.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	resp, err := hc.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	var table metav1.Table
	if err := json.NewDecoder(resp.Body).Decode(&table); err != nil || resp.StatusCode != http.StatusOK {
		s.Fatalf("%s: %v", resp.Status, err)
	}
	return &table
}

// TestColumns: who lists executions sees of each how far it is, what it does, to
// what, and why it is not further.
func TestColumns(t *testing.T) {
	t.Parallel()
	table := newShelf(t).table("")
	var headings []string
	age := -1
	for i, c := range table.ColumnDefinitions {
		headings = append(headings, fmt.Sprintf("%s %d", c.Name, c.Priority))
		if c.Name == "Age" {
			age = i
		}
	}
	want := []string{"Name 0", "Phase 0", "Action 0", "Target 0", "Approval 0", "Outcome 0", "Age 0", "Reason 1", "Requested By 1", "Message 1"}
	if diff := cmp.Diff(want, headings); diff != "" {
		t.Fatalf("columns, and 1 for those of -o wide (-want +got):\n%s", diff)
	}
	all := executions()
	for _, row := range table.Rows {
		var cells []string
		for i, cell := range row.Cells {
			if text := fmt.Sprint(cell); i != age {
				cells = append(cells, text)
			} else if !regexp.MustCompile(`^\d+[sm]`).MatchString(text) {
				t.Errorf("%v: the age is %q", row.Cells[0], text)
			}
		}
		e := all[cells[0]]
		delete(all, cells[0])
		if got := strings.Join(cells, "|"); got != e.want {
			t.Errorf("%s: it is shown as\n%s, want\n%s", e.reason, got, e.want)
		}
	}
	if len(all) > 0 {
		t.Errorf("not shown: %v", all)
	}
}

// TestFieldSelectors: executions are found by action and phase, in lists, in what
// kubectl asks for, and by nothing else.
func TestFieldSelectors(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	for selector, want := range map[string][]string{
		"spec.action=drain_node":                                     {"waiting"},
		"spec.action!=scale_deployment":                              {"completed", "validating", "waiting"},
		"status.phase=executing":                                     {"executing"},
		"status.phase=":                                              {"new"},
		"status.phase!=completed,status.phase!=failed":               {"executing", "new", "ready", "validated", "validating", "waiting"},
		"spec.action=scale_deployment,status.phase=validated":        {"validated"},
		"spec.action=scale_deployment,status.phase=waiting_approval": nil,
		"metadata.name=ready,status.phase=rollback_ready":            {"ready"},
	} {
		t.Run(selector, func(t *testing.T) {
			t.Parallel()
			s := shelf{t, s.client, s.namespace}
			var names []string
			for _, row := range s.table(selector).Rows {
				names = append(names, fmt.Sprint(row.Cells[0]))
			}
			slices.Sort(names)
			if diff := cmp.Diff(want, names); diff != "" {
				t.Errorf("in a table (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want, s.names(selector)); diff != "" {
				t.Errorf("in a list (-want +got):\n%s", diff)
			}
		})
	}
	err := s.list("status.outcome=Failed", &v1alpha1.KubernetesExecutionList{})
	if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "status.outcome") {
		t.Errorf("by another field: %v", err)
	}
}

// names are those of the executions that a selector of fields selects.
func (s shelf) names(selector string) []string {
	s.Helper()
	var list v1alpha1.KubernetesExecutionList
	if err := s.list(selector, &list); err != nil {
		s.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	return names
}

func (s shelf) list(selector string, list *v1alpha1.KubernetesExecutionList) error {
	s.Helper()
	parsed, err := fields.ParseSelector(selector)
	if err != nil {
		s.Fatal(err)
	}
	return s.client.List(s.Context(), list, client.InNamespace(s.namespace), client.MatchingFieldsSelector{Selector: parsed})
}
