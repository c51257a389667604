// Package policies holds the safety policies as they are shipped, for those who
// load them from Go.
package policies

import (
	"embed"
	"io/fs"
)

//go:embed *.rego
var shipped embed.FS

// Files are the policies and their tests, by the names that they have in the
// ConfigMap.
func Files() (map[string]string, error) {
	names, err := fs.Glob(shipped, "*.rego")
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, name := range names {
		text, err := shipped.ReadFile(name)
		if err != nil {
			return nil, err
		}
		files[name] = string(text)
	}
	return files, nil
}
