// Package search reads the query language of the list parameter `search`.
//
// The language is a subset of TSL, the one that the public HyperFleet API
// speaks: comparisons of a column with literals, joined by and, or and not.
// Parse turns text into an Expr whose columns and literals are known to fit
// each other; a store turns an Expr into its own query and never sees text.
//
// The logic has two values. A comparison with something that is not there, a label the resource does not have, say, is
// false, and so its negation is true: `labels.a != 'x'` holds for a resource without the label a, as it does in a label
// selector.
//
// In EBNF, with keywords in either case:
//
//	expr       = and { "or" and }
//	and        = not { "and" not }
//	not        = { "not" } ( "(" expr ")" | comparison )
//	comparison = column ( "=" | "!=" | "<>" | "<" | "<=" | ">" | ">=" ) literal
//	           | column [ "not" ] "in" list
//	           | column [ "not" ] "like" text
//	           | column [ "not" ] "between" literal "and" literal
//	           | column "is" [ "not" ] "null"
//	column     = name { "." name } [ "." text ]
//	literal    = text | integer | decimal | "true" | "false"
//	list       = "[" literal { "," literal } "]" | "(" literal { "," literal } ")"
//	text       = "'" characters "'" | '"' characters '"'
//
// A quote within a text is doubled. Times are texts in RFC 3339, or a date.
//
// A column below spec takes any literal. Compared with a number it holds only
// where the value is a number, or a text that is one; compared with a text, the
// value counts as it is written in JSON, without the quotes of a text. No index
// serves these columns, so a query has at most MaxSpecColumns of them.
package search

import "time"

// A Column is a field and, where the field needs one, its key.
type Column struct {
	Field Field
	Key   string
}

// A Type is the type of a value.
type Type uint8

// The types.
const (
	Text Type = iota
	Integer
	Time
	// Number is a decimal number, stored as text. Only values of Spec have this type.
	Number
	// Absent is the type of a missing value. Literals never have it; it marks a position in an order.
	Absent
)

// A Value is one literal. Only the member that Type names is set; a Number uses Text. A UUID that
// is compared with an ID or an OwnerID is in canonical form.
type Value struct {
	Type Type
	Text string
	Int  int64
	Time time.Time
}

// An Op compares a column with a value. Text is ordered bytewise.
type Op uint8

// The comparisons. Inequality is the negation of Equal.
const (
	Equal Op = iota
	Less
	LessOrEqual
	Greater
	GreaterOrEqual
)

// An Expr is one of And, Or, Not, Compare, In, Like and Present.
type Expr interface{ isExpr() }

type (
	// And holds if both sides hold.
	And struct{ Left, Right Expr }

	// Or holds if at least one side holds.
	Or struct{ Left, Right Expr }

	// Not holds if X does not hold.
	Not struct{ X Expr }

	// Compare holds if the column is present and the comparison is true. The value has the column's
	// type; that of Spec is Text or Number.
	Compare struct {
		Column Column
		Op     Op
		Value  Value
	}

	// In holds if the column is present and equals one of the values. There is at least one value,
	// and all have the column's type.
	In struct {
		Column Column
		Values []Value
	}

	// Like holds if the column, of type Text, is present and matches the SQL pattern: % is any run, _ any one
	// character, and a backslash escapes the character after it. A pattern never ends in a lone backslash.
	Like struct {
		Column  Column
		Pattern string
	}

	// Present holds if the column is present.
	Present struct{ Column Column }
)

func (And) isExpr()     {}
func (Or) isExpr()      {}
func (Not) isExpr()     {}
func (Compare) isExpr() {}
func (In) isExpr()      {}
func (Like) isExpr()    {}
func (Present) isExpr() {}
