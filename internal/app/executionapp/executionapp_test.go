package executionapp_test

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/app/executionapp"
	"github.com/fleetloop/fleetloop/internal/execution/guard"
	"github.com/fleetloop/fleetloop/internal/execution/roles"
	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/processtest"
)

func TestMain(m *testing.M) {
	kube.RedirectLibraryLogs(slog.New(slog.DiscardHandler)) // before the clients of the tests begin to log
	// The cache of a namespace that was never filled leaves these behind; they end with the process.
	kubebedtest.Main(m, kubebed.Options{CRDs: []string{"../../../deploy/crds"}},
		goleak.IgnoreAnyFunction("sigs.k8s.io/controller-runtime/pkg/cache.newMultiNamespaceInformer.func1"),
		goleak.IgnoreAnyFunction("sigs.k8s.io/controller-runtime/pkg/cache.newMultiNamespaceInformerHandlerRegistration.func1"))
}

// installNamespace prepares a namespace, and gives a kubeconfig of the controller.
func installNamespace(t *testing.T) (namespace, kubeconfig string) {
	t.Helper()
	namespace = kubebedtest.Namespace(t)
	cfg := executionapp.OverriddenDefaults().Part
	cfg.Namespace, cfg.Policy.ConfigMap = namespace, guard.DefaultPolicyConfigMap
	for range 2 { // a second time changes nothing
		if err := executionapp.ApplyRequiredObjects(t.Context(), kubebedtest.Bed(t).Config(), cfg, executionapp.Targets{Namespaces: []string{kubebedtest.Namespace(t)}}); err != nil {
			t.Fatal(err)
		}
	}
	// A cluster has one installation, and tests beside each other have several: what
	// binds in all of the cluster is the last one's.
	host, err := kubernetes.NewForConfig(kubebedtest.Bed(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	_, err = host.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: roles.ControllerAccount},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: roles.ControllerAccount, Namespace: namespace}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	user := "system:serviceaccount:" + namespace + ":" + roles.ControllerAccount
	kubeconfig, err = kubebedtest.Bed(t).WriteUserKubeconfig(user, "system:authenticated", "system:serviceaccounts", "system:serviceaccounts:"+namespace)
	if err != nil {
		t.Fatal(err)
	}
	return namespace, kubeconfig
}

