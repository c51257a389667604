package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/changeevent"
)

const (
	changeBurst   = 64
	changeBursts  = 500
	changeSenders = 64
	changeSends   = 20_000 // per sender
	changeFlight  = 256    // delivered_vs_raw keeps this many in flight
	changeConns   = changeevent.DefaultMaxConcurrentRequests
	changeFor     = 2 * time.Second
	changeRounds  = 5
)

// changeeventBench measures what a change event costs its sender, alone and with all senders
// active. It also measures the ratio of delivered events to the possible maximum.
func changeeventBench() bench {
	const alone, crowd, rate = "changeevent.send_ns", "changeevent.send_64_us", "changeevent.delivered_vs_raw"
	return bench{names: []string{alone, crowd, rate}, run: func(ctx context.Context, progress io.Writer) (lines []line, err error) {
		sink, err := startSinkKeepingLastRequest(ctx)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, sink.stopSink()) }()
		ns, err := sink.measureSendAlone(ctx)
		if err != nil {
			return nil, err
		}
		us, err := sink.measureSendTogether(ctx, progress)
		if err != nil {
			return nil, err
		}
		var ratios []float64
		for range changeRounds {
			raw, err := sink.measureRawPostRate(ctx)
			if err != nil {
				return nil, err
			}
			delivered, err := sink.measureDelivery(ctx)
			if err != nil {
				return nil, err
			}
			_, _ = fmt.Fprintf(progress, "%.0f requests a second, %.0f change events\n", raw, delivered)
			ratios = append(ratios, delivered/raw)
		}
		return []line{
			{kind: "value", name: alone, value: ns, unit: "ns", op: "<=", want: 500},
			{kind: "value", name: crowd, value: us, unit: "us", op: "<=", want: 10},
			{kind: "ratio", name: rate, value: computeMedian(ratios), op: ">=", want: 0.9},
		}, nil
	}}
}

// A changeSink receives change events on loopback, and keeps the last request.
type changeSink struct {
	endpoint string
	server   *http.Server
	served   chan error
	body     atomic.Pointer[[]byte]
	header   atomic.Pointer[http.Header]
}

func startSinkKeepingLastRequest(ctx context.Context) (*changeSink, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &changeSink{endpoint: "http://" + listener.Addr().String() + "/changes", served: make(chan error, 1)}
	s.server = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		s.body.Store(&body)
		s.header.Store(&r.Header)
		w.WriteHeader(http.StatusAccepted)
	})}
	go func() { s.served <- s.server.Serve(listener) }()
	return s, nil
}

