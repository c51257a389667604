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

// ApplyShoot creates or updates the Shoot to match the manifest. seen only decides
// which of the two is tried first.
func (c *Client) ApplyShoot(ctx context.Context, m shoot.Manifest, seen bool) (shoot.Applied, error) {
	m.Metadata.Namespace = c.ns.name
	applied, err := c.writer.apply(ctx, m, seen)
	return applied, wrapWithClass(err, "apply Shoot %q", m.Metadata.Name)
}

// PreflightShoot returns the error that ApplyShoot would return. It stores nothing.
func (c *Client) PreflightShoot(ctx context.Context, m shoot.Manifest) error {
	m.Metadata.Namespace = c.ns.name
	return wrapWithClass(c.writer.dryRun(ctx, m), "check Shoot %q", m.Metadata.Name)
}

// A shootWriter creates, changes and deletes Shoots as one field manager.
type shootWriter struct {
	ns      *namespace
	manager string
}

func (w *shootWriter) apply(ctx context.Context, m shoot.Manifest, seenBefore bool) (applied shoot.Applied, err error) {
	if !seenBefore {
		if applied, err = w.createShoot(ctx, m, never); !hasCode(err, http.StatusConflict) {
			return applied, err
		}
	}
	for try := range tries {
		var live *found
		switch live, err = w.findShoot(ctx, m.Metadata.Name); {
		case errors.Is(err, shoot.ErrNotFound):
			version := never
			if try > 0 { // in case a server refuses to create an object with a version
				version = ""
			}
			applied, err = w.createShoot(ctx, m, version)
		case err != nil:
			return shoot.Applied{}, err
		default:
			applied, err = w.updateShoot(ctx, m, live)
		}
		if !hasCode(err, http.StatusConflict) {
			return applied, err
		}
	}
	return shoot.Applied{}, err
}

func (w *shootWriter) dryRun(ctx context.Context, m shoot.Manifest) error {
	live, err := w.findShoot(ctx, m.Metadata.Name)
	if errors.Is(err, shoot.ErrNotFound) {
		_, err = w.writeManifest(ctx, body{Manifest: m, version: never}, option{"dryRun", "All"})
		return err
	}
	if err != nil {
		return err
	}
	if m, err = shoot.PlanManifest(m, live.toLive()); err != nil {
		return err
	}
	// The dry run keeps unwanted pools that other managers own, as a separate request
	// removes them.
	m.Spec.Provider.Workers = slices.Concat(m.Spec.Provider.Workers, leftovers(w.manager, m, live))
	_, err = w.writeManifest(ctx, body{Manifest: m, uid: live.Metadata.UID, version: live.Metadata.ResourceVersion}, option{"force", "true"}, option{"dryRun", "All"})
	return err
}

// createShoot creates a Shoot that does not exist.
func (w *shootWriter) createShoot(ctx context.Context, m shoot.Manifest, resourceVersion string) (shoot.Applied, error) {
	is, err := w.writeManifest(ctx, body{Manifest: m, version: resourceVersion})
	if err != nil {
		return shoot.Applied{}, err
	}
	return shoot.Applied{UID: is.Metadata.UID, Generation: is.Metadata.Generation, Created: true, Changed: true}, nil
}

// updateShoot updates an existing Shoot to match a manifest.
func (w *shootWriter) updateShoot(ctx context.Context, m shoot.Manifest, was *found) (shoot.Applied, error) {
	m, err := shoot.PlanManifest(m, was.toLive())
	if err != nil {
		return shoot.Applied{}, err
	}
	all := m
	all.Spec.Provider.Workers = slices.Concat(m.Spec.Provider.Workers, leftovers(w.manager, m, was))
	is, err := w.writeManifest(ctx, body{Manifest: all, uid: was.Metadata.UID, version: was.Metadata.ResourceVersion}, option{"force", "true"})
	if err != nil {
		return shoot.Applied{}, err
	}
	// The new pools come first, as the remaining ones have to suffice for a Shoot.
	if left := unwantedPools(m, is); len(left) > 0 {
		if is, err = w.removePools(ctx, is, left); err != nil {
			return shoot.Applied{}, err
		}
	}
	return shoot.Applied{UID: is.Metadata.UID, Generation: is.Metadata.Generation, Changed: wasChangedByApply(m.Metadata, was, is)}, nil
}

// wasChangedByApply reports whether a Shoot differed from its manifest. The annotation of the
// sent generation makes no difference.
func wasChangedByApply(ours shoot.Metadata, was, is *found) bool {
	notes := maps.Clone(ours.Annotations)
	delete(notes, shoot.AnnotationGeneration)
	return !bytes.Equal(was.Raw, is.Raw) ||
		applyChangedLabels(ours.Labels, was.Metadata.Labels, is.Metadata.Labels) ||
		applyChangedLabels(notes, was.Metadata.Annotations, is.Metadata.Annotations)
}

// applyChangedLabels reports whether an apply changed labels or annotations: they differed from the
// wanted ones before, or had some that are now gone. It ignores those of Gardener, which come and go
// with every request.
func applyChangedLabels(wanted, before, after map[string]string) bool {
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

// findShoot reads the Shoot of a name, or returns shoot.ErrNotFound.
func (w *shootWriter) findShoot(ctx context.Context, name string) (*found, error) {
	live := &found{}
	return live, w.ns.getShoot(ctx, name, live)
}

// A body is a manifest with the uid and version that the live Shoot must have.
type body struct {
	shoot.Manifest
	uid, version string
}

type option struct{ name, value string }

// writeManifest sends a manifest.
func (w *shootWriter) writeManifest(ctx context.Context, b body, options ...option) (*found, error) {
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
	}{b.APIVersion, b.Kind, metadata{b.Metadata, b.uid, b.version}, b.Spec}
	return w.patchShoot(ctx, b.Metadata.Name, applyContent, object, options...)
}

// patchShoot sends one change of a Shoot, and returns the Shoot after it.
func (w *shootWriter) patchShoot(ctx context.Context, name, content string, body any, options ...option) (*found, error) {
	query := url.Values{"fieldManager": {w.manager}, "fieldValidation": {"Strict"}}
	for _, o := range options {
		query.Set(o.name, o.value)
	}
	is := &found{}
	return is, w.ns.api.send(ctx, request{method: http.MethodPatch, path: w.ns.shootPath(name), query: query, content: content, body: body}, is)
}
