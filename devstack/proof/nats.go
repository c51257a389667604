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
	Cluster   string   `json:"cluster"`
	Advertise string   `json:"advertise"` // address for clients
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
	clusterHost, clusterPort, err := splitAddress(spec.Cluster)
	if err != nil {
		return err
	}
	var routes []*url.URL
	for _, r := range spec.Routes {
		routes = append(routes, &url.URL{Scheme: "nats", Host: r})
	}
	s, err := server.NewServer(&server.Options{
		ServerName: spec.Name, Host: host, Port: port, ClientAdvertise: spec.Advertise, Routes: routes, NoSigs: true,
		Cluster:   server.ClusterOpts{Name: "proof", Host: clusterHost, Port: clusterPort},
		JetStream: true, StoreDir: spec.Dir, SyncAlways: true,
	})
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

// startNATS starts the NATS servers and creates the stream with three replicas, as an administrator
// does.
func (t *topology) startNATS(ctx context.Context) error {
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
		home, err := t.newDisk(fmt.Sprintf("nats-%d", i), brokerDiskSize)
		if err != nil {
			return err
		}
		t.disks = append(t.disks, home)
		spec, err := json.Marshal(brokerSpec{
			Name: fmt.Sprintf("nats-%d", i), Listen: listen[i], Cluster: routes[i], Routes: routes[:],
			Advertise: strings.TrimPrefix(urls[i], "nats://"), Dir: home.dir,
		})
		if err != nil {
			return err
		}
		p := t.newProcess(fmt.Sprintf("nats-%d", i), t.self, natsServerMode)
		p.env[brokerSpecEnv] = string(spec)
		if err := t.startInGroup(ctx, brokerNATS, p); err != nil {
			return err
		}
	}
	t.brokerURL = strings.Join(urls, ",")
	return poll(ctx, startBound, t.createStream)
}

func (t *topology) createStream(ctx context.Context) error {
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
		Name: brokerTopic, Subjects: []string{brokerTopic + ".>"}, Replicas: brokerServers, Storage: jetstream.FileStorage,
		Discard: jetstream.DiscardNew, MaxAge: nats.DefaultMaxAge, Duplicates: nats.DefaultDuplicateWindow,
	})
	return err
}
