package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/deploy"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/nodefault"
	"github.com/fleetloop/fleetloop/internal/nodefault/intake"
)

const (
	faultBinary = "node-fault-controller"
	faultToken  = "bench"

	// faultController is the controller's user name for the API server.
	faultController = "system:serviceaccount:" + nodefault.DefaultNamespace + ":" + nodefault.DefaultAccount

	poolLabel = "bench.example/pool"
)

// A faultBed is a cluster with failing nodes. It has a real API server with an audit log, a sink of
// change events, and the controller as its binary with its service account. The controller has all
// its features and default settings, except for a budget of half of each pool.
type faultBed struct {
	bed   *kubebed.Bed
	nodes kubernetes.Interface
	trail *auditTrail
	sink  *changeSink
	dir   string

	reports    string // destination of the reports
	controller *os.Process
	ended      chan error
	end        []func() error // in the order of calls
}

func (b *faultBed) onStop(end func() error) { b.end = append([]func() error{end}, b.end...) }

func (b *faultBed) stopBed() error {
	var errs []error
	for _, end := range b.end {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}

// startFaultBed starts a bed whose controller accepts reports.
func startFaultBed(ctx context.Context, progress io.Writer, nodesPerPool map[string]int) (b *faultBed, err error) {
	_, _ = fmt.Fprintln(progress, "starting a control plane, its nodes and the node fault controller")
	kube.RedirectLibraryLogs(slog.New(slog.DiscardHandler))
	b = &faultBed{ended: make(chan error, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.stopBed())
		}
	}()
	dir, remove, err := tempDir()
	if err != nil {
		return b, err
	}
	b.dir = dir
	b.onStop(func() error { remove(); return nil })
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", dir+"/", "./cmd/"+faultBinary) //nolint:gosec // our own program
	build.Stderr, build.Env = progress, append(os.Environ(), "CGO_ENABLED=0")
	if err := build.Run(); err != nil {
		return b, fmt.Errorf("build the binary: %w", err)
	}
	if b.sink, err = startSinkKeepingLastRequest(ctx); err != nil {
		return b, err
	}
	b.onStop(b.sink.stopSink)
	if err := b.startClusterWithCRDsAndRoles(ctx); err != nil {
		return b, err
	}
	for pool, n := range nodesPerPool {
		if err := b.createNodes(ctx, pool, n); err != nil {
			return b, err
		}
	}
	return b, b.startController(ctx)
}

// faultTrailPolicy logs the writes of the controller's account.
const faultTrailPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted, Panic]
rules:
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
  users: ["` + faultController + `"]
