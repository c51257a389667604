// Package realnodefault runs the node fault controller on a real node: pods run in
// containers and are evicted, and a Job requests the reboot.
package realnodefault

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/devstack/realnode"
	"github.com/fleetloop/fleetloop/test/nodefault/faulttest"
)

// impossible is the reason why no node can run here.
var impossible error

// TestMain runs all tests in a child process with its own namespaces.
func TestMain(m *testing.M) {
	if realnode.Off() {
		os.Exit(m.Run()) // the tests are skipped
	}
	if impossible = realnode.CheckRequirements(); impossible != nil {
		os.Exit(m.Run()) // the tests fail with the missing requirement
	}
	inside, code, err := realnode.Isolate(context.Background(), slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1) // no test can report it
	}
	if !inside {
		os.Exit(code) // the tests have run
	}
	o := realnode.BedOptions()
	o.CRDs = []string{"../../../deploy/crds"}
	faulttest.RunTestsWithControlPlane(m, o)
}

// shell is an image with a shell and the tools of a Job that reboots.
const shell = "localhost/fleetloop/shell:test"

// harmless replaces a reboot: it prints the current boot ID, and does nothing else.
const harmless = `
janitor:
  job:
    command: [/bin/sh, -c, 'echo "reboot of $(cat /proc/sys/kernel/random/boot_id)" > /dev/termination-log']
`

// TestDrainedAndRebooted verifies that a real pod is evicted, and that a privileged Job
// on the node then requests the reboot.
func TestDrainedAndRebooted(t *testing.T) {
	if realnode.Off() {
		t.Skip("NODE=off: nothing is tested on a real node")
	}
	if impossible != nil {
		t.Fatalf("%v; NODE=off leaves these tests out", impossible)
	}
	c := faulttest.UseSharedCluster(t)
	startNode(t)
	node := onlyNode(c)
	ns := kubebedtest.Namespace(t)
	web := running(c, ns, node.Name)
	c.StartController(map[string]string{
		"NODE_FAULT_REBOOT_PROVIDER": "job", "NODE_REBOOT_IMAGE": shell, "NODE_REBOOT_NAMESPACE": ns,
	}, "--config="+c.WriteTempFile("config.yaml", harmless))
	c.Report(faulttest.NewXidReport(node.Name))

	said := "reboot of " + node.Status.NodeInfo.BootID + "\n"
	var at metav1.Time
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		end, err := rebooter(ctx, c, ns)
		if err != nil {
			return err
		}
		if end.ExitCode != 0 || end.Message != said {
			return fmt.Errorf("the Job ended with %d and said %q", end.ExitCode, end.Message)
		}
		at = end.StartedAt
		return nil
	})
	c.Sink.AwaitActions(t, node.Name, "cordon drain-started drain-completed reboot-requested reboot-sent")
	for _, p := range c.Sink.ReceivedEvents(node.Name, true) {
		if p.Action == "drain-completed" && !strings.Contains(p.Reason, "1 were evicted") {
			t.Errorf("%s: %s", p.Action, p.Reason)
		}
	}
	if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(web), web); err == nil {
		t.Errorf("the pod is still there when the node is to be rebooted, at %s", at)
	}

	// The kubelet restores its boot ID at its next status update; until then the node
	// appears to be in another boot.
	c.UpdateNodeStatusWithRetry(node.Name, func(n *corev1.Node) { n.Status.NodeInfo.BootID = "the-next-boot" })
	c.AwaitFault(node.Name, "the reboot to be proven", func(f *v1alpha1.NodeFault) bool {
		return f.Status.Remediation != nil && f.Status.Remediation.State == v1alpha1.RemedySucceeded
	})
	c.Sink.AwaitActions(t, node.Name, "cordon drain-started drain-completed reboot-requested reboot-sent reboot-executed")
	c.Report(faulttest.NewXidReport(node.Name).Healthy())
	c.AwaitPhase(node.Name, v1alpha1.PhaseHealthy)
	if n := c.GetNode(node.Name); n.Spec.Unschedulable {
		t.Error("it is still cordoned")
	}
}

