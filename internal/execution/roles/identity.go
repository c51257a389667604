package roles

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

const (
	// answersCachedFor is the time for which a positive answer is cached.
	answersCachedFor = time.Minute

	requestTimeout = 10 * time.Second
	reviewsAtOnce  = 8 // per call
	maxBelieved    = 4096
)

// A MissingError means that the account of an action does not exist.
type MissingError struct{ Namespace, Account string }

// Error returns a message with the name of the account.
func (e *MissingError) Error() string {
	return fmt.Sprintf("service account %s/%s does not exist", e.Namespace, e.Account)
}

// Identities connects to the cluster as the accounts of actions, and checks the rights of these
// accounts. It is created with NewIdentities and safe for concurrent use.
//
// Each action has a separate account in the namespace of the executions. The client of an account
// uses a token that is valid for ten minutes and renewed after five. Tokens are never written to
// disk, and the account needs no Secret. If an account was deleted and created again, the API
// server rejects its token, and the request is repeated once with a new one.
//
// The API server answers which rights an account has and what a requester may request. A positive
// answer is cached for a minute. A negative answer is used only for the call that asked. Accounts
// mostly have their rights on all objects of a namespace, so that question comes first: its answer
// covers every target in the namespace. In the long run a check therefore costs no request here,
// whatever the target.
type Identities struct {
	namespace string
	own       func() (kubernetes.Interface, error) // as the controller
	accounts  *rest.Config                         // base configuration without credentials
	wrap      transport.WrapperFunc

	secrets func() (rest.Interface, error) // uses the account SecretLookup

	mu       sync.Mutex
	known    map[string]*account
	requests map[request]time.Time // allowed requests, with the end of caching
}

// NewIdentities returns the accounts of actions in a namespace. cfg is the configuration of the controller;
// all accounts share its rate limit. Its WrapTransport is also used for the accounts, and must not
// add credentials. NewIdentities sends no request; an invalid cfg surfaces in the first call.
func NewIdentities(cfg *rest.Config, namespace string) *Identities {
	cfg = rest.CopyConfig(cfg)
	if cfg.RateLimiter == nil && cfg.QPS >= 0 {
		cfg.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(cmp.Or(cfg.QPS, rest.DefaultQPS), cmp.Or(cfg.Burst, rest.DefaultBurst))
	}
	accounts := rest.AnonymousClientConfig(cfg)
	accounts.Transport = cfg.Transport
	i := &Identities{
		namespace: namespace,
		own:       sync.OnceValues(func() (kubernetes.Interface, error) { return kubernetes.NewForConfig(cfg) }),
		accounts:  accounts,
		wrap:      cfg.WrapTransport,
		known:     make(map[string]*account),
		requests:  make(map[request]time.Time),
	}
	i.secrets = sync.OnceValues(func() (rest.Interface, error) {
		return newCoreRESTClient(i.getOrCreateAccount(SecretLookup).restConfig())
	})
	return i
}

// Client returns a client that uses the account of an action. All callers of one account share it.
// The error is a *MissingError if the account does not exist. An action that runs nothing has no
// account, and gets a client that connects to nothing.
func (i *Identities) Client(ctx context.Context, a *action.Action) (action.Client, error) {
	if a.NoJob {
		return action.Client{}, nil
	}
	acc := i.accountFor(a)
	if _, err := acc.getOrRequestToken(ctx, ""); err != nil {
		return action.Client{}, err
	}
	c, err := acc.connect()
	if err != nil {
		return action.Client{}, fmt.Errorf("connect as %s: %w", acc, err)
	}
	return c, nil
}

