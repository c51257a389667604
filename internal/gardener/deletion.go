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
	d, err := c.deleteShoot(ctx, ref)
	return d, wrapWithClass(err, "delete Shoot %q", ref.Name)
}

func (c *Client) deleteShoot(ctx context.Context, ref shoot.Ref) (shoot.Deletion, error) {
	var err error
	for range tries {
		var live *found
		live, err = c.findShoot(ctx, ref.Name)
		if errors.Is(err, shoot.ErrNotFound) {
			return shoot.Deletion{Absent: true}, nil
		}
		if err != nil {
			return shoot.Deletion{}, err
		}
		if err := shoot.CheckOwner(ref, live.Metadata.Labels); err != nil {
			return shoot.Deletion{}, err
		}
		if err = c.confirmAndDelete(ctx, live); err == nil {
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
func (c *Client) confirmAndDelete(ctx context.Context, live *found) error {
	m := live.Metadata
	if m.Annotations[shoot.AnnotationConfirmDeletion] != "true" {
		_, err := c.sendRequest(ctx, request{
			method: http.MethodPatch, path: c.shootPath(m.Name), query: c.writeOptions(), content: "application/merge-patch+json",
			body: map[string]any{"metadata": map[string]any{
				"uid": m.UID, "resourceVersion": m.ResourceVersion,
				"annotations": map[string]string{shoot.AnnotationConfirmDeletion: "true"},
			}},
		})
		if err != nil {
			return err
		}
	}
	if m.Deleted != nil {
		return nil
	}
	_, err := c.sendRequest(ctx, request{
		method: http.MethodDelete, path: c.shootPath(m.Name),
		body: map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": map[string]string{"uid": m.UID}},
	})
	return err
}
