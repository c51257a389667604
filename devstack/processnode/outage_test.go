package processnode_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/devstack/processnode"
)

func TestWithoutNamespaces(t *testing.T) {
	f := newFixture(t)
	f.node = "plain"
	runNode(t, processnode.Options{NodeName: f.node, Taints: closed(), WithoutNamespaces: true})
	clientPod(f, "kubeconfig")
	spec := script(`echo "$FILE" > /dev/null; cat "$FILE" /etc/given/name; echo left > /dev/termination-log`)
	c := &spec.Containers[0]
	c.Env = []corev1.EnvVar{{Name: "FILE", Value: "/etc/given/name"}}
	c.VolumeMounts = []corev1.VolumeMount{{Name: "given", MountPath: "/etc/given"}}
	spec.Volumes = []corev1.Volume{{Name: "given", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
		Items: []corev1.DownwardAPIVolumeFile{{Path: "name", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
	}}}}
	f.pod("plain", spec)
	pod := f.wantEnd("plain")
	wantText(t, f.logs("plain"), "plainplain")
	wantText(t, pod.Status.ContainerStatuses[0].State.Terminated.Message, "left")
}

func TestAgentIsKilled(t *testing.T) {
	f := newFixture(t)
	f.node = "mortal"
	kubeconfig, err := kubebedtest.Bed(t).WriteUserKubeconfig("agent", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	start := func() *exec.Cmd {
		agent := exec.CommandContext(t.Context(), "/proc/self/exe", programPrefix+"agent", f.node, kubeconfig, dir)
		agent.Stderr = os.Stderr
		if err := agent.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = agent.Process.Kill(); _ = agent.Wait() })
		return agent
	}
	agent := start()
	f.pod("once", script("sleep 1000"))
	spec := script("sleep 1000")
	spec.RestartPolicy = corev1.RestartPolicyAlways
	f.pod("always", spec)
	once := f.wantRunning("once")
	always := f.wantRunning("always")
	if err := agent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	f.wantDead(once)
	f.wantDead(always)
	_ = agent.Wait()
	start()
	pod := f.wantPhase("once", corev1.PodFailed)
	if ended := pod.Status.ContainerStatuses[0].State.Terminated; ended == nil || ended.ExitCode != 137 || ended.Reason != "ContainerStatusUnknown" {
		t.Errorf("the container that died with the agent: %+v", ended)
	}
	f.eventually("always", func(p *corev1.Pod) error {
		s := p.Status.ContainerStatuses[0]
		if pid, ok := processnode.PID(s); !ok || pid == always || s.RestartCount != 1 {
			return fmt.Errorf("want that it runs again")
		}
		return nil
	})
}

func TestAPIServerIsAway(t *testing.T) {
	f := newFixture(t)
	f.node = "patient"
	runNode(t, processnode.Options{NodeName: f.node, Taints: closed()})
	spec := script("while [ ! -e /shared/go ]; do sleep 0.05; done; echo went > /shared/went; exit 4")
	dir := f.withFolder(&spec)
	f.pod("goes-on", spec)
	f.wantRunning("goes-on")
	bed := kubebedtest.Bed(t)
	if err := bed.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f.wantFile(filepath.Join(dir, "went"), "went\n")
	if err := bed.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	pod := f.wantPhase("goes-on", corev1.PodFailed)
	if ended := pod.Status.ContainerStatuses[0].State.Terminated; ended == nil || ended.ExitCode != 4 {
		t.Errorf("what ended while the API server was away: %+v", ended)
	}
}
