package wake

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/job"
	"github.com/fleetloop/fleetloop/test/execution/fleettest"
)

const (
	alice = fleettest.Requester
	bob   = fleettest.Approver

	// long is each deadline of an execution: far more than a test waits.
	long = 5 * kubebedtest.Patience
)

// A fixture is a fleet in which the test is the node and the controllers of Jobs.
type fixture struct{ *fleettest.Fleet }

// each runs subtests in one fleet.
func each(t *testing.T, tests map[string]func(w fixture)) {
	t.Helper()
	f := fleettest.Start(t, fleettest.Options{Args: []string{"--leader-elect=false"}})
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(fixture{f.For(t)})
		})
	}
}

// own is a name that no other of the tests has.
func (w fixture) own() string {
	name := w.Name()
	return strings.ToLower(name[strings.LastIndexByte(name, '/')+1:])
}

// asks asks for five replicas of a Deployment that has three.
func (w fixture) asks(namespace, name string, change func(*v1alpha1.KubernetesExecutionSpec)) {
	w.Helper()
	w.CreateDeploymentAndAwaitObserved(namespace, name, 3)
	ke := &v1alpha1.KubernetesExecution{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.KubernetesExecutionSpec{
			Action:          "scale_deployment",
			Parameters:      &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"namespace":%q,"deployment":%q,"replicas":5}`, namespace, name)},
			Timeout:         &metav1.Duration{Duration: long},
			ApprovalTimeout: &metav1.Duration{Duration: long},
		},
	}
	if change != nil {
		change(&ke.Spec)
	}
	w.CreateExecution(alice, ke)
}

// executes asks for an execution, and gives the Job that nobody runs.
func (w fixture) executes(name string, change func(*v1alpha1.KubernetesExecutionSpec)) *batchv1.Job {
	w.Helper()
	w.asks(w.Cheap, name, change)
	w.AwaitPhase(name, v1alpha1.PhaseExecuting)
	jobs := w.ListExecutionJobs(name)
	if len(jobs) != 1 {
		w.Fatalf("%d Jobs, want one", len(jobs))
	}
	if d := jobs[0].Spec.ActiveDeadlineSeconds; d == nil || time.Duration(*d)*time.Second != long {
		w.Fatalf("the Job has the deadline %v, want %s: a timer might hide that nobody watches", d, long)
	}
	w.rests()
	return &jobs[0]
}

// rests waits until the controller has nothing to do: what it does from then on
// it does because of something new. Timers are no work.
func (w fixture) rests() {
	w.Helper()
	w.Until(func() error {
		for line := range strings.Lines(w.Controller().Metrics()) {
			line = strings.TrimSpace(line)
			gauge := strings.HasPrefix(line, `controller_runtime_active_workers{controller="execution"`) || strings.HasPrefix(line, `workqueue_depth{controller="execution"`)
			if gauge && !strings.HasSuffix(line, " 0") {
				return errors.New(line)
			}
		}
		return nil
	})
}

// status writes the status of an object as the controllers and kubelets do that
// are not there.
func (w fixture) status(o client.Object, change func()) {
	w.Helper()
	before, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		w.Fatalf("%T is no object", o)
	}
	change()
	if err := w.Client.Status().Patch(w.Context(), o, client.MergeFrom(before)); err != nil {
		w.Fatal(err)
	}
}

// pod makes the Pod of a Job.
func (w fixture) pod(j *batchv1.Job) *corev1.Pod {
	w.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: j.Namespace, Name: j.Name + "-0", Labels: j.Spec.Template.Labels, Annotations: j.Spec.Template.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(j, batchv1.SchemeGroupVersion.WithKind("Job"))},
		},
		Spec: j.Spec.Template.Spec,
	}
	if err := w.Client.Create(w.Context(), p); err != nil {
		w.Fatal(err)
	}
	return p
}

// starts says that the container of a Pod runs, and ends that it has ended so.
func (w fixture) starts(p *corev1.Pod) {
	w.Helper()
	w.status(p, func() {
		p.Status.Phase = corev1.PodRunning
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: job.Container, Image: p.Spec.Containers[0].Image, Ready: true, ContainerID: "test://1",
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		}}
	})
}

func (w fixture) ends(p *corev1.Pod, r action.Result) {
	w.Helper()
	w.status(p, func() {
		s := &p.Status.ContainerStatuses[0]
		began := s.State.Running.StartedAt
		r.Version, r.Attempt, r.Started, r.Ended = 1, 1, began.Time, began.Time
		s.Ready = false
		s.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: int32(r.Code), Message: action.EncodeBounded(r), StartedAt: began, FinishedAt: metav1.Now(), ContainerID: s.ContainerID,
		}}
	})
}

// runs has a Job have a Pod that runs, and the controller have seen it.
func (w fixture) runs(j *batchv1.Job) *corev1.Pod {
	w.Helper()
	p := w.pod(j)
	w.starts(p)
	w.rests()
	return p
}
