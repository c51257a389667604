package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/fleetclient"
)

type watchOptions struct {
	interval time.Duration
}

func (o *watchOptions) addWatchFlags(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&o.interval, "interval", time.Second, "`time` between two looks")
}

func watchFormats() []string {
	return []string{formatTable, formatWide, formatJSON, formatName}
}

func (s *session) watchCommand() *cobra.Command {
	var o getOptions
	cmd := &cobra.Command{
		Use:   "watch KIND [NAME|ID ...]",
		Short: "Show resources, and go on with what changes",
		Long: "Show resources, and go on with what changes, until interrupted or until all that were named are gone.\n\n" +
			"A row is shown again when more of it changed than its ages. In JSON each line is an object with the\n" +
			"type of the change (ADDED, MODIFIED, DELETED) and the resource, and every change counts.",
		ValidArgsFunction: s.completeNames,
		RunE:              func(cmd *cobra.Command, args []string) error { return s.watch(cmd, args, o) },
	}
	o.addFlags(s, cmd, true)
	addOutputFlag(cmd, &o.format, watchFormats()...)
	cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "leave out the heads of the columns")
	o.addWatchFlags(cmd)
	return cmd
}

func (s *session) watch(cmd *cobra.Command, args []string, o getOptions) error {
	if err := checkFormat(cmd, o.format, watchFormats()...); err != nil {
		return err
	}
	switch {
	case o.interval <= 0:
		return usagef(cmd, "--interval %s is not above zero", o.interval)
	case o.limit != 0:
		return usagef(cmd, "--limit and a watch exclude each other")
	}
	what, err := o.target(cmd, args)
	if err != nil {
		return err
	}
	for _, r := range what.refs {
		if r.kind != what.kind {
			return usagef(cmd, "a watch is of one kind; %s and %s are two", what.kind.collection, r.kind.collection)
		}
	}
	client, err := s.connect(cmd)
	if err != nil {
		return err
	}
	defer client.CloseIdle()
	w := s.newWatcher(client, what.kind, o)
	look, err := w.looks(cmd.Context(), what)
	if err != nil {
		return err
	}
	return w.run(cmd.Context(), look, len(what.refs) > 0)
}

// A watcher shows what changed since its last look.
type watcher struct {
	*session
	client   *fleetclient.Client
	kind     kind
	format   string
	interval time.Duration
	columns  []column
	printer  printer
	owners   map[string]string

	seen  map[string]watched // by id
	round int
}

type watched struct {
	state string
	item  item
	round int // in which it was last there
}

func (s *session) newWatcher(client *fleetclient.Client, k kind, o getOptions) *watcher {
	return &watcher{
		session: s, client: client, kind: k, format: o.format, interval: o.interval,
		columns: columns(k, o.format == formatWide),
		printer: s.newPrinter(o.format, k, false, !o.noHeaders),
		owners:  map[string]string{},
		seen:    map[string]watched{},
	}
}

// A look gives all resources that are watched to each, page by page.
type look func(ctx context.Context, each func([]item) error) error

// looks gives how to look. Names are found once: from then on a resource is
// its id, so that another one of the same name is not taken for it.
func (w *watcher) looks(ctx context.Context, what target) (look, error) {
	if len(what.refs) == 0 {
		sel, err := what.selection(ctx, w.client, w.kind)
		return func(ctx context.Context, each func([]item) error) error {
			for items, err := range pages(ctx, w.client, sel) {
				if err == nil {
					err = each(items)
				}
				if err != nil {
					return err
				}
			}
			return nil
		}, err
	}
	found, err := what.find(ctx, w.client)
	return func(ctx context.Context, each func([]item) error) error {
		for _, i := range found {
			now, gone, err := again(ctx, w.client, i)
			if err == nil && !gone {
				err = each([]item{now})
			}
			if err != nil {
				return err
			}
		}
		return nil
	}, err
}

// run looks again and again. A server that can not be reached, or says that it
// is not up to it, is asked again; what would be refused again is an error.
func (w *watcher) run(ctx context.Context, look look, named bool) error {
	troubled := false
	for {
		w.round++
		err := look(ctx, func(items []item) error { return w.show(ctx, items) })
		switch {
		case ctx.Err() != nil:
			return nil // the usual end of a watch
		case err == nil:
			troubled = false
			if err := w.showGone(); err != nil {
				return err
			}
			if named && len(w.seen) == 0 {
				return nil
			}
		case !isTransient(err):
			return err
		case !troubled:
			troubled = true
			w.note("warning: %v; trying again every %s", err, w.interval)
		}
		if backoff.Sleep(ctx, max(w.interval, retryAfter(err))) != nil {
			return nil
		}
	}
}

func (w *watcher) show(ctx context.Context, items []item) error {
	if showsOwners(w.kind, w.format) {
		nameOwners(ctx, w.client, items, w.owners)
	}
	var changed []item
	var types []string
	for _, i := range items {
		before, known := w.seen[i.resource.ID]
		now := watched{state: w.state(i), item: i, round: w.round}
		w.seen[i.resource.ID] = now
		switch {
		case !known:
			types = append(types, "ADDED")
		case before.state != now.state:
			types = append(types, "MODIFIED")
		default:
			continue
		}
		changed = append(changed, i)
	}
	return w.print(changed, types)
}

func (w *watcher) showGone() error {
	for id, s := range w.seen {
		if s.round == w.round {
			continue
		}
		delete(w.seen, id)
		if w.format == formatName {
			continue // the name of what is not there is of no use
		}
		if err := w.print([]item{gone(s.item)}, []string{"DELETED"}); err != nil {
			return err
		}
	}
	return nil
}

func (w *watcher) state(i item) string {
	if w.format == formatJSON {
		return string(i.raw)
	}
	return state(w.columns, i)
}

func (w *watcher) print(items []item, types []string) error {
	if w.format != formatJSON {
		return w.printer.print(items)
	}
	for n, i := range items {
		line, err := json.Marshal(change{Type: types[n], Object: i.raw})
		if err != nil {
			return fmt.Errorf("write JSON: %w", err)
		}
		if _, err := w.env.Stdout.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return nil
}

// isTransient reports whether the same request may well be answered later.
func isTransient(err error) bool {
	if errors.Is(err, fleetclient.ErrUnreachable) {
		return true
	}
	e, ok := errors.AsType[*fleetclient.Error](err)
	return ok && (e.Status >= 500 || e.Status == http.StatusTooManyRequests || e.Status == http.StatusRequestTimeout)
}

func retryAfter(err error) time.Duration {
	d, _ := backoff.RetryAfter(err)
	return min(d, time.Minute)
}
