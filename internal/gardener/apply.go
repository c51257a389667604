package gardener

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// tries is how many times a Shoot that keeps changing is read and written.
const tries = 8

// applyContent is the media type of a server-side apply. It says YAML, of which JSON is
// a subset.
const applyContent = "application/apply-patch+yaml"

// never is a resource version that no object has. An apply with it can create an object
// and cannot change one.
const never = "1"

// ApplyShoot creates or updates the Shoot to match the manifest. seenBefore only decides
// which of the two is tried first.
func (c *Client) ApplyShoot(ctx context.Context, manifest shoot.Manifest, seenBefore bool) (applied shoot.Applied, err error) {
	manifest.Metadata.Namespace = c.ns.name
	applied, err = c.writer.createOrUpdateShoot(ctx, manifest, seenBefore)
	return applied, wrapWithErrorClass(err, "apply Shoot %q", manifest.Metadata.Name)
}

// DryRunShoot returns the error that ApplyShoot would return. It stores nothing.
func (c *Client) DryRunShoot(ctx context.Context, manifest shoot.Manifest) error {
	manifest.Metadata.Namespace = c.ns.name
	return wrapWithErrorClass(c.writer.dryRunApply(ctx, manifest), "check Shoot %q", manifest.Metadata.Name)
}

// A shootWriter creates, changes and deletes Shoots as one field manager.
type shootWriter struct {
	ns      *shootNamespace
	manager string
}

func (w *shootWriter) createOrUpdateShoot(
	ctx context.Context, manifest shoot.Manifest, seenBefore bool,
) (applied shoot.Applied, err error) {
	if !seenBefore {
		if applied, err = w.createShoot(ctx, manifest, never); !hasHTTPStatus(err, http.StatusConflict) {
			return applied, err
		}
	}
	for try := range tries {
		var live *storedShoot
		switch live, err = w.getStoredShoot(ctx, manifest.Metadata.Name); {
		case errors.Is(err, shoot.ErrNotFound):
			version := never
			if try > 0 { // in case a server refuses to create an object with a version
				version = ""
			}
			applied, err = w.createShoot(ctx, manifest, version)
		case err != nil:
			return shoot.Applied{}, err
		default:
			applied, err = w.updateShoot(ctx, manifest, live)
		}
		if !hasHTTPStatus(err, http.StatusConflict) {
			return applied, err
		}
	}
	return shoot.Applied{}, err
}

func (w *shootWriter) dryRunApply(ctx context.Context, manifest shoot.Manifest) error {
	live, err := w.getStoredShoot(ctx, manifest.Metadata.Name)
	if errors.Is(err, shoot.ErrNotFound) {
		_, err = w.serverSideApply(ctx, manifestPatch{Manifest: manifest, version: never}, queryOption{"dryRun", "All"})
		return err
	}
	if err != nil {
		return err
	}
	if manifest, err = shoot.PrepareManifestForUpdate(manifest, live.toLiveShoot()); err != nil {
		return err
	}
	// The dry run keeps unwanted pools that other managers own, as a separate request
	// removes them.
	manifest.Spec.Provider.Workers = slices.Concat(manifest.Spec.Provider.Workers, poolsOwnedByOtherManagers(w.manager, manifest, live))
	_, err = w.serverSideApply(ctx, manifestPatch{Manifest: manifest, uid: live.Metadata.UID, version: live.Metadata.ResourceVersion}, queryOption{"force", "true"}, queryOption{"dryRun", "All"})
	return err
}

// createShoot creates a Shoot that does not exist.
func (w *shootWriter) createShoot(ctx context.Context, manifest shoot.Manifest, resourceVersion string) (shoot.Applied, error) {
	is, err := w.serverSideApply(ctx, manifestPatch{Manifest: manifest, version: resourceVersion})
	if err != nil {
		return shoot.Applied{}, err
	}
	return shoot.Applied{UID: is.Metadata.UID, Generation: is.Metadata.Generation, Created: true, Changed: true}, nil
}

