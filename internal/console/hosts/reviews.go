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

// accessReviewer asks the API server who persons are and what they may do.
type accessReviewer struct {
	host *Host

	mu      sync.Mutex
	answers map[[sha256.Size]byte]cachedAnswer
}

type cachedAnswer struct {
	value any
	err   error
	until time.Time
}

func newAccessReviewer(h *Host) *accessReviewer {
	return &accessReviewer{host: h, answers: map[[sha256.Size]byte]cachedAnswer{}}
}

// A reviewedUser is a person as the API server sees it.
type reviewedUser struct {
	Name   string
	Groups []string
	// assumed is set if the API server did not confirm the name.
	assumed bool
}

// errNotAccepted means that the API server does not accept the token of a person.
var errNotAccepted = errors.New("the API server does not accept the person's token")

// lookUpTokenUser returns the person that the API server sees in the token.
func (v *accessReviewer) lookUpTokenUser(ctx context.Context, person console.Person) (reviewedUser, error) {
	return getCachedOrAsk(v, []any{"user", person.Token}, func() (reviewedUser, error) {
		c, _, err := v.host.newPersonClient(person.Token)
		if err != nil {
			return reviewedUser{}, err
		}
		var review authenticationv1.SelfSubjectReview
		if err := c.Create(ctx, &review); apierrors.IsUnauthorized(err) {
			return reviewedUser{}, errNotAccepted
		} else if err != nil {
			return reviewedUser{}, fmt.Errorf("get the name of the person: %w", err)
		}
		return reviewedUser{Name: review.Status.UserInfo.Username, Groups: review.Status.UserInfo.Groups}, nil
	})
}

// resolveReadUser returns the user whose rights limit what a person sees. It returns console.ErrToken for an assumed
// user whose token the fleet API does not accept any more.
func (v *accessReviewer) resolveReadUser(ctx context.Context, person console.Person) (reviewedUser, error) {
	u, err := v.lookUpTokenUser(ctx, person)
	mayAssume := v.host.cfg.AssumeUsers && person.Name != ""
	if !errors.Is(err, errNotAccepted) || !mayAssume {
		return u, err
	}
	name, err := getCachedOrAsk(v, []any{"fleet", person.Token}, func() (string, error) {
		user, err := v.host.deps.Identify(ctx, person.Token)
		return user.Name, err
	})
	if err != nil {
		return reviewedUser{}, fmt.Errorf("identify the person at the fleet API: %w", err)
	}
	return reviewedUser{Name: v.host.cfg.UserPrefix + name, Groups: []string{"system:authenticated"}, assumed: true}, nil
}

// userHasAccess reports whether a user has a right.
func (v *accessReviewer) userHasAccess(
	ctx context.Context, user reviewedUser, attributes authorizationv1.ResourceAttributes,
) (allowed bool, err error) {
	groups := slices.Sorted(slices.Values(user.Groups))
	return getCachedOrAsk(v, []any{"may", user.Name, groups, attributes}, func() (bool, error) {
		review := &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: user.Name, Groups: user.Groups, ResourceAttributes: &attributes},
		}
		if err := v.host.own.Create(ctx, review); err != nil {
			return false, fmt.Errorf("ask for the rights of the person: %w", err)
		}
		return review.Status.Allowed, nil
	})
}

// personHasAccess reports whether a person has a right, by the person's own token.
func (v *accessReviewer) personHasAccess(
	ctx context.Context, person console.Person, attributes authorizationv1.ResourceAttributes,
) (allowed bool, err error) {
	return getCachedOrAsk(v, []any{"self", person.Token, attributes}, func() (bool, error) {
		c, _, err := v.host.newPersonClient(person.Token)
		if err != nil {
			return false, err
		}
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes}}
		if err := c.Create(ctx, review); err != nil {
			return false, fmt.Errorf("ask for the rights of the person: %w", err)
		}
		return review.Status.Allowed, nil
	})
}

// getCachedOrAsk returns a recent answer to a question, or asks. It remembers refused tokens, too, but no
// failures.
func getCachedOrAsk[T any](reviewer *accessReviewer, question []any, ask func() (T, error)) (T, error) {
	text, err := json.Marshal(question)
	if err != nil {
		var none T
		return none, fmt.Errorf("encode a question about rights: %w", err)
	}
	key := sha256.Sum256(text) // a token does not stay in memory because of this
	now := time.Now()
	reviewer.mu.Lock()
	known, ok := reviewer.answers[key]
	reviewer.mu.Unlock()
	if ok && now.Before(known.until) {
		value, _ := known.value.(T)
		return value, known.err
	}
	value, err := ask()
	if err != nil && !errors.Is(err, errNotAccepted) {
		return value, err
	}
	reviewer.mu.Lock()
	defer reviewer.mu.Unlock()
	if len(reviewer.answers) >= maxReviews {
		clear(reviewer.answers)
	}
	reviewer.answers[key] = cachedAnswer{value, err, now.Add(reviewAge)}
	return value, err
}

// A readFilter selects the objects of one kind that a user may read.
type readFilter struct {
	reviews  *accessReviewer
	user     reviewedUser
	verb     string
	group    string
	resource string
}

func (v *accessReviewer) newReadFilter(ctx context.Context, person console.Person, verb, group, resource string) (readFilter, error) {
	u, err := v.resolveReadUser(ctx, person)
	return readFilter{v, u, verb, group, resource}, err
}

// allowsRead reports whether the user may read the objects of a namespace, or of the cluster for "".
func (f readFilter) allowsRead(ctx context.Context, namespace, name string) (allowed bool, err error) {
	return f.reviews.userHasAccess(ctx, f.user, authorizationv1.ResourceAttributes{
		Verb: f.verb, Group: f.group, Resource: f.resource, Namespace: namespace, Name: name,
	})
}

// filterReadable returns the objects that the filter allows.
func filterReadable[T any, P interface {
	*T
	client.Object
}](ctx context.Context, filter readFilter, objects []T,
) ([]*T, error) {
	var kept []*T
	for i := range objects {
		ok, err := filter.allowsRead(ctx, P(&objects[i]).GetNamespace(), "")
		if err != nil {
			return nil, err
		}
		if ok {
			kept = append(kept, &objects[i])
		}
	}
	return kept, nil
}