func (s *changeSink) stopSink() error {
	err := s.server.Close()
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// newClient returns a client with metrics and a log, as components have it.
func (s *changeSink) newClient() (changeevent.Client, error) {
	return changeevent.NewClient(changeevent.Config{
		Enabled: true, Endpoint: s.endpoint, ClusterName: "my-cluster-name", AuthToken: "Bearer token",
		Source: changeevent.SourceFaultQuarantine, Registerer: prometheus.NewRegistry(),
		Logger: slog.New(slog.DiscardHandler), ShutdownTimeout: time.Minute,
	})
}

func changeEventOf(node int) changeevent.ChangeEvent {
	return changeevent.ChangeEvent{
		Action: changeevent.ActionCordon, NodeName: "gpu-node-" + strconv.Itoa(node%1000), CheckName: "xid-check",
		ErrorCode: "XID-79", Agent: "syslog-health-monitor", IsFatal: true, Message: "GPU error detected",
	}
}

// measureSendAlone returns the median duration of a send, in nanoseconds, with no other sender and free
// space in the queue.
func (s *changeSink) measureSendAlone(ctx context.Context) (medianNs float64, err error) {
	client, err := s.newClient() //nolint:contextcheck // its workers outlive the call
	if err != nil {
		return 0, err
	}
	var took []float64
	for range changeBursts {
		for i := range changeBurst {
			event := changeEventOf(i)
			began := time.Now()
			client.SendChangeEvent(ctx, event)
			took = append(took, float64(time.Since(began)))
		}
		for stats, _ := changeevent.StatsOf(client); stats.Pending > 0; stats, _ = changeevent.StatsOf(client) {
			runtime.Gosched()
		}
	}
	if err := client.Close(); err != nil {
		return 0, err
	}
	if stats, _ := changeevent.StatsOf(client); stats.Succeeded != changeBurst*changeBursts {
		return 0, fmt.Errorf("the sink was to have all events: %+v", stats)
	}
	return computeMedian(took), nil
}

// measureSendTogether returns the minimum duration of the slowest hundredth of sends, in microseconds,
// with all senders active.
func (s *changeSink) measureSendTogether(ctx context.Context, progress io.Writer) (p99Us float64, err error) {
	client, err := s.newClient() //nolint:contextcheck // its workers outlive the call
	if err != nil {
		return 0, err
	}
	took := make([]float64, changeSenders*changeSends)
	var senders sync.WaitGroup
	for i := range changeSenders {
		senders.Go(func() {
			event := changeEventOf(i)
			for j := range changeSends {
				began := time.Now()
				client.SendChangeEvent(ctx, event)
				took[i*changeSends+j] = float64(time.Since(began)) / float64(time.Microsecond)
			}
		})
	}
	senders.Wait()
	if err := client.Close(); err != nil {
		return 0, err
	}
	slices.Sort(took)
	at := func(part float64) float64 { return took[int(part*float64(len(took)-1))] }
	stats, _ := changeevent.StatsOf(client)
	_, _ = fmt.Fprintf(progress, "%d senders: median %.2f us, p99 %.2f us, p99.9 %.2f us, longest %.0f us; %d delivered, %d dropped\n",
		changeSenders, at(0.5), at(0.99), at(0.999), at(1), stats.Succeeded, stats.Dropped)
	return at(0.99), nil
}

// measureRawPostRate returns the maximum number of requests per second: it repeats the client's last
// request, over as many connections.
func (s *changeSink) measureRawPostRate(ctx context.Context) (perSecond float64, err error) {
	transport := &http.Transport{MaxConnsPerHost: changeConns, MaxIdleConnsPerHost: changeConns, DisableCompression: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	body, header := *s.body.Load(), *s.header.Load()
	var done atomic.Int64
	errs := make([]error, changeConns)
	began := time.Now()
	var senders sync.WaitGroup
	for i := range changeConns {
		senders.Go(func() {
			for time.Since(began) < changeFor && errs[i] == nil {
				if errs[i] = postChangeIgnoringStatus(ctx, client, s.endpoint+"/my-cluster-name", header, body); errs[i] == nil {
					done.Add(1)
				}
			}
		})
	}
	senders.Wait()
	return float64(done.Load()) / time.Since(began).Seconds(), errors.Join(errs...)
}

func postChangeIgnoringStatus(ctx context.Context, client *http.Client, url string, header http.Header, body []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header = header
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	return resp.Body.Close()
}

// measureDelivery returns the number of delivered events per second, for a sender that keeps some
// in flight.
func (s *changeSink) measureDelivery(ctx context.Context) (perSecond float64, err error) {
	client, err := s.newClient() //nolint:contextcheck // its workers outlive the call
	if err != nil {
		return 0, err
	}
	var flying atomic.Int64
	landed := make(chan struct{}, 1)
	delivered := func(changeevent.Delivery) {
		if flying.Add(-1) == changeFlight/2 {
			select {
			case landed <- struct{}{}:
			default:
			}
		}
	}
	began := time.Now()
	for i := 0; time.Since(began) < changeFor; i++ {
		event := changeEventOf(i)
		event.OnDelivery = delivered
		flying.Add(1)
		client.SendChangeEvent(ctx, event)
		for flying.Load() >= changeFlight {
			<-landed // half of the events
		}
	}
	if err := client.Close(); err != nil {
		return 0, err
	}
	took := time.Since(began)
	stats, _ := changeevent.StatsOf(client)
	if stats.Succeeded != stats.Sent {
		return 0, fmt.Errorf("the sink was to have all events: %+v", stats)
	}
	return float64(stats.Succeeded) / took.Seconds(), nil
}
