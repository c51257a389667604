package processnode

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fleetloop/fleetloop/internal/backoff"
)

// probes run the probes of one run of a container, and hold their results. The startup probe runs
// first; when it has succeeded, the readiness and the liveness probe run beside each other. All of
// them stop when the process ends. Without a probe, its result is positive.
type probes struct {
	container *corev1.Container
	onChange  func() // called after each change of a result
	running   sync.WaitGroup

	mu        sync.Mutex
	isStarted bool // the startup probe has succeeded
	isReady   bool // by the last result of the readiness probe
	isDead    bool // the startup or the liveness probe has failed, so the container must be stopped
}

func newNoProbes() *probes { return &probes{isStarted: true, isReady: true} }

func (p *probes) hasPassedStartup() bool   { p.mu.Lock(); defer p.mu.Unlock(); return p.isStarted }
func (p *probes) hasPassedReadiness() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.isReady }
func (p *probes) hasFailedLiveness() bool  { p.mu.Lock(); defer p.mu.Unlock(); return p.isDead }

// waitForProbes waits until all probes have stopped; the container must have ended.
func (p *probes) waitForProbes() { p.running.Wait() }

// startProbes probes until processEnded is closed, which happens before ctx ends, and calls
// onChange after each change of a result.
func startProbes(ctx context.Context, c *corev1.Container, processEnded <-chan struct{}, onChange func()) *probes {
	p := &probes{
		container: c,
		onChange:  onChange,
		isStarted: c.StartupProbe == nil,
		isReady:   c.ReadinessProbe == nil,
	}
	if c.StartupProbe == nil && c.ReadinessProbe == nil && c.LivenessProbe == nil {
		return p
	}
	ctx, cancel := context.WithCancel(ctx)
	p.running.Go(func() {
		<-processEnded
		cancel()
	})
	p.running.Go(func() {
		if p.runStartupProbe(ctx) {
			p.startProbesAfterStartup(ctx)
		}
	})
	return p
}

// runStartupProbe probes until the first result, and reports whether the container has started.
// If it fails, the other probes never run, because the container is stopped.
func (p *probes) runStartupProbe(ctx context.Context) (started bool) {
	if p.container.StartupProbe == nil {
		return true
	}
	prober := newRepeatedProbe(p.container, p.container.StartupProbe)
	succeeded, stopped := prober.awaitResult(ctx)
	if stopped {
		return false
	}
	if !succeeded {
		p.setResult(&p.isDead, true)
		return false
	}
	p.setResult(&p.isStarted, true)
	return true
}

// startProbesAfterStartup starts the readiness and the liveness probe.
func (p *probes) startProbesAfterStartup(ctx context.Context) {
	if p.container.ReadinessProbe != nil {
		p.running.Go(func() { p.runReadinessProbe(ctx) })
	}
	if p.container.LivenessProbe != nil {
		p.running.Go(func() { p.recordLivenessFailures(ctx) })
	}
}

func (p *probes) runReadinessProbe(ctx context.Context) {
	prober := newRepeatedProbe(p.container, p.container.ReadinessProbe)
	for {
		succeeded, stopped := prober.awaitResult(ctx)
		if stopped {
			return
		}
		p.setResult(&p.isReady, succeeded)
	}
}

func (p *probes) recordLivenessFailures(ctx context.Context) {
	prober := newRepeatedProbe(p.container, p.container.LivenessProbe)
	for {
		succeeded, stopped := prober.awaitResult(ctx)
		if stopped {
			return
		}
		if !succeeded {
			p.setResult(&p.isDead, true)
		}
	}
}

// setResult sets one of the results of p.
func (p *probes) setResult(result *bool, value bool) {
	p.mu.Lock()
	changed := *result != value
	*result = value
	p.mu.Unlock()
	if changed {
		p.onChange()
	}
}

// A repeatedProbe repeats one probe and counts consecutive equal responses.
type repeatedProbe struct {
	container           *corev1.Container
	probe               *corev1.Probe
	delay               time.Duration // until the next attempt
	successes, failures int32         // consecutive; one of them is 0
}

func newRepeatedProbe(c *corev1.Container, probe *corev1.Probe) *repeatedProbe {
	return &repeatedProbe{container: c, probe: probe, delay: time.Duration(probe.InitialDelaySeconds) * time.Second}
}

// awaitResult probes until so many consecutive attempts have succeeded or failed that the threshold
// is reached. From then on, each further attempt of the same kind is a result. stopped means that
// ctx ended first.
func (r *repeatedProbe) awaitResult(ctx context.Context) (succeeded, stopped bool) {
	for {
		if backoff.Sleep(ctx, r.delay) != nil {
			return false, true
		}
		r.delay = time.Duration(max(r.probe.PeriodSeconds, 1)) * time.Second
		if runProbeOnce(ctx, r.container, r.probe) {
			r.successes, r.failures = r.successes+1, 0
		} else {
			r.successes, r.failures = 0, r.failures+1
		}
		if ctx.Err() != nil {
			return false, true // the process ended during the attempt, which says nothing about its health
		}
		if r.successes >= max(r.probe.SuccessThreshold, 1) {
			return true, false
		}
		if r.failures >= max(r.probe.FailureThreshold, 1) {
			return false, false
		}
	}
}

// runProbeOnce makes one attempt, and reports whether it succeeded.
func runProbeOnce(ctx context.Context, c *corev1.Container, probe *corev1.Probe) bool {
	timeout := time.Duration(max(probe.TimeoutSeconds, 1)) * time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("the probe of container %q took longer than %s", c.Name, timeout))
	defer cancel()
	if probe.TCPSocket != nil {
		return probeTCP(ctx, c, probe.TCPSocket)
	}
	return probeHTTP(ctx, c, probe.HTTPGet)
}

func probeTCP(ctx context.Context, c *corev1.Container, target *corev1.TCPSocketAction) bool {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(hostOrNodeAddress(target.Host), resolvePort(c, target.Port)))
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

func probeHTTP(ctx context.Context, c *corev1.Container, target *corev1.HTTPGetAction) bool {
	path, query, _ := strings.Cut(target.Path, "?")
	u := url.URL{
		Scheme:   "http",
		Host:     net.JoinHostPort(hostOrNodeAddress(target.Host), resolvePort(c, target.Port)),
		Path:     path,
		RawQuery: query,
	}
	if target.Scheme == corev1.URISchemeHTTPS {
		u.Scheme = "https"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return false
	}
	for _, h := range target.HTTPHeaders {
		req.Header.Add(h.Name, h.Value)
	}
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // as kubelets do, because a probe sends and reads no secrets
	}}
	response, err := client.Do(req)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode >= http.StatusOK && response.StatusCode < http.StatusBadRequest
}

func hostOrNodeAddress(host string) string {
	if host == "" {
		return address
	}
	return host
}

func resolvePort(c *corev1.Container, port intstr.IntOrString) string {
	for _, p := range c.Ports {
		if port.Type == intstr.String && p.Name == port.StrVal {
			return strconv.Itoa(int(p.ContainerPort))
		}
	}
	return port.String()
}
