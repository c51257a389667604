package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
	"github.com/fleetloop/fleetloop/internal/httpserver"
	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// serveAPI serves the fleet API as its binary does, on a loopback port.
func serveAPI(ctx context.Context, cfg postgres.Config) (client *fleetclient.Client, stop func() error, err error) {
	log := slog.New(slog.DiscardHandler)
	pool, err := postgres.New(cfg, log) //nolint:contextcheck // the pool outlives the call
	if err != nil {
		return nil, nil, err
	}
	var api fleetapi.Config
	_, loadErr := settings.Load(&api, settings.Source{})
	handler, newErr := fleetapi.New(api, fleetapi.Deps{Store: pgstore.New(pool), Timeline: pgstore.NewTimelineStore(pool), Log: log, Metrics: prometheus.NewRegistry(), ListenAddr: "127.0.0.1:0"})
	if err := errors.Join(loadErr, newErr); err != nil {
		pool.Close()
		return nil, nil, err
	}
	server, err := httpserver.NewListeningServer(ctx, httpserver.Config{Addr: "127.0.0.1:0"}, handler.Handler(), log)
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	running, end := context.WithCancel(ctx)
	server.OnShutdown(handler.StopWatches)
	done := make(chan error, 2)
	go func() { done <- server.Run(running) }()
	go func() { done <- handler.RunWatchHubs(running) }()
	client, err = fleetclient.New(fleetclient.Config{Endpoint: "http://" + server.Addr()})
	stop = func() error {
		if client != nil {
			client.CloseIdle()
		}
		end()
		err := errors.Join(<-done, <-done)
		pool.Close()
		return err
	}
	if err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return client, stop, nil
}
