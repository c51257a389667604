package hosts

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/internal/console"
	"github.com/fleetloop/fleetloop/internal/console/session"
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

// TestRevokedTokenOfAssumedUser covers that a person whose name is assumed sees nothing from 30 seconds after the fleet
// API has stopped accepting the token.
func TestRevokedTokenOfAssumedUser(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked, answer := 0, error(nil)
		h := &Host{cfg: Config{AssumeUsers: true, UserPrefix: "oidc:"}, deps: Deps{Identify: func(_ context.Context, token string) (session.User, error) {
			asked++
			return session.User{Name: "of-" + token}, answer
		}}}
		reviews, person := newAccessReviewer(h), console.Person{Name: "of-t", Token: "t"}
		want := func(after time.Duration, name string, questions int, err error) {
			t.Helper()
			time.Sleep(after)
			// The API server never accepts the token.
			_, _ = getCachedOrAsk(reviews, []any{"user", person.Token}, func() (reviewedUser, error) { return reviewedUser{}, errNotAccepted })
			if u, got := reviews.resolveReadUser(t.Context(), person); u.Name != name || asked != questions || !errors.Is(got, err) {
				t.Errorf("user %q after %d questions, %v; want %q after %d, %v", u.Name, asked, got, name, questions, err)
			}
		}
		want(0, "oidc:of-t", 1, nil)
		answer = console.ErrToken
		want(29*time.Second, "oidc:of-t", 1, nil)
		want(time.Second, "", 2, console.ErrToken)
		answer = nil // for a person who signs in again
		want(0, "oidc:of-t", 3, nil)
	})
}
