package processnode_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/devstack/processnode"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if name, ok := strings.CutPrefix(os.Args[1], programPrefix); ok {
			os.Exit(runProgram(name, os.Args[2:]))
		}
	}
	controllers := append(kubebed.JobControllers(), "deployment-controller", "replicaset-controller")
	kubebedtest.Main(m, kubebed.Options{Controllers: controllers, Scheduler: true})
}

// programPrefix is the prefix of the first argument when this test program acts as a
// program of a pod, or as a node agent that can be killed.
const programPrefix = "program:"

func runProgram(name string, args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	programs := map[string]func(context.Context, []string) error{"client": client, "agent": agent, "serve": serve}
	if err := programs[name](ctx, args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// client is a program like the adapters: it reads its pod, and is refused other
// requests by its role. Its arguments are the namespace, the pod, and the source of the
// API server's address.
func client(ctx context.Context, args []string) error {
	load := rest.InClusterConfig
	if args[2] == "kubeconfig" {
		load = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig
	}
	cfg, err := load()
	if err != nil {
		return err
	}
	set, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	pod, err := set.CoreV1().Pods(args[0]).Get(ctx, args[1], metav1.GetOptions{})
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(os.Stdout, "I am", pod.Name)
	if _, err := set.CoreV1().Secrets(args[0]).List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		return fmt.Errorf("list secrets: want that it is refused, got: %w", err)
	}
	_, _ = fmt.Fprintln(os.Stdout, "secrets refused")
	return nil
}

// agent is a node in a separate process.
func agent(ctx context.Context, args []string) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", args[1])
	if err != nil {
		return err
	}
	return processnode.Run(ctx, cfg, processnode.Options{NodeName: args[0], Dir: args[2], Taints: closed()})
}

// closed returns a taint that keeps away pods of other tests.
func closed() []corev1.Taint {
	return []corev1.Taint{{Key: "test", Effect: corev1.TaintEffectNoSchedule}}
}

// serve answers on an address, with success once the file exists.
func serve(ctx context.Context, args []string) error {
	s := http.Server{Addr: args[0], ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		if _, err := os.Stat(args[1]); err != nil { //nolint:gosec // the test's own
			rw.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(rw, "ok")
	})}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	if err := s.ListenAndServe(); ctx.Err() == nil {
		return err
	}
	return nil
}
