package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fleetloop/fleetloop/devstack/proof/faults"
	"github.com/fleetloop/fleetloop/internal/broker/nats"
)

// natsServerMode is the argument with which this program is a NATS server.
const natsServerMode = "nats-server"

// A brokerSpec is the configuration of one NATS server, as its process reads it from the environment.
type brokerSpec struct {
	Name      string   `json:"name"`
	Listen    string   `json:"listen"`
	Cluster   string   `json:"cluster,omitempty"` // empty for a single server
	Advertise string   `json:"advertise"`         // address for clients
	Routes    []string `json:"routes"`
	Dir       string   `json:"dir"`
}

const brokerSpecEnv = "PROOF_NATS"

// runNATSServer is the program of one NATS server.
func runNATSServer() error {
	var spec brokerSpec
	if err := json.Unmarshal([]byte(os.Getenv(brokerSpecEnv)), &spec); err != nil {
		return err
	}
	host, port, err := splitAddress(spec.Listen)
	if err != nil {
		return err
	}
	options := &server.Options{
		ServerName: spec.Name, Host: host, Port: port, ClientAdvertise: spec.Advertise, NoSigs: true,
		JetStream: true, StoreDir: spec.Dir, SyncAlways: true,
	}
	if spec.Cluster != "" {
		options.Cluster.Name = "proof"
		if options.Cluster.Host, options.Cluster.Port, err = splitAddress(spec.Cluster); err != nil {
			return err
		}
		for _, r := range spec.Routes {
			options.Routes = append(options.Routes, &url.URL{Scheme: "nats", Host: r})
		}
	}
	s, err := server.NewServer(options)
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	s.Start()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	<-signals
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}

func splitAddress(address string) (host string, port int, err error) {
	host, text, _ := strings.Cut(address, ":")
	port, err = strconv.Atoi(text)
	return host, port, err
}

// startNATSWithStream starts the NATS servers and creates the stream with a replica on each, as an administrator
// does.
func (t *topology) startNATSWithStream(ctx context.Context) error {
	if t.single {
		return t.startOneNATSWithStream(ctx)
	}
	var listen, routes [brokerServers]string
	var urls []string
	for i := range brokerServers {
		var err error
		if listen[i], err = t.newFreeAddress(ctx); err != nil {
			return err
		}
		if routes[i], err = t.newFreeAddress(ctx); err != nil {
			return err
		}
		p, err := faults.NewProxy(ctx, fmt.Sprintf("nats-%d", i), &faults.Backend{Addr: listen[i]})
		if err != nil {
			return err
		}
		t.proxies = append(t.proxies, p)
		urls = append(urls, "nats://"+p.Addr())
	}
	for i := range brokerServers {
		spec := brokerSpec{Listen: listen[i], Cluster: routes[i], Routes: routes[:], Advertise: strings.TrimPrefix(urls[i], "nats://")}
		if err := t.startNATSServer(ctx, fmt.Sprintf("nats-%d", i), spec); err != nil {
			return err
		}
	}
	t.brokerURL = strings.Join(urls, ",")
	return poll(ctx, startBound, func(ctx context.Context) error { return t.createStream(ctx, brokerServers) })
}

// startOneNATSWithStream starts one NATS server that clients reach without a proxy.
func (t *topology) startOneNATSWithStream(ctx context.Context) error {
	listen, err := t.newFreeAddress(ctx)
	if err != nil {
		return err
	}
	if err := t.startNATSServer(ctx, "nats", brokerSpec{Listen: listen, Advertise: listen}); err != nil {
		return err
	}
	t.brokerURL = "nats://" + listen
	return poll(ctx, startBound, func(ctx context.Context) error { return t.createStream(ctx, 1) })
}

// startNATSServer starts the process of a NATS server with a disk of its own.
func (t *topology) startNATSServer(ctx context.Context, name string, spec brokerSpec) error {
	home, err := t.newDisk(name, brokerDiskSize)
	if err != nil {
		return err
	}
	t.disks = append(t.disks, home)
	spec.Name, spec.Dir = name, home.dir
	text, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	p := t.newProcess(name, t.self, natsServerMode)
	p.env[brokerSpecEnv] = string(text)
	return t.startInGroup(ctx, brokerNATS, p)
}

func (t *topology) createStream(ctx context.Context, replicas int) error {
	conn, err := natsgo.Connect(t.brokerURL)
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{
		Name: brokerTopic, Subjects: []string{brokerTopic + ".>"}, Replicas: replicas, Storage: jetstream.FileStorage,
		Discard: jetstream.DiscardNew, MaxAge: nats.DefaultMaxAge, Duplicates: nats.DefaultDuplicateWindow,
	})
	return err
}
