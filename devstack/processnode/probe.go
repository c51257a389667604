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
)

// probes run the probes of a container and hold their results. Without a probe, the
// result is positive.
type probes struct {
	wg sync.WaitGroup

	mu                         sync.Mutex
	isStarted, isReady, isDead bool
}

func newNoProbes() *probes { return &probes{isStarted: true, isReady: true} }

func (p *probes) hasPassedStartup() bool   { p.mu.Lock(); defer p.mu.Unlock(); return p.isStarted }
func (p *probes) hasPassedReadiness() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.isReady }
func (p *probes) hasFailedLiveness() bool  { p.mu.Lock(); defer p.mu.Unlock(); return p.isDead }

// waitForProbes waits until all probes have stopped; the container must have ended.
func (p *probes) waitForProbes() { p.wg.Wait() }

// startProbes probes until done is closed, which happens before ctx ends, and calls
// changed after each change of a result.
func startProbes(ctx context.Context, c *corev1.Container, done <-chan struct{}, changed func()) *probes {
	p := &probes{isStarted: c.StartupProbe == nil, isReady: c.ReadinessProbe == nil}
	if c.StartupProbe == nil && c.ReadinessProbe == nil && c.LivenessProbe == nil {
		return p
	}
	ctx, cancel := context.WithCancel(ctx)
	p.wg.Go(func() {
		<-done
		cancel()
	})
	set := func(what *bool, value bool) {
		p.mu.Lock()
		differs := *what != value
		*what = value
		p.mu.Unlock()
		if differs {
			changed()
		}
	}
	after := make(chan struct{}) // closed when the startup probe has succeeded, which starts the others
	if c.StartupProbe == nil {
		close(after)
	} else {
		p.wg.Go(func() {
			var once sync.Once
			runProbeUntilDone(ctx, c, c.StartupProbe, func(well bool) bool {
				if !well {
					set(&p.isDead, true)
					return false
				}
				set(&p.isStarted, true)
				once.Do(func() { close(after) })
				return false
			})
		})
	}
	follow := func(how *corev1.Probe, report func(succeeded bool)) {
		if how == nil {
			return
		}
		p.wg.Go(func() {
			select {
			case <-ctx.Done():
				return
			case <-after:
			}
			runProbeUntilDone(ctx, c, how, func(succeeded bool) bool { report(succeeded); return true })
		})
	}
	follow(c.ReadinessProbe, func(well bool) { set(&p.isReady, well) })
	follow(c.LivenessProbe, func(well bool) {
		if !well {
			set(&p.isDead, true)
		}
	})
	return p
}

// runProbeUntilDone probes until ctx ends or report returns false. report receives each result that
// has reached its threshold of consecutive results.
func runProbeUntilDone(ctx context.Context, c *corev1.Container, how *corev1.Probe, report func(succeeded bool) (goOn bool)) {
	pause := time.Duration(how.InitialDelaySeconds) * time.Second
	var well, ill int32
	for {
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		pause = time.Duration(max(how.PeriodSeconds, 1)) * time.Second
		if runProbeOnce(ctx, c, how) {
			well, ill = well+1, 0
		} else {
			well, ill = 0, ill+1
		}
		if ctx.Err() != nil {
			return
		}
		if well >= max(how.SuccessThreshold, 1) || ill >= max(how.FailureThreshold, 1) {
			if !report(well > 0) {
				return
			}
		}
	}
}

func runProbeOnce(ctx context.Context, c *corev1.Container, how *corev1.Probe) bool {
	limit := time.Duration(max(how.TimeoutSeconds, 1)) * time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the probe of container %q took longer than %s", c.Name, limit))
	defer cancel()
	if how.TCPSocket != nil {
		to := how.TCPSocket
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(hostOrNodeAddress(to.Host), resolvePort(c, to.Port)))
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}
	return probeHTTP(ctx, c, how.HTTPGet)
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

func probeHTTP(ctx context.Context, c *corev1.Container, to *corev1.HTTPGetAction) bool {
	path, query, _ := strings.Cut(to.Path, "?")
	u := url.URL{Scheme: "http", Host: net.JoinHostPort(hostOrNodeAddress(to.Host), resolvePort(c, to.Port)), Path: path, RawQuery: query}
	if to.Scheme == corev1.URISchemeHTTPS {
		u.Scheme = "https"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return false
	}
	for _, h := range to.HTTPHeaders {
		req.Header.Add(h.Name, h.Value)
	}
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // as kubelets do: it asks for life, not for secrets
	}}
	answer, err := client.Do(req)
	if err != nil {
		return false
	}
	_ = answer.Body.Close()
	return answer.StatusCode >= http.StatusOK && answer.StatusCode < http.StatusBadRequest
}