// startNode starts a kubelet with the image of a shell.
func startNode(t *testing.T) {
	t.Helper()
	archive := filepath.Join(t.TempDir(), "shell.tar")
	f, err := os.Create(archive)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(realnode.WriteFilesImage(f, shell, shellFiles(t)), f.Close()); err != nil {
		t.Fatal(err)
	}
	node, err := realnode.Start(t.Context(), kubebedtest.Bed(t), realnode.Options{Images: []string{archive}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(node.LogTails())
		}
		if err := node.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// shellFiles returns the shell and the tools of the host with their libraries.
func shellFiles(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	linked := regexp.MustCompile(`(/\S+) \(0x`)
	for _, name := range []string{"sh", "cat", "date", "sleep", "sync"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		files["/bin/"+name] = path
		out, err := exec.CommandContext(t.Context(), "ldd", path).CombinedOutput()
		if err != nil {
			t.Fatalf("ldd %s: %v: %s", path, err, out)
		}
		for _, m := range linked.FindAllStringSubmatch(string(out), -1) {
			files[m[1]] = m[1]
		}
	}
	return files
}

// onlyNode returns the node, once pods may run on it.
func onlyNode(c *faulttest.Cluster) *corev1.Node {
	c.Helper()
	var nodes corev1.NodeList
	if err := c.Client.List(c.Context(), &nodes); err != nil {
		c.Fatal(err)
	}
	if len(nodes.Items) != 1 || nodes.Items[0].Status.NodeInfo.BootID == "" {
		c.Fatalf("there are %d nodes", len(nodes.Items))
	}
	return &nodes.Items[0]
}

// running returns a pod that runs on a node, as of a ReplicaSet without a controller.
func running(c *faulttest.Cluster, ns, node string) *corev1.Pod {
	c.Helper()
	labels := map[string]string{"app": "web"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: shell}}}}
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}, Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template}}
	if err := c.Client.Create(c.Context(), rs); err != nil {
		c.Fatal(err)
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: "web-0", Labels: labels,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: rs.Name, UID: rs.UID, Controller: new(true)}},
		},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: new(int64(1)), AutomountServiceAccountToken: new(false),
			Containers: []corev1.Container{{Name: "main", Image: shell, ImagePullPolicy: corev1.PullNever, Command: []string{"/bin/sleep", "3600"}}},
		},
	}
	if err := c.Client.Create(c.Context(), p); err != nil {
		c.Fatal(err)
	}
	kubebedtest.Eventually(c, func(ctx context.Context) error {
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		if p.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("the pod is %+v", p.Status)
		}
		return nil
	})
	return p
}

// rebooter returns the exit state of the pod of the Job that reboots.
func rebooter(ctx context.Context, c *faulttest.Cluster, ns string) (*corev1.ContainerStateTerminated, error) {
	var jobs batchv1.JobList
	var pods corev1.PodList
	if err := errors.Join(c.Client.List(ctx, &jobs, client.InNamespace(ns)), c.Client.List(ctx, &pods, client.InNamespace(ns), client.HasLabels{batchv1.JobNameLabel})); err != nil {
		return nil, err
	}
	if len(jobs.Items) != 1 || len(pods.Items) != 1 || len(pods.Items[0].Status.ContainerStatuses) != 1 {
		return nil, fmt.Errorf("there are %d Jobs and %d pods of them", len(jobs.Items), len(pods.Items))
	}
	if how := pods.Items[0].Spec.Containers[0].SecurityContext; how == nil || how.Privileged == nil || !*how.Privileged {
		return nil, fmt.Errorf("its pod is not privileged: %+v", how)
	}
	end := pods.Items[0].Status.ContainerStatuses[0].State.Terminated
	if end == nil {
		return nil, fmt.Errorf("its pod has not ended: %+v", pods.Items[0].Status)
	}
	return end, nil
}
