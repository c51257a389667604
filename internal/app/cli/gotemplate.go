package cli

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/fleetloop/fleetloop/internal/jsontemplate"
)

// parseGoTemplate parses a Go template with the functions of kubectl.
func parseGoTemplate(text string) (templatePrinter, error) {
	t, err := jsontemplate.Parse(text, jsontemplate.Config{
		Name: "output", Funcs: map[string]jsontemplate.Func{"exists": templateExists, "base64decode": templateDecodeBase64},
	})
	if err != nil {
		return nil, err
	}
	return func(w io.Writer, raw json.RawMessage, _ bool) error {
		value, err := decodeTemplateValue(raw)
		if err != nil {
			return err
		}
		return t.Execute(w, value)
	}, nil
}

// templateExists reports whether index has a value for the same arguments.
func templateExists(args []any) (any, error) {
	if err := jsontemplate.CheckArgCount(args, 1, -1); err != nil {
		return nil, err
	}
	v, err := jsontemplate.Index(args)
	return err == nil && v != nil, nil
}

func templateDecodeBase64(args []any) (any, error) {
	if err := jsontemplate.CheckArgCount(args, 1, 1); err != nil {
		return nil, err
	}
	text, ok := args[0].(string)
	if !ok {
		return nil, fmt.Errorf("the value is not a string: %v", args[0])
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, err
	}
	return string(data), nil
}

func parseGoTemplateFile(name string) (templatePrinter, error) {
	text, err := os.ReadFile(name) //nolint:gosec // the user names the file
	if err != nil {
		return nil, err
	}
	return parseGoTemplate(string(text))
}
