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
func (c *Client) DeleteShoot(ctx context.Context, ref shoot.Ref) (shoot.Deletion, error) {
	d, err := c.writer.deleteShoot(ctx, ref)
	return d, wrapWithClass(err, "delete Shoot %q", ref.Name)
}

func (w *shootWriter) deleteShoot(ctx context.Context, ref shoot.Ref) (shoot.Deletion, error) {
	var err error
	for range tries {
		var live *found
		live, err = w.findShoot(ctx, ref.Name)
		if errors.Is(err, shoot.ErrNotFound) {
			return shoot.Deletion{Absent: true}, nil
		}
		if err != nil {
			return shoot.Deletion{}, err
		}
		if err := shoot.CheckOwner(ref, live.Metadata.Labels); err != nil {
			return shoot.Deletion{}, err
		}
		if err = w.confirmAndDelete(ctx, live); err == nil {
			return shoot.Deletion{}, nil
		}
		if !hasCode(err, http.StatusConflict) && !isAbsent(err, "shoots") {
			return shoot.Deletion{}, err
		}
	}
	return shoot.Deletion{}, err
}

// confirmAndDelete confirms the deletion by an annotation and requests it. The
// confirmation has to stay during the deletion.
func (w *shootWriter) confirmAndDelete(ctx context.Context, live *found) error {
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
	return w.ns.api.send(ctx, request{
		method: http.MethodDelete, path: w.ns.shootPath(m.Name),
		body: map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": map[string]string{"uid": m.UID}},
	}, nil)
}