// TestFollowsThePolicies holds that a controller is ready with policies and not
// without: it takes those that come, keeps the last good ones when others are
// bad, and has none when they are taken away.
func TestFollowsThePolicies(t *testing.T) {
	t.Parallel()
	namespace, kubeconfig := installNamespace(t)
	host, err := kubernetes.NewForConfig(kubebedtest.Bed(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	laws := host.CoreV1().ConfigMaps(namespace)
	shipped, err := laws.Get(t.Context(), guard.DefaultPolicyConfigMap, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c := processtest.StartCommandInGoroutine(t, executionapp.NewCommand, nil, "--kubeconfig", kubeconfig, "--namespace", namespace, "--runner-image=runner", "--audit=off", "--leader-elect=false", "--admission-policy-propagation-delay=10ms")
	health := c.WaitForURLInLog(t, "metrics and health")
	says := func(status int, want string) {
		t.Helper()
		processtest.Eventually(t, func() error {
			got, body := processtest.SendRequest(t, http.MethodGet, health+"/readyz?verbose", "")
			if got != status || !strings.Contains(body, want) {
				return fmt.Errorf("/readyz gives %d, want %d with %q: %s", got, status, want, body)
			}
			return nil
		})
	}
	logs := func(want string) {
		t.Helper()
		processtest.Eventually(t, func() error {
			if !strings.Contains(c.Stderr.String(), want) {
				return fmt.Errorf("the log lacks %q", want)
			}
			return nil
		})
	}
	says(http.StatusOK, "execution controller")

	bad := shipped.DeepCopy()
	bad.Data = map[string]string{"bad.rego": "package fleetloop.safety\ndecision := {"}
	if _, err := laws.Update(t.Context(), bad, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	logs("policies rejected")
	says(http.StatusOK, "policies")

	if err := laws.Delete(t.Context(), shipped.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	says(http.StatusServiceUnavailable, "removed")
	again := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: shipped.Name}, Data: shipped.Data}
	if _, err := laws.Create(t.Context(), again, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	says(http.StatusOK, "policies")
	if body := processtest.EventuallyStatus(t, health+"/metrics", http.StatusOK); !strings.Contains(body, "kubernetesexecution_active") || !strings.Contains(body, "controller_runtime_") {
		t.Error("/metrics lacks those of the controller")
	}
	c.Cancel()
	if err := c.WaitUntilEnded(t); err != nil {
		t.Errorf("told to stop, it ended with %v", err)
	}
}

// TestStartsWithoutAnything verifies that a controller without cluster and database starts, is
// live, and reports the missing dependencies.
func TestStartsWithoutAnything(t *testing.T) {
	t.Parallel()
	kubeconfig, err := kubebedtest.Bed(t).WriteUserKubeconfig("nobody-in-particular", "system:authenticated")
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"DATABASE_URL": "postgres://nobody@127.0.0.1:1/none"}
	c := processtest.StartCommandInGoroutine(t, executionapp.NewCommand, env, "--kubeconfig", kubeconfig, "--namespace", "nowhere", "--runner-image=runner", "--leader-elect=false")
	health := c.WaitForURLInLog(t, "metrics and health")
	processtest.EventuallyStatus(t, health+"/healthz", http.StatusOK)
	processtest.Eventually(t, func() error {
		_, body := processtest.SendRequest(t, http.MethodGet, health+"/readyz?verbose", "")
		for _, want := range []string{"audit database", "ConfigMaps not listed yet: ", "nowhere", "Namespaces not listed yet: ", "forbidden"} {
			if !strings.Contains(body, want) {
				return fmt.Errorf("/readyz lacks %q: %s", want, body)
			}
		}
		return nil
	})
	c.Cancel()
	if err := c.WaitUntilEnded(t); err != nil {
		t.Errorf("told to stop, it ended with %v", err)
	}
}

// TestRefuses holds that settings that do not go together are refused by name.
func TestRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		env    map[string]string
		want   string
	}{
		"NoDatabase":   {"the audit needs one", map[string]string{"DATABASE_URL": ""}, "DATABASE_URL is not set"},
		"NoImage":      {"Jobs need one", map[string]string{"RUNNER_IMAGE": ""}, "RUNNER_IMAGE"},
		"InlineAction": {"an action that there is not", map[string]string{"INLINE_ACTIONS": "scale"}, `unknown action "scale"`},
		"Mode":         {"a mode that there is not", map[string]string{"POLICY_MODE": "off"}, "POLICY_MODE"},
		"Executor":     {"a place that there is not", map[string]string{"DRY_RUN_EXECUTOR": "pod"}, "DRY_RUN_EXECUTOR"},
		"Percent":      {"more than all nodes", map[string]string{"MAX_NODE_PERCENT": "101"}, "MAX_NODE_PERCENT"},
		"Kubeconfig":   {"one that is not there", map[string]string{"KUBECONFIG": "/nowhere/kubeconfig"}, "/nowhere/kubeconfig"},
		"PerAction":    {"an action that there is not", map[string]string{"MAX_CONCURRENT_PER_ACTION": "drain=1"}, `unknown action "drain"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := map[string]string{"DATABASE_URL": "postgres://nobody@127.0.0.1:1/none", "RUNNER_IMAGE": "runner", "KUBECONFIG": "/nowhere/kubeconfig"}
			maps.Copy(env, tc.env)
			err := processtest.StartCommandInGoroutine(t, executionapp.NewCommand, env).WaitUntilEnded(t)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %v lacks %q", tc.reason, err, tc.want)
			}
		})
	}
}
