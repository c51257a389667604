package pgstore

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/search"
)

// pageColumns are the columns of a Record, in the order that each reads them.
const pageColumns = `id, tenant, name, display_name, owner_id, labels, spec, generation, revision,
	created_time, updated_time, deleted_time, created_by, updated_by, deleted_by,
	phase, observed_generation, last_updated_time, last_transition_time, conditions`

// shootColumns are the columns behind pageColumns: what is shown of the sync of a
// cluster. They are looked up for the rows of a page alone, by key: a join that reads
// the whole table would never pay.
const (
	shootColumns = `shoot_status, shoot_status_message, sync_error`
	noShoot      = `null::text, null::text, null::text`
)

// shootOf joins shootColumns for the cluster of an id, where a condition holds.
func shootOf(id, condition string) string {
	return " left join lateral (select " + shootColumns + " from tenant.cluster_sync where cluster_id = " + id + " limit 1) shoot on " + condition
}

// inOrder has a tenant's list read along the index that has its order, until
// the page is full. The planner takes every filter on labels for a rare
// match, see tableOf, and would rather collect and sort all rows of the tenant.
const inOrder = "select set_config('enable_bitmapscan', 'off', true)"

// tableOf is what a scope lists from. For all tenants it is a view that
// row-level security does not bind, which only their role may read: so the planner
// knows which labels are rare.
func tableOf(s fleetapi.Scope) string {
	if s.All {
		return "tenant.all_resources"
	}
	return "tenant.resources"
}

// List calls visit for the rows of a page, in order.
func (s *Store) List(ctx context.Context, scope fleetapi.Scope, q fleetapi.Query, visit func(*fleetapi.Record) error) (page fleetapi.Page, err error) {
	if q.ParentID != "" && !isID(q.ParentID) || q.After.ID != "" && !isID(q.After.ID) {
		return page, nil // nothing has such a parent, and nothing stands behind such a row
	}
	visiting := visitor[*fleetapi.Record]{visit: visit}
	statement := pageOf(scope, q)
	err = s.onFeed(ctx, func() error {
		return s.pool.ReadSnapshot(ctx, scopeOf(scope), func(b *pgx.Batch) {
			queueState(b, q.Kind, &page.State)
			if !scope.All {
				b.Queue(inOrder)
			}
			if q.Count {
				total := countOf(scope, q)
				b.Queue(total.sql.String(), total.args...).QueryRow(func(row pgx.Row) error { return row.Scan(&page.Count) })
			}
			b.Queue(statement.sql.String(), statement.args...).Query(func(rows pgx.Rows) error {
				return each(rows, q.Kind, visiting.call)
			})
		})
	})
	switch {
	case visiting.err != nil:
		return fleetapi.Page{}, visiting.err
	case err != nil:
		return fleetapi.Page{}, failed(err, "list %ss", q.Kind)
	}
	return page, nil
}

// A visitor keeps the error of a visit apart from those of the database.
type visitor[T any] struct {
	visit func(T) error
	err   error
}

func (v *visitor[T]) call(item T) error {
	v.err = v.visit(item)
	return v.err
}

// pageOf is the statement that reads a page.
func pageOf(scope fleetapi.Scope, q fleetapi.Query) *clause {
	c := new(clause)
	shoot, join := noShoot, ""
	if q.Kind == v1.KindCluster {
		shoot, join = shootColumns, shootOf("page.id", "true")
	}
	c.write("select page.*, ", shoot, " from (select ", pageColumns, " from ", tableOf(scope))
	c.filter(q)
	terms := q.Terms()
	if q.After.ID != "" {
		c.write(" and ")
		c.behind(terms, append(slices.Clone(q.After.Values), search.Value{Text: q.After.ID}))
	}
	order := orderBy(terms)
	c.write(order, " limit ", c.arg(q.Limit, "bigint"))
	if q.Offset > 0 {
		c.write(" offset ", c.arg(q.Offset, "bigint"))
	}
	c.write(") page", join, order)
	return c
}

// orderBy returns the clause that sorts a page by the terms. It leaves out the
// kind: all rows of a page have the same one.
func orderBy(terms []fleetapi.Order) string {
	var columns []string
	for _, t := range terms {
		if t.Column == search.Kind {
			continue
		}
		column := plainColumn(t.Column)
		if t.Desc {
			column += " desc"
		}
		columns = append(columns, column)
	}
	return " order by " + strings.Join(columns, ", ")
}

