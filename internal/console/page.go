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

// A page is the built page for one base path.
type page struct {
	index  []byte
	assets http.Handler // its other files
}

// newPage returns the embedded page for a base path.
func newPage(base string) (page, error) {
	root, err := fs.Sub(dist, "dist")
	if err != nil {
		return page{}, fmt.Errorf("open the embedded page: %w", err)
	}
	index, err := fs.ReadFile(root, "index.html")
	if err != nil {
		return page{}, fmt.Errorf("read the embedded page: %w", err)
	}
	files := http.FileServerFS(root)
	assets := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info, err := fs.Stat(root, strings.TrimPrefix(r.URL.Path, "/")); err != nil || info.IsDir() {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable") // a name has the hash of its content
		files.ServeHTTP(w, r)
	})
	return page{rebasePage(index, base), assets}, nil
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

// serveIndex serves the page for all paths that the page itself interprets.
func (p page) serveIndex(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		WriteProblem(w, http.StatusMethodNotAllowed, "This path has only a page.", "")
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	_, _ = w.Write(p.index) // the client may be gone
}