// updateShoot updates an existing Shoot to match a manifest.
func (w *shootWriter) updateShoot(ctx context.Context, manifest shoot.Manifest, before *storedShoot) (shoot.Applied, error) {
	manifest, err := shoot.PrepareManifestForUpdate(manifest, before.toLiveShoot())
	if err != nil {
		return shoot.Applied{}, err
	}
	all := manifest
	all.Spec.Provider.Workers = slices.Concat(manifest.Spec.Provider.Workers, poolsOwnedByOtherManagers(w.manager, manifest, before))
	is, err := w.serverSideApply(ctx, manifestPatch{Manifest: all, uid: before.Metadata.UID, version: before.Metadata.ResourceVersion}, queryOption{"force", "true"})
	if err != nil {
		return shoot.Applied{}, err
	}
	// The new pools come first, as the remaining ones have to suffice for a Shoot.
	if left := poolsNotInManifest(manifest, is); len(left) > 0 {
		if is, err = w.removePools(ctx, is, left); err != nil {
			return shoot.Applied{}, err
		}
	}
	return shoot.Applied{
		UID: is.Metadata.UID, Generation: is.Metadata.Generation, Changed: wasChangedByApply(manifest.Metadata, before, is),
		SentBefore: shoot.ParseSentGeneration(before.Metadata.Annotations),
	}, nil
}

// wasChangedByApply reports whether a Shoot differed from its manifest. The annotation of the
// sent generation and its history make no difference.
func wasChangedByApply(manifestMeta shoot.Metadata, before, after *storedShoot) bool {
	notes := maps.Clone(manifestMeta.Annotations)
	delete(notes, shoot.AnnotationGeneration)
	delete(notes, shoot.AnnotationHistory)
	return !bytes.Equal(before.Raw, after.Raw) ||
		hasChangedKeys(manifestMeta.Labels, before.Metadata.Labels, after.Metadata.Labels) ||
		hasChangedKeys(notes, before.Metadata.Annotations, after.Metadata.Annotations)
}

// hasChangedKeys reports whether an apply changed labels or annotations. They differed from the
// wanted ones before, or had some that are now gone. It ignores those of Gardener, which come and
// go with every request.
func hasChangedKeys(wanted, before, after map[string]string) bool {
	for k, v := range wanted {
		if had, ok := before[k]; !ok || had != v {
			return true
		}
	}
	for k := range before {
		if _, stayed := after[k]; !stayed && !strings.Contains(k, "gardener.cloud/") {
			return true
		}
	}
	return false
}

// getStoredShoot reads the Shoot of a name, or returns shoot.ErrNotFound.
func (w *shootWriter) getStoredShoot(ctx context.Context, name string) (*storedShoot, error) {
	live := &storedShoot{}
	return live, w.ns.getShootInto(ctx, name, live)
}

// A manifestPatch is a manifest with the uid and version that the live Shoot must have.
type manifestPatch struct {
	shoot.Manifest
	uid, version string
}

type queryOption struct{ name, value string }

// serverSideApply sends a manifest, and returns the Shoot after it.
func (w *shootWriter) serverSideApply(ctx context.Context, patch manifestPatch, options ...queryOption) (*storedShoot, error) {
	type metadata struct {
		shoot.Metadata
		UID             string `json:"uid,omitempty"`
		ResourceVersion string `json:"resourceVersion,omitempty"`
	}
	object := struct {
		APIVersion string     `json:"apiVersion"`
		Kind       string     `json:"kind"`
		Metadata   metadata   `json:"metadata"`
		Spec       shoot.Spec `json:"spec"`
	}{patch.APIVersion, patch.Kind, metadata{patch.Metadata, patch.uid, patch.version}, patch.Spec}
	return w.patchShoot(ctx, patch.Metadata.Name, applyContent, object, options...)
}

// patchShoot sends one change of a Shoot, and returns the Shoot after it.
func (w *shootWriter) patchShoot(ctx context.Context, name, contentType string, body any, options ...queryOption) (*storedShoot, error) {
	query := url.Values{"fieldManager": {w.manager}, "fieldValidation": {"Strict"}}
	for _, o := range options {
		query.Set(o.name, o.value)
	}
	is := &storedShoot{}
	return is, w.ns.api.sendAndDecode(ctx, apiRequest{method: http.MethodPatch, path: w.ns.shootPath(name), query: query, content: contentType, body: body}, is)
}
