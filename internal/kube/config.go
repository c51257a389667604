package kube

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Config is the configuration of the connection to the host cluster.
type Config struct {
	// Kubeconfig is the path of a kubeconfig, or a list of paths as in KUBECONFIG.
	// Empty means the service account of the pod, and outside of a pod the kubeconfig
	// in the user's home.
	Kubeconfig string `key:"kubeconfig" env:"KUBECONFIG" flag:"kubeconfig" doc:"kubeconfig file of the host cluster (default: the service account in a pod, otherwise ~/.kube/config)"`

	// Context is the name of the kubeconfig's context. Empty means the current one.
	Context string

	// QPS and Burst limit the requests of this process to the Kubernetes API. QPS is
	// the rate per second, and Burst the number at once after a quiet time.
	QPS   float64 `key:"qps" env:"KUBE_API_QPS" default:"50" validate:"gt=0" doc:"maximum number of requests per second to the Kubernetes API"`
	Burst int     `key:"burst" env:"KUBE_API_BURST" default:"100" validate:"gt=0" doc:"maximum burst of requests to the Kubernetes API"`
}

// Defaults of zero fields of a Config.
const (
	DefaultQPS   = 50
	DefaultBurst = 100
)

// serviceAccountNamespace is the file with the name of a pod's namespace.
const serviceAccountNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// errNoCluster explains how to configure the host cluster.
var errNoCluster = errors.New("no host cluster found: run in a pod, or set --kubeconfig, KUBECONFIG or ~/.kube/config")

// NewRESTConfig returns the REST config of the host cluster. It sends no request. userAgent
// is the name of this process in the audit log.
func NewRESTConfig(cfg Config, userAgent string) (*rest.Config, error) {
	rc, err := cfg.loadInClusterOrKubeconfig()
	if err != nil {
		return nil, err
	}
	rc.UserAgent = userAgent
	rc.QPS, rc.Burst = float32(cfg.QPS), cfg.Burst
	if cfg.QPS == 0 {
		rc.QPS = DefaultQPS
	}
	if cfg.Burst == 0 {
		rc.Burst = DefaultBurst
	}
	return rc, nil
}

func (c Config) loadInClusterOrKubeconfig() (*rest.Config, error) {
	if c.Kubeconfig == "" && c.Context == "" {
		rc, err := rest.InClusterConfig()
		if err == nil {
			return rc, nil
		}
		if !errors.Is(err, rest.ErrNotInCluster) {
			return nil, fmt.Errorf("read the pod's service account: %w", err)
		}
	}
	rc, err := c.newKubeconfigLoader().ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errNoCluster
	}
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	return rc, nil
}

// newKubeconfigLoader returns a loader of the kubeconfig.
func (c Config) newKubeconfigLoader() clientcmd.ClientConfig {
	rules := &clientcmd.ClientConfigLoadingRules{}
	switch files := filepath.SplitList(c.Kubeconfig); len(files) {
	case 0:
		rules.Precedence = []string{clientcmd.RecommendedHomeFile}
	case 1:
		rules.ExplicitPath = files[0] // the file must exist
	default:
		rules.Precedence = files
	}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: c.Context})
}

// FindPodOrKubeconfigNamespace returns the namespace of this process, unless configured otherwise: that of
// POD_NAMESPACE, of the pod's service account, or of the kubeconfig's context.
// lookupEnv looks up variables of the environment.
func (c Config) FindPodOrKubeconfigNamespace(lookupEnv func(string) (string, bool)) (string, error) {
	if ns, _ := lookupEnv("POD_NAMESPACE"); ns != "" {
		return ns, nil
	}
	if text, err := os.ReadFile(serviceAccountNamespace); err == nil {
		if ns := strings.TrimSpace(string(text)); ns != "" {
			return ns, nil
		}
	}
	ns, _, err := c.newKubeconfigLoader().Namespace()
	if err != nil && !clientcmd.IsEmptyConfig(err) {
		return "", fmt.Errorf("read kubeconfig: %w", err)
	}
	return ns, nil
}
