package pgstore

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/fleetloop/fleetloop/internal/fleetapi/search"
	"github.com/fleetloop/fleetloop/internal/selector"
)

// A clause is a piece of SQL under construction, with its parameters. Values are only passed as
// parameters, so the caller's input never becomes SQL.
type clause struct {
	sql  strings.Builder
	args []any
}

// writeSQL appends trusted SQL.
func (c *clause) writeSQL(parts ...string) {
	for _, p := range parts {
		c.sql.WriteString(p)
	}
}

// addArg adds a parameter and returns its placeholder.
func (c *clause) addArg(v any, sqlType string) string {
	c.args = append(c.args, v)
	return "$" + strconv.Itoa(len(c.args)) + "::" + sqlType
}

// writeLabels appends the conditions of a selector.
func (c *clause) writeLabels(s selector.Selector) {
	for _, r := range s.Requirements() {
		c.writeSQL(" and ")
		switch r.Op {
		case selector.Equals, selector.In:
			c.writeLabelIn(r.Key, r.Values)
		case selector.NotEquals, selector.NotIn:
			c.writeSQL("not ")
			c.writeLabelIn(r.Key, r.Values)
		case selector.Exists:
			c.writeSQL("labels ? ", c.addArg(r.Key, "text"))
		case selector.NotExists:
			c.writeSQL("not labels ? ", c.addArg(r.Key, "text"))
		}
	}
}

// writeLabelIn writes the condition that the label has one of the values. It uses one containment for
// each value, which the index on labels can answer and whose frequency the planner knows. The
// condition is never null, so its negation also holds for rows without the label.
func (c *clause) writeLabelIn(key string, values []string) {
	c.writeSQL("(")
	for i, v := range values {
		if i > 0 {
			c.writeSQL(" or ")
		}
		c.writeSQL("labels @> ", c.addArg(jsonObject(key, v), "jsonb"))
	}
	c.writeSQL(")")
}

// jsonObject returns a JSON object with one member.
func jsonObject(key, value string) string {
	b, err := json.Marshal(map[string]string{key: value})
	if err != nil {
		panic(err) // strings always marshal
	}
	return string(b)
}

// A searchWriter writes search expressions into a clause.
type searchWriter struct{ *clause }

// writeSearch appends an expression. SQL has a third truth value for absent data, which counts as
// false at the top level and must be made false below a not.
func (w searchWriter) writeSearch(e search.Expr, negated bool) {
	switch e := e.(type) {
	case search.And:
		w.writePair(e.Left, " and ", e.Right, negated)
	case search.Or:
		w.writePair(e.Left, " or ", e.Right, negated)
	case search.Not:
		w.writeSQL("not ")
		w.writeSearch(e.X, true)
	case search.Compare:
		w.writeLeaf(e.Column, negated, func() { w.writeCompare(e) })
	case search.In:
		w.writeLeaf(e.Column, negated, func() { w.writeIn(e) })
	case search.Like:
		w.writeLeaf(e.Column, negated, func() { w.writeSQL(w.columnSQL(e.Column), " like ", w.addArg(e.Pattern, "text")) })
	case search.Present:
		w.writeSQL("(", w.columnSQL(e.Column), " is not null)")
	default:
		panic(fmt.Sprintf("pgstore: no SQL for %T", e)) // the set is closed
	}
}

func (w searchWriter) writePair(left search.Expr, op string, right search.Expr, negated bool) {
	w.writeSQL("(")
	w.writeSearch(left, negated)
	w.writeSQL(op)
	w.writeSearch(right, negated)
	w.writeSQL(")")
}

func (w searchWriter) writeLeaf(col search.Column, negated bool, body func()) {
	if negated && col.Field.Optional() {
		w.writeSQL("coalesce(")
		body()
		w.writeSQL(", false)")
		return
	}
	w.writeSQL("(")
	body()
	w.writeSQL(")")
}

func (w searchWriter) writeCompare(e search.Compare) {
	if e.Op == search.Equal && w.writeEquality(e.Column, e.Value) {
		return
	}
	column, value := w.operandsOf(e.Column, e.Value)
	w.writeSQL(column, operatorSQL(e.Op), value)
}

