package hosts

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/internal/console"
)

// reviewAge is how long an answer of the API server about rights counts.
const reviewAge = 30 * time.Second

// maxReviews limits the number of remembered answers.
const maxReviews = 10000

// reviews asks the API server who persons are and what they may do.
type reviews struct {
	host *Host

	mu      sync.Mutex
	answers map[[sha256.Size]byte]answer
}

type answer struct {
	value any
	err   error
	until time.Time
}

func newReviews(h *Host) *reviews {
	return &reviews{host: h, answers: map[[sha256.Size]byte]answer{}}
}

// A user is a person as the API server sees it.
type user struct {
	Name   string
	Groups []string
	// assumed is set if the API server did not confirm the name.
	assumed bool
}

// errNotAccepted means that the API server does not accept the token of a person.
var errNotAccepted = errors.New("the API server does not accept the person's token")

// userOf returns the person that the API server sees in the token.
func (v *reviews) userOf(ctx context.Context, who console.Person) (user, error) {
	return remember(v, []any{"user", who.Token}, func() (user, error) {
		c, _, err := v.host.personClient(who.Token)
		if err != nil {
			return user{}, err
		}
		var review authenticationv1.SelfSubjectReview
		if err := c.Create(ctx, &review); apierrors.IsUnauthorized(err) {
			return user{}, errNotAccepted
		} else if err != nil {
			return user{}, fmt.Errorf("get the name of the person: %w", err)
		}
		return user{Name: review.Status.UserInfo.Username, Groups: review.Status.UserInfo.Groups}, nil
	})
}

// readerOf returns the user whose rights limit what a person sees.
func (v *reviews) readerOf(ctx context.Context, who console.Person) (user, error) {
	u, err := v.userOf(ctx, who)
	if err == nil || !v.host.cfg.AssumeUsers || who.Name == "" || !errors.Is(err, errNotAccepted) && !errors.Is(err, errNoToken) {
		return u, err
	}
	return user{Name: v.host.cfg.UserPrefix + who.Name, Groups: []string{"system:authenticated"}, assumed: true}, nil
}

// mayRead reports whether a user has a right.
func (v *reviews) mayRead(ctx context.Context, u user, on authorizationv1.ResourceAttributes) (bool, error) {
	groups := slices.Sorted(slices.Values(u.Groups))
	return remember(v, []any{"may", u.Name, groups, on}, func() (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: u.Name, Groups: u.Groups, ResourceAttributes: &on}}
		if err := v.host.own.Create(ctx, review); err != nil {
			return false, fmt.Errorf("ask for the rights of the person: %w", err)
		}
		return review.Status.Allowed, nil
	})
}

// may reports whether a person has a right, by the person's own token.
func (v *reviews) may(ctx context.Context, who console.Person, on authorizationv1.ResourceAttributes) (bool, error) {
	return remember(v, []any{"self", who.Token, on}, func() (bool, error) {
		c, _, err := v.host.personClient(who.Token)
		if err != nil {
			return false, err
		}
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &on}}
		if err := c.Create(ctx, review); err != nil {
			return false, fmt.Errorf("ask for the rights of the person: %w", err)
		}
		return review.Status.Allowed, nil
	})
}

// remember returns a recent answer to a question, or asks. It remembers refused tokens, too, but no
// failures.
func remember[T any](v *reviews, question []any, ask func() (T, error)) (T, error) {
	text, err := json.Marshal(question)
	if err != nil {
		var none T
		return none, fmt.Errorf("encode a question about rights: %w", err)
	}
	key := sha256.Sum256(text) // a token does not stay in memory because of this
	now := time.Now()
	v.mu.Lock()
	known, ok := v.answers[key]
	v.mu.Unlock()
	if ok && now.Before(known.until) {
		value, _ := known.value.(T)
		return value, known.err
	}
	value, err := ask()
	if err != nil && !errors.Is(err, errNotAccepted) {
		return value, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.answers) >= maxReviews {
		clear(v.answers)
	}
	v.answers[key] = answer{value, err, now.Add(reviewAge)}
	return value, err
}

// A filter selects the objects of one kind that a user may read.
type filter struct {
	reviews  *reviews
	user     user
	verb     string
	group    string
	resource string
}

// allows reports whether the user may read the objects of a namespace, or of the cluster for "".
func (f filter) allows(ctx context.Context, namespace, name string) (bool, error) {
	return f.reviews.mayRead(ctx, f.user, authorizationv1.ResourceAttributes{
		Verb: f.verb, Group: f.group, Resource: f.resource, Namespace: namespace, Name: name,
	})
}

// keepReadable returns the objects that the filter allows.
func keepReadable[T any, P interface {
	*T
	client.Object
}](ctx context.Context, f filter, list []T,
) ([]*T, error) {
	var kept []*T
	for i := range list {
		ok, err := f.allows(ctx, P(&list[i]).GetNamespace(), "")
		if err != nil {
			return nil, err
		}
		if ok {
			kept = append(kept, &list[i])
		}
	}
	return kept, nil
}
