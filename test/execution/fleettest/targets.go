package fleettest

import (
	"context"
	"errors"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
)

// CreateDeploymentAndAwaitObserved creates a Deployment in a namespace for targets.
func (f *Fleet) CreateDeploymentAndAwaitObserved(namespace, name string, replicas int32) *appsv1.Deployment {
	f.Helper()
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "localhost/web:1"}}},
			},
		},
	}
	if err := f.Client.Create(f.Context(), d); err != nil {
		f.Fatal(err)
	}
	return f.awaitObservedGeneration(d)
}

// awaitObservedGeneration waits until the Deployment controller has observed the latest change.
func (f *Fleet) awaitObservedGeneration(d *appsv1.Deployment) *appsv1.Deployment {
	f.Helper()
	kubebedtest.Eventually(f, func(ctx context.Context) error {
		if err := f.Client.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
			return err
		}
		if d.Status.ObservedGeneration < d.Generation {
			return errors.New("the controller of Deployments has not seen the change")
		}
		return nil
	})
	return d
}

// WantReplicas verifies the desired replicas of a Deployment.
func (f *Fleet) WantReplicas(namespace, name string, want int32) {
	f.Helper()
	if got := *f.GetDeployment(namespace, name).Spec.Replicas; got != want {
		f.Errorf("Deployment %s/%s has %d replicas, want %d", namespace, name, got, want)
	}
}

// GetDeployment reads a Deployment.
func (f *Fleet) GetDeployment(namespace, name string) *appsv1.Deployment {
	f.Helper()
	var d appsv1.Deployment
	if err := f.Client.Get(f.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &d); err != nil {
		f.Fatal(err)
	}
	return &d
}

// PatchDeploymentAndAwaitObserved changes a Deployment as another client.
func (f *Fleet) PatchDeploymentAndAwaitObserved(namespace, name, patch string) {
	f.Helper()
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := f.Client.Patch(f.Context(), d, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		f.Fatal(err)
	}
	f.awaitObservedGeneration(d)
}