- level: None
`

func (b *faultBed) startClusterWithCRDsAndRoles(ctx context.Context) (err error) {
	if b.trail, err = newAuditTrail(b.dir, faultTrailPolicy); err != nil {
		return err
	}
	if b.bed, err = kubebed.Start(ctx, kubebed.Options{Args: map[string][]string{kubebed.APIServer: b.trail.apiServerArgs()}}); err != nil {
		return err
	}
	b.onStop(b.bed.Stop)
	for _, crd := range [][]byte{deploy.NodeFaultCRD, deploy.RebootNodeCRD, deploy.TerminateNodeCRD} {
		if err := b.bed.InstallCRDText(ctx, crd); err != nil {
			return err
		}
	}
	cfg := b.bed.Config()
	cfg.QPS = -1
	if b.nodes, err = kubernetes.NewForConfig(cfg); err != nil {
		return err
	}
	return b.createNamespaceAndRoles(ctx)
}

// createNamespaceAndRoles grants the controller its permissions.
func (b *faultBed) createNamespaceAndRoles(ctx context.Context) error {
	admin, err := client.New(b.bed.Config(), client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: nodefault.DefaultNamespace}}
	objects := append([]runtime.Object{namespace}, nodefault.DefaultProcessRoles().ServiceAccountAndRoles()...)
	for _, o := range objects {
		object, is := o.(client.Object)
		if !is {
			return fmt.Errorf("make %T: it is no object", o)
		}
		if err := admin.Create(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// createNodes creates the nodes of a pool, with a realistic size.
func (b *faultBed) createNodes(ctx context.Context, pool string, n int) error {
	return runForEachInParallel(nodeNames(pool, n), func(name string) error {
		_, err := b.nodes.CoreV1().Nodes().Create(ctx, newNode(pool, name), metav1.CreateOptions{})
		return err
	})
}

func nodeNames(pool string, n int) []string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("%s-%04d", pool, i))
	}
	return names
}

func newNode(pool, name string) *corev1.Node {
	now := metav1.Now()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			poolLabel: pool, corev1.LabelHostname: name, corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux",
			corev1.LabelTopologyZone: "zone-a", corev1.LabelTopologyRegion: "region-1", corev1.LabelInstanceTypeStable: "gpu-8",
		}},
		Spec: corev1.NodeSpec{ProviderID: "bench:///" + name},
		Status: corev1.NodeStatus{
			Capacity: corev1.ResourceList{
				corev1.ResourceCPU:    resource.MustParse("64"),
				corev1.ResourceMemory: resource.MustParse("512Gi"),
				corev1.ResourcePods:   resource.MustParse("110"),
			},
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}},
			NodeInfo:  corev1.NodeSystemInfo{BootID: name, KubeletVersion: "v1.37.1", OperatingSystem: "linux", Architecture: "amd64"},
		},
	}
	node.Status.Allocatable = node.Status.Capacity
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeReady} {
		c := corev1.NodeCondition{
			Type:               kind,
			Status:             corev1.ConditionFalse,
			Reason:             "AsItShouldBe",
			LastHeartbeatTime:  now,
			LastTransitionTime: now,
		}
		if kind == corev1.NodeReady {
			c.Status = corev1.ConditionTrue
		}
		node.Status.Conditions = append(node.Status.Conditions, c)
	}
	const images = 25
	for i := range images {
		image := fmt.Sprintf("registry.example/platform/component-%02d", i)
		node.Status.Images = append(
			node.Status.Images,
			corev1.ContainerImage{Names: []string{image + "@sha256:" + strings.Repeat("0a", 32), image + ":v1.2.3"}, SizeBytes: 1 << 26},
		)
	}
	return node
}

// startController runs the controller, and waits until it accepts reports.
func (b *faultBed) startController(ctx context.Context) error {
	// A token, as Pods have one. It is valid for longer than the measurement.
	kubeconfig, err := b.bed.WriteAccountKubeconfig(ctx, nodefault.DefaultNamespace, nodefault.DefaultAccount)
	if err != nil {
		return err
	}
	const mode = 0o600
	tokens := filepath.Join(b.dir, "tokens.yaml")
	if err := os.WriteFile(tokens, []byte("tokens:\n- {token: "+faultToken+", subject: monitor}\n"), mode); err != nil {
		return err
	}
	logged, err := os.Create(b.logText())
	if err != nil {
		return err
	}
	b.onStop(logged.Close)
	controller := exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(b.dir, faultBinary), //nolint:gosec // our own program
		"--kubeconfig="+kubeconfig, "--namespace="+nodefault.DefaultNamespace, "--listen-address=127.0.0.1:0", "--intake-auth-mode=file", "--intake-token-file="+tokens,
		"--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0", "--change-events-enabled", "--change-events-endpoint="+b.sink.endpoint,
		"--budget-max-percent=50")
	controller.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + b.dir, "LOG_FORMAT=json",
		"NODE_FAULT_BUDGET_WINDOW_MAX_PERCENT=50", "NODE_FAULT_BUDGET_POOL_LABEL=" + poolLabel,
	}
	controller.Stdout, controller.Stderr = logged, logged
	if err := controller.Start(); err != nil {
		return fmt.Errorf("start the controller: %w", err)
	}
	go func() { b.ended <- controller.Wait() }()
	b.controller = controller.Process
	b.onStop(b.stopController)
	return b.eventually(ctx, b.checkListening)
}

// stopController ends the controller, if it still runs.
func (b *faultBed) stopController() error {
	_ = b.controller.Kill() // it may have ended
	b.ended <- <-b.ended    // for the next call
	return nil
}

func (b *faultBed) logText() string { return filepath.Join(b.dir, "controller.log") }

// checkListening returns an error while no reports can be sent.
func (b *faultBed) checkListening(context.Context) error {
	text, err := os.ReadFile(b.logText())
	if err != nil {
		return err
	}
	for said := range strings.Lines(string(text)) {
		var at struct{ Msg, Address string }
		if json.Unmarshal([]byte(said), &at) == nil && at.Msg == "listening for fault reports" {
			b.reports = "http://" + at.Address + intake.PathHealthEvents
			return nil
		}
	}
	return errors.New("the controller does not listen yet")
}

// eventually calls check until it returns nil.
func (b *faultBed) eventually(ctx context.Context, check func(context.Context) error) error {
	const every, most = 100 * time.Millisecond, 4000
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case ended := <-b.ended:
			b.ended <- ended
			err = fmt.Errorf("the controller has ended: %w; before: %w", ended, err)
		default:
			if backoff.Sleep(ctx, every) == nil {
				continue
			}
		}
		said, _ := os.ReadFile(b.logText())
		return fmt.Errorf("%w; the controller said: %s", err, said[max(0, len(said)-most):])
	}
}

// postFaultReports reports one fatal fault for each node, in one request.
func (b *faultBed) postFaultReports(ctx context.Context, nodes []string) error {
	var events []map[string]any
	for _, name := range nodes {
		events = append(events, map[string]any{
			"nodeName": name, "agent": "gpu-health-monitor", "componentClass": "GPU", "checkName": "GpuXidError", "isFatal": true,
			"errorCode": []string{"79"}, "message": "the GPU has fallen off the bus", "recommendedAction": "NONE",
			"entitiesImpacted": []map[string]string{{"entityType": "GPU", "entityValue": "0"}},
		})
	}
	body, err := json.Marshal(events)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.reports, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+faultToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err == nil && resp.StatusCode != http.StatusAccepted {
		err = fmt.Errorf("a report was answered %s: %s", resp.Status, text)
	}
	return err
}

// collectWritesUntilQuiet returns the writes of the controller since the last call, after they have ended. It
// omits periodic writes, such as those of its Leases.
func (b *faultBed) collectWritesUntilQuiet(ctx context.Context) (all []auditedWrite, err error) {
	const quiet = 2 * time.Second
	for {
		if err := backoff.Sleep(ctx, quiet); err != nil {
			return nil, err
		}
		more, err := b.trail.readNewWrites()
		if err != nil {
			return nil, err
		}
		more = slices.DeleteFunc(more, func(w auditedWrite) bool { return w.ObjectRef.Resource == "leases" })
		if len(more) == 0 {
			return all, nil
		}
		all = append(all, more...)
	}
}
