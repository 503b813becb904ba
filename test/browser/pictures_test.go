package browser

import (
	"bytes"
	"cmp"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// chat is the Deployment of the quickstart.
const chat = `apiVersion: apps/v1
kind: Deployment
metadata: {name: chat}
spec:
  replicas: 12
  selector: {matchLabels: {app: chat}}
  template:
    metadata: {labels: {app: chat}}
    spec:
      containers:
      - {name: chat, image: "chat:1.0", resources: {limits: {metax-tech.com/sgpu: 1, metax-tech.com/vcore: 25, metax-tech.com/vmemory: 16}}}
`

// TestPictures takes the pictures of the documentation, into the folder that
// E2E_PICTURES names: a playground as make run starts it, with pods of the quickstart and
// some of other kinds.
func TestPictures(t *testing.T) {
	dir := os.Getenv("E2E_PICTURES")
	if dir == "" {
		t.Skip("make e2e-browser PICTURES=docs/images takes them")
	}
	w := newWorld(t, 5*time.Minute)
	w.kubectl("", "apply", "-f", "examples/hami/sgpu-default.yaml")
	w.kubectl("", "wait", "--for=condition=Ready", "pod/gpu-pod1", "--timeout=60s")
	w.apply(chat)
	w.kubectl("", "wait", "--for=condition=Available", "deployment/chat", "--timeout=60s")
	for _, p := range []string{ // one by one: each is placed where those before it leave room
		pod("default", "embed-1", "sgpu: 1, vcore: 30, vmemory: 16", "metax-tech.com/sgpu-qos-policy: fixed-share"),
		pod("default", "embed-2", "sgpu: 1, vcore: 40, vmemory: 24", "metax-tech.com/sgpu-qos-policy: fixed-share"),
		pod("default", "sweep", "sgpu: 1, vcore: 50, vmemory: 40", "metax-tech.com/sgpu-qos-policy: burst-share"),
		pod("default", "train-1", "gpu: 4"), pod("default", "train-2", "gpu: 4"), pod("default", "train-3", "gpu: 4"),
		pod("default", "finetune", "gpu: 2"), pod("default", "pretrain-1", "gpu: 8"),
	} {
		w.apply(p)
		w.kubectl("", "wait", "--for=condition=Ready", "pod", "--all", "--timeout=60s")
	}
	w.apply(pod("default", "pretrain-2", "gpu: 8"))
	w.kubectl("", "wait", "--for=condition=PodScheduled=false", "pod/pretrain-2", "--timeout=60s")
	page := w.tab("#/", 1280, 800)
	for _, language := range []string{"en", "zh"} {
		w.eval(page, fmt.Sprintf(`document.documentElement.lang.startsWith(%q) || document.getElementById('language').click()`, language))
		for name, p := range map[string]struct {
			width     int
			at, ready string
		}{
			"dashboard-overview": {1720, "#/", `document.querySelector('#nav .badge')`}, // all nodes are seen
			"dashboard-node":     {1280, "#/nodes/metax-1", `document.querySelector('main .chassis.large')`},
			"dashboard-pending":  {1280, "#/pods/default/pretrain-2", `document.querySelector('main .refusals')`},
		} {
			if language == "zh" {
				name += "-zh"
			}
			w.must(page.Resize(p.width, 800))
			w.to(page, p.at)
			w.must(page.Wait("it is drawn", p.ready))
			w.eval(page, `document.activeElement.blur()`)
			path := filepath.Join(dir, name+".png")
			w.must(page.Screenshot(path, false))
			w.must(smaller(path))
			info, err := os.Stat(path)
			w.must(err)
			if info.Size() > 100<<10 || info.Size() < 5<<10 {
				t.Errorf("%s has %d bytes", name, info.Size())
			}
		}
	}
}

// smaller packs a picture: with a palette, which loses nothing that is seen, since the
// page has few colours.
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
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, paletted(picture)); err != nil || out.Len() >= len(text) {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}

// paletted returns the picture with its 256 most frequent colours. Others become the
// nearest of them: they are those of the edges of letters.
func paletted(picture image.Image) image.Image {
	bounds := picture.Bounds()
	count := map[color.RGBA]int{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			count[color.RGBAModel.Convert(picture.At(x, y)).(color.RGBA)]++ //nolint:errcheck,forcetypeassert // the model's own
		}
	}
	var palette color.Palette
	for _, c := range slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int { return cmp.Compare(count[b], count[a]) }) {
		if len(palette) < 256 {
			palette = append(palette, c)
		}
	}
	out := image.NewPaletted(bounds, palette)
	draw.Draw(out, bounds, picture, bounds.Min, draw.Src)
	return out
}
