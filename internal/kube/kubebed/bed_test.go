package kubebed_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fleetloop/fleetloop/internal/kube/kubebed"
	"github.com/fleetloop/fleetloop/internal/kube/kubebed/kubebedtest"
)

func TestMain(m *testing.M) {
	kubebedtest.Main(m, kubebed.Options{Controllers: kubebed.JobControllers()})
}

func TestNamespace(t *testing.T) {
	client, err := kubernetes.NewForConfig(kubebedtest.Bed(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	ns := kubebedtest.Namespace(t)
	list, err := client.CoreV1().ServiceAccounts(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) == 0 {
		t.Errorf("%v %v", list, err)
	}
	out, err := kubebedtest.Bed(t).Kubectl(t.Context(), "get", "namespaces")
	t.Log(out, err)
}
