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

// parseOrder parses the terms of an order, such as "kind asc,name desc"; without any, it parses
// fallback. Terms without effect are omitted: the kind, which is the same in the whole list,
// columns that already occurred, and terms after the id. The order by ascending id has no terms.
func parseOrder(given []string, fallback string) ([]Order, error) {
	text := strings.Join(given, ",")
	var terms []Order
	for term := range strings.SplitSeq(cmp.Or(strings.Trim(text, " ,"), fallback), ",") {
		words := strings.Fields(term)
		if len(words) == 0 {
			continue
		}
		columns, ok := orderColumns(words[0])
		direction := "asc"
		if len(words) > 1 {
			direction = strings.ToLower(words[1])
		}
		if !ok || len(words) > 2 || direction != "asc" && direction != "desc" {
			return nil, rest.NewQueryError("order", "format", text, "has the invalid term %q; separate terms with commas, each one of %s, optionally followed by asc or desc",
				strings.TrimSpace(term), strings.Join(orderableNames(), ", "))
		}
		for _, column := range columns {
			terms = addEffectiveTerm(terms, Order{Column: column, Desc: direction == "desc"})
		}
	}
	if len(terms) == 1 && terms[0] == (Order{Column: search.ID}) {
		return nil, nil
	}
	return terms, nil
}

// orderColumns returns the columns that a name in an order stands for. The links of a list share a
// prefix, so a link is ordered by the owner's id and then the id.
func orderColumns(name string) ([]search.Field, bool) {
	if name == "href" {
		return []search.Field{search.OwnerID, search.ID}, true
	}
	column, ok := search.SortableField(name)
	return []search.Field{column}, ok
}

func orderableNames() []string {
	names := []string{"href"}
	for f := range search.Label {
		if name := (search.Column{Field: f}).String(); isSortable(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func isSortable(name string) bool {
	_, ok := search.SortableField(name)
	return ok
}

func addEffectiveTerm(terms []Order, t Order) []Order {
	if t.Column == search.Kind || slices.ContainsFunc(terms, func(o Order) bool { return o.Column == t.Column || o.Column == search.ID }) {
		return terms
	}
	return append(terms, t)
}

// recordPosition returns the position of a record in an order.
func recordPosition(r *Record, order []Order) Position {
	p := Position{ID: r.ID}
	for _, t := range order {
		if t.Column != search.ID {
			p.Values = append(p.Values, r.valueOf(t.Column))
		}
	}
	return p
}

// Lengths of the parts of a position in bytes.
const (
	idLen   = 36
	longLen = 8
)

// appendPosition encodes a position: the id, then each value after its type and, for text, its
// length. The zero position is empty.
func appendPosition(b []byte, p Position) []byte {
	b = append(b, p.ID...)
	for _, v := range p.Values {
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

// readPosition decodes the output of appendPosition for an order. Clients send it back, so the
// values are untrusted; ok means that the database can compare with them.
func readPosition(b []byte, order []Order) (p Position, ok bool) {
	if len(b) == 0 {
		return p, true
	}
	if len(b) < idLen || uuid.Validate(string(b[:idLen])) != nil {
		return p, false
	}
	p.ID, b = string(b[:idLen]), b[idLen:]
	for _, t := range order {
		if t.Column == search.ID {
			continue
		}
		var v search.Value
		if v, b, ok = readPositionValue(b, t.Column); !ok {
			return p, false
		}
		p.Values = append(p.Values, v)
	}
	return p, len(b) == 0
}

func readPositionValue(b []byte, column search.Field) (v search.Value, remaining []byte, ok bool) {
	if len(b) == 0 {
		return v, nil, false
	}
	v.Type, b = search.Type(b[0]), b[1:]
	switch {
	case v.Type == search.Absent:
		return v, b, column == search.OwnerID || column == search.DeletedTime || column == search.DeletedBy
	case v.Type != column.Type():
		return v, nil, false
	case v.Type == search.Text:
		n, used := binary.Uvarint(b)
		if used <= 0 || n > uint64(len(b)-used) { //nolint:gosec // no more were used than there are
			return v, nil, false
		}
		v.Text, remaining = string(b[used:used+int(n)]), b[used+int(n):] //nolint:gosec // no more than there are
		return v, remaining, utf8.ValidString(v.Text) && !strings.ContainsRune(v.Text, 0) && (column != search.OwnerID || uuid.Validate(v.Text) == nil)
	case len(b) < longLen:
		return v, nil, false
	}
	n := int64(binary.BigEndian.Uint64(b)) //nolint:gosec // as it was put in
	if v.Type == search.Integer {
		v.Int = n
		return v, b[longLen:], true
	}
	v.Time = time.UnixMicro(n).UTC()
	return v, b[longLen:], v.Time.Year() > 0 && v.Time.Year() < 10000
}
