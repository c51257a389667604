// Package hosts shows host clusters in the console, and changes them in the name of a person.
//
// Reads come from a watch cache that a read-only account fills. Each answer holds only what the
// person may read: the account asks the API server by SubjectAccessReviews, whose answers count for
// at most 30 seconds. The name and the groups of a person are those that the API server itself
// gives to the person's token. For a person with an assumed name, the fleet API must accept the token
// every 30 seconds; otherwise the session ends.
//
// Writes use the token of the person and nothing else. Where an API server does not accept it, the
// console shows the commands of the command line instead.
package hosts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	executionv1 "github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	faultv1 "github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	sentinelv1 "github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/console"
	"github.com/fleetloop/fleetloop/internal/console/session"
	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// Config is one host cluster.
type Config struct {
	Name string `key:"name" validate:"required,hostname_rfc1123" doc:"Name of the host cluster in the console."`

	Kubeconfig string `key:"kubeconfig" doc:"kubeconfig file of the read-only account, such as one in a mounted Secret (default: the service account of the pod)."`

	ExecutionNamespace string `key:"execution_namespace" default:"kubernaut-executor" doc:"Namespace of the executions, for the emergency stop."`

	AuditDatabaseURL settings.Secret `key:"audit_database_url" secret:"true" doc:"URL of the PostgreSQL database with the audit of executions. The login needs the role execution_auditor. Without it, the page shows the command that reads the audit."`

	AuditDatabaseURLFile string `key:"audit_database_url_file" doc:"File with audit_database_url, such as one in a mounted Secret. It is read at the start."`

	// AssumeUsers serves clusters that do not accept the persons' tokens. Their rights are those of
	// the same names there.
	AssumeUsers bool   `key:"assume_users" doc:"Show a person whose token the API server does not accept what the user of the same name may read. Without it, such a person sees nothing. Set it only if no one else can have that name."`
	UserPrefix  string `key:"user_prefix" doc:"Prefix of the user names with assume_users, as in --oidc-username-prefix of the API server."`
}

// Deps holds the dependencies of a Host.
type Deps struct {
	// REST replaces the configured connection.
	REST *rest.Config
	// Identify returns the person to whom the fleet API attributes a token. It returns console.ErrToken for an invalid
	// one. Only Config.AssumeUsers needs it.
	Identify func(ctx context.Context, token string) (session.User, error)
	// ReleaseNode returns a node without the changes of node-fault-controller, and whether there
	// were any.
	ReleaseNode func(node *corev1.Node, now time.Time, reason string) (after *corev1.Node, changed bool)
	// Decide applies the rules of sentinels.
	Decide DecideFunc
	// ReadAudit reads the audit. It is nil if no audit database is configured.
	ReadAudit ReadAuditFunc
	Log       *slog.Logger
}

// Host is one host cluster.
type Host struct {
	cfg     Config
	deps    Deps
	log     *slog.Logger
	rest    *rest.Config // of the read-only account
	scheme  *runtime.Scheme
	mapper  meta.RESTMapper
	own     client.Client // of the read-only account
	reader  *kube.Reader
	reviews *accessReviewer
	feed    *changeFeed
}

// New returns a host cluster. It sends no request before its part runs.
func New(cfg Config, deps Deps) (*Host, error) {
	h := &Host{
		cfg: cfg, deps: deps, log: deps.Log.With("host", cfg.Name),
		rest: deps.REST, scheme: runtime.NewScheme(), feed: newChangeFeed(),
	}
	if h.rest == nil {
		var err error
		if h.rest, err = kube.NewRESTConfig(kube.Config{Kubeconfig: cfg.Kubeconfig}, userAgent); err != nil {
			return nil, fmt.Errorf("connect host cluster %q: %w", cfg.Name, err)
		}
	}
	err := errors.Join(executionv1.AddToScheme(h.scheme), faultv1.AddToScheme(h.scheme), sentinelv1.AddToScheme(h.scheme),
		corev1.AddToScheme(h.scheme), authenticationv1.AddToScheme(h.scheme), authorizationv1.AddToScheme(h.scheme))
	if err != nil {
		return nil, err
	}
	options := h.newKubeOptions()
	bounded := rest.CopyConfig(h.rest)
	bounded.Timeout = requestTimeout // not for the watches of the reader
	if h.own, err = kube.NewClient(bounded, options); err != nil {
		return nil, err
	}
	h.mapper = h.own.RESTMapper()
	if h.reader, err = kube.NewCachedReader(h.rest, options); err != nil {
		return nil, err
	}
	h.reviews = newAccessReviewer(h)
	return h, nil
}

func (h *Host) newKubeOptions() kube.Options {
	return kube.Options{
		Scheme: h.scheme,
		Namespaced: []schema.GroupVersionKind{
			executionv1.GroupVersion.WithKind(executionv1.Kind),
			sentinelv1.GroupVersion.WithKind("SentinelConfig"),
			corev1.SchemeGroupVersion.WithKind("ConfigMap"),
			corev1.SchemeGroupVersion.WithKind("Pod"),
		},
		ClusterScoped: []schema.GroupVersionKind{
			faultv1.GroupVersion.WithKind(faultv1.Kind),
			corev1.SchemeGroupVersion.WithKind("Node"),
			authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"),
			authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"),
			authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"),
		},
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&executionv1.KubernetesExecution{}: {}, &faultv1.NodeFault{}: {}, &sentinelv1.SentinelConfig{}: {},
		}},
		Log: h.log,
	}
}

const userAgent = "fleetloop-console"

