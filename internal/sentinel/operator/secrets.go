package operator

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/kube"
)

// A secretWatch reports changes of Secrets. It watches each Secret by name, so that it needs no
// permission for others, and only its metadata. The data of a Secret is read when it is used, and
// not cached.
type secretWatch struct {
	client    metadata.Interface
	namespace string
	log       *slog.Logger
	changed   chan event.GenericEvent

	mu      sync.Mutex
	ctx     context.Context //nolint:containedctx // of the run, in which watches begin and end
	wg      sync.WaitGroup
	watches map[string]func()                 // functions that end a watch, by the Secret's name
	users   map[types.NamespacedName][]string // Secrets by the object that references them
}

func newSecretWatch(c metadata.Interface, namespace string, log *slog.Logger) *secretWatch {
	return &secretWatch{
		client: c, namespace: namespace, log: log, changed: make(chan event.GenericEvent),
		watches: map[string]func(){}, users: map[types.NamespacedName][]string{},
	}
}

// setRunContext allows watches to start, until ctx ends.
func (w *secretWatch) setRunContext(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ctx = ctx
}

// waitForWatches waits for the end of the watches. The context of setRunContext has ended.
func (w *secretWatch) waitForWatches() { w.wg.Wait() }

// WatchSecretsOf sets the Secrets that an object references now.
func (w *secretWatch) WatchSecretsOf(key types.NamespacedName, secrets []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(secrets) == 0 {
		delete(w.users, key)
	} else {
		w.users[key] = secrets
	}
	used := map[string]bool{}
	for _, names := range w.users {
		for _, name := range names {
			used[name] = true
		}
	}
	for name, end := range w.watches {
		if !used[name] {
			end()
			delete(w.watches, name)
		}
	}
	for name := range used {
		if w.watches[name] == nil && w.ctx != nil && w.ctx.Err() == nil {
			w.watches[name] = w.startWatchingSecret(w.ctx, name)
		}
	}
}

// startWatchingSecret starts to watch a Secret, and returns a function that ends the watch.
func (w *secretWatch) startWatchingSecret(ctx context.Context, name string) (stop func()) {
	ctx, end := context.WithCancel(ctx)
	secrets := w.client.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(w.namespace)
	byName := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	informer := toolscache.NewSharedIndexInformer(kube.NewRetryingListWatcher(&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = byName
			return secrets.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			o.FieldSelector = byName
			return secrets.Watch(ctx, o)
		},
	}, w.log, nil), &metav1.PartialObjectMetadata{}, 0, toolscache.Indexers{})
	tell := func() { w.enqueueObjectsUsing(ctx, name) }
	_, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { tell() },
		UpdateFunc: func(any, any) { tell() },
		DeleteFunc: func(any) { tell() },
	})
	if err != nil {
		end() // it was stopped before it started, and reports nothing
		return end
	}
	w.wg.Go(func() { informer.RunWithContext(ctx) })
	return end
}

// enqueueObjectsUsing requests a reconcile of the objects that reference a Secret.
func (w *secretWatch) enqueueObjectsUsing(ctx context.Context, secretName string) {
	w.mu.Lock()
	var keys []types.NamespacedName
	for key, names := range w.users {
		if slices.Contains(names, secretName) {
			keys = append(keys, key)
		}
	}
	w.mu.Unlock()
	for _, key := range keys {
		var object client.Object = &v1alpha1.SentinelConfig{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		select {
		case w.changed <- event.GenericEvent{Object: object}:
		case <-ctx.Done():
			return
		}
	}
}
