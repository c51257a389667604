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
	d, err := c.writer.deleteShootIfOwned(ctx, ref)
	return d, wrapWithErrorClass(err, "delete Shoot %q", ref.Name)
}

func (w *shootWriter) deleteShootIfOwned(ctx context.Context, ref shoot.Ref) (shoot.Deletion, error) {
	var err error
	for range tries {
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
		if err = w.annotateAndDelete(ctx, live); err == nil {
			return shoot.Deletion{UID: live.Metadata.UID}, nil
		}
		if !hasHTTPStatus(err, http.StatusConflict) && !isObjectNotFound(err, "shoots") {
			return shoot.Deletion{}, err
		}
	}
	return shoot.Deletion{}, err
}

// annotateAndDelete confirms the deletion by an annotation and requests it. The
// confirmation has to stay during the deletion.
func (w *shootWriter) annotateAndDelete(ctx context.Context, live *storedShoot) error {
	m := live.Metadata
	if m.Annotations[shoot.AnnotationConfirmDeletion] != "true" {
		_, err := w.patchShoot(ctx, m.Name, "application/merge-patch+json", map[string]any{"metadata": map[string]any{
			"uid": m.UID, "resourceVersion": m.ResourceVersion,
			"annotations": map[string]string{shoot.AnnotationConfirmDeletion: "true"},
		}})
		if err != nil {
			return err
		}
	}
	if m.Deleted != nil {
		return nil
	}
	return w.ns.api.sendAndDecode(ctx, apiRequest{
		method: http.MethodDelete, path: w.ns.shootPath(m.Name),
		body: map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": map[string]string{"uid": m.UID}},
	}, nil)
}
