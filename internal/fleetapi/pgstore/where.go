package pgstore

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/fleetapi/search"
	"github.com/fleetloop/fleetloop/internal/selector"
)

// A sqlBuilder is a piece of SQL under construction, with its parameters. Values are only passed as
// parameters, so the caller's input never becomes SQL.
type sqlBuilder struct {
	sql  strings.Builder
	args []any
}

// queueOn adds the statement to a batch.
func (c *sqlBuilder) queueOn(b *pgx.Batch) *pgx.QueuedQuery {
	return b.Queue(c.sql.String(), c.args...)
}

// writeSQL appends trusted SQL.
func (c *sqlBuilder) writeSQL(parts ...string) {
	for _, p := range parts {
		c.sql.WriteString(p)
	}
}

// addArg adds a parameter and returns its placeholder.
func (c *sqlBuilder) addArg(value any, sqlType string) (placeholder string) {
	c.args = append(c.args, value)
	return "$" + strconv.Itoa(len(c.args)) + "::" + sqlType
}

func (c *sqlBuilder) writeLabelConditions(labels selector.Selector) {
	for _, r := range labels.Requirements() {
		c.writeSQL(" and ")
		switch r.Op {
		case selector.Equals, selector.In:
			c.writeLabelInCondition(r.Key, r.Values)
		case selector.NotEquals, selector.NotIn:
			c.writeSQL("not ")
			c.writeLabelInCondition(r.Key, r.Values)
		case selector.Exists:
			c.writeSQL("labels ? ", c.addArg(r.Key, "text"))
		case selector.NotExists:
			c.writeSQL("not labels ? ", c.addArg(r.Key, "text"))
		}
	}
}

// writeLabelInCondition writes the condition that the label has one of the values. It uses one containment for
// each value, which the index on labels can answer and whose frequency the planner knows. The
// condition is never null, so its negation also holds for rows without the label.
func (c *sqlBuilder) writeLabelInCondition(key string, values []string) {
	c.writeSQL("(")
	for i, v := range values {
		if i > 0 {
			c.writeSQL(" or ")
		}
		c.writeSQL("labels @> ", c.addArg(marshalJSONObject(key, v), "jsonb"))
	}
	c.writeSQL(")")
}

// marshalJSONObject returns a JSON object with one member.
func marshalJSONObject(key, value string) string {
	b, err := json.Marshal(map[string]string{key: value})
	if err != nil {
		panic(err) // strings always marshal
	}
	return string(b)
}

// A searchWriter writes search expressions into a clause.
type searchWriter struct{ *sqlBuilder }

// writeSearchExpr appends an expression. SQL has a third truth value for absent data, which counts as
// false at the top level and must be made false below a not.
func (w searchWriter) writeSearchExpr(expr search.Expr, negated bool) {
	switch e := expr.(type) {
	case search.And:
		w.writeBinaryExpr(e.Left, " and ", e.Right, negated)
	case search.Or:
		w.writeBinaryExpr(e.Left, " or ", e.Right, negated)
	case search.Not:
		w.writeSQL("not ")
		w.writeSearchExpr(e.X, true)
	case search.Compare:
		w.writeNullSafeCondition(e.Column, negated, func() { w.writeComparison(e) })
	case search.In:
		w.writeNullSafeCondition(e.Column, negated, func() { w.writeInCondition(e) })
	case search.Like:
		w.writeNullSafeCondition(e.Column, negated, func() { w.writeSQL(w.columnSQL(e.Column), " like ", w.addArg(e.Pattern, "text")) })
	case search.Present:
		w.writeSQL("(", w.columnSQL(e.Column), " is not null)")
	default:
		panic(fmt.Sprintf("pgstore: no SQL for %T", e)) // the set is closed
	}
}

func (w searchWriter) writeBinaryExpr(left search.Expr, op string, right search.Expr, negated bool) {
	w.writeSQL("(")
	w.writeSearchExpr(left, negated)
	w.writeSQL(op)
	w.writeSearchExpr(right, negated)
	w.writeSQL(")")
}

func (w searchWriter) writeNullSafeCondition(column search.Column, negated bool, writeCondition func()) {
	if negated && column.Field.IsOptional() {
		w.writeSQL("coalesce(")
		writeCondition()
		w.writeSQL(", false)")
		return
	}
	w.writeSQL("(")
	writeCondition()
	w.writeSQL(")")
}

func (w searchWriter) writeComparison(comparison search.Compare) {
	if comparison.Op == search.Equal && w.writeContainmentIfIndexed(comparison.Column, comparison.Value) {
		return
	}
	column, value := w.addComparisonOperands(comparison.Column, comparison.Value)
	w.writeSQL(column, operatorSQL(comparison.Op), value)
}

