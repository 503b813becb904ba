package main

import (
	"archive/zip"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

const changelog = `# Changelog

## 0.2.0, unreleased

- New, see [here](docs/install.md).

## 0.1.0, 2026-01-02

### Scheduler

- Old.

## 0.0.1, 2026-01-01

`

func TestNotes(t *testing.T) {
	cases := map[string]struct{ version, title, text, err string }{
		"the newest": {
			version: "v0.2.0", title: "0.2.0, unreleased",
			text: "- New, see [here](https://github.com/daybreak-gpu/daybreak/blob/v0.2.0/docs/install.md).\n",
		},
		"an older one":     {version: "v0.1.0", title: "0.1.0, 2026-01-02", text: "### Scheduler\n\n- Old.\n"},
		"none":             {version: "v0.3.0", err: `CHANGELOG.md has no section for v0.3.0: write one that starts with "## 0.3.0, DATE"`},
		"a part of a name": {version: "v0.1", err: "no section for v0.1"},
		"nothing changes":  {version: "v0.0.1", err: "the section for v0.0.1 in CHANGELOG.md is empty"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := cutNotes(changelog, tc.version)
			if tc.err != "" {
				gputest.ErrorHas(t, "notes", tc.err, err)
				return
			}
			if want := (section{tc.title, tc.text}); err != nil || got != want {
				t.Errorf("%+v, %v; want %+v", got, err, want)
			}
		})
	}
}

// TestPack: archives hold what they were given, and neither the order nor the time
// of day shows.
func TestPack(t *testing.T) {
	at := time.Date(2026, 11, 16, 12, 0, 0, 0, time.UTC)
	files := []entry{{"daybreak", 0o755, bytes.Repeat([]byte("binary"), 1000)}, {"LICENSE", 0o644, []byte("terms")}}
	sorted := []entry{files[1], files[0]}
	for _, name := range []string{"a.tar.gz", "a.zip"} {
		t.Run(name, func(t *testing.T) {
			first, err := pack(name, files, at)
			gputest.Must(t, err)
			second, err := pack(name, sorted, at.In(time.FixedZone("elsewhere", 3600)).UTC())
			gputest.Must(t, err)
			if !bytes.Equal(first, second) {
				t.Error("the same files make different archives")
			}
			got, err := unpack(first)
			if strings.HasSuffix(name, ".zip") {
				got, err = unzip(first)
			}
			gputest.Must(t, err)
			gputest.Equal(t, "files", sorted, got, cmp.AllowUnexported(entry{}))
		})
	}
}

func unzip(data []byte) (entries []entry, err error) {
	r, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, err
	}
	for _, f := range r.File {
		from, err := f.Open()
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(from)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{f.Name, f.Mode().Perm(), content})
	}
	return entries, nil
}

func TestKrewManifest(t *testing.T) {
	sums := map[string]string{}
	for _, p := range platforms {
		sums["daybreak-v1.2.3-"+p.archive()] = "sum of " + p.os + " " + p.arch
	}
	text, err := krewManifest("v1.2.3", sums)
	gputest.Must(t, err)
	var got krewPlugin
	gputest.Must(t, yaml.UnmarshalStrict(text, &got))
	if len(got.Spec.Platforms) != len(platforms) {
		t.Errorf("%d platforms, want %d", len(got.Spec.Platforms), len(platforms))
	}
	want := krewPlatform{
		Selector: map[string]map[string]string{"matchLabels": {"os": "windows", "arch": "amd64"}},
		URI:      "https://github.com/daybreak-gpu/daybreak/releases/download/v1.2.3/daybreak-v1.2.3-windows-amd64.zip",
		SHA256:   "sum of windows amd64", Bin: "daybreak.exe",
	}
	gputest.Equal(t, "Windows", want, got.Spec.Platforms[len(platforms)-1])
	delete(sums, "daybreak-v1.2.3-linux-arm64.tar.gz")
	if _, err := krewManifest("v1.2.3", sums); err == nil {
		t.Error("an archive that is missing goes unnoticed")
	}
}

// TestInput: what can't be released is one sentence, and nothing is written.
func TestInput(t *testing.T) {
	cases := map[string]struct{ version, changes, want string }{
		"no version":        {version: "", want: `"" is not the version of a release: write VERSION=vX.Y.Z`},
		"a commit":          {version: "0a1b2c3", want: `"0a1b2c3" is not the version of a release`},
		"without a v":       {version: "0.2.0", want: `"0.2.0" is not the version of a release`},
		"git describe":      {version: "v0.2.0-3-g0a1b2c3", want: `"v0.2.0-3-g0a1b2c3" is not the version of a release`},
		"no section":        {version: "v0.3.0", want: "CHANGELOG.md has no section for v0.3.0"},
		"changes":           {version: "v0.2.0", changes: "new.go", want: "the tree has changes that are not committed (?? new.go): commit or stash them first"},
		"fit for a release": {version: "v0.2.0", want: "open LICENSE"}, // the next thing that is read
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			put(t, "CHANGELOG.md", changelog)
			for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-q", "-m", "first"}} {
				if out, err := exec.CommandContext(t.Context(), "git", args...).CombinedOutput(); err != nil {
					t.Fatalf("git %v: %v %s", args, err, out)
				}
			}
			if tc.changes != "" {
				put(t, tc.changes, "package main")
			}
			err := run(t.Context(), options{version: tc.version, out: filepath.Join(t.TempDir(), "dist")})
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want %q in one line", err, tc.want)
			}
		})
	}
}

func put(t *testing.T, name, text string) {
	t.Helper()
	gputest.Must(t, os.WriteFile(name, []byte(text), 0o600))
}
