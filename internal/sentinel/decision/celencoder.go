package decision

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// errValueTooLong ends an encoding, because a short expression can repeat a large object many
// times.
var errValueTooLong = errors.New("the value is too long")

// A celEncoder appends CEL values as JSON: numbers with all digits, times as RFC 3339, the keys of
// maps in order.
type celEncoder struct {
	maxLength int // of the result, including what is already there
}

func (e celEncoder) appendValueJSON(dst []byte, v ref.Val) ([]byte, error) {
	if len(dst) > e.maxLength {
		return dst, errValueTooLong
	}
	switch v := v.(type) {
	case types.Null:
		return append(dst, "null"...), nil
	case types.Bool:
		return strconv.AppendBool(dst, bool(v)), nil
	case types.Int:
		return strconv.AppendInt(dst, int64(v), 10), nil
	case types.Uint:
		return strconv.AppendUint(dst, uint64(v), 10), nil
	case types.Double:
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return dst, fmt.Errorf("%v cannot be represented in JSON", float64(v))
		}
		return strconv.AppendFloat(dst, float64(v), 'f', -1, 64), nil
	case types.String:
		return appendQuoted(dst, string(v)), nil
	case types.Bytes:
		return appendQuoted(dst, base64.StdEncoding.EncodeToString(v)), nil
	case types.Timestamp:
		return appendQuoted(dst, v.UTC().Format(time.RFC3339Nano)), nil
	case types.Duration:
		return appendQuoted(dst, v.String()), nil
	case traits.Mapper:
		return e.appendMapJSON(dst, v)
	case traits.Lister:
		return e.appendListJSON(dst, v)
	}
	return dst, fmt.Errorf("a %s cannot be represented in JSON", v.Type().TypeName())
}

func (e celEncoder) appendListJSON(dst []byte, list traits.Lister) ([]byte, error) {
	dst = append(dst, '[')
	first := true
	for it := list.Iterator(); it.HasNext() == types.True; {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		var err error
		if dst, err = e.appendValueJSON(dst, it.Next()); err != nil {
			return dst, err
		}
	}
	return append(dst, ']'), nil
}

func (e celEncoder) appendMapJSON(dst []byte, m traits.Mapper) ([]byte, error) {
	values := map[string]ref.Val{}
	var keys []string
	for it := m.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		text, ok := key.(types.String)
		if !ok {
			return dst, fmt.Errorf("a map with keys of type %s cannot be represented in JSON", key.Type().TypeName())
		}
		keys = append(keys, string(text))
		values[string(text)] = m.Get(key)
	}
	slices.Sort(keys)
	dst = append(dst, '{')
	var err error
	for i, key := range keys {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendQuoted(dst, key), ':')
		if dst, err = e.appendValueJSON(dst, values[key]); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

func appendQuoted(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s) // bytes that are not UTF-8 become U+FFFD
	return dst
}
