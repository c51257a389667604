package gardenbed_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/fleetloop/fleetloop/devstack/gardenbed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
)

// shootsOf returns a client of the Shoots of a namespace.
func shootsOf(t *testing.T, bed *gardenbed.Bed, namespace string) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(bed.Config())
	if err != nil {
		t.Fatal(err)
	}
	return client.Resource(schema.GroupVersionResource{Group: "core.gardener.cloud", Version: "v1beta1", Resource: "shoots"}).Namespace(namespace)
}

// object is a JSON object.
type object = map[string]any

// newShoot returns a Shoot of a provider, as a user of that provider writes it.
func newShoot(provider, name string) *unstructured.Unstructured {
	worker := object{"name": "default", "minimum": int64(1), "maximum": int64(3), "machine": object{"type": "local"}}
	of := object{"type": provider, "workers": []any{worker}}
	network := object{"type": "calico"}
	region := "local"
	switch provider {
	case "local":
		network["nodes"] = "10.0.0.0/16"
	case "metal":
		const group = "metal.provider.extensions.gardener.cloud/v1alpha1"
		region = "fra-equ01"
		worker["machine"] = object{"type": "n1-medium-x86"}
		network["pods"], network["services"] = "10.244.0.0/18", "10.244.64.0/18"
		of["infrastructureConfig"] = object{
			"apiVersion": group, "kind": "InfrastructureConfig", "partitionID": "fra-equ01", "projectID": "00000000-0000-0000-0000-000000000001",
			"firewall": object{"size": "c1-medium-x86", "image": "firewall-ubuntu-3.0", "networks": []any{"internet"}},
		}
		of["controlPlaneConfig"] = object{"apiVersion": group, "kind": "ControlPlaneConfig"}
	case "aws":
		const group = "aws.provider.extensions.gardener.cloud/v1alpha1"
		region, network["nodes"] = "eu-central-1", "10.250.0.0/16"
		worker["machine"], worker["volume"], worker["zones"] = object{"type": "m5.large"}, object{"type": "gp3", "size": "50Gi"}, []any{"eu-central-1a"}
		zone := object{"name": "eu-central-1a", "workers": "10.250.0.0/19", "public": "10.250.32.0/20", "internal": "10.250.48.0/20"}
		of["infrastructureConfig"] = object{
			"apiVersion": group, "kind": "InfrastructureConfig", "networks": object{"vpc": object{"cidr": "10.250.0.0/16"}, "zones": []any{zone}},
		}
		of["controlPlaneConfig"] = object{"apiVersion": group, "kind": "ControlPlaneConfig"}
	}
	s := &unstructured.Unstructured{Object: object{
		"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Shoot",
		"spec": object{
			"cloudProfile": object{"name": provider}, "credentialsBindingName": provider, "region": region,
			"kubernetes": object{"version": "1.34.1"}, "networking": network, "provider": of,
		},
	}}
	s.SetName(name)
	return s
}

func create(t *testing.T, shoots dynamic.ResourceInterface, s *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	t.Helper()
	return shoots.Create(t.Context(), s, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
}

// at returns a field of a Shoot.
func at(s *unstructured.Unstructured, path ...string) string {
	value, _, _ := unstructured.NestedFieldNoCopy(s.Object, path...)
	return fmt.Sprint(value)
}

// deletion confirms and requests the deletion of a Shoot.
func deletion(t *testing.T, shoots dynamic.ResourceInterface, name string) {
	t.Helper()
	confirmed := []byte(`{"metadata":{"annotations":{"confirmation.gardener.cloud/deletion":"true"}}}`)
	if _, err := shoots.Patch(t.Context(), name, types.MergePatchType, confirmed, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := shoots.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// eventually waits until the last operation of a Shoot is as wanted.
func eventually(t *testing.T, shoots dynamic.ResourceInterface, name, want string) *unstructured.Unstructured {
	t.Helper()
	var s *unstructured.Unstructured
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		var err error
		if s, err = shoots.Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if got := at(s, "status", "lastOperation", "type") + " " + at(s, "status", "lastOperation", "state"); got != want || at(s, "status", "observedGeneration") != at(s, "metadata", "generation") {
			return fmt.Errorf("it says %q of generation %s of %s, want %q", got, at(s, "status", "observedGeneration"), at(s, "metadata", "generation"), want)
		}
		return nil
	})
	return s
}

// wantGone waits until the Shoot does not exist.
func wantGone(t *testing.T, shoots dynamic.ResourceInterface, name string) {
	t.Helper()
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		_, err := shoots.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil:
			return errors.New("it is there")
		}
		return err
	})
}

func start(t *testing.T, o gardenbed.Options) *gardenbed.Bed {
	t.Helper()
	bed, err := gardenbed.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bed.Stop(); err != nil {
			t.Error(err)
		}
	})
	return bed
}