// AccountExists reports whether the account of an action exists.
func (i *Identities) AccountExists(ctx context.Context, a *action.Action) (bool, error) {
	acc := i.accountFor(a)
	if acc.isCachedExisting(time.Now()) {
		return true, nil
	}
	own, err := i.own()
	if err != nil {
		return false, fmt.Errorf("read %s: %w", acc, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
	defer cancel()
	_, err = own.CoreV1().ServiceAccounts(i.namespace).Get(ctx, acc.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		acc.dropCachedAnswers()
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read %s: %w", acc, err)
	}
	acc.cacheExisting(time.Now())
	return true, nil
}

// ListDenied returns the given rights that the account of an action lacks.
func (i *Identities) ListDenied(ctx context.Context, a *action.Action, rights []action.Right) (denied []action.Right, err error) {
	acc := i.accountFor(a)
	no := make([]bool, len(rights))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(reviewsAtOnce)
	for n, right := range rights {
		if acc.isCachedAllowed(right, time.Now()) {
			continue
		}
		g.Go(func() error {
			yes, err := i.reviewUncachedAccess(ctx, acc, right)
			no[n] = !yes
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for n, right := range rights {
		if no[n] {
			denied = append(denied, right)
		}
	}
	return denied, nil
}

// MayRequest reports whether a user may request an action, under the name used in the request: the
// verb execute on executions of that name. The groups of a service account follow from its name.
// For a person, only the given groups are checked, so a negative answer can be wrong if some are
// unknown.
func (i *Identities) MayRequest(ctx context.Context, user string, groups []string, actionName string) (bool, error) {
	certain, account := AccountGroups(user)
	if !account {
		certain = append(slices.Clone(groups), certain...)
		slices.Sort(certain)
		certain = slices.Compact(certain)
	}
	asks := request{user, strings.Join(certain, "\n"), actionName}
	now := time.Now()
	i.mu.Lock()
	known := now.Before(i.requests[asks])
	i.mu.Unlock()
	if known {
		return true, nil
	}
	own, err := i.own()
	if err != nil {
		return false, fmt.Errorf("check whether %s is allowed to request %s: %w", user, actionName, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
	defer cancel()
	answer, err := own.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, Groups: certain,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Resource: v1alpha1.Resource,
				Verb: v1alpha1.VerbExecute, Namespace: i.namespace, Name: actionName,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("check whether %s is allowed to request %s: %w", user, actionName, err)
	}
	if !answer.Status.Allowed || answer.Status.Denied {
		return false, nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.requests) >= maxBelieved {
		clear(i.requests) // bounds memory at the cost of extra requests
	}
	i.requests[asks] = now.Add(answersCachedFor)
	return true, nil
}

// A request is one of a user, who is in groups, for an action.
type request struct{ user, groups, action string }

// AccountGroups returns the known groups of a user, and whether they are complete, as for a service
// account.
func AccountGroups(user string) (groups []string, isServiceAccount bool) {
	name, isServiceAccount := strings.CutPrefix(user, "system:serviceaccount:")
	namespace, _, named := strings.Cut(name, ":")
	if !isServiceAccount || !named {
		return []string{"system:authenticated"}, false
	}
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}, true
}

// ForgetAnswers drops the cached answers for the account of an action. For a while, rights are then asked
// for each object by name. Call it when the API server contradicts a cached answer.
func (i *Identities) ForgetAnswers(a *action.Action) { i.accountFor(a).dropCachedAnswers() }

// reviewUncachedAccess reports whether an account has a right that is not cached.
func (i *Identities) reviewUncachedAccess(ctx context.Context, acc *account, right action.Right) (allowed bool, err error) {
	if wide := withoutObjectName(right); wide != right && acc.shouldAskForAll(wide, time.Now()) {
		yes, err := i.reviewAccess(ctx, acc, wide)
		if err != nil {
			return false, err
		}
		acc.cacheAnswer(wide, yes, time.Now())
		if yes {
			return true, nil
		}
	}
	allowed, err = i.reviewAccess(ctx, acc, right)
	if allowed {
		acc.cacheAnswer(right, true, time.Now())
	}
	return allowed, err
}

// reviewAccess asks the API server whether an account has a right.
func (i *Identities) reviewAccess(ctx context.Context, acc *account, right action.Right) (allowed bool, err error) {
	own, err := i.own()
	if err != nil {
		return false, fmt.Errorf("check whether %s is allowed to %s: %w", acc, right, err)
	}
	if right.Executor {
		right.Namespace = i.namespace
	}
	user := "system:serviceaccount:" + i.namespace + ":" + acc.name
	groups, _ := AccountGroups(user)
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
	defer cancel()
	answer, err := own.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   user,
			Groups: groups, // groups of the account's token
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: right.Group, Version: "*", Resource: right.Resource, Subresource: right.Subresource,
				Verb: right.Verb, Namespace: right.Namespace, Name: right.Name,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("check whether %s is allowed to %s: %w", acc, right, err)
	}
	return answer.Status.Allowed && !answer.Status.Denied, nil
}

// accountFor returns the account of an action.
func (i *Identities) accountFor(a *action.Action) *account {
	return i.getOrCreateAccount(a.ServiceAccount())
}

// getOrCreateAccount returns the account with a name.
func (i *Identities) getOrCreateAccount(name string) *account {
	i.mu.Lock()
	defer i.mu.Unlock()
	acc, ok := i.known[name]
	if !ok {
		acc = newAccount(i, name)
		i.known[name] = acc
	}
	return acc
}
