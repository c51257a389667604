package gardenbed

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
)

// TestSilentWatch holds that a Shoot is handled although the watch that should tell of it is silent.
func TestSilentWatch(t *testing.T) {
	t.Parallel()
	const limit = 30 * time.Second
	synctest.Test(t, func(t *testing.T) {
		shoots := schema.GroupVersionResource{Group: "core.gardener.cloud", Version: "v1beta1", Resource: "shoots"}
		client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{shoots: "ShootList"})
		client.PrependWatchReactor("shoots", func(clienttesting.Action) (bool, watch.Interface, error) { return true, watch.NewFake(), nil })
		g, err := NewGardenlet(&rest.Config{}, GardenletOptions{WatchLimit: limit})
		if err != nil {
			t.Fatal(err)
		}
		g.shoots = client.Resource(shoots)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = g.Run(ctx) }) // ends with ctx
		defer running.Wait()
		defer cancel()
		synctest.Wait()

		s := newShoot()
		s.SetAPIVersion("core.gardener.cloud/v1beta1")
		s.SetKind("Shoot")
		if _, err := client.Resource(shoots).Namespace(s.GetNamespace()).Create(ctx, s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(limit + 10*time.Second)
		synctest.Wait()
		now, err := client.Resource(shoots).Namespace(s.GetNamespace()).Get(ctx, s.GetName(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if op := readOperation(now); op.state != "Succeeded" {
			t.Errorf("the Shoot is %s %q", op.kind, op.state)
		}
	})
}

// TestOperationsThatHaveBegunFirst holds that operations that have begun are advanced before others begin.
func TestOperationsThatHaveBegunFirst(t *testing.T) {
	t.Parallel()
	g, err := NewGardenlet(&rest.Config{}, GardenletOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var shoots []unstructured.Unstructured
	for i := range 2 * perRound {
		s := newShoot()
		s.SetName(fmt.Sprintf("s-%03d", i))
		s.SetFinalizers([]string{finalizer})
		if i >= perRound {
			initOperationStatus(s, typeCreate, now())
		}
		shoots = append(shoots, *s)
	}
	g.replaceShoots(shoots)
	list := g.nextChanges()
	if len(list) != perRound {
		t.Errorf("a round has %d changes, want %d", len(list), perRound)
	}
	for _, c := range list {
		if op := readOperation(c.shoot); op.state != stateProcessing {
			t.Errorf("the Shoot %s is %s; those that are pending come first", c.shoot.GetName(), op.state)
		}
	}
}
