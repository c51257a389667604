package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"syscall"
	"text/tabwriter"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/procfs"
	"golang.org/x/sync/errgroup"
)

// readUsageOfAll returns what each process and PostgreSQL used since their start, in the order of their names.
func (t *topology) readUsageOfAll() ([]scaleUsage, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return nil, err
	}
	pids := map[string]int{"postgresql": t.database.nodes[t.database.primary].server.PostmasterPID()}
	for _, p := range t.processes() {
		pids[p.name] = p.pid()
	}
	addMissingOwnChildren(pids, all)
	var list []scaleUsage
	for _, name := range slices.Sorted(maps.Keys(pids)) {
		usage, err := sumUsageWithChildren(all, pids[name])
		if err != nil {
			return nil, fmt.Errorf("read what %s uses: %w", name, err)
		}
		usage.Process = name
		list = append(list, usage)
	}
	return list, nil
}

// readUsageSince returns what each process used since an earlier reading.
func (t *topology) readUsageSince(earlier []scaleUsage) ([]scaleUsage, error) {
	now, err := t.readUsageOfAll()
	return subtractUsage(now, earlier), err
}

// subtractUsage returns what each process used between two readings. The memory is that of the second one.
func subtractUsage(later, earlier []scaleUsage) []scaleUsage {
	used := slices.Clone(later)
	for i := range used {
		used[i].CPU -= cpuOf(used[i].Process, earlier)
	}
	return used
}

// cpuOf returns the CPU time of a process, zero if it is not listed.
func cpuOf(process string, list []scaleUsage) float64 {
	for _, u := range list {
		if u.Process == process {
			return u.CPU
		}
	}
	return 0
}

// addMissingOwnChildren adds the children of this process that have no name yet, such as the API servers and etcd.
func addMissingOwnChildren(pidsByName map[string]int, all procfs.Procs) {
	known := slices.Collect(maps.Values(pidsByName))
	for _, process := range all {
		stat, err := process.Stat()
		if err != nil || stat.PPID != os.Getpid() || slices.Contains(known, stat.PID) {
			continue
		}
		name := stat.Comm
		if _, taken := pidsByName[name]; taken {
			name = fmt.Sprintf("%s-%d", stat.Comm, stat.PID)
		}
		pidsByName[name] = stat.PID
	}
}

// sumUsageWithChildren returns what a process and its children use. The memory that they share counts once.
func sumUsageWithChildren(all procfs.Procs, pid int) (sum scaleUsage, err error) {
	for _, process := range all {
		stat, err := process.Stat()
		if err != nil || stat.PID != pid && stat.PPID != pid {
			continue // it has ended meanwhile, or belongs to another
		}
		memory, err := process.ProcSMapsRollup()
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ESRCH):
			continue
		case err != nil:
			return sum, err
		}
		sum.Memory += int64(memory.Pss) //nolint:gosec // less than the memory of the machine
		sum.CPU += stat.CPUTime()
		if stat.PID == pid {
			const ticksPerSecond = 100
			sum.CPU += float64(stat.CUTime+stat.CSTime) / ticksPerSecond // of children that have ended
		}
	}
	return sum, nil
}

// addDatabaseSizes adds the sizes of the database and its largest tables to the report.
func (t *topology) addDatabaseSizes(ctx context.Context, report *scaleReport, step string) error {
	sizes := databaseSizes{Step: step, Tables: map[string]int64{}}
	err := t.database.onPrimary(ctx, func(conn *pgx.Conn) error {
		if err := conn.QueryRow(ctx, "select pg_database_size(current_database())").Scan(&sizes.Database); err != nil {
			return err
		}
		rows, err := conn.Query(
			ctx,
			`select c.relname, pg_total_relation_size(c.oid) from pg_class c join pg_namespace n on n.oid = c.relnamespace
			where n.nspname = 'tenant' and c.relkind = 'r' order by 2 desc limit 8`,
		)
		if err != nil {
			return err
		}
		var table string
		var size int64
		_, err = pgx.ForEachRow(rows, []any{&table, &size}, func() error {
			sizes.Tables[table] = size
			return nil
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("read the sizes of the tables: %w", err)
	}
	report.Database = append(report.Database, sizes)
	return nil
}

// updateAllRowsRepeatedly changes the spec of each cluster several times, in transactions of many rows.
func (t *topology) updateAllRowsRepeatedly(ctx context.Context) error {
	var ids [][16]byte
	err := t.database.onPrimary(ctx, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, "select id from tenant.clusters order by id")
		if err == nil {
			ids, err = pgx.CollectRows(rows, pgx.RowTo[[16]byte])
		}
		return err
	})
	if err != nil {
		return err
	}
	for round := range updatesPerRow {
		updates, updatesCtx := errgroup.WithContext(ctx)
		for part := range slices.Chunk(ids, len(ids)/updateConnections+1) {
			updates.Go(func() error { return t.updateRows(updatesCtx, part, round) })
		}
		if err := updates.Wait(); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(t.out, "proof: updated each row %d times\n", round+1)
	}
	return nil
}

// updateRows changes the spec of some clusters.
func (t *topology) updateRows(ctx context.Context, ids [][16]byte, round int) error {
	return t.database.onPrimary(ctx, func(conn *pgx.Conn) error {
		for batch := range slices.Chunk(ids, updateBatchSize) {
			_, err := conn.Exec(ctx, `update tenant.clusters set spec = (spec::jsonb || jsonb_build_object('round', $1::int))::json,
				generation = generation + 1, updated_time = now() where id = any($2)`, round, batch)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// write prints the report for people.
func (r *scaleReport) write(out io.Writer) {
	const mega = 1 << 20
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(table, "\nclusters\t%d\nload\t%s\nsettled after\t%s\n", r.Clusters, r.Load, r.Settle)
	_, _ = fmt.Fprintf(
		table,
		"edit to event\tp50 %s, p99 %s, p99.9 %s, max %s of %d\n",
		r.Latency.P50,
		r.Latency.P99,
		r.Latency.P999,
		r.Latency.Max,
		r.Latency.Count,
	)
	_, _ = fmt.Fprintf(table, "\nPROCESS\tMEMORY\tCPU\tPER CLUSTER\tPER EDIT\tPER REPEATED REPORT (%d)\n", r.RepeatedReports)
	for _, u := range r.Processes {
		edit, repeat := cpuOf(u.Process, r.Edits)/float64(r.Latency.Count), cpuOf(u.Process, r.Repeats)/float64(r.RepeatedReports)
		_, _ = fmt.Fprintf(table, "%s\t%d MiB\t%.0f s\t%.0f µs\t%.0f µs\t%.0f µs\n",
			u.Process, u.Memory/mega, u.CPU, u.CPU/float64(r.Clusters)*1e6, edit*1e6, repeat*1e6)
	}
	_, _ = fmt.Fprintf(table, "\nDATABASE\tSIZE\tPER CLUSTER\tTABLES\n")
	for _, d := range r.Database {
		_, _ = fmt.Fprintf(table, "%s\t%d MiB\t%d B\t", d.Step, d.Database/mega, d.Database/int64(r.Clusters))
		for _, name := range slices.Sorted(maps.Keys(d.Tables)) {
			_, _ = fmt.Fprintf(table, "%s %d MiB, ", name, d.Tables[name]/mega)
		}
		_, _ = fmt.Fprintln(table)
	}
	_ = table.Flush() // for people
}
