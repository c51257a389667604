package settings

import (
	"encoding"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// setValueFromText parses the text form of a value, as it is used in the environment, flags and default
// tags:
//
//	a scalar  30s           setScalarFromText
//	a list    a, b          setValueFromTexts, with setScalarFromText for each element
//	a map     k=v, l=w      setValueFromTexts, setMapFromPairs, with setScalarFromText for each value
func setValueFromText(s *shape, v reflect.Value, text string) error {
	if s.kind == scalar {
		return setScalarFromText(s, v, text)
	}
	if strings.TrimSpace(text) == "" {
		return setValueFromTexts(s, v, nil)
	}
	return setValueFromTexts(s, v, strings.Split(text, ","))
}

// setValueFromTexts parses the elements of a list or map. For a scalar the last text wins, as for repeated
// flags.
func setValueFromTexts(s *shape, v reflect.Value, texts []string) error {
	switch {
	case s.kind == scalar && len(texts) > 0:
		return setScalarFromText(s, v, texts[len(texts)-1])
	case s.kind == list:
		out := reflect.MakeSlice(s.typ, len(texts), len(texts))
		for i, text := range texts {
			text = strings.TrimSpace(text)
			if text == "" {
				return fmt.Errorf("entry %d of the list is empty", i+1)
			}
			if err := setScalarFromText(s.elem, out.Index(i), text); err != nil {
				return fmt.Errorf("entry %d of the list %w", i+1, err)
			}
		}
		v.Set(out)
	case s.kind == mapping:
		return setMapFromPairs(s, v, texts)
	}
	return nil
}

// setMapFromPairs parses the entries of a map, each as key=value.
func setMapFromPairs(s *shape, v reflect.Value, texts []string) error {
	out := reflect.MakeMapWithSize(s.typ, len(texts))
	for i, text := range texts {
		key, value, ok := strings.Cut(strings.TrimSpace(text), "=")
		if !ok || key == "" {
			return fmt.Errorf("entry %d of the map is not of the form key=value", i+1)
		}
		element := reflect.New(s.elem.typ).Elem()
		if err := setScalarFromText(s.elem, element, value); err != nil {
			return fmt.Errorf("entry %q of the map %w", key, err)
		}
		mapKey := reflect.ValueOf(key).Convert(s.typ.Key())
		if out.MapIndex(mapKey).IsValid() {
			return fmt.Errorf("entry %q of the map is set twice", key)
		}
		out.SetMapIndex(mapKey, element)
	}
	v.Set(out)
	return nil
}

// setScalarFromText parses one text. The error continues a sentence after the name of the setting, and does
// not show a secret.
func setScalarFromText(s *shape, v reflect.Value, text string) error {
	if v.Kind() == reflect.Pointer {
		p := reflect.New(v.Type().Elem())
		if err := setScalarFromText(s, p.Elem(), text); err != nil {
			return err
		}
		v.Set(p)
		return nil
	}
	err := parseAndSetScalar(v, text)
	switch {
	case err == nil:
		return nil
	case s.secret:
		return errors.New("is invalid; the value is secret and not shown")
	default:
		return fmt.Errorf("%w; got %q", err, text)
	}
}

func parseAndSetScalar(v reflect.Value, text string) error {
	if u, ok := reflect.TypeAssert[encoding.TextUnmarshaler](v.Addr()); ok {
		if err := u.UnmarshalText([]byte(text)); err != nil {
			return fmt.Errorf("is invalid: %w", err)
		}
		return nil
	}
	if v.Type() == reflect.TypeFor[time.Duration]() {
		return parseAndSetDuration(v, text)
	}
	switch {
	case v.Kind() == reflect.String:
		v.SetString(text)
	case v.Kind() == reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return errors.New("must be true or false")
		}
		v.SetBool(b)
	case v.CanInt():
		n, err := strconv.ParseInt(text, 10, v.Type().Bits())
		if err != nil {
			return toNumberError(err, "must be an integer")
		}
		v.SetInt(n)
	case v.CanFloat():
		n, err := strconv.ParseFloat(text, v.Type().Bits())
		if err != nil || math.IsInf(n, 0) || math.IsNaN(n) {
			return errors.New("must be a number")
		}
		v.SetFloat(n)
	default: // unsigned, by isScalar
		n, err := strconv.ParseUint(text, 10, v.Type().Bits())
		if err != nil {
			return toNumberError(err, "must be an integer, not negative")
		}
		v.SetUint(n)
	}
	return nil
}

func parseAndSetDuration(v reflect.Value, text string) error {
	d, err := time.ParseDuration(text)
	if err == nil {
		v.SetInt(int64(d))
		return nil
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return fmt.Errorf("is a duration and needs a unit, such as %q", text+"s")
	}
	return errors.New(`must be a duration such as "5s" or "1m30s"`)
}

func toNumberError(err error, want string) error {
	if errors.Is(err, strconv.ErrRange) {
		return errors.New("is a number outside the range of the setting")
	}
	return errors.New(want)
}

// setValueFromFile reads the value from the file at path, without the trailing newline that editors add.
// An empty file is an error.
func setValueFromFile(s *shape, v reflect.Value, path string) error {
	data, err := readFileUpToLimit(path)
	if err != nil {
		return err
	}
	text := strings.TrimRight(string(data), "\r\n")
	if text == "" {
		return fmt.Errorf("file %q is empty", path)
	}
	return setScalarFromText(s, v, text)
}

// maxFile is the maximum size of a file, in bytes.
const maxFile = 1 << 20

func readFileUpToLimit(path string) ([]byte, error) {
	f, err := os.Open(path) //nolint:gosec // which file is the operator's choice
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened only for reading
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("read %s: more than %d bytes", path, maxFile)
	}
	return data, nil
}
