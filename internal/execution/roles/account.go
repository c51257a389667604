package roles

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/fleetloop/fleetloop/internal/execution/action"
)

const (
	// tokenLife is the minimum lifetime that the API server accepts.
	tokenLife = 10 * time.Minute
	// tokenLeft is the minimum remaining validity of an old token that is used when
	// no new one can be created.
	tokenLeft = 30 * time.Second
)

var errNoAnswer = errors.New("the Kubernetes API did not respond in time")

// An account is the service account of an action.
type account struct {
	ids     *Identities
	name    string
	connect func() (action.Client, error)

	mu     sync.Mutex
	now    token
	asking *tokenRequest              // running request for a token, or nil
	yes    map[action.Right]time.Time // allowed rights, with the end of caching
	narrow map[action.Right]time.Time // rights that are denied on all objects, with the end of caching
	exact  time.Time                  // until when no right is requested on all objects
	there  time.Time                  // until when it is known to exist
}

// A token authenticates an account at the API server.
type token struct {
	value          string
	renew, expires time.Time
}

// A tokenRequest is one request for a token, shared by all waiters.
type tokenRequest struct {
	done  chan struct{}
	token string
	err   error
	// void means that the requesting caller was cancelled before an answer arrived.
	void bool
}

func newAccount(i *Identities, name string) *account {
	a := &account{ids: i, name: name, yes: make(map[action.Right]time.Time), narrow: make(map[action.Right]time.Time)}
	a.connect = sync.OnceValues(func() (action.Client, error) { return action.NewClient(a.restConfig()) })
	return a
}

// restConfig returns the configuration of a client that uses the account.
func (a *account) restConfig() *rest.Config {
	cfg := rest.CopyConfig(a.ids.accounts)
	cfg.WrapTransport = transport.Wrappers(a.ids.wrap, a.wrapTransport)
	return cfg
}

// String returns the name of the account for errors.
func (a *account) String() string { return "service account " + a.ids.namespace + "/" + a.name }

// getOrRequestToken returns a valid token other than the refused one. An empty refusedToken means that no token
// was refused.
func (a *account) getOrRequestToken(ctx context.Context, refusedToken string) (string, error) {
	for {
		a.mu.Lock()
		last := a.now
		if last.value != "" && last.value != refusedToken && time.Now().Before(last.renew) {
			a.mu.Unlock()
			return last.value, nil
		}
		q := a.asking
		mine := q == nil
		if mine {
			q = &tokenRequest{done: make(chan struct{})}
			a.asking = q
		}
		a.mu.Unlock()
		if mine {
			a.fulfillTokenRequest(ctx, q)
		}
		select {
		case <-q.done:
		case <-ctx.Done():
			return "", fmt.Errorf("wait for a token for %s: %w", a, context.Cause(ctx))
		}
		switch {
		case q.void && ctx.Err() == nil:
			continue
		case q.err == nil:
			return q.token, nil
		case last.value != "" && last.value != refusedToken && time.Until(last.expires) > tokenLeft && !isMissingAccount(q.err):
			return last.value, nil
		}
		return "", q.err
	}
}

// fulfillTokenRequest requests a token for all waiters.
func (a *account) fulfillTokenRequest(ctx context.Context, q *tokenRequest) {
	t, err := a.requestToken(ctx)
	q.token, q.err = t.value, err
	q.void = err != nil && ctx.Err() != nil // cancellation of the caller, not a fault of the account
	a.mu.Lock()
	a.asking = nil
	if err == nil {
		a.now = t
	}
	a.mu.Unlock()
	if isMissingAccount(err) {
		a.dropCachedAnswers()
	}
	close(q.done)
}

func (a *account) requestToken(ctx context.Context) (token, error) {
	own, err := a.ids.own()
	if err != nil {
		return token{}, fmt.Errorf("create token for %s: %w", a, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
	defer cancel()
	life := int64(tokenLife / time.Second)
	asked := time.Now()
	answer, err := own.CoreV1().ServiceAccounts(a.ids.namespace).CreateToken(ctx, a.name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &life},
	}, metav1.CreateOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return token{}, &MissingError{Namespace: a.ids.namespace, Account: a.name}
	case err != nil:
		return token{}, fmt.Errorf("create token for %s: %w", a, err)
	}
	// Use the local clock: the lifetime is a duration, and the clock of the API server
	// may differ.
	t := token{value: answer.Status.Token, renew: asked.Add(tokenLife / 2), expires: asked.Add(tokenLife)}
	if given := answer.Spec.ExpirationSeconds; given != nil && *given > 0 {
		granted := time.Duration(*given) * time.Second
		t.renew, t.expires = asked.Add(min(granted, tokenLife)/2), asked.Add(granted)
	}
	return t, nil
}

// withoutObjectName returns the right on all objects for a right on one object. An account with that right also
// has r.
func withoutObjectName(r action.Right) action.Right {
	r.Name = ""
	return r
}

// isCachedAllowed reports whether a cached answer allows the right.
func (a *account) isCachedAllowed(r action.Right, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return now.Before(a.yes[r]) || now.Before(a.yes[withoutObjectName(r)])
}

// shouldAskForAll reports whether to ask for the right on all objects.
func (a *account) shouldAskForAll(wide action.Right, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !now.Before(a.exact) && !now.Before(a.narrow[wide])
}

// cacheAnswer caches an answer about a right. A negative answer is cached only for rights on all
// objects, where it merely means to ask for each object.
func (a *account) cacheAnswer(r action.Right, allowed bool, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	of := a.yes
	if !allowed {
		of = a.narrow
	}
	if len(of) >= maxBelieved {
		maps.DeleteFunc(of, func(_ action.Right, until time.Time) bool { return !now.Before(until) })
	}
	if len(of) >= maxBelieved {
		clear(of) // bounds memory at the cost of extra requests
	}
	of[r] = now.Add(answersCachedFor)
}

// isCachedExisting reports whether the account is known to exist.
func (a *account) isCachedExisting(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return now.Before(a.there)
}

func (a *account) cacheExisting(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.there = now.Add(answersCachedFor)
}

func (a *account) dropCachedAnswers() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.yes)
	a.exact = time.Now().Add(answersCachedFor)
	a.there = time.Time{}
}

func isMissingAccount(err error) bool {
	var missing *MissingError
	return errors.As(err, &missing)
}
