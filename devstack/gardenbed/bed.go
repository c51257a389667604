package gardenbed

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/fleetloop/fleetloop/devstack/kubebed"
)

const (
	// servedBound is how long the API may take to be served after the program is ready.
	// It takes a second on an idle machine.
	servedBound = 2 * time.Minute
	pollEvery   = 50 * time.Millisecond

	service   = "gardener-apiserver" // service and namespace in the APIServices
	namespace = "garden"
)

var errServedBound = fmt.Errorf("not within %s", servedBound)

// A Bed is a running garden.
type Bed struct {
	kube   *kubebed.Bed
	own    bool // this bed started kube
	args   []string
	assets string
	log    *slog.Logger
	client dynamic.Interface
	port   int // port of gardener-apiserver
}

// Start starts a garden and returns when Shoots can be created in its project. The
// caller then calls Stop.
func Start(ctx context.Context, o Options) (*Bed, error) {
	b := &Bed{kube: o.On, own: o.On == nil, args: o.Args, assets: o.Assets, log: o.Kube.Log}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if b.assets == "" {
		if b.assets, err = EnsureAssets(ctx, b.log); err != nil {
			return nil, err
		}
	}
	if _, err := os.Stat(b.programPath()); err != nil {
		return nil, fmt.Errorf("start a garden: %w", err)
	}
	began := time.Now()
	if !b.own && b.kube.Runs(APIServer) {
		return nil, errors.New("start a garden: the control plane has one already")
	}
	if b.own {
		if b.kube, err = kubebed.Start(ctx, o.Kube); err != nil {
			return nil, err
		}
	}
	if err := b.startAPIServerAndProject(ctx); err != nil {
		return nil, fmt.Errorf("start a garden: %w", errors.Join(err, b.Stop()))
	}
	b.log.InfoContext(ctx, "garden started", "url", b.kube.URL(), "project", DefaultProject, "took", time.Since(began).Round(time.Millisecond))
	return b, nil
}

func (b *Bed) startAPIServerAndProject(ctx context.Context) (err error) {
	if b.client, err = dynamic.NewForConfig(b.kube.Config()); err != nil {
		return err
	}
	if err := b.startAPIServerOnFreePort(ctx); err != nil {
		return err
	}
	err = b.applyTemplate(ctx, "garden", map[string]any{
		"Host": b.kube.ListenAddress(), "Port": b.port, "CA": base64.StdEncoding.EncodeToString(b.kube.Config().CAData), "Groups": gardenerGroups(),
	})
	if err != nil {
		return err
	}
	if err := b.awaitGardenerServed(ctx); err != nil {
		return err
	}
	if err := b.applyTemplate(ctx, "offers", nil); err != nil {
		return err
	}
	_, err = b.ApplyProjectAndWait(ctx, DefaultProject)
	return err
}

// startAPIServerOnFreePort starts the API server. It retries on another port if the free port was
// taken before its use.
func (b *Bed) startAPIServerOnFreePort(ctx context.Context) error {
	const tries = 5
	var err error
	for range tries {
		if b.port, err = b.kube.FreePort(ctx, 0); err != nil {
			return err
		}
		if err = b.launchAPIServer(ctx); !errors.Is(err, kubebed.ErrPortTaken) {
			break
		}
	}
	return err
}

// programPath returns the path of the API server.
func (b *Bed) programPath() string { return filepath.Join(b.assets, APIServer) }

// launchAPIServer starts the API server on the bed's port.
func (b *Bed) launchAPIServer(ctx context.Context) error {
	kubeconfig, err := b.kube.WriteUserKubeconfig(APIServer, "system:masters")
	if err != nil {
		return err
	}
	cert, key, err := b.kube.WriteServerCertificate(APIServer, service+"."+namespace+".svc")
	if err != nil {
		return err
	}
	url := "https://" + net.JoinHostPort(b.kube.ListenAddress(), strconv.Itoa(b.port))
	client, err := rest.HTTPClientFor(&rest.Config{Host: url, TLSClientConfig: rest.TLSClientConfig{CAData: b.kube.Config().CAData}})
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	return b.kube.StartProgram(ctx, kubebed.Program{
		Path: b.programPath(),
		Args: append([]string{
			"--etcd-servers=" + b.kube.EtcdURL(),
			"--bind-address=" + b.kube.ListenAddress(),
			"--secure-port=" + strconv.Itoa(b.port),
			"--tls-cert-file=" + cert,
			"--tls-private-key-file=" + key,
			"--kubeconfig=" + kubeconfig,
			"--authentication-kubeconfig=" + kubeconfig,
			"--authorization-kubeconfig=" + kubeconfig,
			"--cluster-identity=gardenbed",
			"--workload-identity-token-issuer=https://issuer.invalid",
			"--workload-identity-signing-key-file=" + key, // any key works, as no issued token is used
		}, b.args...),
		Ready: func(ctx context.Context) error { return checkURL(ctx, client, url+"/readyz") },
	})
}

// Kube returns the control plane of the garden.
func (b *Bed) Kube() *kubebed.Bed { return b.kube }

// Config returns the REST config of an administrator. Each call returns a copy.
func (b *Bed) Config() *rest.Config { return b.kube.Config() }

// WriteUserKubeconfig writes a kubeconfig file for a user in some groups, and returns its path.
// Roles determine the permissions of users.
func (b *Bed) WriteUserKubeconfig(name string, groups ...string) (path string, err error) {
	return b.kube.WriteUserKubeconfig(name, groups...)
}

// AdminKubeconfig returns the path of a kubeconfig file for an administrator.
func (b *Bed) AdminKubeconfig() string { return b.kube.AdminKubeconfig() }

// Namespace returns the namespace of the default project.
func (b *Bed) Namespace() string { return NamespaceOf(DefaultProject) }

// StopAPIServer kills the API server of Gardener, as a power failure would. The API
// server of Kubernetes then answers 503 in its place.
func (b *Bed) StopAPIServer() error {
	return b.kube.StopProgram(APIServer)
}

// StartAPIServer restarts the API server of Gardener after StopAPIServer, on the same
// data, and returns when it is served.
func (b *Bed) StartAPIServer(ctx context.Context) error {
	if err := b.launchAPIServer(ctx); err != nil {
		return err
	}
	return b.awaitGardenerServed(ctx)
}

// Ready returns why the garden cannot be used: a program has ended, or an API server
// was stopped.
func (b *Bed) Ready() error {
	if err := b.kube.Ready(); err != nil {
		return err
	}
	if !b.kube.Runs(APIServer) {
		return errors.New("the API server of Gardener was stopped")
	}
	return nil
}

// Run runs the garden until ctx ends or one of its programs ends, and then stops it.
func (b *Bed) Run(ctx context.Context) error {
	if b.own {
		return b.kube.Run(ctx)
	}
	<-ctx.Done()
	return b.Stop()
}

// Stop stops the garden, and the control plane if this bed started it.
func (b *Bed) Stop() error {
	if b.own {
		return b.kube.Stop()
	}
	return b.StopAPIServer()
}
