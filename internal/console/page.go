package console

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"net/http"
	"strings"

	"github.com/klauspost/compress/gzhttp"
)

//go:embed all:dist
var dist embed.FS

// A page is the built page for one base path.
type page struct {
	index  []byte
	assets http.Handler // its other files
}

func loadEmbeddedPage(basePath string) (page, error) {
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
	// Only these files are compressed. The size of a compressed answer with a person's data can reveal that data (BREACH).
	return page{insertBasePath(index, basePath), gzhttp.GzipHandler(assets)}, nil
}

// insertBasePath returns the page with the base path in its references. A page of a deep path
// cannot have relative ones.
func insertBasePath(index []byte, basePath string) []byte {
	const meta = `<meta name="fleetloop-base" content="`
	index = bytes.ReplaceAll(index, []byte(meta+`/"`), []byte(meta+basePath+`"`))
	for _, reference := range []string{`"./`, `"/`} {
		index = bytes.ReplaceAll(index, []byte(reference+`assets/`), []byte(`"`+basePath+`assets/`))
	}
	return index
}

// serveIndexPage serves the page for all paths that the page itself interprets.
func (p page) serveIndexPage(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		WriteProblemJSON(w, http.StatusMethodNotAllowed, "This path has only a page.", "")
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	_, _ = w.Write(p.index) // the client may be gone
}
