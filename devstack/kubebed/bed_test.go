package kubebed_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
)

const widget = "testdata/widget.yaml"

func TestMain(m *testing.M) {
	kubebedtest.Main(m, kubebed.Options{Controllers: kubebed.JobControllers(), Scheduler: true, CRDs: []string{widget}})
}

// newClient returns a client of the API server with a config.
func newClient(t *testing.T, cfg *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// admin returns a client with all permissions.
func admin(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	return newClient(t, kubebedtest.Bed(t).Config())
}

func start(t *testing.T, o kubebed.Options) *kubebed.Bed {
	t.Helper()
	bed, err := kubebed.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bed.Stop(); err != nil {
			t.Error(err)
		}
	})
	return bed
}

func note(t *testing.T, client kubernetes.Interface, namespace, name string) {
	t.Helper()
	_, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// TestUsers covers that users have their names, and the permissions of their roles.
func TestUsers(t *testing.T) {
	t.Parallel()
	bed, ns := kubebedtest.Bed(t), kubebedtest.Namespace(t)
	cfg, err := bed.User("jane", "readers")
	if err != nil {
		t.Fatal(err)
	}
	jane := newClient(t, cfg)
	if _, err := jane.CoreV1().ConfigMaps(ns).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `"jane"`) {
		t.Errorf("without a role jane lists config maps: %v", err)
	}
	if _, err := bed.Kubectl(t.Context(), "-n", ns, "create", "rolebinding", "readers", "--clusterrole=view", "--group=readers"); err != nil {
		t.Fatal(err)
	}
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		_, err := jane.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{})
		return err
	})
	if err := jane.CoreV1().ConfigMaps(ns).Delete(t.Context(), "any", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a reader deletes: %v", err)
	}
}

// TestKubeconfig covers that another program reaches the API server by a file.
func TestKubeconfig(t *testing.T) {
	t.Parallel()
	bed, ns := kubebedtest.Bed(t), kubebedtest.Namespace(t)
	for name, path := range map[string]string{"administrator": bed.AdminKubeconfig(), "system:of/some group": ""} {
		if path == "" {
			var err error
			if path, err = bed.WriteUserKubeconfig(name, "system:masters"); err != nil {
				t.Fatal(err)
			}
		}
		cfg, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := newClient(t, cfg).CoreV1().Secrets(ns).List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Errorf("as %s: %v", name, err)
		}
	}
}

func TestKubectl(t *testing.T) {
	t.Parallel()
	bed, ns := kubebedtest.Bed(t), kubebedtest.Namespace(t)
	out, err := bed.Kubectl(t.Context(), "get", "namespace", ns, "-o", "jsonpath={.status.phase}")
	if err != nil || out != "Active" {
		t.Errorf("kubectl gives %q, %v", out, err)
	}
	_, err = bed.Kubectl(t.Context(), "get", "configmap", "nosuch", "-n", ns)
	if err == nil || !strings.Contains(err.Error(), `configmaps "nosuch" not found`) || !strings.Contains(err.Error(), "kubectl get configmap nosuch") {
		t.Errorf("kubectl fails with %v, want the command and its complaint", err)
	}
}

// TestAPIServerAway covers that the API server can be unavailable for a while, and then
// has the same port and data.
func TestAPIServerAway(t *testing.T) {
	t.Parallel()
	bed := start(t, kubebed.Options{})
	client := newClient(t, bed.Config())
	note(t, client, "default", "before")
	seen, err := client.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer seen.Stop()

	if err := bed.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "before", metav1.GetOptions{}); err == nil {
		t.Error("the API server answers after its end")
	}
	if err := bed.Ready(); err == nil || !strings.Contains(err.Error(), "API server stopped") {
		t.Errorf("Ready() = %v without an API server", err)
	}
	wantClosed(t, seen)
	for range 2 { // the second has nothing to do
		if err := bed.StartAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "before", metav1.GetOptions{}); err != nil {
		t.Errorf("after the restart: %v", err)
	}
	if err := bed.Ready(); err != nil {
		t.Errorf("Ready() = %v", err)
	}
}

