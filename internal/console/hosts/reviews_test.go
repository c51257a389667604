package hosts

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// answeringClient answers SubjectAccessReviews.
type answeringClient struct {
	client.Client

	allowed bool
	asked   int
}

func (c *answeringClient) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	review, _ := o.(*authorizationv1.SubjectAccessReview)
	review.Status.Allowed = c.allowed
	c.asked++
	return nil
}

// TestWithdrawnRights covers that an answer about rights counts for 30 seconds and no longer, however
// often it is used.
func TestWithdrawnRights(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := &answeringClient{allowed: true}
		f := readFilter{reviews: newAccessReviewer(&Host{own: api}), user: reviewedUser{Name: "bob"}, verb: "list", group: executionGroup, resource: executionsName}
		want := func(after time.Duration, allowed bool, asked int) {
			t.Helper()
			time.Sleep(after)
			if ok, err := f.allowsRead(t.Context(), "shop", ""); err != nil || ok != allowed || api.asked != asked {
				t.Errorf("allowed %v after %d questions, %v; want %v after %d", ok, api.asked, err, allowed, asked)
			}
		}
		want(0, true, 1)
		api.allowed = false
		for range 29 {
			want(time.Second, true, 1)
		}
		want(time.Second, false, 2)
	})
}
