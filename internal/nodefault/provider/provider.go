// Package provider reboots machines and gives them up, in one of several ways:
// by a Job on the node itself, a webhook, the Machine of Cluster API, a
// KubernetesExecution, or a person.
//
// Every request carries a key. The same key is the same request, however often
// it comes: a caller that died after it asked asks again, and nothing is done
// twice. No provider waits. One that has not begun yet says so with a
// WaitingError and is asked again; one that never will says so with Permanent.
//
// No provider proves a reboot. Whoever asked looks at the node's boot id.
package provider

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

// A Provider has machines rebooted and terminated.
type Provider interface {
	// Name is what it is called in the status of what asks.
	Name() string

	// Reboot has the machine of a node rebooted, once for each key. It returns
	// when the request is under way, with what the provider calls it. The error
	// is a *WaitingError if it is not under way yet and nothing is wrong.
	Reboot(ctx context.Context, r Request) (reference string, err error)

	// Terminate has it given up for good, likewise.
	Terminate(ctx context.Context, r Request) (reference string, err error)

	// Look says how far a request is that is under way. The Node may be gone.
	Look(ctx context.Context, r Request, reference string) (Progress, error)
}

// A Withdrawer is a Provider that can take back what has not been done yet.
type Withdrawer interface {
	// Withdraw keeps a request from being done later than its deadline. It does
	// nothing if there is no such request any more.
	Withdraw(ctx context.Context, r Request) error
}

// An Action is what is asked for.
type Action string

// The actions.
const (
	ActionReboot    Action = "reboot"
	ActionTerminate Action = "terminate"
)

// A Request is for one machine.
type Request struct {
	// Key is the UID of the object that asks.
	Key    types.UID
	Action Action

	// Node is the node as it is. It is nil if it is gone, which it can only be in
	// Look and Withdraw.
	Node *corev1.Node
	// BootID is that of the boot that is to end.
	BootID string

	// Force has it done although pods are left on the node.
	Force bool
	// Deadline is when nobody waits for it any more. It must not be begun later.
	Deadline time.Time

	// By is the object that asks.
	By Object
}

// An Object is the RebootNode or TerminateNode that asks.
type Object struct {
	APIVersion, Kind, Name string
	Labels, Annotations    map[string]string
}

// Progress is how far a request is.
type Progress struct {
	State   State
	Message string
}

// A State is one of those below.
type State string

// The states of a request.
const (
	// StateRunning is that it is under way.
	StateRunning State = "Running"
	// StateDone is that the provider has no more to do. Of a termination it means
	// that there is no machine any more.
	StateDone State = "Done"
	// StateFailed is that nothing more will come of it.
	StateFailed State = "Failed"
)

// A PermanentError is one that the same request would meet again.
type PermanentError struct{ Err error }

// Error gives the cause.
func (e *PermanentError) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *PermanentError) Unwrap() error { return e.Err }

// Permanent marks an error as one that the same request would meet again.
func Permanent(err error) error { return &PermanentError{err} }

func permanentf(format string, args ...any) error { return Permanent(fmt.Errorf(format, args...)) }

// A WaitingError is that a request is known and not under way yet.
type WaitingError struct{ Message string }

// Error says what is waited for.
func (e *WaitingError) Error() string { return e.Message }

func waitingf(format string, args ...any) error {
	return &WaitingError{fmt.Sprintf(format, args...)}
}

// Kind is which provider it is.
type Kind string

// The providers.
const (
	KindNone      Kind = "none" // what it is asked fails
	KindJob       Kind = "job"
	KindWebhook   Kind = "webhook"
	KindMachine   Kind = "machine"
	KindExecution Kind = "execution"
	KindManual    Kind = "manual"
)

// Kinds are all of them.
func Kinds() []Kind {
	return []Kind{KindNone, KindJob, KindWebhook, KindMachine, KindExecution, KindManual}
}

// Config says which provider is used. What the other kinds need may be empty.
type Config struct {
	Kind      Kind
	Job       JobConfig
	Webhook   WebhookConfig
	Machine   MachineConfig
	Execution ExecutionConfig
}

// Deps are what providers work with. Each needs what it says.
type Deps struct {
	Kubernetes kubernetes.Interface // job
	Dynamic    dynamic.Interface    // execution, and machine without Machines
	Machines   dynamic.Interface    // of the cluster that Cluster API runs in, where it is another
	Transport  http.RoundTripper    // webhook; nil is that of net/http
}

// New makes a provider. It asks nothing of anybody yet.
func New(cfg Config, deps Deps) (Provider, error) {
	var p Provider
	var err error
	switch cfg.Kind {
	case KindNone, "":
		return none{}, nil
	case KindManual:
		return Manual{}, nil
	case KindJob:
		p, err = newJob(cfg.Job, deps)
	case KindWebhook:
		p, err = newWebhook(cfg.Webhook, deps)
	case KindMachine:
		p, err = newMachine(cfg.Machine, deps)
	case KindExecution:
		p, err = newExecution(cfg.Execution, deps)
	default:
		return nil, fmt.Errorf("unknown provider %q: use one of %v", cfg.Kind, Kinds())
	}
	if err != nil {
		return nil, fmt.Errorf("create provider %q: %w", cfg.Kind, err)
	}
	return p, nil
}

// none fails what it is asked.
type none struct{}

var errNone = errors.New("no provider configured")

// Name is "none".
func (none) Name() string { return string(KindNone) }

// Reboot fails.
func (none) Reboot(context.Context, Request) (string, error) { return "", Permanent(errNone) }

// Terminate fails.
func (none) Terminate(context.Context, Request) (string, error) { return "", Permanent(errNone) }

// Look fails.
func (none) Look(context.Context, Request, string) (Progress, error) {
	return Progress{State: StateFailed, Message: errNone.Error()}, nil
}

// nameOf is a name that belongs to a request and to no other.
func nameOf(r Request) string {
	sum := sha256.Sum256([]byte(r.Key))
	return "node-" + string(r.Action) + "-" + hex.EncodeToString(sum[:8])
}

// fillTemplate puts what a request is about in the place of {node}, {node_uid},
// {provider_id}, {boot_id}, {idempotency_key}, {action}, {object} and {force}.
func fillTemplate(text string, r Request) string {
	var node, uid, provider string
	if r.Node != nil {
		node, uid, provider = r.Node.Name, string(r.Node.UID), r.Node.Spec.ProviderID
	}
	return strings.NewReplacer(
		"{node}", node, "{node_uid}", uid, "{provider_id}", provider, "{boot_id}", r.BootID,
		"{idempotency_key}", string(r.Key), "{action}", string(r.Action), "{object}", r.By.Name, "{force}", strconv.FormatBool(r.Force),
	).Replace(text)
}
