package kubebed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	// startBound is how long a program may take to become ready. The API server takes 3
	// s on an idle machine.
	startBound = 3 * time.Minute
	startPoll  = 25 * time.Millisecond
)

var errStartBound = fmt.Errorf("not ready within %s", startBound)

// A Bed is a running control plane.
type Bed struct {
	options   Options
	assets    string
	folder    *folder
	authority *authority
	port      int
	admin     *rest.Config

	died chan struct{} // closed when a program ended unexpectedly

	mu        sync.Mutex
	running   []*process // in the order of their start
	death     error      // error of the ended program, set before died is closed
	following sync.WaitGroup
	stopped   bool
}

// Start starts a control plane and returns when it is ready. The caller then calls
// Stop.
func Start(ctx context.Context, o Options) (*Bed, error) {
	o, err := o.validatedWithDefaults()
	if err != nil {
		return nil, fmt.Errorf("start control plane: %w", err)
	}
	b := &Bed{options: o, assets: o.Assets, died: make(chan struct{})}
	if b.assets == "" {
		if b.assets, err = EnsureAssets(ctx, o.Log); err != nil {
			return nil, err
		}
	}
	if b.folder, err = createAndLockFolder(o.Dir); err != nil {
		return nil, fmt.Errorf("start control plane: %w", err)
	}
	began := time.Now()
	if err := b.startProgramsAndInstallCRDs(ctx); err != nil {
		return nil, fmt.Errorf("start control plane: %w", errors.Join(err, b.Stop()))
	}
	o.Log.InfoContext(ctx, "control plane started", "url", b.URL(), "dir", b.folder.Path, "took", time.Since(began).Round(time.Millisecond))
	return b, nil
}

func (b *Bed) startProgramsAndInstallCRDs(ctx context.Context) (err error) {
	if b.authority, err = loadOrCreateAuthority(b.folder.Join("pki"), mainAuthority); err != nil {
		return err
	}
	if err := writeServerKeysAndCerts(b.folder, b.authority, b.options); err != nil {
		return err
	}
	if err := b.launchAndWatch(Etcd, append(newEtcdArgs(b.folder.Temporary), b.options.Args[Etcd]...)); err != nil {
		return err
	}
	if err := b.startAPIServerOnFreePort(ctx); err != nil {
		return err
	}
	if err := b.awaitDefaultNamespace(ctx); err != nil {
		return err
	}
	if err := b.launchControllersAndScheduler(); err != nil {
		return err
	}
	if err := b.InstallCRDs(ctx, b.options.CRDs...); err != nil {
		return err
	}
	return b.awaitAccountIfControllerRuns(ctx)
}

// startAPIServerOnFreePort starts the API server. It retries on another port if the free port was
// taken before its use.
func (b *Bed) startAPIServerOnFreePort(ctx context.Context) error {
	const tries = 5
	var err error
	for range tries {
		if b.port = b.options.Port; b.port == 0 {
			if b.port, err = b.FreePort(ctx, b.folder.readPreviousPort()); err != nil {
				return err
			}
		}
		if b.admin, err = b.User(adminName, administrators); err != nil {
			return err
		}
		if err = b.StartAPIServer(ctx); b.options.Port != 0 || !errors.Is(err, ErrPortTaken) {
			break
		}
	}
	if err != nil {
		return err
	}
	_, err = b.writeKubeconfig(adminName, b.admin)
	return errors.Join(err, b.folder.storePort(b.port))
}

// StartAPIServer restarts the API server after StopAPIServer, on the same port and the
// same data, and returns when it is ready. It does nothing if the server runs.
func (b *Bed) StartAPIServer(ctx context.Context) error {
	if b.findProcess(APIServer) != nil {
		return nil
	}
	client, err := rest.HTTPClientFor(b.newAnonymousConfig())
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	err = b.launchOnceAndAwaitReady(
		ctx,
		filepath.Join(b.assets, APIServer),
		newAPIServerArgs(b.options, b.port),
		func(ctx context.Context) error {
			return checkURL(ctx, client, b.URL()+"/readyz")
		},
	)
	if errors.Is(err, ErrPortTaken) {
		err = fmt.Errorf("%w: %d", err, b.port)
	}
	return err
}

// StopAPIServer kills the API server, as a power failure would: its connections break,
// and new ones are refused until StartAPIServer.
func (b *Bed) StopAPIServer() error { return b.killProcess(APIServer) }

// checkURL returns an error unless a URL answers 200.
func checkURL(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 10_000))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", url, resp.Status, text)
	}
	return nil
}

// awaitDefaultNamespace waits for the objects that the API server creates some moments after
// it is ready.
func (b *Bed) awaitDefaultNamespace(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(b.admin)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startBound, errStartBound)
	defer cancel()
	return pollUntilOK(ctx, func(ctx context.Context) error {
		_, err := client.CoreV1().Namespaces().Get(ctx, corev1.NamespaceDefault, metav1.GetOptions{})
		return err
	})
}

func (b *Bed) launchControllersAndScheduler() error {
	if len(b.options.Controllers) > 0 {
		kubeconfig, err := b.WriteUserKubeconfig(ControllerManager, administrators)
		if err != nil {
			return err
		}
		if err := b.launchAndWatch(ControllerManager, newControllerManagerArgs(b.options, kubeconfig)); err != nil {
			return err
		}
	}
	if !b.options.Scheduler {
		return nil
	}
	kubeconfig, err := b.WriteUserKubeconfig(Scheduler, administrators)
	if err != nil {
		return err
	}
	return b.launchAndWatch(Scheduler, newSchedulerArgs(b.options, kubeconfig))
}

// awaitAccountIfControllerRuns waits until the controllers work, as far as that is visible: no Pod
// is admitted before its namespace has a service account.
func (b *Bed) awaitAccountIfControllerRuns(ctx context.Context) error {
	if !slices.Contains(b.options.Controllers, "serviceaccount-controller") && !slices.Contains(b.options.Controllers, "*") {
		return b.Ready()
	}
	client, err := kubernetes.NewForConfig(b.admin)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startBound, errStartBound)
	defer cancel()
	return pollUntilOK(ctx, func(ctx context.Context) error {
		if err := b.Ready(); err != nil {
			return finalError{err}
		}
		_, err := client.CoreV1().ServiceAccounts(corev1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return errors.New("kube-controller-manager created no service account")
		}
		return err
	})
}

// URL returns the URL of the API server.
func (b *Bed) URL() string {
	return "https://" + net.JoinHostPort(b.options.ListenAddress, strconv.Itoa(b.port))
}

// Assets returns the folder with the programs, including kubectl.
func (b *Bed) Assets() string { return b.assets }

// Dir returns the folder with the state.
func (b *Bed) Dir() string { return b.folder.Path }

// Stop ends all programs, and removes the state if its folder is temporary. Only etcd
// is stopped gracefully: the others have no state to lose.
func (b *Bed) Stop() error {
	b.mu.Lock()
	if b.stopped {
		b.mu.Unlock()
		return nil
	}
	b.stopped = true
	running := b.running
	b.running = nil
	b.mu.Unlock()

	var errs []error
	for _, p := range slices.Backward(running) {
		sig := syscall.SIGKILL
		if p.name == Etcd && !b.folder.Temporary {
			sig = syscall.SIGTERM
		}
		errs = append(errs, p.stopWithSignalThenKill(sig))
	}
	b.following.Wait()
	return errors.Join(append(errs, b.folder.Close())...)
}
