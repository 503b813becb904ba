package dashboard

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
)

//go:embed assets
var embedded embed.FS

// Files with a part of their own.
const (
	pageFile    = "index.html"
	loginPage   = "login.html"
	loginStyle  = "login.css"
	loginScript = "login.js"
)

// assets are the files of the page, as they are and compressed.
type assets struct {
	files map[string]file
	login *template.Template
}

type file struct {
	kind, tag   string
	text, small []byte
}

// kinds says what files are, whatever the machine's own tables think.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

func readAssets() (*assets, error) {
	a := &assets{files: map[string]file{}}
	err := fs.WalkDir(embedded, "assets", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := embedded.ReadFile(name)
		if err != nil {
			return err
		}
		kind, ok := kinds[path.Ext(name)]
		if !ok {
			kind = mime.TypeByExtension(path.Ext(name))
		}
		sum := sha256.Sum256(text)
		var small bytes.Buffer
		z, err := gzip.NewWriterLevel(&small, gzip.BestCompression)
		if err != nil {
			return err
		}
		if _, err := z.Write(text); err != nil {
			return err
		}
		if err := z.Close(); err != nil {
			return err
		}
		a.files[strings.TrimPrefix(name, "assets/")] = file{kind: kind, tag: `"` + hex.EncodeToString(sum[:8]) + `"`, text: text, small: small.Bytes()}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the page: %w", err)
	}
	a.login, err = template.New(loginPage).Parse(string(a.files[loginPage].text))
	delete(a.files, loginPage)
	return a, err
}

// serve serves a file. Browsers keep it and ask whether it is still the same.
func (a *assets) serve(w http.ResponseWriter, r *http.Request, name string) {
	f, ok := a.files[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Cache-Control", "private, no-cache")
	h.Set("Content-Type", f.kind)
	h.Set("ETag", f.tag)
	h.Add("Vary", "Accept-Encoding")
	if r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	text := f.text
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		text = f.small
	}
	_, _ = w.Write(text) // whoever does not read to the end is gone
}

// serveLogin serves the form to log in, with what was wrong before.
func (a *assets) serveLogin(w http.ResponseWriter, _ *http.Request, status int, problem string) {
	w.Header().Set("Content-Type", kinds[".html"])
	w.WriteHeader(status)
	_ = a.login.Execute(w, struct{ Problem string }{problem}) // as above
}
