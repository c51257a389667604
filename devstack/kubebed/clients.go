package kubebed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	// administrators is the group with all permissions.
	administrators = "system:masters"
	adminName      = "kubebed-admin"

	// Limits high enough that clients of a bed do not throttle themselves.
	clientQPS   = 1000
	clientBurst = 2000

	tokenLife = time.Hour
)

// Config returns the REST config of an administrator. Each call returns a copy, which
// the caller may change.
func (b *Bed) Config() *rest.Config { return rest.CopyConfig(b.admin) }

// User returns the REST config of a user in some groups. Users exist by having a
// certificate; roles determine their permissions.
func (b *Bed) User(name string, groups ...string) (*rest.Config, error) {
	p, err := b.authority.newClientPair(name, groups)
	if err != nil {
		return nil, fmt.Errorf("create user %q: %w", name, err)
	}
	cfg := b.newAnonymousConfig()
	cfg.CertData, cfg.KeyData = p.cert, p.key
	return cfg, nil
}

// newAnonymousConfig returns a REST config without a user.
func (b *Bed) newAnonymousConfig() *rest.Config {
	return &rest.Config{
		Host:            b.URL(),
		TLSClientConfig: rest.TLSClientConfig{CAData: b.authority.pem},
		QPS:             clientQPS,
		Burst:           clientBurst,
	}
}

// WriteUserKubeconfig writes a kubeconfig file for a user in the bed's folder, and returns its
// path.
func (b *Bed) WriteUserKubeconfig(name string, groups ...string) (path string, err error) {
	cfg, err := b.User(name, groups...)
	if err != nil {
		return "", err
	}
	return b.writeKubeconfig(name, cfg)
}

// WriteAccountKubeconfig writes a kubeconfig file for a service account, with the config of
// EnsureServiceAccountConfig.
func (b *Bed) WriteAccountKubeconfig(ctx context.Context, namespace, name string) (path string, err error) {
	cfg, err := b.EnsureServiceAccountConfig(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	return b.writeKubeconfig(namespace+"."+name, cfg)
}

// AdminKubeconfig returns the path of a kubeconfig file for an administrator.
func (b *Bed) AdminKubeconfig() string { return b.folder.Join(adminName + ".kubeconfig") }

func (b *Bed) writeKubeconfig(user string, cfg *rest.Config) (path string, err error) {
	const name = "kubebed"
	k := clientcmdapi.NewConfig()
	k.Clusters[name] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	k.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData, Token: cfg.BearerToken}
	k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	k.CurrentContext = name
	path = b.folder.Join(regexp.MustCompile(`[^A-Za-z0-9.-]+`).ReplaceAllString(user, "-") + ".kubeconfig")
	if err := clientcmd.WriteToFile(*k, path); err != nil {
		return "", fmt.Errorf("write kubeconfig: %w", err)
	}
	return path, nil
}

// EnsureServiceAccountConfig returns the REST config of a service account, which it creates if
// missing, with a bound token that is valid for an hour.
func (b *Bed) EnsureServiceAccountConfig(ctx context.Context, namespace, name string) (*rest.Config, error) {
	client, err := kubernetes.NewForConfig(b.admin)
	if err != nil {
		return nil, err
	}
	accounts := client.CoreV1().ServiceAccounts(namespace)
	_, err = accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("create service account %s/%s: %w", namespace, name, err)
	}
	life := int64(tokenLife / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &life}}
	token, err := accounts.CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create token for service account %s/%s: %w", namespace, name, err)
	}
	cfg := b.newAnonymousConfig()
	cfg.BearerToken = token.Status.Token
	return cfg, nil
}

// Kubectl runs kubectl as an administrator and returns its output. The error has its
// error output.
func (b *Bed) Kubectl(ctx context.Context, args ...string) (string, error) {
	args = append([]string{"--kubeconfig=" + b.AdminKubeconfig(), "--cache-dir=" + b.folder.Join("kubectl-cache")}, args...)
	cmd := exec.CommandContext(ctx, filepath.Join(b.assets, "kubectl"), args...) //nolint:gosec // our own program
	cmd.Env = append(os.Environ(), "HOME="+b.folder.Path)
	out, err := cmd.Output()
	if err == nil {
		return string(out), nil
	}
	var complaint string
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		complaint = ": " + strings.TrimSpace(string(exit.Stderr))
	}
	return string(out), fmt.Errorf("kubectl %s: %w%s", strings.Join(args[2:], " "), err, complaint)
}
