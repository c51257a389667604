package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/kube"
)

const (
	hostUserAgent   = "fleetloop"
	kubeContextFlag = "kube-context"
)

// HostFlags selects the host cluster by flags.
type HostFlags struct {
	Kubeconfig, Context string

	// As and AsGroups name the user to impersonate, whose rights the API server checks. They have the flag of the
	// command line, too.
	As       string
	AsGroups []string

	// Verbose prints the requests. It has the flag of the command line, so that one flag is for all servers.
	Verbose bool
}

// AddFlags adds the flags.
func (w *HostFlags) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(
		&w.Kubeconfig,
		"kubeconfig",
		"",
		"kubeconfig `file` of the host cluster (env KUBECONFIG; default ~/.kube/config, in a pod its service account)",
	)
	flags.StringVar(&w.Context, kubeContextFlag, "", "`name` of the kubeconfig context (env FLEETLOOP_KUBE_CONTEXT)")
	flags.StringVar(&w.As, asFlag, "", "`user` to impersonate; only the audit log of the API server has your name")
	flags.StringArrayVar(&w.AsGroups, asGroupFlag, nil, "`group` of the user of --as in the host cluster; can be repeated")
	addVerboseFlag(flags, &w.Verbose)
}

// SetHostFlagsFromContext sets the flags of the host cluster that are not given to the values of the environment and of
// the current context. Run calls it before a command, and completions call it themselves.
func SetHostFlagsFromContext(env Env, cmd *cobra.Command) error {
	if cmd.Flags().Lookup(kubeContextFlag) == nil {
		return nil
	}
	cfg, _, err := (&session{env: env.withDefaults()}).loadConfig(cmd)
	if err != nil {
		return err
	}
	configured := map[string]string{
		"kubeconfig":    cfg.Kubeconfig,
		kubeContextFlag: cfg.KubeContext,
		"namespace":     cfg.Namespace,
	}
	for name, value := range configured {
		if flag := cmd.Flags().Lookup(name); flag != nil && !flag.Changed && value != "" {
			if err := flag.Value.Set(value); err != nil {
				return fmt.Errorf("set --%s: %w", name, err)
			}
		}
	}
	return nil
}

// Connect returns a client of the host cluster. It sends no request. scheme and mapper define the
// kinds in use, so that no discovery request is needed.
func (w *HostFlags) Connect(env Env, scheme *runtime.Scheme, mapper meta.RESTMapper) (client.WithWatch, error) {
	cfg, err := w.newRESTConfig(env)
	if err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("connect to the host cluster: %w", err)
	}
	return c, nil
}

// NewCoreRESTClient returns a client of the host cluster for what Connect has no methods for: the logs of Pods. It sends
// no request.
func (w *HostFlags) NewCoreRESTClient(env Env) (rest.Interface, error) {
	cfg, err := w.newRESTConfig(env)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	cfg.APIPath = "/api"
	cfg.GroupVersion = &corev1.SchemeGroupVersion
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to the host cluster: %w", err)
	}
	return c, nil
}

func (w *HostFlags) newRESTConfig(env Env) (*rest.Config, error) {
	cfg, err := kube.NewRESTConfig(kube.Config{Kubeconfig: w.Kubeconfig, Context: w.Context}, hostUserAgent)
	if err != nil {
		return nil, NewUsageError(err, "select a cluster with --kubeconfig and --kube-context")
	}
	if env.HostToken != "" {
		cfg = rest.AnonymousClientConfig(cfg)
		cfg.BearerToken = env.HostToken
	}
	switch {
	case w.As == "" && len(w.AsGroups) > 0:
		return nil, NewUsageError(errors.New("--"+asGroupFlag+" needs a user to impersonate"), "add --as=USER")
	case w.As != "": // it overrides that of the kubeconfig
		cfg.Impersonate = rest.ImpersonationConfig{UserName: w.As, Groups: w.AsGroups}
	}
	kube.RedirectLibraryLogs(slog.New(slog.DiscardHandler)) // the same messages are returned as errors
	cfg.WarningHandler = rest.NewWarningWriter(env.Stderr, rest.WarningWriterOptions{Deduplicate: true})
	if w.Verbose {
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return requestLog{next, env} })
	}
	return cfg, nil
}

// IsUnservedKind reports whether the server does not know the kind.
func IsUnservedKind(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && apierrors.IsNotFound(err) && (status.Status().Details == nil || status.Status().Details.Name == "")
}

// ExplainHostError adds advice to an error of the API server. kind is the requested kind.
func ExplainHostError(err error, doing, kind string) error {
	wrapped := fmt.Errorf("%s: %w", doing, err)
	if why, next, ok := parsePolicyDenial(err); ok {
		return NewError(fmt.Errorf("%s: %s", doing, why), CodePrecondition, next)
	}
	_, offline := errors.AsType[*url.Error](err)
	switch {
	case IsUnservedKind(err):
		return NewError(wrapped, CodeFailed, "kubectl apply -f deploy/crds   installs the resource definition of "+kind)
	case apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return NewError(wrapped, CodePrecondition, "")
	case apierrors.IsForbidden(err):
		return NewError(
			wrapped,
			CodeFailed,
			"ask an administrator for a role; kubectl auth can-i --list --namespace=NAMESPACE   lists your permissions",
		)
	case apierrors.IsUnauthorized(err):
		return NewError(wrapped, CodeFailed, "log in to the cluster, or use another kubeconfig with --kubeconfig")
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return NewError(wrapped, CodePrecondition, "")
	case offline:
		return NewError(
			wrapped,
			CodeFailed,
			"kubectl config current-context   shows the selected cluster; --kubeconfig and --kube-context select another",
		)
	}
	return wrapped
}

// parsePolicyDenial extracts the message of an admission policy from an error: the reason and the next
// step.
func parsePolicyDenial(err error) (why, next string, ok bool) {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !strings.Contains(status.ErrStatus.Message, "ValidatingAdmissionPolicy") {
		return "", "", false
	}
	_, text, ok := strings.Cut(status.ErrStatus.Message, "denied request: ")
	why, next, _ = strings.Cut(text, ": ")
	return why, next, ok
}

// JoinHostErrorsWithExitCode joins the errors about several objects, without a next step. succeeded is the number of
// successes.
func JoinHostErrorsWithExitCode(errs []error, succeeded int) error {
	switch {
	case len(errs) == 0:
		return nil
	case succeeded > 0:
		return NewError(errors.Join(errs...), CodePartial, "")
	case len(errs) == 1:
		return errs[0]
	}
	return NewError(errors.Join(errs...), ExitCode(errs[0]), "")
}

// WriteYAMLOrJSON writes any value in JSON or YAML, as kubectl does.
func WriteYAMLOrJSON(w io.Writer, format string, value any) error {
	var text []byte
	var err error
	if format == terminal.FormatYAML {
		text, err = yaml.Marshal(value) // ends with a newline
	} else {
		text, err = json.MarshalIndent(value, "", "  ")
		text = append(text, '\n')
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", format, err)
	}
	_, err = w.Write(text)
	return err
}