// writeEquality writes the equalities that have a better form than a comparison, and reports
// whether it wrote one.
func (w searchWriter) writeEquality(col search.Column, v search.Value) (written bool) {
	if col.Field == search.Label {
		w.writeSQL("labels @> ", w.addArg(jsonObject(col.Key, v.Text), "jsonb"))
		return true
	}
	if col.Field == search.ConditionStatus {
		b, err := json.Marshal([]map[string]string{{"type": col.Key, "status": v.Text}})
		if err != nil {
			panic(err) // strings always marshal
		}
		w.writeSQL("conditions @> ", w.addArg(string(b), "jsonb"))
		return true
	}
	return false
}

func (w searchWriter) writeIn(e search.In) {
	for i, v := range e.Values {
		if i > 0 {
			w.writeSQL(" or ")
		}
		w.writeCompare(search.Compare{Column: e.Column, Op: search.Equal, Value: v})
	}
}

// operandsOf returns a column and a value that can be compared. An id is compared as a UUID if the
// value is one, because that can use the index. Other text is compared with the text of ids.
func (w searchWriter) operandsOf(col search.Column, v search.Value) (column, value string) {
	if (col.Field == search.ID || col.Field == search.OwnerID) && isID(v.Text) && v.Text == strings.ToLower(v.Text) {
		return plainColumnSQL(col.Field), w.addArg(v.Text, "uuid")
	}
	if v.Type == search.Number {
		return "tenant.spec_number(spec, " + w.specPath(col.Key) + ")", w.valueSQL(v)
	}
	return w.columnSQL(col), w.valueSQL(v)
}

// specPath returns the SQL of a path below the spec.
func (w searchWriter) specPath(key string) string { return w.addArg(strings.Split(key, "."), "text[]") }

func (c *clause) valueSQL(v search.Value) string {
	switch v.Type {
	case search.Text:
		return c.addArg(v.Text, "text")
	case search.Integer:
		return c.addArg(v.Int, "bigint")
	case search.Time:
		return c.addArg(v.Time, "timestamptz")
	case search.Number:
		return c.addArg(v.Text, "numeric")
	case search.Absent:
	}
	panic(fmt.Sprintf("pgstore: no SQL for a value of type %d", v.Type)) // the set is closed
}

// columnSQL returns the SQL of a column, which is null where the column is absent. Text is ordered
// bytewise, whatever the database's collation.
func (w searchWriter) columnSQL(col search.Column) string {
	switch col.Field { //nolint:exhaustive // the others have their own columns
	case search.ID:
		return `(id::text collate "C")`
	case search.OwnerID:
		return `(owner_id::text collate "C")`
	case search.Spec:
		return "tenant.spec_text(spec, " + w.specPath(col.Key) + `) collate "C"`
	case search.Label:
		return "(labels ->> " + w.addArg(col.Key, "text") + `) collate "C"`
	case search.ConditionStatus:
		return w.condition(col.Key, "status") + ` collate "C"`
	case search.ConditionReason:
		return w.condition(col.Key, "reason") + ` collate "C"`
	case search.ConditionObservedGeneration:
		return w.condition(col.Key, "observed_generation") + "::bigint"
	case search.ConditionLastUpdatedTime:
		return w.condition(col.Key, "last_updated_time") + "::timestamptz"
	case search.ConditionLastTransitionTime:
		return w.condition(col.Key, "last_transition_time") + "::timestamptz"
	}
	return plainColumnSQL(col.Field)
}

func (w searchWriter) condition(kind, member string) string {
	return "(jsonb_path_query_first(conditions, '$[*] ? (@.type == $t)', jsonb_build_object('t', " + w.addArg(kind, "text") + ")) ->> '" + member + "')"
}

// plainColumnSQL returns the SQL of a field that has its own column, which has the name that a
// query uses.
func plainColumnSQL(f search.Field) string {
	if f >= search.Label {
		panic(fmt.Sprintf("pgstore: field %d is not a column", f))
	}
	if f == search.DeletedBy {
		return "nullif(deleted_by, '')"
	}
	return strings.TrimPrefix(search.Column{Field: f}.String(), "status.")
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
