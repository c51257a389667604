package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fleetloop/fleetloop/devstack/proof/faults"
)

// quorumQueue is the type of queues with a copy on each server. NATS ignores it.
const quorumQueue = "quorum"

// A rabbitNode is one server of a RabbitMQ cluster.
type rabbitNode struct {
	name       string // as the others know it
	home       string
	amqp, dist string // host:port for clients and for the other servers
}

// startRabbitMQ starts a cluster of RabbitMQ servers behind a Service, and waits until all belong to it.
// Otherwise a quorum queue would get fewer copies.
func (t *topology) startRabbitMQ(ctx context.Context) error {
	bin, err := findRabbitMQFolder()
	if err != nil {
		return err
	}
	mapper, err := t.newFreeAddress(ctx)
	if err != nil {
		return err
	}
	if err := t.startPortMapper(ctx, mapper); err != nil {
		return err
	}
	nodes, err := t.newRabbitNodes(ctx)
	if err != nil {
		return err
	}
	var backends []*faults.Backend
	for i, n := range nodes {
		if err := n.writeConfigFiles(nodes); err != nil {
			return err
		}
		p := t.newProcess(fmt.Sprintf("%s-%d", brokerRabbitMQ, i), filepath.Join(bin, "rabbitmq-server"))
		maps.Copy(p.env, n.env(mapper))
		if err := t.startInGroup(ctx, brokerRabbitMQ, p); err != nil {
			return err
		}
		backends = append(backends, &faults.Backend{Addr: n.amqp, Probe: n.checkAMQP})
		// A server joins those that run already.
		if err := poll(ctx, startBound, n.checkAMQP); err != nil {
			return fmt.Errorf("%s: %w: %s", p.name, err, p.readLogTail())
		}
	}
	balancer, err := faults.NewProxy(ctx, brokerRabbitMQ, backends...)
	if err != nil {
		return err
	}
	t.proxies = append(t.proxies, balancer)
	t.brokerURL = "amqp://guest:guest@" + balancer.Addr() + "/"
	return nodes[0].awaitCluster(ctx, bin, mapper)
}

// findRabbitMQFolder returns the folder with the programs of RabbitMQ.
func findRabbitMQFolder() (string, error) {
	const distribution = "/usr/lib/rabbitmq/bin"
	if _, err := os.Stat(filepath.Join(distribution, "rabbitmq-server")); err == nil {
		return distribution, nil
	}
	path, err := exec.LookPath("rabbitmq-server")
	if err != nil {
		return "", errors.New("rabbitmq-server is not installed: run make setup")
	}
	return filepath.Dir(path), nil
}

// startPortMapper starts the daemon by which the servers find each other.
func (t *topology) startPortMapper(ctx context.Context, addr string) error {
	path, err := exec.LookPath("epmd")
	if err != nil {
		return errors.New("epmd is not installed: install Erlang")
	}
	return t.startInGroup(ctx, "epmd", t.newProcess("epmd-0", path, "-address", "127.0.0.1", "-port", portOf(addr), "-relaxed_command_check"))
}

func portOf(addr string) string {
	_, port, _ := strings.Cut(addr, ":")
	return port
}

func (t *topology) newRabbitNodes(ctx context.Context) ([]*rabbitNode, error) {
	var nodes []*rabbitNode
	for i := range brokerServers {
		home, err := t.newDisk(fmt.Sprintf("rabbitmq-%d", i), brokerDiskSize)
		if err != nil {
			return nil, err
		}
		t.disks = append(t.disks, home)
		n := &rabbitNode{name: fmt.Sprintf("proof%d@localhost", i), home: home.dir}
		var errs [2]error
		n.amqp, errs[0] = t.newFreeAddress(ctx)
		n.dist, errs[1] = t.newFreeAddress(ctx)
		if err := errors.Join(errs[:]...); err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// writeConfigFiles writes the configuration. A server that has lost the majority stops to serve until it is back.
func (n *rabbitNode) writeConfigFiles(all []*rabbitNode) error {
	var config strings.Builder
	config.WriteString("listeners.tcp.1 = " + n.amqp + "\nlog.console = true\nlog.file = false\n" +
		"cluster_partition_handling = pause_minority\ncluster_formation.peer_discovery_backend = classic_config\n")
	for i, other := range all {
		fmt.Fprintf(&config, "cluster_formation.classic_config.nodes.%d = %s\n", i+1, other.name)
	}
	for name, text := range map[string]string{"rabbitmq.conf": config.String(), "plugins": "[].\n", ".erlang.cookie": "fleetloop-proof"} {
		if err := os.WriteFile(filepath.Join(n.home, name), []byte(text), 0o400); err != nil {
			return err
		}
	}
	return nil
}

// env returns the environment of the server and its tools.
func (n *rabbitNode) env(mapper string) map[string]string {
	return map[string]string{
		"HOME": n.home, "LANG": "C.UTF-8",
		"RABBITMQ_NODENAME":             n.name,
		"RABBITMQ_CONFIG_FILE":          filepath.Join(n.home, "rabbitmq"),
		"RABBITMQ_CONF_ENV_FILE":        "/dev/null",
		"RABBITMQ_MNESIA_BASE":          filepath.Join(n.home, "db"),
		"RABBITMQ_LOG_BASE":             filepath.Join(n.home, "log"),
		"RABBITMQ_ENABLED_PLUGINS_FILE": filepath.Join(n.home, "plugins"),
		"RABBITMQ_PID_FILE":             filepath.Join(n.home, "pid"),
		"RABBITMQ_DIST_PORT":            portOf(n.dist),
		"ERL_EPMD_PORT":                 portOf(mapper),
		"ERL_EPMD_ADDRESS":              "127.0.0.1",
		// The script becomes the server instead of its parent, so that a signal reaches it.
		"RUNNING_UNDER_SYSTEMD":               "true",
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-start_epmd false -kernel inet_dist_use_interface {127,0,0,1}",
	}
}

// checkAMQP checks that the server speaks AMQP.
func (n *rabbitNode) checkAMQP(ctx context.Context) error {
	const patience = time.Second
	conn, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "tcp", n.amqp)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing is lost
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("AMQP\x00\x00\x09\x01")); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 8))
	return err
}

// awaitCluster waits until the cluster has all servers.
func (n *rabbitNode) awaitCluster(ctx context.Context, bin, mapper string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "rabbitmqctl"), "await_online_nodes", fmt.Sprint(brokerServers), "--timeout", fmt.Sprint(startBound.Seconds())) //nolint:gosec // our own arguments
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	env := n.env(mapper)
	for _, key := range slices.Sorted(maps.Keys(env)) {
		cmd.Env = append(cmd.Env, key+"="+env[key])
	}
	cmd.Dir = n.home
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("form a RabbitMQ cluster: %w: %s", err, out)
	}
	return nil
}
