package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/util/jsonpath"
)

// A SortFlag is the flag --sort-by of a list: a JSONPath to a field, as in kubectl. Empty keeps the order.
type SortFlag string

// AddFlag adds the flag.
func (f *SortFlag) AddFlag(flags *pflag.FlagSet, example string) {
	flags.StringVar(
		(*string)(f),
		"sort-by",
		"",
		"sort by the field at this `path` (JSONPath), such as "+example+"; items without it come first",
	)
}

// SortItems sorts a list by the field of the flag: numbers and times by value, and text so that 1.9 comes before
// 1.10. convert returns what -o json prints of an item.
func SortItems[T any](cmd *cobra.Command, f SortFlag, items []T, convert func(T) any) error {
	if f == "" {
		return nil
	}
	path, err := newJSONPath(string(f))
	if err != nil {
		return usageErrorf(cmd, "--sort-by %q: %w", string(f), err)
	}
	type keyed struct {
		item T
		key  any
	}
	list := make([]keyed, 0, len(items))
	found := false
	for _, item := range items {
		key, err := findSortKey(path, convert(item))
		if err != nil {
			return usageErrorf(cmd, "--sort-by %q: %w", string(f), err)
		}
		found = found || key != nil
		list = append(list, keyed{item, key})
	}
	if len(items) > 0 && !found {
		return usageErrorf(cmd, "--sort-by %q: no item has this field; -o json shows the fields", string(f))
	}
	slices.SortStableFunc(list, func(a, b keyed) int { return compareSortKeysNilFirst(a.key, b.key) })
	for i := range list {
		items[i] = list[i].item
	}
	return nil
}

// findSortKey returns the first value at a path: nil, a float64, or text.
func findSortKey(path *jsonpath.JSONPath, item any) (any, error) {
	raw, err := json.Marshal(item)
	if err != nil {
		return nil, fmt.Errorf("write JSON: %w", err)
	}
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		return nil, fmt.Errorf("read JSON: %w", err)
	}
	results, err := path.FindResults(value)
	if err != nil || len(results) == 0 || len(results[0]) == 0 {
		return nil, err
	}
	switch v := results[0][0].Interface().(type) {
	case nil, float64, string:
		return v, nil
	case bool:
		return fmt.Sprint(v), nil
	default:
		return nil, fmt.Errorf("the field is an object or a list; choose a field in it")
	}
}

// compareSortKeysNilFirst puts missing fields before numbers, and numbers before text.
func compareSortKeysNilFirst(a, b any) int {
	rank := func(v any) int {
		switch v.(type) {
		case nil:
			return 0
		case float64:
			return 1
		}
		return 2
	}
	if d := cmp.Compare(rank(a), rank(b)); d != 0 || a == nil {
		return d
	}
	if x, ok := a.(float64); ok {
		y, _ := b.(float64) // they have the same rank
		return cmp.Compare(x, y)
	}
	x, _ := a.(string)
	y, _ := b.(string)
	earlier, err := time.Parse(time.RFC3339, x)
	later, err2 := time.Parse(time.RFC3339, y)
	if err == nil && err2 == nil {
		return earlier.Compare(later)
	}
	return compareNatural(x, y)
}

// compareNatural compares texts as people do: digits in them are numbers.
func compareNatural(a, b string) int {
	for a != "" && b != "" {
		x, y := countDigits(a), countDigits(b)
		if x == 0 || y == 0 {
			if d := cmp.Compare(a[0], b[0]); d != 0 {
				return d
			}
			a, b = a[1:], b[1:]
			continue
		}
		n, m := strings.TrimLeft(a[:x], "0"), strings.TrimLeft(b[:y], "0")
		if d := cmp.Or(cmp.Compare(len(n), len(m)), cmp.Compare(n, m), cmp.Compare(x, y)); d != 0 {
			return d
		}
		a, b = a[x:], b[y:]
	}
	return cmp.Compare(len(a), len(b))
}

// countDigits returns the number of digits at the start of a text.
func countDigits(text string) int {
	return len(text) - len(strings.TrimLeft(text, "0123456789"))
}
