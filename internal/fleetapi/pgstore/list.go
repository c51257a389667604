package pgstore

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/search"
)

// shootColumns are the columns after pageColumns: the displayed part of a cluster's sync. They are
// looked up by key, only for the rows of a page: a join that reads the whole table would never pay.
const (
	shootColumns = `shoot_status, shoot_status_message, sync_error`
	noShoot      = `null::text, null::text, null::text`
)

// shootOf returns the join of shootColumns for the cluster with an id, where a condition holds.
func shootOf(id, condition string) string {
	return " left join lateral (select " + shootColumns + " from tenant.cluster_sync where cluster_id = " + id + " limit 1) shoot on " + condition
}

// inOrder makes a tenant's list use the index with the order of the list until the page is full.
// The planner estimates every filter on labels as rarely matching, see tableOf, and would otherwise
// collect and sort all rows of the tenant.
const inOrder = "select set_config('enable_bitmapscan', 'off', true)"

// tableOf returns the table from which a scope lists. For all tenants it is a view without
// row-level security, which only the all-tenants role may read: without it, the planner cannot
// estimate which labels are rare.
func tableOf(s fleetapi.Scope) string {
	if s.All {
		return "tenant.all_resources"
	}
	return "tenant.resources"
}

// List calls visit for the rows of a page, in order.
func (s *Store) List(ctx context.Context, scope fleetapi.Scope, q fleetapi.Query, visit func(*fleetapi.Record) error) (page fleetapi.Page, err error) {
	if q.ParentID != "" && !isID(q.ParentID) || q.After.ID != "" && !isID(q.After.ID) {
		return page, nil // no row has such a parent, and no row follows such a row
	}
	visiting := visitor[*fleetapi.Record]{visit: visit}
	statement := pageStatement(scope, q)
	err = readFeedRenewingEpoch(ctx, s.pool, func() error {
		return s.pool.ReadSnapshot(ctx, scopeOf(scope), func(b *pgx.Batch) {
			queueState(b, q.Kind, &page.State)
			if !scope.All {
				b.Queue(inOrder)
			}
			if q.Count {
				total := countStatement(scope, q)
				b.Queue(total.sql.String(), total.args...).QueryRow(func(row pgx.Row) error { return row.Scan(&page.Count) })
			}
			b.Queue(statement.sql.String(), statement.args...).Query(func(rows pgx.Rows) error {
				return visitRows(rows, q.Kind, visiting.visitItem)
			})
		})
	})
	switch {
	case visiting.err != nil:
		return fleetapi.Page{}, visiting.err
	case err != nil:
		return fleetapi.Page{}, wrapError(err, "list %ss", q.Kind)
	}
	return page, nil
}

// A visitor distinguishes the error of a visit from those of the database.
type visitor[T any] struct {
	visit func(T) error
	err   error
}

func (v *visitor[T]) visitItem(item T) error {
	v.err = v.visit(item)
	return v.err
}

// pageStatement returns the statement that reads a page.
func pageStatement(scope fleetapi.Scope, q fleetapi.Query) *clause {
	c := new(clause)
	shoot, join := noShoot, ""
	if q.Kind == v1.KindCluster {
		shoot, join = shootColumns, shootOf("page.id", "true")
	}
	c.writeSQL("select page.*, ", shoot, " from (select ", pageColumns, " from ", tableOf(scope))
	c.writeFilter(q)
	terms := q.TotalOrder()
	if q.After.ID != "" {
		c.writeSQL(" and ")
		c.writeAfter(terms, append(slices.Clone(q.After.Values), search.Value{Text: q.After.ID}))
	}
	order := orderBy(terms)
	c.writeSQL(order, " limit ", c.addArg(q.Limit, "bigint"))
	if q.Offset > 0 {
		c.writeSQL(" offset ", c.addArg(q.Offset, "bigint"))
	}
	c.writeSQL(") page", join, order)
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
		column := plainColumnSQL(t.Column)
		if t.Desc {
			column += " desc"
		}
		columns = append(columns, column)
	}
	return " order by " + strings.Join(columns, ", ")
}

// writeAfter writes the condition that a row comes after the values in an order. If all terms have
// one direction and are never null, it is a row comparison, which an index can answer.
func (c *clause) writeAfter(terms []fleetapi.Order, at []search.Value) {
	uniform := true
	for _, t := range terms {
		uniform = uniform && t.Desc == terms[0].Desc && !t.Column.Optional()
	}
	if !uniform {
		c.writeAfterByTerm(terms, at)
		return
	}
	columns, values := make([]string, len(terms)), make([]string, len(terms))
	for i, t := range terms {
		columns[i], values[i] = plainColumnSQL(t.Column), c.orderValueSQL(t.Column, at[i])
	}
	c.writeSQL("(", strings.Join(columns, ", "), ")", orderOperator(terms[0]), "(", strings.Join(values, ", "), ")")
}

// writeAfterByTerm writes the condition of writeAfter for any terms. PostgreSQL sorts null as the
// largest value.
func (c *clause) writeAfterByTerm(terms []fleetapi.Order, at []search.Value) {
	t, v := terms[0], at[0]
	column, null := plainColumnSQL(t.Column), v.Type == search.Absent
	c.writeSQL("(")
	switch {
	case null && t.Desc:
		c.writeSQL(column, " is not null")
	case null:
		c.writeSQL("false")
	default:
		c.writeSQL(column, orderOperator(t), c.orderValueSQL(t.Column, v))
		if t.Column.Optional() && !t.Desc {
			c.writeSQL(" or ", column, " is null")
		}
	}
	if len(terms) > 1 {
		c.writeSQL(" or ", column)
		if null {
			c.writeSQL(" is null")
		} else {
			c.writeSQL(" = ", c.orderValueSQL(t.Column, v))
		}
		c.writeSQL(" and ")
		c.writeAfterByTerm(terms[1:], at[1:])
	}
	c.writeSQL(")")
}

// orderValueSQL returns the SQL of a value of an ordered column.
func (c *clause) orderValueSQL(f search.Field, v search.Value) string {
	if f == search.ID || f == search.OwnerID {
		return c.addArg(v.Text, "uuid")
	}
	return c.valueSQL(v)
}

func orderOperator(t fleetapi.Order) string {
	if t.Desc {
		return " < "
	}
	return " > "
}

// countStatement returns the statement that counts all matches.
func countStatement(scope fleetapi.Scope, q fleetapi.Query) *clause {
	c := new(clause)
	c.writeSQL("select count(*) from ", tableOf(scope))
	c.writeFilter(q)
	return c
}

func (c *clause) writeFilter(q fleetapi.Query) {
	c.writeSQL(" where kind = ", c.addArg(q.Kind, "text"))
	if q.ParentID != "" {
		c.writeSQL(" and owner_id = ", c.addArg(q.ParentID, "uuid"))
	}
	if q.IDs != nil {
		c.writeSQL(" and id = any(", c.addArg(q.IDs, "uuid[]"), ")")
	}
	c.writeLabels(q.Labels)
	if q.Search != nil {
		c.writeSQL(" and ")
		searchWriter{c}.writeSearch(q.Search, false)
	}
}
