package dashboard

import (
	"archive/tar"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
)

//go:embed assets
var embedded embed.FS

// Files that are served in their own way.
const (
	pageFile    = "index.html"
	loginPage   = "login.html"
	lostPage    = "notfound.html"
	loginStyle  = "login.css"
	loginScript = "login.js"
)

// assets are the files of the page.
type assets struct {
	files fs.FS
	tag   string             // changes with any of the files
	pages *template.Template // those of which the server fills something in
}

func readAssets() (*assets, error) {
	files, err := fs.Sub(embedded, "assets")
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	if err := tar.NewWriter(sum).AddFS(files); err != nil {
		return nil, fmt.Errorf("read the page: %w", err)
	}
	pages, err := template.ParseFS(files, loginPage, lostPage)
	return &assets{files: files, tag: `"` + hex.EncodeToString(sum.Sum(nil)[:8]) + `"`, pages: pages}, err
}

// serve serves a file. Browsers keep it and ask whether it is still the same.
func (a *assets) serve(w http.ResponseWriter, r *http.Request, name string) {
	if path.Ext(name) == "" || a.pages.Lookup(name) != nil { // folders are not listed
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "private, no-cache")
	w.Header().Set("ETag", a.tag)
	http.ServeFileFS(w, r, a.files, name)
}

// serveTemplate serves a page with something filled in.
func (a *assets) serveTemplate(w http.ResponseWriter, status int, name string, data any) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_ = a.pages.ExecuteTemplate(w, name, data) // the browser may be gone
}
