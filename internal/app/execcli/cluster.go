package execcli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/kube"
)

const userAgent = "fleetloop"

// where is what flags say of the host cluster.
type where struct {
	kubeconfig, context, namespace string
}

// A cluster is the host cluster, as far as executions go.
type cluster struct {
	client.WithWatch

	namespace string
}

// connect finds the host cluster. It asks nothing of it.
func (s *session) connect() (*cluster, error) {
	w := s.where
	if w.kubeconfig == "" {
		w.kubeconfig, _ = s.env.LookupEnv("KUBECONFIG")
	}
	cfg, err := w.config()
	if err != nil {
		return nil, cli.Usage(err, "name a cluster with --kubeconfig and --context")
	}
	kube.TakeLogs(slog.New(slog.DiscardHandler)) // what they have to say comes as errors, too
	cfg.WarningHandler = rest.NewWarningWriter(s.env.Stderr, rest.WarningWriterOptions{Deduplicate: true})
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme), authenticationv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme, Mapper: mapper()})
	if err != nil {
		return nil, fmt.Errorf("connect to the host cluster: %w", err)
	}
	return &cluster{c, w.namespace}, nil
}

// config finds the cluster of a context, or else what other components find.
func (w where) config() (*rest.Config, error) {
	if w.context == "" {
		return kube.Connect(kube.Config{Kubeconfig: w.kubeconfig}, userAgent)
	}
	rules := &clientcmd.ClientConfigLoadingRules{}
	switch files := filepath.SplitList(w.kubeconfig); len(files) {
	case 0:
		rules.Precedence = []string{clientcmd.RecommendedHomeFile}
	case 1:
		rules.ExplicitPath = files[0] // which must be there
	default:
		rules.Precedence = files
	}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: w.context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	cfg.UserAgent = userAgent
	return cfg, nil
}

// mapper knows the kinds that are used, so that the server need not be asked.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(v1alpha1.GroupVersion.WithKind(v1alpha1.Kind), meta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	m.Add(authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"), meta.RESTScopeRoot)
	return m
}

// whoami is who the API server takes us for.
func (c *cluster) whoami(ctx context.Context) (string, error) {
	var review authenticationv1.SelfSubjectReview
	if err := c.Create(ctx, &review); err != nil {
		return "", explain(err, "find out who we are")
	}
	return review.Status.UserInfo.Username, nil
}

// get reads one execution, by its name or as kubectl writes it, with its kind
// before it.
func (c *cluster) get(ctx context.Context, name string) (*v1alpha1.KubernetesExecution, error) {
	name = name[strings.LastIndexByte(name, '/')+1:]
	var ke v1alpha1.KubernetesExecution
	err := c.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: name}, &ke)
	if apierrors.IsNotFound(err) && !unserved(err) {
		return nil, cli.Fail(fmt.Errorf("there is no execution %q in namespace %q", name, c.namespace), cli.CodePrecondition, "fleetloop exec get --namespace="+c.namespace+"   lists those there are")
	}
	if err != nil {
		return nil, explain(err, fmt.Sprintf("get execution %q", name))
	}
	return &ke, nil
}

// A selection says which executions are meant.
type selection struct {
	labels, action, phase string
	name                  string
}

func (s selection) options(namespace string) *client.ListOptions {
	var fields []string
	for _, f := range []struct{ path, value string }{
		{"spec.action", s.action}, {"status.phase", s.phase}, {"metadata.name", s.name},
	} {
		if f.value != "" {
			fields = append(fields, f.path+"="+f.value)
		}
	}
	return &client.ListOptions{Namespace: namespace, Raw: &metav1.ListOptions{
		LabelSelector: s.labels, FieldSelector: strings.Join(fields, ","),
	}}
}

func (c *cluster) list(ctx context.Context, s selection) (*v1alpha1.KubernetesExecutionList, error) {
	var list v1alpha1.KubernetesExecutionList
	if err := c.List(ctx, &list, s.options(c.namespace)); err != nil {
		return nil, explain(err, "list executions")
	}
	return &list, nil
}

// unserved says whether it is the kind that the server does not know.
func unserved(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && apierrors.IsNotFound(err) && (status.Status().Details == nil || status.Status().Details.Name == "")
}

// explain adds to an error of the API server what to do about it.
func explain(err error, doing string) error {
	wrapped := fmt.Errorf("%s: %w", doing, err)
	if why, next, ok := denied(err); ok {
		return cli.Fail(fmt.Errorf("%s: %s", doing, why), cli.CodePrecondition, next)
	}
	switch _, offline := errors.AsType[*url.Error](err); {
	case unserved(err):
		return cli.Fail(wrapped, cli.CodeFailed, "kubectl apply -f deploy/crds   makes KubernetesExecutions known to the cluster")
	case apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return cli.Fail(wrapped, cli.CodePrecondition, "")
	case apierrors.IsForbidden(err):
		return cli.Fail(wrapped, cli.CodeFailed, "ask an administrator for a role; kubectl auth can-i --list --namespace=NAMESPACE   tells what you may do")
	case apierrors.IsUnauthorized(err):
		return cli.Fail(wrapped, cli.CodeFailed, "log in to the cluster, or name another user's kubeconfig with --kubeconfig")
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return cli.Fail(wrapped, cli.CodePrecondition, "")
	case offline:
		return cli.Fail(wrapped, cli.CodeFailed, "kubectl config current-context   tells which cluster is asked; --kubeconfig and --context name another")
	}
	return wrapped
}

// denied is what an admission policy says, without what stands around it: why
// not, and what to do.
func denied(err error) (why, next string, ok bool) {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !strings.Contains(status.ErrStatus.Message, "ValidatingAdmissionPolicy") {
		return "", "", false
	}
	_, text, ok := strings.Cut(status.ErrStatus.Message, "denied request: ")
	why, next, _ = strings.Cut(text, ": ")
	return why, next, ok
}
