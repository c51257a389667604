package nodefault

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/test/nodefault/faulttest"
)

// A fixture is the setup of the permission tests.
type fixture struct {
	*testing.T

	c       *faulttest.Cluster
	kept    string // namespace whose pods a budget blocks
	process *kubebedtest.Process
	token   string
	said    string // the response to the last report
}

// send reports to a process like a monitor.
func (s *fixture) send(ctx context.Context, to *kubebedtest.Process, r faulttest.Report) (int, error) {
	address, err := to.LoggedField("listening for fault reports", "address")
	if err != nil {
		return 0, err
	}
	body, err := json.Marshal(r)
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/v1/health-events", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+s.token)
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	text, err := io.ReadAll(resp.Body)
	s.said = string(text)
	return resp.StatusCode, err
}

func (s *fixture) report(r faulttest.Report) {
	s.Helper()
	kubebedtest.Eventually(s, func(ctx context.Context) error {
		code, err := s.send(ctx, s.process, r)
		if err == nil && code != http.StatusAccepted {
			err = fmt.Errorf("answered %d: %s", code, s.said)
		}
		return err
	})
}

// create creates an object as an administrator.
func (s *fixture) create(o client.Object) {
	s.Helper()
	if err := s.c.Client.Create(s.Context(), o); err != nil {
		s.Fatal(err)
	}
}

// podOn creates a pod on a node.
func (s *fixture) podOn(node, namespace, name string, labels map[string]string) *corev1.Pod {
	s.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: namespace, Labels: labels,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name, UID: "of-nobody", Controller: new(true)}},
		},
		Spec: corev1.PodSpec{NodeName: node, TerminationGracePeriodSeconds: new(int64(0)), Containers: []corev1.Container{{Name: "main", Image: "registry.example.com/main"}}},
	}
	s.create(p)
	s.patchPodStatus(p, corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}})
	return p
}

// patchPodStatus sets the status of a pod. The controllers of the cluster may change the pod at the same time.
func (s *fixture) patchPodStatus(p *corev1.Pod, status corev1.PodStatus) {
	s.Helper()
	before := p.DeepCopy()
	p.Status = status
	if err := s.c.Client.Status().Patch(s.Context(), p, client.MergeFrom(before)); err != nil {
		s.Fatal(err)
	}
}

// job waits for a Job for a node.
func (s *fixture) job(node, annotation string) *batchv1.Job {
	s.Helper()
	var found *batchv1.Job
	kubebedtest.Eventually(s, func(ctx context.Context) error {
		var all batchv1.JobList
		if err := s.c.Client.List(ctx, &all, client.InNamespace(faulttest.Namespace)); err != nil {
			return err
		}
		i := slices.IndexFunc(all.Items, func(j batchv1.Job) bool { return j.Annotations[annotation] == node })
		if i < 0 {
			return fmt.Errorf("there is no Job about %q among %d", node, len(all.Items))
		}
		found = &all.Items[i]
		return nil
	})
	s.Cleanup(func() { _ = s.c.Client.Delete(context.WithoutCancel(s.Context()), found) }) // it may be gone
	return found
}

// started creates the pod of a Job, which has ended if an exit state is given.
func (s *fixture) started(node string, j *batchv1.Job, ended *corev1.ContainerStateTerminated) {
	s.Helper()
	p := s.podOn(node, faulttest.Namespace, j.Name, map[string]string{batchv1.JobNameLabel: j.Name})
	state := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
	if ended != nil {
		state = corev1.ContainerState{Terminated: ended}
	}
	s.patchPodStatus(p, corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "main", Image: "registry.example.com/main", State: state}}})
	s.Cleanup(func() { _ = s.c.Client.Delete(context.WithoutCancel(s.Context()), p) }) // it may be gone
}

// gone waits until an object is deleted.
func (s *fixture) gone(o client.Object) {
	s.Helper()
	kubebedtest.Eventually(s, func(ctx context.Context) error {
		err := s.c.Client.Get(ctx, client.ObjectKeyFromObject(o), o)
		if err == nil {
			return fmt.Errorf("%T %q is there", o, o.GetName())
		}
		return client.IgnoreNotFound(err)
	})
}

func fault(name string) *v1alpha1.NodeFault {
	return &v1alpha1.NodeFault{ObjectMeta: metav1.ObjectMeta{Name: name}}
}