// NewCachePart returns the part that keeps the cache of the host cluster up to date. An unreachable cluster is
// a warning: the console works without it.
func (h *Host) NewCachePart() lifecycle.Part {
	part := h.reader.NewPart("host cluster "+h.cfg.Name,
		kube.ChangeHandler{Kind: &executionv1.KubernetesExecution{}, OnChange: h.feed.appendChange},
		kube.ChangeHandler{Kind: &faultv1.NodeFault{}, OnChange: h.feed.appendChange},
		kube.ChangeHandler{Kind: &sentinelv1.SentinelConfig{}, OnChange: h.feed.appendChange})
	ready := part.Ready
	part.Ready = nil
	part.Warning = func() string {
		if err := ready(); err != nil {
			return err.Error()
		}
		return ""
	}
	return part
}

// newPersonClient returns a client with the token of a person, and nothing of the read-only account.
func (h *Host) newPersonClient(token string) (client.Client, *rest.Config, error) {
	if token == "" {
		return nil, nil, errNoToken
	}
	cfg := rest.AnonymousClientConfig(h.rest)
	cfg.BearerToken, cfg.UserAgent, cfg.Timeout = token, userAgent, requestTimeout
	c, err := client.New(cfg, client.Options{Scheme: h.scheme, Mapper: h.mapper})
	if err != nil {
		return nil, nil, fmt.Errorf("create client of a person: %w", err)
	}
	return c, cfg, nil
}

// Clusters holds the host clusters of a console.
type Clusters struct {
	list     []*Host
	mux      *http.ServeMux
	check    CoverageFunc
	checking sync.Mutex
}

// NewClusters returns the host clusters as the console uses them. Names are unique. checkCoverage compares the
// SentinelConfigs of all of them with the resources.
func NewClusters(checkCoverage CoverageFunc, hosts ...*Host) (*Clusters, error) {
	c := &Clusters{list: hosts, mux: http.NewServeMux(), check: checkCoverage}
	c.mux.HandleFunc("GET "+console.CoveragePath, c.serveCoverageCheck)
	for i, h := range hosts {
		if slices.ContainsFunc(hosts[:i], func(o *Host) bool { return o.cfg.Name == h.cfg.Name }) {
			return nil, fmt.Errorf("host cluster %q is configured twice", h.cfg.Name)
		}
	}
	const base = "/console/hosts/{host}"
	for pattern, serve := range map[string]hostHandler{
		"GET " + base + "/executions":                        (*Host).serveExecutions,
		"GET " + base + "/executions/{ns}/{name}":            (*Host).serveExecution,
		"GET " + base + "/executions/{ns}/{name}/audit":      (*Host).serveAuditEvents,
		"GET " + base + "/executions/{ns}/{name}/log":        (*Host).serveExecutionLog,
		"POST " + base + "/executions/{ns}/{name}/{request}": (*Host).applyRequestToExecution,
		"GET " + base + "/stop":                              (*Host).serveEmergencyStopState,
		"POST " + base + "/stop":                             (*Host).activateEmergencyStop,
		"DELETE " + base + "/stop":                           (*Host).endEmergencyStop,
		"GET " + base + "/nodes":                             (*Host).serveFaultyNodes,
		"POST " + base + "/nodes/{name}/hold":                (*Host).holdNodeAndRespond,
		"POST " + base + "/nodes/{name}/release":             (*Host).releaseNodeAndRespond,
		"GET " + base + "/sentinels":                         (*Host).serveSentinels,
		"GET " + base + "/decisions":                         (*Host).evaluateSentinelsAndRespond,
	} {
		c.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { c.serveHost(w, r, serve) })
	}
	return c, nil
}

// A hostHandler serves requests about a host cluster. It leaves the answer to an error to its caller.
type hostHandler func(*Host, http.ResponseWriter, *http.Request) error

// serveHost serves a request about the host cluster in its path. Only what is followed has no time limit.
func (c *Clusters) serveHost(w http.ResponseWriter, r *http.Request, serve hostHandler) {
	i := slices.IndexFunc(c.list, func(h *Host) bool { return h.cfg.Name == r.PathValue("host") })
	if i < 0 {
		console.WriteProblemJSON(w, http.StatusNotFound, "The console has no such host cluster.", "")
		return
	}
	host, limited := c.list[i], r
	if r.URL.Query().Get("follow") != "true" {
		ctx, cancel := context.WithTimeoutCause(r.Context(), requestTimeout, errNoAnswer)
		defer cancel()
		limited = r.WithContext(ctx)
	}
	if err := serve(host, w, limited); err != nil {
		writeErrorProblem(host.log, w, r, err)
	}
}

// stateTimeout limits how long an unreachable host cluster delays the page.
const stateTimeout = 2 * time.Second

// requestTimeout limits a request to a host cluster.
const requestTimeout = 10 * time.Second

var (
	errNoAnswer = errors.New("the host cluster did not respond in time")
	errNoToken  = errors.New("there is no token of the person")
)

// ServeHTTP serves console.CoveragePath and the paths below console/hosts.
func (c *Clusters) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.mux.ServeHTTP(w, r) }

// ListHostStates returns what a person can do on each host cluster.
func (c *Clusters) ListHostStates(ctx context.Context, person console.Person) []console.HostState {
	ctx, cancel := context.WithTimeoutCause(ctx, stateTimeout, errNoAnswer)
	defer cancel()
	list := make([]console.HostState, len(c.list))
	var asking sync.WaitGroup
	for i, h := range c.list {
		asking.Go(func() {
			list[i] = console.HostState{Name: h.cfg.Name, Writes: true, Audit: h.deps.ReadAudit != nil}
			if _, err := h.reviews.lookUpTokenUser(ctx, person); err != nil {
				list[i].Writes, list[i].WhyNot = false, explainClusterAccessError(err)
			}
		})
	}
	asking.Wait()
	return list
}