// behind holds for the rows that stand behind the values in an order. Where all
// terms go one way and are never null, it is a comparison of rows, which an index
// can answer.
func (c *clause) behind(terms []fleetapi.Order, at []search.Value) {
	uniform := true
	for _, t := range terms {
		uniform = uniform && t.Desc == terms[0].Desc && !nullable(t.Column)
	}
	if !uniform {
		c.behindByTerm(terms, at)
		return
	}
	columns, values := make([]string, len(terms)), make([]string, len(terms))
	for i, t := range terms {
		columns[i], values[i] = plainColumn(t.Column), c.place(t.Column, at[i])
	}
	c.write("(", strings.Join(columns, ", "), ")", follows(terms[0]), "(", strings.Join(values, ", "), ")")
}

// behindByTerm is behind for any terms. PostgreSQL takes null for the largest
// value.
func (c *clause) behindByTerm(terms []fleetapi.Order, at []search.Value) {
	t, v := terms[0], at[0]
	column, null := plainColumn(t.Column), v.Type == search.Absent
	c.write("(")
	switch {
	case null && t.Desc:
		c.write(column, " is not null")
	case null:
		c.write("false")
	default:
		c.write(column, follows(t), c.place(t.Column, v))
		if nullable(t.Column) && !t.Desc {
			c.write(" or ", column, " is null")
		}
	}
	if len(terms) > 1 {
		c.write(" or ", column)
		if null {
			c.write(" is null")
		} else {
			c.write(" = ", c.place(t.Column, v))
		}
		c.write(" and ")
		c.behindByTerm(terms[1:], at[1:])
	}
	c.write(")")
}

// place is the SQL of a value that a column is ordered by.
func (c *clause) place(f search.Field, v search.Value) string {
	if f == search.ID || f == search.OwnerID {
		return c.arg(v.Text, "uuid")
	}
	return c.value(v)
}

func follows(t fleetapi.Order) string {
	if t.Desc {
		return " < "
	}
	return " > "
}

// countOf is the statement that counts all matches.
func countOf(scope fleetapi.Scope, q fleetapi.Query) *clause {
	c := new(clause)
	c.write("select count(*) from ", tableOf(scope))
	c.filter(q)
	return c
}

func (c *clause) filter(q fleetapi.Query) {
	c.write(" where kind = ", c.arg(q.Kind, "text"))
	if q.ParentID != "" {
		c.write(" and owner_id = ", c.arg(q.ParentID, "uuid"))
	}
	if q.IDs != nil {
		c.write(" and id = any(", c.arg(q.IDs, "uuid[]"), ")")
	}
	c.labels(q.Labels)
	if q.Search != nil {
		c.write(" and ")
		c.search(q.Search, false)
	}
}

// A pageRow is where the columns of a row go. Text that is long stays in the
// connection's buffer.
type pageRow struct {
	owner                    pgtype.UUID
	deleted                  *time.Time
	phase                    string
	labels, spec, conditions pgtype.DriverBytes

	shown
}

// into is where pageColumns are read to.
func (row *pageRow) into(rec *fleetapi.Record) []any {
	return []any{
		&rec.ID, &rec.Tenant, &rec.Name, &rec.DisplayName, &row.owner, &row.labels, &row.spec, &rec.Generation, &rec.Revision,
		&rec.CreatedTime, &rec.UpdatedTime, &row.deleted, &rec.CreatedBy, &rec.UpdatedBy, &rec.DeletedBy,
		&row.phase, &rec.Status.ObservedGeneration, &rec.Status.LastUpdatedTime, &rec.Status.LastTransitionTime, &row.conditions,
		&row.ShootStatus, &row.ShootMessage, &row.SyncError,
	}
}

// fill completes a record whose columns were read.
func (row *pageRow) fill(rec *fleetapi.Record) {
	rec.ParentID, rec.DeletedTime = "", time.Time{}
	if row.owner.Valid {
		rec.ParentID = row.owner.String()
	}
	if row.deleted != nil {
		rec.DeletedTime = *row.deleted
	}
	rec.Status.Phase = v1.Phase(row.phase)
	rec.Labels, rec.Spec = json.RawMessage(row.labels), json.RawMessage(row.spec)
	rec.Status.Conditions = json.RawMessage(row.conditions)
	row.shown.fill(rec)
}

// each calls visit for every row. The record is used again for the next.
func each(rows pgx.Rows, kind string, visit func(*fleetapi.Record) error) error {
	var row pageRow
	rec := fleetapi.Record{Key: fleetapi.Key{Kind: kind}}
	into := row.into(&rec)
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		row.fill(&rec)
		if err := visit(&rec); err != nil {
			return err
		}
	}
	return rows.Err()
}
