package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/sentinel/sentinelconfig"
)

// retryLoad is the delay before a configuration that could not be loaded is loaded again.
const retryLoad = 30 * time.Second

// objects reads objects from the host cluster.
type objects interface {
	Get(ctx context.Context, key types.NamespacedName) (*v1alpha1.SentinelConfig, error)
	GetSecretData(ctx context.Context, key types.NamespacedName) (map[string][]byte, error)
}

// A watch reports changes of the Secrets that an object references.
type watch interface {
	WatchSecretsOf(key types.NamespacedName, secrets []string)
}

// A reconciler passes the specs of objects to their instances. It waits only for instances that
// must stop.
type reconciler struct {
	objects  objects
	roster   *memberSet
	secrets  watch
	complete func(*sentinelconfig.Settings)
	log      *slog.Logger
}

// Reconcile reconciles one object.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	sc, err := r.objects.Get(ctx, req.NamespacedName)
	switch {
	case apierrors.IsNotFound(err):
		r.stopSentinelOf(ctx, req.NamespacedName)
		return reconcile.Result{}, nil
	case err != nil:
		r.log.WarnContext(ctx, "configuration load failed", "config", req.String(), "err", err)
		r.roster.countLoadFailureOf(req.NamespacedName)
		return reconcile.Result{RequeueAfter: retryLoad}, nil
	case sc.DeletionTimestamp != nil:
		r.stopSentinelOf(ctx, req.NamespacedName)
		return reconcile.Result{}, nil
	}
	member := r.roster.getOrStartMember(sc) //nolint:contextcheck // a member outlives the look at its object
	wanted, refusal := r.loadSettingsAndWatchSecrets(ctx, sc)
	if refusal != nil {
		member.instance.RefuseGeneration(*refusal)
		return reconcile.Result{RequeueAfter: retryLoad}, nil
	}
	member.instance.Apply(*wanted)
	return reconcile.Result{}, nil
}

// stopSentinelOf stops the sentinel of a deleted object. Nothing is published after it returns.
func (r *reconciler) stopSentinelOf(ctx context.Context, key types.NamespacedName) {
	r.secrets.WatchSecretsOf(key, nil)
	if r.roster.stopAndRemoveMember(key) {
		r.log.InfoContext(ctx, "configuration deleted, sentinel stopped", "config", key.String())
	}
}

// loadSettingsAndWatchSecrets builds settings from an object and its Secrets. From then on a change of
// one of these Secrets reconciles the object.
func (r *reconciler) loadSettingsAndWatchSecrets(
	ctx context.Context, sc *v1alpha1.SentinelConfig,
) (wanted *WantedConfig, refusal *Refusal) {
	refuse := func(reason RefusalReason, err error) (*WantedConfig, *Refusal) {
		return nil, &Refusal{Generation: sc.Generation, Reason: reason, Err: err, ResourceType: sc.Spec.ResourceType}
	}
	settings, err := sentinelconfig.TranslateSpec(&sc.Spec)
	if err != nil {
		return refuse(ReasonInvalid, err)
	}
	names := settings.SecretNames()
	r.secrets.WatchSecretsOf(types.NamespacedName{Namespace: sc.Namespace, Name: sc.Name}, names)
	secrets, err := r.readExistingSecrets(ctx, sc.Namespace, names)
	if err != nil {
		return refuse(ReasonLoad, err)
	}
	settings, err = settings.WithSecrets(secrets)
	if err != nil {
		return refuse(ReasonSecret, err)
	}
	r.complete(&settings)
	return &WantedConfig{Generation: sc.Generation, Settings: settings, Spec: *sc.Spec.DeepCopy()}, nil
}

// readExistingSecrets returns the data of Secrets by name. A missing Secret is not an error here:
// Settings.WithSecrets reports which setting needs it.
func (r *reconciler) readExistingSecrets(
	ctx context.Context, namespace string, names []string,
) (secrets map[string]map[string][]byte, err error) {
	secrets = map[string]map[string][]byte{}
	for _, name := range names {
		data, err := r.objects.GetSecretData(ctx, types.NamespacedName{Namespace: namespace, Name: name})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read Secret %q: %w", name, err)
		}
		secrets[name] = data
	}
	return secrets, nil
}

var errGone = errors.New("the SentinelConfig does not exist; create it, or check --config and --namespace")
