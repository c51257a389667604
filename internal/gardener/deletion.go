package gardener

import (
	"context"
	"errors"
	"net/http"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// DeleteShoot requests the deletion of a Shoot if its labels match the given cluster. A
// Shoot that was created again for the same cluster, and so has another UID, is deleted
// as well.
func (c *Client) DeleteShoot(ctx context.Context, ref shoot.Ref) (deletion shoot.Deletion, err error) {
	deletion, err = c.writer.deleteShootIfOwned(ctx, ref)
	return deletion, wrapWithErrorClass(err, "delete Shoot %q", ref.Name)
}

// deleteShootIfOwned requests the deletion, and tries again if the Shoot changes meanwhile.
func (w *shootWriter) deleteShootIfOwned(ctx context.Context, ref shoot.Ref) (shoot.Deletion, error) {
	var err error
	for range maxTries {
		var live *storedShoot
		live, err = w.getStoredShoot(ctx, ref.Name)
		if errors.Is(err, shoot.ErrNotFound) {
			return shoot.Deletion{Absent: true}, nil
		}
		if err != nil {
			return shoot.Deletion{}, err
		}
		if err := shoot.CheckOwnedByRef(ref, live.Metadata.Labels); err != nil {
			return shoot.Deletion{}, err
		}
		err = w.annotateAndDelete(ctx, live)
		if err == nil {
			return shoot.Deletion{UID: live.Metadata.UID}, nil
		}
		changedMeanwhile := hasHTTPStatus(err, http.StatusConflict) || isObjectNotFound(err, "shoots")
		if !changedMeanwhile {
			return shoot.Deletion{}, err
		}
	}
	return shoot.Deletion{}, err
}

// annotateAndDelete confirms the deletion by an annotation and requests it. The
// confirmation has to stay during the deletion.
func (w *shootWriter) annotateAndDelete(ctx context.Context, live *storedShoot) error {
	metadata := live.Metadata
	if metadata.Annotations[shoot.AnnotationConfirmDeletion] != "true" {
		confirmation := map[string]any{"metadata": map[string]any{
			"uid":             metadata.UID,
			"resourceVersion": metadata.ResourceVersion,
			"annotations":     map[string]string{shoot.AnnotationConfirmDeletion: "true"},
		}}
		if _, err := w.patchShoot(ctx, metadata.Name, "application/merge-patch+json", confirmation); err != nil {
			return err
		}
	}
	if metadata.Deleted != nil { // the deletion was requested before
		return nil
	}
	return w.ns.api.sendAndDecode(ctx, apiRequest{
		method: http.MethodDelete,
		path:   w.ns.shootPath(metadata.Name),
		body: map[string]any{
			"apiVersion":    "v1",
			"kind":          "DeleteOptions",
			"preconditions": map[string]string{"uid": metadata.UID},
		},
	}, nil)
}
