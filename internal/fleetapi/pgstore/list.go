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

// joinShootColumnsSQL returns the join of shootColumns for the cluster with an id, where a condition holds.
func joinShootColumnsSQL(clusterIDSQL, conditionSQL string) string {
	return " left join lateral (select " + shootColumns + " from tenant.cluster_sync where cluster_id = " + clusterIDSQL + " limit 1) shoot on " + conditionSQL
}

// inOrder makes a page use the index with its order until the page is full. The planner estimates every filter
// on labels as rarely matching, see chooseResourceTable, and would otherwise collect and sort all rows of a tenant.
const inOrder = "select set_config('enable_bitmapscan', 'off', true)"

// chooseResourceTable returns the table from which a scope lists. For all tenants it is a view without
// row-level security, which only the all-tenants role may read: without it, the planner cannot
// estimate which labels are rare.
func chooseResourceTable(scope fleetapi.Scope) string {
	if scope.All {
		return "tenant.all_resources"
	}
	return "tenant.resources"
}

// List calls visit for the rows of a page, in order.
func (s *Store) List(
	ctx context.Context, scope fleetapi.Scope, q fleetapi.Query, visit func(*fleetapi.Record) error,
) (page fleetapi.Page, err error) {
	for _, id := range []string{q.ParentID, q.After.ID} {
		if id != "" && !isUUIDText(id) {
			return page, nil // no row has such a parent, and no row follows such a row
		}
	}
	visiting := visitor[*fleetapi.Record]{visit: visit}
	statement := buildPageQuery(scope, q)
	err = retryReadAfterEpochRenewal(ctx, s.pool, func() error {
		return s.pool.RunSnapshotBatch(ctx, toPostgresScope(scope), func(b *pgx.Batch) {
			queueReadFeedState(b, q.Kind, &page.State)
			if !scope.All {
				b.Queue(inOrder)
			}
			if q.Count {
				queueScanRow(buildCountQuery(scope, q).queueOn(b), &page.Count)
			}
			statement.queueOn(b).Query(func(rows pgx.Rows) error {
				return scanRecords(rows, q.Kind, visiting.visitAndKeepError)
			})
		})
	})
	switch {
	case visiting.err != nil:
		return page, visiting.err
	case err != nil:
		return fleetapi.Page{}, wrapAndMarkUnavailable(err, "list %ss", q.Kind)
	}
	return page, nil
}

// A visitor distinguishes the error of a visit from those of the database.
type visitor[T any] struct {
	visit func(T) error
	err   error
}

func (v *visitor[T]) visitAndKeepError(item T) error {
	v.err = v.visit(item)
	return v.err
}

func buildPageQuery(scope fleetapi.Scope, q fleetapi.Query) *sqlBuilder {
	c := new(sqlBuilder)
	shoot, join := noShoot, ""
	if q.Kind == v1.KindCluster {
		shoot, join = shootColumns, joinShootColumnsSQL("page.id", "true")
	}
	c.writeSQL("select page.*, ", shoot, " from (select ", pageColumns, " from ", chooseResourceTable(scope))
	c.writeWhereClause(q)
	terms := q.OrderTermsWithID()
	if q.After.ID != "" {
		c.writeSQL(" and ")
		c.writeKeysetCondition(terms, append(slices.Clone(q.After.Values), search.Value{Text: q.After.ID}))
	}
	order := buildOrderBySQL(terms)
	c.writeSQL(order, " limit ", c.addArg(q.Limit, "bigint"))
	if q.Offset > 0 {
		c.writeSQL(" offset ", c.addArg(q.Offset, "bigint"))
	}
	c.writeSQL(") page", join, order)
	return c
}

// buildOrderBySQL returns the clause that sorts a page by the terms. It leaves out the
// kind: all rows of a page have the same one.
func buildOrderBySQL(terms []fleetapi.Order) string {
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

// writeKeysetCondition writes the condition that a row comes after the values in an order. If all terms have
// one direction and are never null, it is a row comparison, which an index can answer.
func (c *sqlBuilder) writeKeysetCondition(terms []fleetapi.Order, after []search.Value) {
	uniform := true
	for _, t := range terms {
		uniform = uniform && t.Desc == terms[0].Desc && !t.Column.IsOptional()
	}
	if !uniform {
		c.writeKeysetConditionByTerm(terms, after)
		return
	}
	columns, values := make([]string, len(terms)), make([]string, len(terms))
	for i, t := range terms {
		columns[i], values[i] = plainColumnSQL(t.Column), c.addOrderValueArg(t.Column, after[i])
	}
	c.writeSQL("(", strings.Join(columns, ", "), ")", keysetOperatorSQL(terms[0]), "(", strings.Join(values, ", "), ")")
}

// writeKeysetConditionByTerm writes the condition of writeKeysetCondition for any terms. PostgreSQL sorts null as the
// largest value.
func (c *sqlBuilder) writeKeysetConditionByTerm(terms []fleetapi.Order, after []search.Value) {
	t, v := terms[0], after[0]
	column, null := plainColumnSQL(t.Column), v.Type == search.Absent
	c.writeSQL("(")
	switch {
	case null && t.Desc:
		c.writeSQL(column, " is not null")
	case null:
		c.writeSQL("false")
	default:
		c.writeSQL(column, keysetOperatorSQL(t), c.addOrderValueArg(t.Column, v))
		if t.Column.IsOptional() && !t.Desc {
			c.writeSQL(" or ", column, " is null")
		}
	}
	if len(terms) > 1 {
		c.writeSQL(" or ", column)
		if null {
			c.writeSQL(" is null")
		} else {
			c.writeSQL(" = ", c.addOrderValueArg(t.Column, v))
		}
		c.writeSQL(" and ")
		c.writeKeysetConditionByTerm(terms[1:], after[1:])
	}
	c.writeSQL(")")
}

func (c *sqlBuilder) addOrderValueArg(column search.Field, value search.Value) (placeholder string) {
	if column == search.ID || column == search.OwnerID {
		return c.addArg(value.Text, "uuid")
	}
	return c.addValueArg(value)
}

func keysetOperatorSQL(term fleetapi.Order) string {
	if term.Desc {
		return " < "
	}
	return " > "
}

func buildCountQuery(scope fleetapi.Scope, q fleetapi.Query) *sqlBuilder {
	c := new(sqlBuilder)
	c.writeSQL("select count(*) from ", chooseResourceTable(scope))
	c.writeWhereClause(q)
	return c
}

func (c *sqlBuilder) writeWhereClause(q fleetapi.Query) {
	c.writeSQL(" where kind = ", c.addArg(q.Kind, "text"))
	if q.ParentID != "" {
		c.writeSQL(" and owner_id = ", c.addArg(q.ParentID, "uuid"))
	}
	if q.IDs != nil {
		c.writeSQL(" and id = any(", c.addArg(q.IDs, "uuid[]"), ")")
	}
	c.writeLabelConditions(q.Labels)
	if q.Search != nil {
		c.writeSQL(" and ")
		searchWriter{c}.writeSearchExpr(q.Search, false)
	}
}
