package browser

import (
	"bytes"
	"image/png"
	"os"
	"path/filepath"
	"testing"
)

// pictures takes those of the documentation, into the folder that E2E_PICTURES
// names.
func (w *world) pictures(t *testing.T) {
	w = w.of(t)
	dir := os.Getenv("E2E_PICTURES")
	if dir == "" {
		dir = t.TempDir()
	}
	for name, p := range map[string]struct {
		at       string
		dark, zh bool
		ready    string
	}{
		"dashboard-overview.png":    {at: "#/"},
		"dashboard-dark.png":        {at: "#/nodes", dark: true},
		"dashboard-node.png":        {at: "#/nodes/metax-1"},
		"dashboard-pending.png":     {at: "#/pods/research/job-6", ready: `document.querySelector('main .refusals')`},
		"dashboard-overview-zh.png": {at: "#/", zh: true},
		"dashboard-pending-zh.png":  {at: "#/pods/research/job-6", zh: true, ready: `document.querySelector('main .refusals')`},
	} {
		page := w.tab(p.at, 1280, 800)
		w.must(page.Dark(p.dark))
		if p.zh {
			w.eval(page, `document.getElementById('language').click()`)
		}
		w.eval(page, `document.activeElement.blur()`)
		if p.ready != "" {
			w.must(page.Wait("it is drawn", p.ready))
		}
		path := filepath.Join(dir, name)
		w.must(page.Screenshot(path, false))
		w.must(smaller(path))
		if p.zh {
			w.eval(page, `document.getElementById('language').click()`)
		}
		info, err := os.Stat(path)
		w.must(err)
		if info.Size() > 180<<10 || info.Size() < 5<<10 {
			t.Errorf("%s has %d bytes", name, info.Size())
		}
		page.Close()
	}
}

// smaller packs a picture as well as it goes without losing anything.
func smaller(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	picture, err := png.Decode(bytes.NewReader(text))
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, picture); err != nil || out.Len() >= len(text) {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}
