package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/identity"
)

// maxSecrets limits the number of Secrets looked up per target.
const maxSecrets = 64

// asksForSecrets reports whether a condition uses the Secrets of its target. They are looked up
// only then, because each needs a request.
func asksForSecrets(c v1alpha1.Condition) bool { return strings.Contains(c.Rego, "invalid_secrets") }

// findInvalidSecrets finds the Secrets that the target references and cannot use. If the lookup is
// impossible, conditions that use the result do not hold.
func (r *round) findInvalidSecrets(ctx context.Context) error {
	refs, ok := SecretRefs(r.live)
	switch {
	case !ok:
		return nil
	case len(refs) > maxSecrets:
		r.noSecrets = fmt.Sprintf("invalid_secrets is unknown: %s references %d Secrets, but the controller checks at most %d", objectName(r.request.Target), len(refs), maxSecrets)
		return nil
	}
	invalid := []string{}
	for _, ref := range refs {
		kind, found, err := r.deps.Identities.SecretType(ctx, r.request.Target.Namespace, ref.Name)
		missing := (*identity.MissingError)(nil)
		switch {
		case errors.As(err, &missing) || apierrors.IsForbidden(err):
			r.noSecrets = fmt.Sprintf("invalid_secrets is unknown: %v: create service account %s and bind its role in namespace %q", err, identity.SecretLookup, r.request.Target.Namespace)
			return nil
		case err != nil:
			return err
		case !found || ref.Pulls && !holdsRegistry(kind):
			invalid = append(invalid, ref.Name)
		}
	}
	r.state.InvalidSecrets = invalid
	return nil
}

// holdsRegistry reports whether Secrets of a type can be used to pull images.
func holdsRegistry(kind string) bool {
	return slices.Contains([]corev1.SecretType{corev1.SecretTypeDockerConfigJson, corev1.SecretTypeDockercfg}, corev1.SecretType(kind))
}
