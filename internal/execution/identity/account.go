package identity

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
	// tokenLife is the least that the API server takes.
	tokenLife = 10 * time.Minute
	// tokenLeft is what a token must still be good for to be used when there is
	// no new one.
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
	asking *tokenRequest              // the request for a token that runs, if one does
	yes    map[action.Right]time.Time // what was answered with yes, and until when that is believed
	narrow map[action.Right]time.Time // until when rights on all objects are not asked for
	exact  time.Time                  // until when none is
	there  time.Time                  // until when it is believed to exist
}

// A token is what the API server knows an account by.
type token struct {
	value          string
	renew, expires time.Time
}

// An tokenRequest is one request for a token that many wait for.
type tokenRequest struct {
	done  chan struct{}
	token string
	err   error
	// void means that whoever asked was stopped before there was an answer.
	void bool
}

func newAccount(i *Identities, name string) *account {
	a := &account{ids: i, name: name, yes: make(map[action.Right]time.Time), narrow: make(map[action.Right]time.Time)}
	a.connect = sync.OnceValues(func() (action.Client, error) { return action.Connect(a.restConfig()) })
	return a
}

// restConfig is how the cluster is reached as the account.
func (a *account) restConfig() *rest.Config {
	cfg := rest.CopyConfig(a.ids.accounts)
	cfg.WrapTransport = transport.Wrappers(a.ids.wrap, a.wrapTransport)
	return cfg
}

// String is how errors call an account.
func (a *account) String() string { return "service account " + a.ids.namespace + "/" + a.name }

// validToken gives a token that is good, and is not the one that was refused. Empty
// is that none was.
func (a *account) validToken(ctx context.Context, refused string) (string, error) {
	for {
		a.mu.Lock()
		last := a.now
		if last.value != "" && last.value != refused && time.Now().Before(last.renew) {
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
			a.requestShared(ctx, q)
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
		case last.value != "" && last.value != refused && time.Until(last.expires) > tokenLeft && !isMissing(q.err):
			return last.value, nil
		}
		return "", q.err
	}
}

// requestShared makes a token, for all who wait.
func (a *account) requestShared(ctx context.Context, q *tokenRequest) {
	t, err := a.requestToken(ctx)
	q.token, q.err = t.value, err
	q.void = err != nil && ctx.Err() != nil // that says nothing of the account
	a.mu.Lock()
	a.asking = nil
	if err == nil {
		a.now = t
	}
	a.mu.Unlock()
	if isMissing(err) {
		a.dropCache()
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
	// By our clock, whatever the API server's says: it gives times, and means how long.
	t := token{value: answer.Status.Token, renew: asked.Add(tokenLife / 2), expires: asked.Add(tokenLife)}
	if given := answer.Spec.ExpirationSeconds; given != nil && *given > 0 {
		granted := time.Duration(*given) * time.Second
		t.renew, t.expires = asked.Add(min(granted, tokenLife)/2), asked.Add(granted)
	}
	return t, nil
}

// onAll is a right on all objects where it is one on a certain object: who has
// that one, has this.
func onAll(r action.Right) action.Right {
	r.Name = ""
	return r
}

// isCachedAllowed says whether a right needs not be asked for.
func (a *account) isCachedAllowed(r action.Right, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return now.Before(a.yes[r]) || now.Before(a.yes[onAll(r)])
}

// asksWide says whether it makes sense to ask for a right on all objects.
func (a *account) asksWide(wide action.Right, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !now.Before(a.exact) && !now.Before(a.narrow[wide])
}

// cacheAnswer keeps what was said of a right. A no is kept of rights on all objects
// alone, where it means no more than to ask for each of them.
func (a *account) cacheAnswer(r action.Right, yes bool, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	of := a.yes
	if !yes {
		of = a.narrow
	}
	if len(of) >= maxBelieved {
		maps.DeleteFunc(of, func(_ action.Right, until time.Time) bool { return !now.Before(until) })
	}
	if len(of) >= maxBelieved {
		clear(of) // it costs questions, and memory has a bound
	}
	of[r] = now.Add(believed)
}

// isCachedExisting says whether the account needs not be looked for.
func (a *account) isCachedExisting(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return now.Before(a.there)
}

func (a *account) cacheExisting(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.there = now.Add(believed)
}

func (a *account) dropCache() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.yes)
	a.exact = time.Now().Add(believed)
	a.there = time.Time{}
}

func isMissing(err error) bool {
	var missing *MissingError
	return errors.As(err, &missing)
}
