package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/internal/sentinel/operator"
)

// crds are the definitions that a host cluster needs.
const crds = "../../deploy/crds"

// A hostCluster is a namespace of a Kubernetes API server.
type hostCluster struct {
	bed       *kubebed.Bed
	namespace string
}

// newHostCluster makes a namespace on the API server that tests share.
func newHostCluster(t *testing.T) *hostCluster {
	t.Helper()
	kube, err := bed.kube()
	if err != nil {
		t.Fatal(err)
	}
	h := &hostCluster{bed: kube, namespace: strings.ToLower(strings.NewReplacer("/", "-", "_", "-", ".", "-").Replace(t.Name()))}
	h.kubectl(t, "create", "namespace", h.namespace)
	return h
}

// newLonelyCluster starts an API server that the test may stop.
func newLonelyCluster(t *testing.T) *hostCluster {
	t.Helper()
	kube, err := kubebed.Start(t.Context(), kubebed.Options{CRDs: []string{crds}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := kube.Stop(); err != nil {
			t.Error(err)
		}
	})
	h := &hostCluster{bed: kube, namespace: "alone"}
	h.kubectl(t, "create", "namespace", h.namespace)
	return h
}

// kubectl runs kubectl as an administrator and gives what it prints.
func (h *hostCluster) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := h.try(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (h *hostCluster) try(ctx context.Context, args ...string) (string, error) {
	if h.namespace != "" {
		args = append([]string{"--namespace", h.namespace}, args...)
	}
	return h.bed.Kubectl(ctx, args...)
}

// apply applies a manifest.
func (h *hostCluster) apply(t *testing.T, manifest string) {
	t.Helper()
	h.kubectl(t, "apply", "--filename", write(t, "manifest.yaml", manifest))
}

// account makes the service account of a sentinel with the roles that it
// needs, and nothing more, and gives a kubeconfig of it.
func (h *hostCluster) account(t *testing.T, needs operator.SentinelRoles) (kubeconfig string) {
	t.Helper()
	needs.Namespace = h.namespace
	return h.accountOf(t, needs.BuildAccountRolesAndBindings())
}

// accountOf is account with objects that may have been changed.
func (h *hostCluster) accountOf(t *testing.T, objects []runtime.Object) (kubeconfig string) {
	t.Helper()
	for _, o := range objects {
		text, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		h.apply(t, string(text))
	}
	cfg, err := h.bed.EnsureServiceAccountConfig(t.Context(), h.namespace, operator.SentinelAccount)
	if err != nil {
		t.Fatal(err)
	}
	return write(t, "kubeconfig", kubeconfigOf(t, cfg))
}

// kubeconfigOf is a client's configuration as a file.
func kubeconfigOf(t *testing.T, cfg *rest.Config) string {
	t.Helper()
	const name = "bed"
	text, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: cfg.Host, CertificateAuthorityData: cfg.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {Token: cfg.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// operator starts a sentinel that is configured by the host cluster.
func (h *hostCluster) operator(t *testing.T, kubeconfig string, args ...string) *process {
	t.Helper()
	args = append(args, "--namespace="+h.namespace, "--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=localhost:0")
	return start(t, "sentinel", map[string]string{"KUBECONFIG": kubeconfig}, args...)
}

// wantCondition waits until a condition of a SentinelConfig has a status, and
// a message that holds a text.
func (h *hostCluster) wantCondition(t *testing.T, name, condition, status, message string) {
	t.Helper()
	path := func(field string) string {
		return fmt.Sprintf(`jsonpath={.status.conditions[?(@.type==%q)].%s}`, condition, field)
	}
	eventually(t, patience, func() error {
		got, err := h.try(t.Context(), "get", "sentinelconfig", name, "-o", path("status"))
		if err != nil {
			return err
		}
		said, err := h.try(t.Context(), "get", "sentinelconfig", name, "-o", path("message"))
		if err != nil {
			return err
		}
		if got != status || !strings.Contains(said, message) {
			return fmt.Errorf("%s of %s is %q (%s), want %q and %q in the message", condition, name, got, said, status, message)
		}
		return nil
	})
}

// wantColumns waits until kubectl shows a SentinelConfig with some values.
func (h *hostCluster) wantColumns(t *testing.T, name string, want map[string]string) {
	t.Helper()
	eventually(t, patience, func() error {
		out, err := h.try(t.Context(), "get", "sentinelconfig", name)
		if err != nil {
			return err
		}
		head, row, _ := strings.Cut(strings.TrimSpace(out), "\n")
		for column, value := range want {
			if got := field(head, row, column); got != value {
				return fmt.Errorf("column %s is %q, want %q:\n%s", column, got, value, out)
			}
		}
		return nil
	})
}

// field is what stands in a row below the word of a heading.
func field(head, row, column string) string {
	at := strings.Index(head, column)
	if at < 0 || at >= len(row) {
		return ""
	}
	value, _, _ := strings.Cut(row[at:], " ")
	return value
}

// wantKubernetesEvent waits for an event about a SentinelConfig.
func (h *hostCluster) wantKubernetesEvent(t *testing.T, name, kind, text string) {
	t.Helper()
	eventually(t, patience, func() error {
		out, err := h.try(t.Context(), "get", "events", "--field-selector", "involvedObject.kind=SentinelConfig,involvedObject.name="+name+",type="+kind, "-o", "jsonpath={.items[*].message}")
		if err != nil {
			return err
		}
		if !strings.Contains(out, text) {
			return fmt.Errorf("no event %s of %s holds %q: %s", kind, name, text, out)
		}
		return nil
	})
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
