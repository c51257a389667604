package console

import (
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/network"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// testExecutions runs one after the other, because the last one changes the plans of all executions.
func testExecutions(r run) {
	t, s, b := r.T, r.system, r.browser
	t.Run("Approval", func(t *testing.T) { testApproval(run{t, s, b}) })
	t.Run("HostileText", func(t *testing.T) { testHostileText(run{t, s, b}) })
	t.Run("StalePlan", func(t *testing.T) { testStalePlan(run{t, s, b}) })
}

// openExecution opens the page of an execution.
func (p *page) openExecution(path string) {
	p.Helper()
	p.expectMissingLog()
	p.open(path)
}

// expectMissingLog allows the response 404 for logs, because the demo's node does not serve logs.
func (p *page) expectMissingLog() {
	p.expectErrors("404 (Not Found) " + p.base + "console/hosts/local/executions/")
}

// testApproval follows an execution from the request of alice to the change in the cluster, through
// the approval of bob.
func testApproval(r run) {
	t, s, b := r.T, r.system, r.browser
	const name, why = "checkout", "the sale begins at noon"
	path := s.requestScale(t, name, why)

	alice := b.newPageOf(t, s, "alice")
	alice.openExecution(path)
	alice.sees("alice asks on local:", "Approve, Reject is not offered:")
	if alice.offers("Approve") {
		t.Error("alice is offered to approve what she requested herself")
	}

	bob := b.newPageOf(t, s, "bob")
	bob.click("nav a", "Executions")
	bob.wantPath("executions")
	bob.click("button", "Waiting")
	bob.fill("Filter by action", name)
	bob.sees("Deployment shop/"+name, "Waits for approval", "alice", why)
	bob.click("a", "scale_deployment Deployment shop/"+name)
	bob.wantPath(path)
	bob.expectMissingLog()
	bob.sees("alice asks on local:", why, "replicas: 1", "replicas: 2", "Policy decision Allowed", "an approval", "Can be rolled back")
	if got := s.replicas(t, name); got != 1 {
		t.Fatalf("the target has %d replicas before the approval, want 1", got)
	}

	bob.click("button", "Approve")
	bob.sees("You approve exactly this plan (" + s.planHash(t, name)[:12] + ")")
	if bob.offers("Approve") {
		t.Error("bob can approve without a reason")
	}
	bob.fill("Reason", "capacity is there")
	bob.click("button", "Approve")
	bob.sees("Approved " + name)
	bob.sees("bob: approved", "capacity is there", "Done, reversible", "deployment.apps/"+name+" scaled")
	if got := s.replicas(t, name); got != 2 {
		t.Errorf("the target has %d replicas, want 2", got)
	}
	alice.sees("bob: approved", "Done, reversible") // without a reload

	bob.click("nav a", "Timeline")
	bob.fill("Text in the change", name)
	bob.fill("Actor", "bob")
	bob.seesNot("execution-started")
	bob.click("button.event-line", bob.lineOf("execution-approved"))
	bob.sees("Deployment/shop/" + name)
}

// lineOf returns the text of the first line of the timeline about an action.
func (p *page) lineOf(action string) string {
	p.Helper()
	p.sees(action)
	return evaluate[string](p, `[...document.querySelectorAll('button.event-line')].find((e) => e.innerText.includes(`+quote(action)+`)).innerText.replace(/\s+/g, ' ').trim()`)
}

func (s *system) planHash(t *testing.T, name string) string {
	t.Helper()
	return s.wantExecution(t, name, func(ke *v1alpha1.KubernetesExecution) bool { return ke.Status.Plan != nil }).Status.Plan.Hash
}

// testStalePlan covers plans that change after the page has shown them: the approval of one does not
// count for the other, and the page says so.
func testStalePlan(r run) {
	t, s, b := r.T, r.system, r.browser
	path := s.requestScale(t, "drifting", "", "--agent=claude")
	bob := b.newPageOf(t, s, "bob")
	bob.openExecution(path)
	bob.sees("The assistant claude asks for alice on local:")
	s.scale(t, "drifting", 3)
	bob.approve("drifting")
	bob.sees("Failed", "the plan is stale", "Nothing was changed")
	if got := s.replicas(t, "drifting"); got != 3 {
		t.Errorf("the target has %d replicas, want the 3 that it had", got)
	}

	// One page follows the changes, one is too late for them.
	path = s.requestScale(t, "replanned", "")
	late := b.newPageOf(t, s, "bob")
	late.expectErrors("ERR_BLOCKED_BY_CLIENT", "409")
	call(late, network.Enable, network.EnableParams{})
	call(late, network.SetBlockedURLs, network.SetBlockedURLsParams{URLPatterns: []*network.BlockPattern{{URLPattern: "*://*:*/console/stream*", Block: true}}})
	for _, p := range []*page{bob, late} {
		p.openExecution(path)
		p.click("button", "Approve")
		p.fill("Reason", "fine")
	}
	before := s.planHash(t, "replanned")
	s.replaceAdmissionPolicies(t, "replanned", before)

	late.click("button", "Approve")
	late.sees("The plan has changed since you saw it", "Look at the current plan")
	bob.sees("The plan has changed since you opened this page")
	bob.sees("kubebed-admin: approved another plan")
	if bob.shows("bob: approved") {
		t.Error("the approval of another plan was sent")
	}
	bob.approve("replanned")
	bob.sees("bob: approved", "Done, reversible")
}

// approve approves the execution of the page.
func (p *page) approve(name string) {
	p.Helper()
	p.click("button", "Approve")
	p.fill("Reason", "fine")
	p.click("button", "Approve")
	p.sees("Approved " + name)
}

func (s *system) scale(t *testing.T, name string, replicas int32) {
	t.Helper()
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name}}
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
	if err := s.host.Patch(t.Context(), d, patch); err != nil {
		t.Fatal(err)
	}
}

// replaceAdmissionPolicies makes a gap in the admission policies, in which an administrator approves. A
// waiting execution has another plan after it, for which the approval does not count.
func (s *system) replaceAdmissionPolicies(t *testing.T, name, before string) {
	t.Helper()
	s.policies.Lock()
	defer s.policies.Unlock()
	var list admissionv1.ValidatingAdmissionPolicyBindingList
	if err := s.host.List(t.Context(), &list); err != nil || len(list.Items) == 0 {
		t.Fatalf("there are %d bindings of admission policies: %v", len(list.Items), err)
	}
	binding := &list.Items[0]
	if err := s.host.Delete(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	binding.ObjectMeta = metav1.ObjectMeta{Name: binding.Name, Labels: binding.Labels, Annotations: binding.Annotations}
	create(t, s.host, binding)
	s.runCommand(t, "kubebed-admin", "approve", name, "--yes")
	s.wantExecution(t, name, func(ke *v1alpha1.KubernetesExecution) bool { return ke.Status.Plan.Hash != before })
}
