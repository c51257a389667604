package fleetapi

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
	"github.com/fleetloop/fleetloop/internal/fleetapi/search"
)

// parseOrderTerms parses the terms of an order, such as "kind asc,name desc"; without any, it parses
// fallback. Terms without effect are omitted: the kind, which is the same in the whole list,
// columns that already occurred, and terms after the id. The order by ascending id has no terms.
func parseOrderTerms(values []string, fallback string) ([]Order, error) {
	text := strings.Join(values, ",")
	var terms []Order
	for term := range strings.SplitSeq(cmp.Or(strings.Trim(text, " ,"), fallback), ",") {
		words := strings.Fields(term)
		if len(words) == 0 {
			continue
		}
		columns, ok := columnsForOrderName(words[0])
		direction := "asc"
		if len(words) > 1 {
			direction = strings.ToLower(words[1])
		}
		if !ok || len(words) > 2 || direction != "asc" && direction != "desc" {
			return nil, rest.NewQueryError(
				"order",
				"format",
				text,
				"has the invalid term %q; separate terms with commas, each one of %s, optionally followed by asc or desc",
				strings.TrimSpace(term),
				strings.Join(listOrderNames(), ", "),
			)
		}
		for _, column := range columns {
			terms = appendTermUnlessRedundant(terms, Order{Column: column, Desc: direction == "desc"})
		}
	}
	if len(terms) == 1 && terms[0] == (Order{Column: search.ID}) {
		return nil, nil
	}
	return terms, nil
}

// columnsForOrderName returns the columns that a name in an order stands for. The links of a list share a
// prefix, so a link is ordered by the owner's id and then the id.
func columnsForOrderName(name string) (columns []search.Field, ok bool) {
	if name == "href" {
		return []search.Field{search.OwnerID, search.ID}, true
	}
	column, ok := search.FindSortableField(name)
	return []search.Field{column}, ok
}

func listOrderNames() []string {
	names := []string{"href"}
	for f := range search.Label {
		if name := (search.Column{Field: f}).String(); isSortableField(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func isSortableField(name string) bool {
	_, ok := search.FindSortableField(name)
	return ok
}

func appendTermUnlessRedundant(terms []Order, term Order) []Order {
	if term.Column == search.Kind || slices.ContainsFunc(terms, func(o Order) bool { return o.Column == term.Column || o.Column == search.ID }) {
		return terms
	}
	return append(terms, term)
}

func newRecordPosition(record *Record, order []Order) Position {
	p := Position{ID: record.ID}
	for _, t := range order {
		if t.Column != search.ID {
			p.Values = append(p.Values, record.sortValue(t.Column))
		}
	}
	return p
}

// Lengths of the parts of a position in bytes.
const (
	idLen   = 36
	longLen = 8
)

// appendEncodedPosition encodes a position: the id, then each value after its type and, for text, its
// length. The zero position is empty.
func appendEncodedPosition(b []byte, position Position) []byte {
	b = append(b, position.ID...)
	for _, v := range position.Values {
		b = append(b, byte(v.Type))
		switch v.Type {
		case search.Text:
			b = append(binary.AppendUvarint(b, uint64(len(v.Text))), v.Text...)
		case search.Integer:
			b = binary.BigEndian.AppendUint64(b, uint64(v.Int)) //nolint:gosec // read back as it was
		case search.Time:
			b = binary.BigEndian.AppendUint64(b, uint64(v.Time.UnixMicro()))
		case search.Number, search.Absent:
		}
	}
	return b
}

// decodePosition decodes the output of appendEncodedPosition for an order. Clients send it back, so the
// values are untrusted; ok means that the database can compare with them.
func decodePosition(encoded []byte, order []Order) (position Position, ok bool) {
	if len(encoded) == 0 {
		return position, true
	}
	if len(encoded) < idLen || uuid.Validate(string(encoded[:idLen])) != nil {
		return position, false
	}
	position.ID, encoded = string(encoded[:idLen]), encoded[idLen:]
	for _, t := range order {
		if t.Column == search.ID {
			continue
		}
		var v search.Value
		if v, encoded, ok = decodePositionValue(encoded, t.Column); !ok {
			return position, false
		}
		position.Values = append(position.Values, v)
	}
	return position, len(encoded) == 0
}

func decodePositionValue(encoded []byte, column search.Field) (value search.Value, remaining []byte, ok bool) {
	if len(encoded) == 0 {
		return value, nil, false
	}
	value.Type, encoded = search.Type(encoded[0]), encoded[1:]
	switch {
	case value.Type == search.Absent:
		return value, encoded, column == search.OwnerID || column == search.DeletedTime || column == search.DeletedBy
	case value.Type != column.ValueType():
		return value, nil, false
	case value.Type == search.Text:
		n, used := binary.Uvarint(encoded)
		if used <= 0 || n > uint64(len(encoded)-used) { //nolint:gosec // no more were used than there are
			return value, nil, false
		}
		value.Text, remaining = string(encoded[used:used+int(n)]), encoded[used+int(n):] //nolint:gosec // no more than there are
		return value, remaining, utf8.ValidString(value.Text) && !strings.ContainsRune(value.Text, 0) &&
			(column != search.OwnerID || uuid.Validate(value.Text) == nil)
	case len(encoded) < longLen:
		return value, nil, false
	}
	n := int64(binary.BigEndian.Uint64(encoded)) //nolint:gosec // as it was put in
	if value.Type == search.Integer {
		value.Int = n
		return value, encoded[longLen:], true
	}
	value.Time = time.UnixMicro(n).UTC()
	return value, encoded[longLen:], value.Time.Year() > 0 && value.Time.Year() < 10000
}