// writeContainmentIfIndexed writes the equalities that have a better form than a comparison, and reports
// whether it wrote one.
func (w searchWriter) writeContainmentIfIndexed(column search.Column, value search.Value) (written bool) {
	if column.Field == search.Label {
		w.writeSQL("labels @> ", w.addArg(marshalJSONObject(column.Key, value.Text), "jsonb"))
		return true
	}
	if column.Field == search.ConditionStatus {
		b, err := json.Marshal([]map[string]string{{"type": column.Key, "status": value.Text}})
		if err != nil {
			panic(err) // strings always marshal
		}
		w.writeSQL("conditions @> ", w.addArg(string(b), "jsonb"))
		return true
	}
	return false
}

func (w searchWriter) writeInCondition(in search.In) {
	for i, v := range in.Values {
		if i > 0 {
			w.writeSQL(" or ")
		}
		w.writeComparison(search.Compare{Column: in.Column, Op: search.Equal, Value: v})
	}
}

// addComparisonOperands returns a column and a value that can be compared. An id is compared as a UUID if the
// value is one, because that can use the index. Other text is compared with the text of ids.
func (w searchWriter) addComparisonOperands(left search.Column, right search.Value) (leftSQL, rightSQL string) {
	if (left.Field == search.ID || left.Field == search.OwnerID) && isUUIDText(right.Text) && right.Text == strings.ToLower(right.Text) {
		return plainColumnSQL(left.Field), w.addArg(right.Text, "uuid")
	}
	if right.Type == search.Number {
		return "tenant.spec_number(spec, " + w.addSpecPathArg(left.Key) + ")", w.addValueArg(right)
	}
	return w.columnSQL(left), w.addValueArg(right)
}

// addSpecPathArg returns the SQL of a path below the spec.
func (w searchWriter) addSpecPathArg(dottedPath string) (placeholder string) {
	return w.addArg(strings.Split(dottedPath, "."), "text[]")
}

func (c *sqlBuilder) addValueArg(value search.Value) (placeholder string) {
	switch value.Type {
	case search.Text:
		return c.addArg(value.Text, "text")
	case search.Integer:
		return c.addArg(value.Int, "bigint")
	case search.Time:
		return c.addArg(value.Time, "timestamptz")
	case search.Number:
		return c.addArg(value.Text, "numeric")
	case search.Absent:
	}
	panic(fmt.Sprintf("pgstore: no SQL for a value of type %d", value.Type)) // the set is closed
}

// columnSQL returns the SQL of a column, which is null where the column is absent. Text is ordered
// bytewise, whatever the database's collation.
func (w searchWriter) columnSQL(column search.Column) string {
	switch column.Field { //nolint:exhaustive // the others have their own columns
	case search.ID:
		return `(id::text collate "C")`
	case search.OwnerID:
		return `(owner_id::text collate "C")`
	case search.Spec:
		return "tenant.spec_text(spec, " + w.addSpecPathArg(column.Key) + `) collate "C"`
	case search.Label:
		return "(labels ->> " + w.addArg(column.Key, "text") + `) collate "C"`
	case search.ConditionStatus:
		return w.conditionMemberSQL(column.Key, "status") + ` collate "C"`
	case search.ConditionReason:
		return w.conditionMemberSQL(column.Key, "reason") + ` collate "C"`
	case search.ConditionObservedGeneration:
		return w.conditionMemberSQL(column.Key, "observed_generation") + "::bigint"
	case search.ConditionLastUpdatedTime:
		return w.conditionMemberSQL(column.Key, "last_updated_time") + "::timestamptz"
	case search.ConditionLastTransitionTime:
		return w.conditionMemberSQL(column.Key, "last_transition_time") + "::timestamptz"
	}
	return plainColumnSQL(column.Field)
}

func (w searchWriter) conditionMemberSQL(conditionType, member string) string {
	return "(jsonb_path_query_first(conditions, '$[*] ? (@.type == $t)', jsonb_build_object('t', " + w.addArg(conditionType, "text") + ")) ->> '" + member + "')"
}

// plainColumnSQL returns the SQL of a field that has its own column, which has the name that a query uses.
func plainColumnSQL(field search.Field) string {
	if field >= search.Label {
		panic(fmt.Sprintf("pgstore: field %d is not a column", field))
	}
	if field == search.DeletedBy {
		return "nullif(deleted_by, '')"
	}
	return strings.TrimPrefix(search.Column{Field: field}.String(), "status.")
}

func operatorSQL(op search.Op) string {
	switch op {
	case search.Equal:
		return " = "
	case search.Less:
		return " < "
	case search.LessOrEqual:
		return " <= "
	case search.Greater:
		return " > "
	case search.GreaterOrEqual:
		return " >= "
	}
	panic(fmt.Sprintf("pgstore: no operator %d", op)) // the set is closed
}
