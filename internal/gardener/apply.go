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

// maxTries is how many times a Shoot that keeps changing is read and written.
const maxTries = 8

// applyContent is the media type of a server-side apply. It says YAML, of which JSON is
// a subset.
const applyContent = "application/apply-patch+yaml"

// createOnlyVersion is a resource version that no object has. An apply with it can create an
// object and cannot change one.
const createOnlyVersion = "1"

// force takes over the fields that other managers have set, and dryRun stores nothing.
func force() queryOption  { return queryOption{name: "force", value: "true"} }
func dryRun() queryOption { return queryOption{name: "dryRun", value: "All"} }

// ApplyShoot creates or updates the Shoot to match the manifest. seenBefore only decides
// which of the two is tried first.
func (c *Client) ApplyShoot(
	ctx context.Context, manifest shoot.Manifest, seenBefore bool,
) (applied shoot.Applied, err error) {
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

// createOrUpdateShoot creates or updates a Shoot, and tries again if it changes meanwhile.
func (w *shootWriter) createOrUpdateShoot(
	ctx context.Context, manifest shoot.Manifest, seenBefore bool,
) (applied shoot.Applied, err error) {
	if !seenBefore { // most likely it does not exist, so reading it first would be a wasted request
		applied, err = w.createShoot(ctx, manifest, createOnlyVersion)
		if !hasHTTPStatus(err, http.StatusConflict) {
			return applied, err
		}
	}
	for try := range maxTries {
		live, getErr := w.getStoredShoot(ctx, manifest.Metadata.Name)
		switch {
		case errors.Is(getErr, shoot.ErrNotFound):
			version := createOnlyVersion
			if try > 0 { // in case a server refuses to create an object with a version
				version = ""
			}
			applied, err = w.createShoot(ctx, manifest, version)
		case getErr != nil:
			return shoot.Applied{}, getErr
		default:
			applied, err = w.updateShootAndRemovePools(ctx, manifest, live)
		}
		if !hasHTTPStatus(err, http.StatusConflict) {
			return applied, err
		}
	}
	return shoot.Applied{}, err
}

// dryRunApply sends the request of createOrUpdateShoot as a dry run.
func (w *shootWriter) dryRunApply(ctx context.Context, manifest shoot.Manifest) error {
	live, err := w.getStoredShoot(ctx, manifest.Metadata.Name)
	if errors.Is(err, shoot.ErrNotFound) {
		_, err = w.serverSideApply(ctx, manifestPatch{Manifest: manifest, version: createOnlyVersion}, dryRun())
		return err
	}
	if err != nil {
		return err
	}
	manifest, err = shoot.PrepareManifestForUpdate(manifest, live.toLiveShoot())
	if err != nil {
		return err
	}
	// The dry run keeps unwanted pools that other managers own, as a separate request
	// removes them.
	_, err = w.serverSideApply(ctx, w.newUpdatePatch(manifest, live), force(), dryRun())
	return err
}

// createShoot creates a Shoot that does not exist.
func (w *shootWriter) createShoot(
	ctx context.Context, manifest shoot.Manifest, resourceVersion string,
) (shoot.Applied, error) {
	created, err := w.serverSideApply(ctx, manifestPatch{Manifest: manifest, version: resourceVersion})
	if err != nil {
		return shoot.Applied{}, err
	}
	return shoot.Applied{
		UID:        created.Metadata.UID,
		Generation: created.Metadata.Generation,
		Created:    true,
		Changed:    true,
	}, nil
}

// updateShootAndRemovePools updates an existing Shoot to match a manifest.
func (w *shootWriter) updateShootAndRemovePools(
	ctx context.Context, manifest shoot.Manifest, before *storedShoot,
) (shoot.Applied, error) {
	manifest, err := shoot.PrepareManifestForUpdate(manifest, before.toLiveShoot())
	if err != nil {
		return shoot.Applied{}, err
	}
	after, err := w.serverSideApply(ctx, w.newUpdatePatch(manifest, before), force())
	if err != nil {
		return shoot.Applied{}, err
	}
	// The new pools come first, as the remaining ones have to suffice for a Shoot.
	if unwanted := poolsNotInManifest(manifest, after); len(unwanted) > 0 {
		after, err = w.removePools(ctx, after, unwanted)
		if err != nil {
			return shoot.Applied{}, err
		}
	}
	return shoot.Applied{
		UID:        after.Metadata.UID,
		Generation: after.Metadata.Generation,
		Changed:    wasChangedByApply(manifest.Metadata, before, after),
		SentBefore: shoot.ParseSentGeneration(before.Metadata.Annotations),
	}, nil
}

// newUpdatePatch returns the patch of a live Shoot. It keeps the pools that other managers own,
// because an apply cannot remove them.
func (w *shootWriter) newUpdatePatch(manifest shoot.Manifest, live *storedShoot) manifestPatch {
	manifest.Spec.Provider.Workers = slices.Concat(
		manifest.Spec.Provider.Workers,
		poolsOwnedByOtherManagers(w.manager, manifest, live),
	)
	return manifestPatch{Manifest: manifest, uid: live.Metadata.UID, version: live.Metadata.ResourceVersion}
}

// wasChangedByApply reports whether a Shoot differed from its manifest. The annotation of the
// sent generation and its history make no difference.
func wasChangedByApply(manifestMeta shoot.Metadata, before, after *storedShoot) bool {
	annotations := maps.Clone(manifestMeta.Annotations)
	delete(annotations, shoot.AnnotationGeneration)
	delete(annotations, shoot.AnnotationHistory)
	return !bytes.Equal(before.Raw, after.Raw) ||
		hasSetOrRemovedKeys(manifestMeta.Labels, before.Metadata.Labels, after.Metadata.Labels) ||
		hasSetOrRemovedKeys(annotations, before.Metadata.Annotations, after.Metadata.Annotations)
}

// hasSetOrRemovedKeys reports whether an apply changed labels or annotations. They differed from the
// wanted ones before, or had some that are now gone. It ignores those of Gardener, which come and
// go with every request.
func hasSetOrRemovedKeys(wanted, before, after map[string]string) bool {
	for key, value := range wanted {
		previous, existed := before[key]
		if !existed || previous != value {
			return true
		}
	}
	for key := range before {
		_, stayed := after[key]
		if !stayed && !strings.Contains(key, "gardener.cloud/") {
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

// A queryOption is a parameter of a patch request.
type queryOption struct{ name, value string }

// serverSideApply sends a manifest, and returns the Shoot after it.
func (w *shootWriter) serverSideApply(
	ctx context.Context, patch manifestPatch, options ...queryOption,
) (*storedShoot, error) {
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
	}{
		APIVersion: patch.APIVersion,
		Kind:       patch.Kind,
		Metadata: metadata{
			Metadata:        patch.Metadata,
			UID:             patch.uid,
			ResourceVersion: patch.version,
		},
		Spec: patch.Spec,
	}
	return w.patchShoot(ctx, patch.Metadata.Name, applyContent, object, options...)
}

// patchShoot sends one change of a Shoot, and returns the Shoot after it.
func (w *shootWriter) patchShoot(
	ctx context.Context, name, contentType string, body any, options ...queryOption,
) (*storedShoot, error) {
	query := url.Values{"fieldManager": {w.manager}, "fieldValidation": {"Strict"}}
	for _, o := range options {
		query.Set(o.name, o.value)
	}
	request := apiRequest{
		method:  http.MethodPatch,
		path:    w.ns.shootPath(name),
		query:   query,
		content: contentType,
		body:    body,
	}
	patched := &storedShoot{}
	return patched, w.ns.api.sendAndDecode(ctx, request, patched)
}
