package janitor

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

// A Provider reboots and terminates machines.
//
// Each request has a key. Requests with the same key are the same request, so a caller
// can repeat its request after a crash, and nothing is done twice. No provider blocks. It
// returns a WaitingError if the request has not started yet, and the caller asks again.
// It returns a PermanentError if the request can never start.
//
// No provider verifies a reboot. The caller must check the boot ID of the node.
type Provider interface {
	// Name returns the name of the provider as in the status of actions.
	Name() string

	// Start reboots the machine of a node or terminates it permanently, once per key. It
	// returns when the request has started, with the provider's id of the request. The error
	// is a *WaitingError if the request has not started yet and nothing is wrong.
	Start(ctx context.Context, r Request) (reference string, err error)

	// CheckProgress returns the progress of a started request. The Node may be gone.
	CheckProgress(ctx context.Context, r Request, reference string) (Progress, error)
}

// A Withdrawer is a Provider that can cancel requests.
type Withdrawer interface {
	// Withdraw prevents the execution of a request after its deadline. It does nothing if
	// the request no longer exists.
	Withdraw(ctx context.Context, r Request) error
}

// An Action is the action of a request.
type Action string

// The actions.
const (
	ActionReboot    Action = "reboot"
	ActionTerminate Action = "terminate"
)

// A Request is a request for one machine.
type Request struct {
	// Key is the UID of the object that requests the action.
	Key    types.UID
	Action Action

	// Node is the current node. It is nil if it is gone, which is possible only in CheckProgress
	// and Withdraw.
	Node *corev1.Node
	// BootID is the id of the boot that must end.
	BootID string

	// Force allows the action while pods are left on the node.
	Force bool
	// Deadline is when the caller stops waiting. The action must not start later.
	Deadline time.Time

	// By is the object that requests the action.
	By RequestingObject
}

// A RequestingObject is a RebootNode or TerminateNode that requests an action.
type RequestingObject struct {
	APIVersion, Kind, Name string
	Annotations            map[string]string
}

// Progress is the progress of a request.
type Progress struct {
	State   State
	Message string
}

// A State is the state of a request.
type State string

// The states of a request.
const (
	// StateRunning means that the request is in progress.
	StateRunning State = "Running"
	// StateDone means that the provider has finished. For a termination, the machine no
	// longer exists.
	StateDone State = "Done"
	// StateFailed means that the request has failed permanently.
	StateFailed State = "Failed"
)

// A PermanentError is an error that a retry of the request cannot fix.
type PermanentError struct{ Err error }

// Error returns the message of the cause.
func (e *PermanentError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *PermanentError) Unwrap() error { return e.Err }

// Permanent returns err as a *PermanentError.
func Permanent(err error) error { return &PermanentError{err} }

func permanentf(format string, args ...any) error { return Permanent(fmt.Errorf(format, args...)) }

// A WaitingError means that a request is accepted but has not started yet.
type WaitingError struct{ Message string }

// Error returns what the request waits for.
func (e *WaitingError) Error() string { return e.Message }

func waitingf(format string, args ...any) error {
	return &WaitingError{fmt.Sprintf(format, args...)}
}

// ProviderKind is the kind of a provider.
type ProviderKind string

// The kinds of providers.
const (
	ProviderNone      ProviderKind = "none" // rejects all requests
	ProviderJob       ProviderKind = "job"
	ProviderWebhook   ProviderKind = "webhook"
	ProviderMachine   ProviderKind = "machine"
	ProviderExecution ProviderKind = "execution"
	ProviderManual    ProviderKind = "manual"
)

// ProviderKinds returns all kinds.
func ProviderKinds() []ProviderKind {
	return []ProviderKind{ProviderNone, ProviderJob, ProviderWebhook, ProviderMachine, ProviderExecution, ProviderManual}
}

// ProviderConfig selects and configures a provider. The settings of other kinds may be empty.
type ProviderConfig struct {
	Kind      ProviderKind
	Job       JobConfig
	Webhook   WebhookConfig
	Machine   MachineConfig
	Execution ExecutionConfig
}

// ProviderDeps are the dependencies of the providers. Each is required only for the named kinds.
type ProviderDeps struct {
	Kubernetes kubernetes.Interface // job
	Dynamic    dynamic.Interface    // execution, and machine without Machines
	Machines   dynamic.Interface    // the cluster of Cluster API, if it is another one
	Transport  http.RoundTripper    // webhook; nil means that of httpserver.NewTransport
}

// NewProvider creates a provider. It sends no request.
func NewProvider(cfg ProviderConfig, deps ProviderDeps) (Provider, error) {
	var p Provider
	var err error
	switch cfg.Kind {
	case ProviderNone, "":
		return rejectingProvider{}, nil
	case ProviderManual:
		return ManualProvider{}, nil
	case ProviderJob:
		p, err = newJobProvider(cfg.Job, deps)
	case ProviderWebhook:
		p, err = newWebhookProvider(cfg.Webhook, deps)
	case ProviderMachine:
		p, err = newMachineProvider(cfg.Machine, deps)
	case ProviderExecution:
		p, err = newExecutionProvider(cfg.Execution, deps)
	default:
		return nil, fmt.Errorf("unknown provider %q: use one of %v", cfg.Kind, ProviderKinds())
	}
	if err != nil {
		return nil, fmt.Errorf("create provider %q: %w", cfg.Kind, err)
	}
	return p, nil
}

// rejectingProvider rejects all requests.
type rejectingProvider struct{}

var errNone = errors.New("no provider configured")

// Name returns "none".
func (rejectingProvider) Name() string { return string(ProviderNone) }

// Start fails.
func (rejectingProvider) Start(context.Context, Request) (string, error) {
	return "", Permanent(errNone)
}

// CheckProgress fails.
func (rejectingProvider) CheckProgress(context.Context, Request, string) (Progress, error) {
	return Progress{State: StateFailed, Message: errNone.Error()}, nil
}

// uniqueObjectName returns an object name that is unique to a request.
func uniqueObjectName(r Request) string {
	sum := sha256.Sum256([]byte(r.Key))
	return "node-" + string(r.Action) + "-" + hex.EncodeToString(sum[:8])
}

// fillTextPlaceholders replaces the placeholders {node}, {node_uid}, {provider_id}, {boot_id},
// {idempotency_key}, {action}, {object} and {force}.
func fillTextPlaceholders(text string, r Request) string {
	var node, uid, provider string
	if r.Node != nil {
		node, uid, provider = r.Node.Name, string(r.Node.UID), r.Node.Spec.ProviderID
	}
	return strings.NewReplacer(
		"{node}", node, "{node_uid}", uid, "{provider_id}", provider, "{boot_id}", r.BootID,
		"{idempotency_key}", string(r.Key), "{action}", string(r.Action), "{object}", r.By.Name, "{force}", strconv.FormatBool(r.Force),
	).Replace(text)
}