// wantClosed waits until a watch has ended.
func wantClosed(t *testing.T, w watch.Interface) {
	t.Helper()
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		for {
			select {
			case _, open := <-w.ResultChan():
				if !open {
					return nil
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
}

// TestStateStays covers that a folder is reused: data, users and tokens of a bed are
// valid in the next one.
func TestStateStays(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30)) // longer than the limit of a socket path
	first := start(t, kubebed.Options{Dir: dir})
	note(t, newClient(t, first.Config()), "default", "kept")
	jane, err := first.User("jane", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	robot, err := first.EnsureServiceAccountConfig(t.Context(), "default", "robot")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kubebed.Start(t.Context(), kubebed.Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("a second bed in the folder: %v", err)
	}
	url := first.URL()
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := first.Stop(); err != nil {
		t.Errorf("the second Stop: %v", err)
	}

	second := start(t, kubebed.Options{Dir: dir, CRDs: []string{widget}})
	if second.URL() != url {
		t.Errorf("it listens on %s, and before on %s", second.URL(), url)
	}
	if _, err := newClient(t, jane).CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
		t.Errorf("a user of before: %v", err)
	}
	if _, err := newClient(t, robot).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a token of before is not known: %v", err)
	}
	if out, err := second.Kubectl(t.Context(), "get", "widgets"); err != nil {
		t.Errorf("the new kind is not served: %s, %v", out, err)
	}
}

// TestStartRefuses covers that a failed start returns the reason, and leaves nothing.
func TestStartRefuses(t *testing.T) {
	t.Parallel()
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	port := taken.Addr().(*net.TCPAddr).Port //nolint:errcheck,forcetypeassert // it is TCP
	assets, err := kubebed.EnsureAssets(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	nothing := filepath.Join(t.TempDir(), "nothing.yaml")
	if err := os.WriteFile(nothing, []byte("kind: ConfigMap\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		o      kubebed.Options
		want   string
	}{
		"Assets":       {"names what is not there", kubebed.Options{Assets: t.TempDir()}, "etcd: no such file"},
		"Port":         {"somebody has it", kubebed.Options{Port: port}, fmt.Sprintf("port in use: %d", port)},
		"Everywhere":   {"a test's server is nobody else's", kubebed.Options{ListenAddress: "0.0.0.0"}, "must be an IP address"},
		"ServiceRange": {"no network", kubebed.Options{ServiceRange: "ten"}, "service range"},
		"Flag":         {"what the program says", kubebed.Options{Args: map[string][]string{kubebed.APIServer: {"--nosuch"}}}, "unknown flag: --nosuch"},
		"Controller":   {"likewise", kubebed.Options{Controllers: []string{"serviceaccount-controller", "nosuch"}}, `nosuch\" is not in the list of known controllers`},
		"NoCRDFile":    {"names it", kubebed.Options{CRDs: []string{"testdata/nosuch.yaml"}}, "nosuch.yaml"},
		"NoCRDInFile":  {"it would be missed later", kubebed.Options{CRDs: []string{nothing}}, "no CustomResourceDefinition in"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.o.Assets == "" {
				tc.o.Assets = assets
			}
			tc.o.Dir = filepath.Join(t.TempDir(), "bed")
			bed, err := kubebed.Start(t.Context(), tc.o)
			if err == nil {
				_ = bed.Stop()
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got %v, want %q in it", tc.reason, err, tc.want)
			}
		})
	}
}

// TestScheduler covers that a Pod is bound to a Node with free resources.
func TestScheduler(t *testing.T) {
	t.Parallel()
	client, ns := admin(t), kubebedtest.Namespace(t)
	nodes := client.CoreV1().Nodes()
	// The taint keeps away the Pods of parallel tests, for which the scheduler also works.
	node, err := nodes.Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: ns, Effect: corev1.TaintEffectNoSchedule}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := nodes.Delete(context.WithoutCancel(t.Context()), ns, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		if node, err = nodes.Get(ctx, ns, metav1.GetOptions{}); err != nil {
			return err
		}
		room := corev1.ResourceList{corev1.ResourceCPU: one, corev1.ResourceMemory: gibibyte, corev1.ResourcePods: one}
		node.Status.Capacity, node.Status.Allocatable = room, room
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}}
		_, err = nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{})
		return err
	})
	p := pod("scheduled", nil)
	p.Spec.NodeName = ""
	p.Spec.Tolerations = []corev1.Toleration{{Key: ns, Operator: corev1.TolerationOpExists}}
	if _, err := client.CoreV1().Pods(ns).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		got, err := client.CoreV1().Pods(ns).Get(ctx, p.Name, metav1.GetOptions{})
		if err == nil && got.Spec.NodeName != ns {
			err = fmt.Errorf("it is on node %q, want %q: %v", got.Spec.NodeName, ns, got.Status.Conditions)
		}
		return err
	})
}
