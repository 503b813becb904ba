package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTranslate(t *testing.T) {
	for label, want := range map[string]string{
		"milliseconds": "毫秒",
		"Wait of 8-GPU jobs (zones 2x4, mix odd)": "8 GPU 作业的等待时间（互联域 2x4，作业构成 odd）",
		"0.85":          "0.85",
		"hami-topology": "hami-topology",
	} {
		if got, err := translate(label); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", label, got, err, want)
		}
	}
	for _, label := range []string{"Wait of 9-GPU jobs (zones 2x4, mix odd)", "mean wait, in hours"} {
		if got, err := translate(label); err == nil {
			t.Errorf("%q: %q, want an error", label, got)
		}
	}
}

// TestRelabel: labels keep their centre, those of the legend their beginning.
func TestRelabel(t *testing.T) {
	const element = `<text x="100" y="-1" transform="scale(1, -1)"` + "\n\t" + `style="font-size:12px">milliseconds</text>`
	got, err := relabel([]byte(element), translate)
	// Liberation Sans is as wide as Arial: 5.45 em.
	if want := `<text x="132.68" y="-1" transform="scale(1, -1)"` + "\n\t" + `style="font-size:12px;text-anchor:middle">毫秒</text>`; err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
	legend := strings.Replace(element, "100", "546.65", 1)
	got, err = relabel([]byte(legend), translate)
	if want := strings.Replace(legend, "milliseconds", "毫秒", 1); err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}

// TestDocs: every chart of the documentation has its Chinese picture, with the
// same curves.
func TestDocs(t *testing.T) {
	const folder = "../../docs/images"
	var files []string
	for _, pattern := range []string{"churn-*.svg", "trace-*.svg", "performance-*.svg"} {
		found, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	charts := 0
	for _, file := range files {
		if strings.HasSuffix(file, "-zh.svg") {
			continue
		}
		charts++
		svg, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want, err := relabel(svg, translate)
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		got, err := os.ReadFile(strings.TrimSuffix(file, ".svg") + "-zh.svg")
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: the Chinese picture is another (%v): go -C hack/pictures run . $PWD/%s", file, err, strings.TrimPrefix(file, "../../"))
		}
	}
	if charts*2 != len(files) || charts == 0 {
		t.Errorf("%d charts of %d pictures", charts, len(files))
	}
}
