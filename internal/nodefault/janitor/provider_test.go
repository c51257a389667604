package janitor

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/fleetloop/fleetloop/api/janitor/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
)

// clients returns clients of the real API server.
func newProviderDeps(t *testing.T) ProviderDeps {
	t.Helper()
	cfg := kubebedtest.Bed(t).Config()
	cfg.QPS = -1
	k, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	d, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return ProviderDeps{Kubernetes: k, Dynamic: d}
}

// request returns a request for a node.
func newRequest(a Action, node string) Request {
	r := Request{
		Key: types.UID(string(a) + "-" + node), Action: a, BootID: "boot-1", Deadline: time.Now().Add(time.Hour),
		Node: &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: node, UID: "node-uid", Labels: map[string]string{"pool": "gpu"}},
			Spec:       corev1.NodeSpec{ProviderID: "aws:///eu/i-1"},
			Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}}},
		},
		By: RequestingObject{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindReboot, Name: node + "-1"},
	}
	if a == ActionTerminate {
		r.By.Kind = v1alpha1.KindTerminate
	}
	return r
}

// asked returns a request of an existing object. The objects of a missing owner would be
// garbage-collected.
func newRequestedAction(t *testing.T, deps ProviderDeps, a Action, node string) Request {
	t.Helper()
	r := newRequest(a, node)
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"nodeName": node}}}
	o.SetAPIVersion(r.By.APIVersion)
	o.SetKind(r.By.Kind)
	o.SetGenerateName(node + "-")
	resource := deps.Dynamic.Resource(v1alpha1.GroupVersion.WithResource(v1alpha1.ResourceReboot))
	made, err := resource.Create(t.Context(), o, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.Key, r.By.Name = made.GetUID(), made.GetName()
	return r
}

// answer returns the kind of an error.
func kindOfAnswer(err error) string {
	var waiting *WaitingError
	var permanent *PermanentError
	switch {
	case errors.As(err, &waiting):
		return "waiting"
	case errors.As(err, &permanent):
		return "permanent"
	case err != nil:
		return "error"
	}
	return "accepted"
}

// want verifies the kind of an error, and a part of its text.
func wantAnswer(t *testing.T, reference string, err error, kind, text string) {
	t.Helper()
	said := reference
	if err != nil {
		said = err.Error()
	}
	if got := kindOfAnswer(err); got != kind || !strings.Contains(said, text) {
		t.Errorf("it is %s: %q; want %s: %q", got, said, kind, text)
	}
}

// TestNewProvider verifies that a provider with missing settings is rejected with the reason.
func TestNewProvider(t *testing.T) {
	t.Parallel()
	deps := newProviderDeps(t)
	cases := map[string]struct {
		reason string
		cfg    ProviderConfig
		deps   ProviderDeps
		want   string // part of the error; empty means success
	}{
		"None":            {"a janitor that is not configured", ProviderConfig{}, ProviderDeps{}, ""},
		"Manual":          {"it needs nothing", ProviderConfig{Kind: ProviderManual}, ProviderDeps{}, ""},
		"Unknown":         {"a typing error is no reason to do nothing", ProviderConfig{Kind: "redfish"}, ProviderDeps{}, "use one of [none job webhook machine execution manual]"},
		"JobNoImage":      {"nothing could run", ProviderConfig{Kind: ProviderJob, Job: JobConfig{Namespace: "n"}}, deps, "image missing"},
		"JobNoNamespace":  {"nowhere", ProviderConfig{Kind: ProviderJob, Job: JobConfig{Image: "i"}}, deps, "namespace of Jobs missing"},
		"JobNoClient":     {"nobody could be asked", ProviderConfig{Kind: ProviderJob, Job: JobConfig{Namespace: "n", Image: "i"}}, ProviderDeps{}, "client"},
		"Job":             {"all is there", ProviderConfig{Kind: ProviderJob, Job: JobConfig{Namespace: "n", Image: "i"}}, deps, ""},
		"WebhookNoURL":    {"nobody could be asked", ProviderConfig{Kind: ProviderWebhook}, deps, "url"},
		"WebhookFile":     {"a file is no endpoint", ProviderConfig{Kind: ProviderWebhook, Webhook: WebhookConfig{URL: "file:///etc"}}, deps, "https://"},
		"WebhookUser":     {"a password belongs into a file", ProviderConfig{Kind: ProviderWebhook, Webhook: WebhookConfig{URL: "https://user@h/"}}, deps, "without a user"},
		"WebhookStatus":   {"the same holds for where it is asked", ProviderConfig{Kind: ProviderWebhook, Webhook: WebhookConfig{URL: "https://h/", StatusURL: "h"}}, deps, "status url"},
		"Webhook":         {"all is there", ProviderConfig{Kind: ProviderWebhook, Webhook: WebhookConfig{URL: "https://h/"}}, deps, ""},
		"Machine":         {"all has a default", ProviderConfig{Kind: ProviderMachine}, deps, ""},
		"MachineNoClient": {"nobody could be asked", ProviderConfig{Kind: ProviderMachine}, ProviderDeps{}, "client"},
		"ExecutionEmpty":  {"there is nothing that it could ask for", ProviderConfig{Kind: ProviderExecution, Execution: ExecutionConfig{Namespace: "n"}}, deps, "no action"},
		"Execution":       {"one of two will do", ProviderConfig{Kind: ProviderExecution, Execution: ExecutionConfig{Namespace: "n", Reboot: ExecutionTemplate{Action: "a"}}}, deps, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := NewProvider(tc.cfg, tc.deps)
			switch {
			case tc.want == "" && (err != nil || p == nil || p.Name() == ""):
				t.Errorf("%s: %v, %v", tc.reason, p, err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

// TestRejectingProvider verifies that no provider rejects requests permanently.
func TestRejectingProvider(t *testing.T) {
	t.Parallel()
	p, err := NewProvider(ProviderConfig{}, ProviderDeps{})
	if err != nil {
		t.Fatal(err)
	}
	reference, err := p.Start(t.Context(), newRequest(ActionReboot, "n"))
	wantAnswer(t, reference, err, "permanent", "no provider")
	reference, err = p.Start(t.Context(), newRequest(ActionTerminate, "n"))
	wantAnswer(t, reference, err, "permanent", "no provider")
	if got, err := p.CheckProgress(t.Context(), newRequest(ActionReboot, "n"), ""); err != nil || got.State != StateFailed {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestManualProvider verifies that the provider waits for a person and accepts the result.
func TestManualProvider(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason      string
		annotations map[string]string
		want, text  string
	}{
		"Waits":  {"nobody has done it", map[string]string{"else": "x"}, "waiting", "waiting for a person to reboot the machine of node \"n\""},
		"Done":   {"somebody has", map[string]string{AnnotationDone: "alice"}, "accepted", "done alice"},
		"Bare":   {"the value is for people", map[string]string{AnnotationDone: ""}, "accepted", "done"},
		"Cannot": {"nobody can", map[string]string{AnnotationDone: "x", AnnotationFailed: "no power"}, "permanent", "no power"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRequest(ActionReboot, "n")
			r.By.Annotations = tc.annotations
			reference, err := ManualProvider{}.Start(t.Context(), r)
			wantAnswer(t, reference, err, tc.want, tc.text)
			p, err := ManualProvider{}.CheckProgress(t.Context(), r, "done")
			if failed := tc.want == "permanent"; err != nil || failed != (p.State == StateFailed) {
				t.Errorf("%s: %+v, %v", tc.reason, p, err)
			}
		})
	}
}
