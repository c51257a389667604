package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"time"

	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/devstack/proof/faults"
	"github.com/fleetloop/fleetloop/devstack/proof/history"
)

// A sink records the change events that it receives.
type changeEventSink struct {
	server *http.Server
	ended  chan error
	link   *faults.Proxy
	file   *history.File
}

// startSink starts the sink behind a proxy.
func (t *topology) startSink(ctx context.Context) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := &changeEventSink{ended: make(chan error, 1), file: t.file}
	s.server = &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	go func() { s.ended <- s.server.Serve(l) }()
	t.sink = s
	if s.link, err = faults.NewProxy(ctx, "sink", &faults.Backend{Addr: l.Addr().String()}); err != nil {
		return err
	}
	t.proxies = append(t.proxies, s.link)
	return nil
}

// env returns the settings of a component that sends change events.
func (s *changeEventSink) env() map[string]string {
	return map[string]string{
		"CHANGE_EVENTS_ENABLED": "true", "CHANGE_EVENTS_CLUSTER_NAME": "host", "CHANGE_EVENTS_ENDPOINT": "http://" + s.link.Addr() + "/changes",
		"CHANGE_EVENTS_ALLOW_HTTP": "true", "CHANGE_EVENTS_ALLOW_ADDRESSES": "127.0.0.1",
	}
}

// ServeHTTP records an event before it acknowledges it.
func (s *changeEventSink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var p changeevent.Payload
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	at, _ := time.Parse(time.RFC3339, p.Timestamp) // none is the zero time
	s.file.Add(history.Record{Change: &history.Change{
		Time: at,
		ID:   p.ID, Source: p.Source, Action: p.Action, Cluster: p.Cluster, Subject: p.Subject, Node: p.Node, ClusterID: p.Details["cluster_id"],
	}})
	w.WriteHeader(http.StatusAccepted)
}

func (s *changeEventSink) close() error {
	err := s.server.Close()
	<-s.ended // http.ErrServerClosed
	return err
}
