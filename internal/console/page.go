package console

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
)

//go:embed all:dist
var dist embed.FS

// newPage returns the page for this base path, and the handler of its files.
func (c *Console) newPage() (index []byte, assets http.Handler, err error) {
	root, err := fs.Sub(dist, "dist")
	if err != nil {
		return nil, nil, fmt.Errorf("open the embedded page: %w", err)
	}
	if index, err = fs.ReadFile(root, "index.html"); err != nil {
		return nil, nil, fmt.Errorf("read the embedded page: %w", err)
	}
	files := http.FileServerFS(root)
	assets = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info, err := fs.Stat(root, strings.TrimPrefix(r.URL.Path, "/")); err != nil || info.IsDir() {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable") // a name has the hash of its content
		files.ServeHTTP(w, r)
	})
	return rebasePage(index, c.base), assets, nil
}

// rebasePage returns the page with the base path in its references, because a page of a deep path
// cannot have relative ones.
func rebasePage(index []byte, base string) []byte {
	const meta = `<meta name="fleetloop-base" content="`
	index = bytes.ReplaceAll(index, []byte(meta+`/"`), []byte(meta+base+`"`))
	for _, reference := range []string{`"./`, `"/`} {
		index = bytes.ReplaceAll(index, []byte(reference+`assets/`), []byte(`"`+base+`assets/`))
	}
	return index
}

// servePage serves the page for all paths that the page itself interprets.
func (c *Console) servePage(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		WriteProblem(w, http.StatusMethodNotAllowed, "This path has only a page.", "")
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	_, _ = w.Write(c.index) // the client may be gone
}
