package clusterworker

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A kind is what a gate does with a request; "" is to let it pass.
type kind string

const (
	// slow: it is sent on after a while.
	slow kind = "slow"
	// lost: the connection breaks before it is sent on.
	lost kind = "lost"
	// swallowed: it is sent on, and its answer never comes.
	swallowed kind = "swallowed"
	// cut: it is sent on, and the connection breaks before the answer.
	cut kind = "cut"
	// torn: the connection breaks in the middle of the answer.
	torn kind = "torn"
	// late: it is sent on after the lease in which it was made, and its answer
	// never comes.
	late kind = "late"
	// busy: the garden has it, and takes some time before it does anything.
	busy kind = "busy"
	// refused: the gate answers in the garden's place.
	refused kind = "refused"
)

// A fault is what is done with a request. The zero value lets it pass.
type fault struct {
	kind  kind
	delay time.Duration   // before it is sent on; of a watch, after how long it breaks
	until <-chan struct{} // likewise, if there is one
	with  func(shoot string) metav1.Status
}

func (f fault) String() string {
	if f.kind == refused {
		s := f.with("")
		return fmt.Sprintf("refused with %d %s", s.Code, s.Reason)
	}
	return fmt.Sprintf("%s (%s)", f.kind, f.delay.Round(time.Millisecond))
}

// answer answers in the garden's place.
func (f fault) answer(w http.ResponseWriter, q *request) {
	s := f.with(q.shoot)
	s.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	s.Status = metav1.StatusFailure
	w.Header().Set("Content-Type", "application/json")
	if s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(s.Details.RetryAfterSeconds))
	}
	w.WriteHeader(int(s.Code))
	_ = json.NewEncoder(w).Encode(s) // whoever asked may be gone
}

// The refusals, in Gardener's words.

func conflict(name string) metav1.Status {
	return metav1.Status{
		Code: http.StatusConflict, Reason: metav1.StatusReasonConflict,
		Message: fmt.Sprintf("Operation cannot be fulfilled on shoots.core.gardener.cloud %q: the object has been modified; please apply your changes to the latest version and try again", name),
	}
}

func throttled(string) metav1.Status {
	return metav1.Status{
		Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, Details: &metav1.StatusDetails{RetryAfterSeconds: 1},
		Message: "The server has received too many requests and has asked us to try again later",
	}
}

func unsupported(name string) metav1.Status {
	return metav1.Status{
		Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: fmt.Sprintf(`shoots.core.gardener.cloud %q is forbidden: [spec.provider.workers[0].machine.type: Unsupported value: "local": supported values: "other"]`, name),
	}
}

func unauthorized(name string) metav1.Status {
	return metav1.Status{
		Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: fmt.Sprintf(`shoots.core.gardener.cloud %q is forbidden: User "worker" cannot patch resource "shoots" in API group "core.gardener.cloud"`, name),
	}
}

func internal(string) metav1.Status {
	return metav1.Status{Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError, Message: "Internal error occurred: etcdserver: request timed out"}
}

func unavailable(string) metav1.Status {
	return metav1.Status{Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable, Message: "the server is currently unable to handle the request"}
}

// weather is the fault that some dice give a request, most often none. The lease is
// that of the worker that sent it.
func weather(dice *rand.Rand, q *request, lease time.Duration) fault {
	between := func(from, to time.Duration) time.Duration { return from + time.Duration(dice.Int64N(int64(to-from))) }
	if q.watch {
		return fault{delay: between(time.Second, 5*time.Second)}
	}
	switch n := dice.IntN(100); {
	case n < 70:
		return fault{}
	case n < 76:
		return fault{kind: slow, delay: between(100*time.Millisecond, 900*time.Millisecond)}
	case n < 79:
		return fault{kind: lost}
	case n < 83:
		return fault{kind: swallowed}
	case n < 86:
		return fault{kind: cut}
	case n < 88:
		return fault{kind: torn}
	case n < 90:
		return fault{kind: late, delay: between(lease+lease/4, 2*lease)}
	}
	refusals := []func(string) metav1.Status{throttled, unsupported, unauthorized, internal, unavailable}
	if q.write {
		refusals = append(refusals, conflict)
	}
	return fault{kind: refused, with: refusals[dice.IntN(len(refusals))]}
}
