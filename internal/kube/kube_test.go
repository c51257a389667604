package kube_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/processtest"
)

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: canary}}]
contexts: [{name: x, context: {cluster: c, user: u, namespace: of-the-context}}]
current-context: x
`

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestConnect covers how the host cluster is found, and the limits of its client.
func TestConnect(t *testing.T) {
	good, missing := write(t, kubeconfig), filepath.Join(t.TempDir(), "none")
	cases := map[string]struct {
		reason string
		cfg    kube.Config
		want   string // in the error; empty for success
	}{
		"File":    {"the one that is named", kube.Config{Kubeconfig: good}, ""},
		"Several": {"as KUBECONFIG may have them, one of them not there", kube.Config{Kubeconfig: missing + string(filepath.ListSeparator) + good}, ""},
		"Missing": {"one that is named has to be there", kube.Config{Kubeconfig: missing}, missing},
		"Bad":     {"it makes no sense", kube.Config{Kubeconfig: write(t, "][")}, "read kubeconfig"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			rc, err := kube.NewRESTConfig(tc.cfg, "us")
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
				}
				return
			}
			if err != nil || rc.Host != "https://127.0.0.1:1" || rc.UserAgent != "us" || rc.QPS != kube.DefaultQPS || rc.Burst != kube.DefaultBurst {
				t.Errorf("%s: got %+v and %v", tc.reason, rc, err)
			}
		})
	}
	if rc, err := kube.NewRESTConfig(kube.Config{Kubeconfig: good, QPS: 3, Burst: 4}, "us"); err != nil || rc.QPS != 3 || rc.Burst != 4 {
		t.Errorf("got %+v and %v, want the rates that are set", rc, err)
	}
}

func TestNamespace(t *testing.T) {
	file := write(t, kubeconfig)
	for env, want := range map[string]string{"of-the-pod": "of-the-pod", "": "of-the-context"} {
		ns, err := kube.Config{Kubeconfig: file}.FindPodOrKubeconfigNamespace(func(name string) (string, bool) { return env, name == "POD_NAMESPACE" })
		if err != nil || ns != want {
			t.Errorf("got %q and %v, want %q", ns, err, want)
		}
	}
	if ns, err := (kube.Config{Kubeconfig: filepath.Join(t.TempDir(), "none")}).FindPodOrKubeconfigNamespace(func(string) (string, bool) { return "", false }); err == nil {
		t.Errorf("got %q of a kubeconfig that is not there", ns)
	}
}

// TestMetrics covers that metrics of other registries are omitted.
func TestMetrics(t *testing.T) {
	families, err := kube.LibraryMetricsGatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if name := f.GetName(); strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			t.Errorf("%s is the process's own", name)
		}
	}
}

// TestPatient covers that requests are retried while no server answers, that a refusal
// is an error at once, and that the end of the context ends the retries.
func TestPatient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down, refusal := errors.New("connection refused"), apierrors.NewForbidden(metav1.SchemeGroupVersion.WithResource("x").GroupResource(), "x", nil)
		answers := []error{down, down, down, nil, refusal}
		var noted int
		var log processtest.Buffer
		lw := kube.NewRetryingListWatcher(&cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				err := answers[0]
				answers = answers[1:]
				return &metav1.PartialObjectMetadataList{}, err
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return nil, down },
		}, slog.New(slog.NewTextHandler(&log, nil)), func(error) { noted++ })
		patient := cache.ToListerWatcherWithContext(lw)
		begin := time.Now()
		if list, err := patient.ListWithContext(t.Context(), metav1.ListOptions{}); err != nil || list == nil || noted != 3 {
			t.Errorf("got %v and %v after %d errors, want the list after 3", list, err, noted)
		}
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("it took %s to ask four times", took)
		}
		if n := strings.Count(log.String(), "failed, retrying"); n != 1 || !strings.Contains(log.String(), "restored") {
			t.Errorf("it says %d times that nothing answers, want once, and when it is over:\n%s", n, log.String())
		}
		if _, err := patient.ListWithContext(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("got %v, want the refusal", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begin = time.Now()
		if _, err := patient.WatchWithContext(ctx, metav1.ListOptions{}); !errors.Is(err, down) || time.Since(begin) != time.Minute {
			t.Errorf("got %v after %s, want the error when it ends", err, time.Since(begin))
		}
	})
}
