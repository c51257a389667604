package main

import (
	"bytes"
	"embed"
	"fmt"
	"text/template"
)

// packageTemplates are the manifests of package managers, by the name of the file in a release.
//
//go:embed templates
var packageTemplates embed.FS

// packagedArchive is the archive of a platform, for the manifests of package managers.
type packagedArchive struct{ OS, Architecture, URL, SHA256 string }

// writeKrewAndHomebrewFiles writes the manifest of Krew, which installs kubectl plugins, and the formula of Homebrew.
// Both name the archives of the command line, by platform.
func (r releaser) writeKrewAndHomebrewFiles(archives map[platform]string) error {
	if len(archives) == 0 {
		return nil
	}
	data := struct {
		Version  string
		Archives []packagedArchive
	}{Version: r.version}
	for _, p := range r.platforms {
		sum, err := r.computeChecksum(archives[p])
		if err != nil {
			return err
		}
		data.Archives = append(data.Archives, packagedArchive{
			OS: p.os, Architecture: p.architecture, SHA256: sum,
			URL: "https://github.com/fleetloop/fleetloop/releases/download/v" + r.version + "/" + archives[p],
		})
	}
	for name, file := range map[string]string{"krew.yaml": "fleetloop.krew.yaml", "homebrew.rb": "fleetloop.rb"} {
		t, err := template.ParseFS(packageTemplates, "templates/"+name)
		if err != nil {
			return fmt.Errorf("read template: %w", err)
		}
		var text bytes.Buffer
		if err := t.Execute(&text, data); err != nil {
			return fmt.Errorf("write %q: %w", file, err)
		}
		if err := r.writeFile(file, text.Bytes()); err != nil {
			return err
		}
	}
	return nil
}
