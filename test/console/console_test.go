// Package console clicks through the web console in Chromium.
//
// All tests share one "fleetloop up --demo" with a Kubernetes control plane. Some tests start
// separate servers and kill them. A test fails if the browser logs an error.
package console

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/app/execcli"
	"github.com/fleetloop/fleetloop/internal/kube"
)

// TestConsole starts the system once for all tests.
func TestConsole(t *testing.T) {
	t.Parallel()
	kube.RedirectLibraryLogs(slog.New(slog.DiscardHandler))
	s := startSystem(t)
	b := startChromium(t)
	for name, test := range map[string]func(run){
		"Executions":     testExecutions,
		"Views":          testViews,
		"SignIn":         testSignIn,
		"Issuer":         testIssuer,
		"Filters":        testFilters,
		"Scroll":         testScroll,
		"ServerKilled":   testServerKilled,
		"FleetAPIKilled": testFleetAPIKilled,
		"Edit":           testEdit,
		"Pause":          testPause,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(run{t, s, b})
		})
	}
}

// A run is one test, with the system and the browser that all tests share.
type run struct {
	*testing.T
	system  *system
	browser *chromium
}

// A system is one run of "fleetloop up --demo" with a Kubernetes control plane.
type system struct {
	binaries string
	folder   string // of its data
	console  string // the URL of the page
	fleet    *fleetclient.Client
	host     client.Client // of an administrator
	reports  string        // the URL for health events

	// policies is locked while the admission policies are replaced: the controller refuses executions that
	// are requested then, and tests run in parallel.
	policies sync.RWMutex
}

// The namespaces of the demo: one of production, and the one of executions.
const (
	shop       = "shop"
	executions = "kubernaut-executor"
)

func startSystem(t *testing.T) *system {
	t.Helper()
	s := &system{binaries: t.TempDir()}
	if err := kubebedtest.BuildBinaries(t.Context(), s.binaries, "fleetloop", "fleetloop-up", "console", "fleet-api"); err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"HOME": t.TempDir(), "XDG_CACHE_HOME": cache}
	for _, name := range []string{kubebed.CacheVariable, kubebed.SourceVariable} {
		if value := os.Getenv(name); value != "" {
			env[name] = value
		}
	}
	const anyPort = "127.0.0.1:0"
	up := kubebedtest.StartProcess(t, filepath.Join(s.binaries, "fleetloop"), env, "up", "--demo", "--kube=embedded", "--log-format=json",
		"--listen-address", anyPort, "--metrics-bind-address", anyPort, "--health-probe-bind-address", anyPort, "--console-listen-address", anyPort)
	t.Cleanup(func() {
		if code := up.Stop(); code != cli.CodeOK {
			t.Errorf("fleetloop up ended with code %d", code)
		}
	})
	up.WantReady()
	logged := func(message, field string) (value string) {
		t.Helper()
		kubebedtest.Eventually(t, func(context.Context) (err error) {
			value, err = up.LoggedField(message, field)
			return err
		})
		return value
	}
	s.console, s.folder = logged("console ready", "url"), logged("fleet API ready", "data_dir")
	s.reports = "http://" + logged("listening for fault reports", "address") + "/v1/health-events"
	if s.fleet, err = fleetclient.New(fleetclient.Config{Endpoint: logged("fleet API ready", "url")}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.fleet.CloseIdle)
	s.host = newClient(t, logged("host cluster ready", "kubeconfig"))
	logged("try an execution", "command") // an earlier one would be refused
	return s
}

func newClient(t *testing.T, kubeconfig string) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, corev1.AddToScheme, admissionv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// requestScale creates a Deployment with one replica, lets alice request two, and returns the path of
// the execution's page.
func (s *system) requestScale(t *testing.T, name, reason string, flags ...string) (path string) {
	t.Helper()
	labels, one := map[string]string{"app": name}, int32(1)
	create(t, s.host, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "fleetloop/web"}}},
		}},
	})
	args := []string{"scale_deployment", "deployment=" + name, "namespace=" + shop, "replicas=2", "--reason=" + reason}
	return s.requestAction(t, name, append(args, flags...)...)
}

// requestAction lets alice request an action, and waits until the execution waits for an approval.
func (s *system) requestAction(t *testing.T, name string, args ...string) (path string) {
	t.Helper()
	s.policies.RLock()
	defer s.policies.RUnlock()
	s.runCommand(t, "alice", append(append([]string{"exec"}, args...), "--name="+name)...)
	s.wantExecution(t, name, func(ke *v1alpha1.KubernetesExecution) bool { return ke.Status.Phase == v1alpha1.PhaseWaitingApproval })
	return "executions/local/" + executions + "/" + name
}

// runCommand runs a command of "fleetloop" about executions as a person.
func (s *system) runCommand(t *testing.T, person string, args ...string) {
	t.Helper()
	var out strings.Builder
	env := cli.Env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, LookupEnv: func(string) (string, bool) { return "", false }}
	root := cli.Command(env)
	root.AddCommand(execcli.Commands(env)...)
	args = append(args, "--kubeconfig="+filepath.Join(s.folder, "kubernetes", person+".kubeconfig"), "--namespace="+executions)
	if code := cli.Run(t.Context(), env, root, args); code != cli.CodeOK {
		t.Fatalf("fleetloop %v ended with code %d: %s", args, code, out.String())
	}
}

// wantExecution waits until an execution has a state.
func (s *system) wantExecution(t *testing.T, name string, has func(*v1alpha1.KubernetesExecution) bool) *v1alpha1.KubernetesExecution {
	t.Helper()
	ke := &v1alpha1.KubernetesExecution{}
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		if err := s.host.Get(ctx, client.ObjectKey{Namespace: executions, Name: name}, ke); err != nil {
			return err
		}
		if !has(ke) {
			return fmt.Errorf("execution %q is in phase %q: %s", name, ke.Status.Phase, ke.Status.Message)
		}
		return nil
	})
	return ke
}

func (s *system) replicas(t *testing.T, name string) int32 {
	t.Helper()
	var d appsv1.Deployment
	if err := s.host.Get(t.Context(), client.ObjectKey{Namespace: shop, Name: name}, &d); err != nil {
		t.Fatal(err)
	}
	return *d.Spec.Replicas
}

func create(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	if err := c.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// createCluster creates a cluster of the fleet.
func (s *system) createCluster(t *testing.T, in v1.CreateRequest) v1.Resource {
	t.Helper()
	r, err := s.fleet.Clusters().Create(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// post sends JSON.
func post(t *testing.T, url, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= http.StatusBadRequest {
		t.Fatalf("POST %s %s = %d %s, %v", url, body, resp.StatusCode, text, err)
	}
}
