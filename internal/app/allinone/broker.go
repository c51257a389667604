package allinone

import (
	"cmp"
	"errors"
	"log/slog"
	"path/filepath"

	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/app/sentinelapp"
	"github.com/fleetloop/fleetloop/internal/broker/nats"
	"github.com/fleetloop/fleetloop/internal/broker/nats/natsserver"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// openExternalOrEmbeddedBroker opens the broker that BROKER_TYPE names, or the embedded one.
func (l *components) openExternalOrEmbeddedBroker(
	p *process.Process, cfg natsserver.Config, dataDir string, env func(string) (string, bool),
) (*sentinelapp.Broker, error) {
	external, err := sentinelapp.LoadBrokerConfig(env)
	switch {
	case errors.Is(err, sentinelapp.ErrNoBrokerType):
		cfg.Dir = cmp.Or(cfg.Dir, filepath.Join(dataDir, "nats"))
		l.adapterEnv = filepath.Join(dataDir, adapterEnvFile)
		return newEmbeddedBroker(cfg, env, p.Log, func(url string) error { return writeAdapterEnv(l.adapterEnv, url, l.address, env) })
	case err != nil:
		return nil, err
	}
	return external.BuildBroker(p.Log)
}

// newEmbeddedBroker builds a broker on a NATS JetStream server in this process. The topic and the other
// event settings come from the environment, as for an external server. started receives the URL of the
// server when it listens.
func newEmbeddedBroker(
	cfg natsserver.Config, env func(string) (string, bool), log *slog.Logger, started func(url string) error,
) (*sentinelapp.Broker, error) {
	var events nats.Config
	if _, err := settings.Load(&events, settings.Source{Env: env}); err != nil {
		return nil, err
	}
	broker, err := nats.NewEmbedded(events, func() (nats.Server, error) {
		server, err := natsserver.Start(cfg, log)
		if err != nil {
			return nil, err
		}
		if err := started(server.URL()); err != nil {
			server.Stop()
			return nil, err
		}
		return server, nil
	}, log)
	if err != nil {
		return nil, err
	}
	return sentinelapp.NewBroker(sentinelapp.NATS, broker), nil
}
