package allinone

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/httpserver"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// NewCommand returns the command "up".
func NewCommand(env Env) *cobra.Command {
	cfg := OverriddenDefaults()
	var file string
	up := &cobra.Command{
		Use:   "up",
		Short: "Run all components on this machine",
		Long: `Run all components in one process: PostgreSQL, the fleet API, a durable broker, two
sentinels (clusters and node pools), three sample adapters, and a cluster-worker
with an in-memory Gardener. Set DATABASE_URL, BROKER_TYPE or GARDENER_MODE=real to
use an external server instead of an embedded one. The servers listen only on this
machine and have no authentication.

--kube=embedded also runs a Kubernetes control plane, with SentinelConfigs that
configure the sentinels. The log has the path of its kubeconfig. The first run
downloads or builds Kubernetes, which takes minutes.

--demo also creates a demo fleet. The file try.sh in the data directory has commands
to try. Source it in another terminal: ". …/try.sh". The live view and the log show
its path. The link ~/.local/state/fleetloop/demo leads to the data directory of the
demo that started last.

The file adapter.env in the data directory has the variables with which an adapter of
yours connects to the embedded broker and the fleet API. Source it in the terminal of
the adapter: ". …/adapter.env && go run .".

PostgreSQL cannot run as root. For root, user postgres or nobody runs it. If that user
cannot enter the data directory, the database is in /var/lib/fleetloop/postgres, and
postgresql/data in the data directory links to it. You can move the data directory. To
delete the database, also delete the folder that the link leads to.

--exit-when-ready exits with 0 as soon as the demo fleet is Ready, or with 1 after
--timeout. It prints progress and logs warnings only; --log-level=info logs
everything.`,
		Example: `  fleetloop up --demo
  fleetloop up --demo --exit-when-ready --timeout 2m
  fleetloop up --data-dir ./fleet
  fleetloop up --demo --kube=embedded`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			report, err := settings.Load(&cfg, settings.Source{File: file, Env: env.LookupEnv, Flags: cmd.Flags()})
			if err != nil {
				return cli.NewUsageError(err, "")
			}
			cfg = cfg.quietLogIfExitWhenReady(report, env)
			if err := cfg.validateSettings(); err != nil {
				return cli.NewUsageError(err, cmd.CommandPath()+" --help")
			}
			if err := httpserver.CheckAddressesFree(cmd.Context(), cfg.listenAddresses()...); err != nil {
				return err
			}
			return runAllInOne(cmd.Context(), cfg, env)
		},
	}
	up.Flags().StringVar(&file, "config", "", "configuration file (YAML)")
	settings.AddFlags(up.Flags(), &cfg)
	for _, name := range refusedFlags() {
		_ = up.Flags().MarkHidden(name) // fails only for an unknown flag
	}
	up.AddCommand(newPauseOrResumeCommand("pause", "Pause a sample adapter of a running 'fleetloop up' to simulate a failure", env.Stdout),
		newPauseOrResumeCommand("resume", "Resume a paused sample adapter", env.Stdout))
	return up
}

// runAllInOne builds the loop, runs it until ctx ends or the demo is done, and prints the result.
func runAllInOne(ctx context.Context, cfg Config, env Env) (err error) {
	dir, cleanup, err := cfg.createDataDir(env.LookupEnv)
	if err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	defer func() { err = errors.Join(err, cleanup()) }()
	screen, err := newScreen(env, cfg.Demo, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, screen.closeLogFile()) }()

	// The shared base of all parts. The link is made first, because an older one may lead nowhere.
	p, err := process.New(ctx, "fleetloop", cfg.Process, screen.logs)
	if err != nil {
		return err
	}
	screen.log = p.Log
	if cfg.Demo.Enabled {
		if remove, linkErr := linkDemoDir(env.LookupEnv, dir); linkErr != nil {
			p.Log.WarnContext(ctx, "cannot link to the data directory of the demo", "data_dir", dir, "err", linkErr)
		} else {
			defer func() { err = errors.Join(err, remove()) }()
		}
	}

	// Build the loop, and the parts that show it.
	ctx, endRun := context.WithCancelCause(ctx)
	defer endRun(nil)
	loop, err := buildComponents(ctx, p, cfg, dir, env.LookupEnv)
	if err != nil {
		return err
	}
	p.HandleOnHealthServer(adaptersPath, loop.adapters.newPauseResumeHandler())
	p.Log.InfoContext(ctx, "fleet API ready", "url", loop.api.Endpoint(), "data_dir", dir)
	parts := loop.parts
	if loop.host != nil {
		loop.host.logAccess(ctx, p.Log)
		parts = append(parts, loop.host.newLogExamplesWhenReadyPart(loop.parts, p.Log))
	}
	if cfg.Demo.Enabled {
		if err := screen.writeAndShowGuide(ctx, loop, dir); err != nil {
			return errors.Join(err, lifecycle.CloseAll(parts...))
		}
		parts = append(parts, loop.demoParts(cfg.Demo, screen, endRun)...)
	}

	if err := p.Run(ctx, loop.checkLive, parts...); err != nil {
		return err
	}
	if cfg.Demo.Enabled {
		if _, err := fmt.Fprint(env.Stdout, FormatSummary(loop.watch.Snapshot())); err != nil {
			return err
		}
	}
	if cause := context.Cause(ctx); errors.Is(cause, errNotReadyInTime) {
		return cause
	}
	return nil
}

// newPauseOrResumeCommand is "up pause" and "up resume".
func newPauseOrResumeCommand(verb, short string, out io.Writer) *cobra.Command {
	var addr string
	cmd := &cobra.Command{
		Use:       verb + " ADAPTER",
		Short:     short,
		Example:   "  fleetloop up " + verb + " dns",
		Args:      cobra.ExactArgs(1),
		ValidArgs: []string{"validation", "dns", "provisioning"},
		RunE: func(cmd *cobra.Command, args []string) error {
			adapter := args[0]
			if err := postPauseOrResume(cmd.Context(), addr, adapter, verb); err != nil {
				return err
			}
			_, err := fmt.Fprintf(out, "adapter %s %sd\n", adapter, verb) // paused, resumed
			return err
		},
	}
	cmd.Flags().StringVar(&addr, "address", "127.0.0.1:8081", "health address of the running 'fleetloop up', host:port")
	return cmd
}

// pauseTimeout limits the request that pauses or resumes an adapter.
const pauseTimeout = 10 * time.Second

// postPauseOrResume asks the running 'fleetloop up' at healthAddr to pause or resume an adapter.
func postPauseOrResume(ctx context.Context, healthAddr, adapter, verb string) error {
	ctx, cancel := context.WithTimeout(ctx, pauseTimeout)
	defer cancel()
	url := "http://" + healthAddr + adaptersPath + adapter + "/" + verb
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("%s adapter %q: %w; check that 'fleetloop up' runs and that --address is its health address", verb, adapter, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusNoContent {
		var message bytes.Buffer
		_, _ = io.CopyN(&message, resp.Body, 1000)
		return fmt.Errorf("%s adapter %q: %s", verb, adapter, strings.TrimSpace(message.String()))
	}
	return nil
}
