// Package internal_test holds the folder tree to its picture: which room may
// import which is drawn in docs/architecture.md, what a room may import of other
// modules is decided here, and a forbidden import fails `make test`.
package internal_test

import (
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const module = "github.com/daybreak-gpu/daybreak"

// rule limits what every package in a folder and below it imports of other
// modules.
//
// A path in a rule stands for itself and everything below it: "k8s.io/api" is
// also k8s.io/api/core/v1, but not k8s.io/apimachinery. The standard library is
// always allowed.
type rule struct {
	// folder is where the rule applies; "." is the whole module.
	folder string
	// except are folders below it where the rule does not apply.
	except []string
	// others are the only packages of other modules that may be imported; nil sets
	// no limit.
	others []string
	// never may not be imported.
	never []string
	// text is the rule in words, for the message.
	text string
}

var (
	none = []string{}
	// kubernetesTypes are modules of types, codecs and small helpers; none of
	// them talks to a cluster.
	kubernetesTypes = []string{
		"k8s.io/api", "k8s.io/apimachinery", "k8s.io/utils", "sigs.k8s.io/yaml",
		"k8s.io/component-helpers/resource", "k8s.io/component-helpers/scheduling/corev1",
	}
)

var rules = []rule{
	{folder: "internal/gpu", others: none, text: "gpu imports the standard library only"},
	{folder: "internal/ledger", others: none, text: "ledger imports the standard library and gpu only"},
	{folder: "internal/place", others: none, text: "place imports the standard library, gpu and ledger only"},
	{folder: "internal/similar", others: none, text: "similar imports the standard library only"},
	{folder: "internal/wire", others: kubernetesTypes, text: "wire imports Kubernetes' types only"},
	{folder: "internal/request", others: kubernetesTypes, text: "request imports Kubernetes' types only"},
	{folder: "internal/inventory", others: kubernetesTypes, text: "inventory imports Kubernetes' types only"},
	{folder: "internal/allocation", others: kubernetesTypes, text: "allocation imports Kubernetes' types only"},
	{folder: "internal/quota", others: kubernetesTypes, text: "quota imports Kubernetes' types only"},
	{folder: "internal/audit", others: kubernetesTypes, text: "audit imports Kubernetes' types only"},
	{folder: "internal/view", others: kubernetesTypes, text: "view imports Kubernetes' types only"},
	{
		folder: "internal/cluster", others: slices.Concat(kubernetesTypes, []string{"k8s.io/client-go", "k8s.io/klog/v2"}),
		text: "cluster imports client-go, klog and Kubernetes' types only",
	},
	{folder: "internal/cli", others: []string{"github.com/spf13"}, text: "cli imports cobra and pflag only"},
	{folder: "api", others: []string{"k8s.io/api", "k8s.io/apimachinery"}, text: "api imports k8s.io/api and k8s.io/apimachinery only"},
	{
		folder: "internal/agent/discover", except: []string{"internal/agent/discover/mxsml"},
		others: []string{"golang.org/x/sync", "k8s.io/apimachinery/pkg/util/wait", "k8s.io/klog/v2", "sigs.k8s.io/yaml"},
		never:  []string{module + "/internal/request", module + "/internal/allocation", module + "/internal/inventory", module + "/internal/wire"},
		text:   "discover imports gpu, x/sync, apimachinery's wait, klog and yaml only",
	},
	{
		folder: "internal/agent/discover/mxsml", others: []string{"github.com/ebitengine/purego", "github.com/spf13/cobra"},
		text: "mxsml imports purego and cobra only",
	},
	{
		folder: ".", except: []string{"internal/agent/discover/mxsml"}, never: []string{"github.com/ebitengine/purego"},
		text: "only internal/agent/discover/mxsml calls a C library",
	},
	{
		// kubelet's checkpoint types link twelve small packages, none of them with state.
		folder: "internal/agent/deviceplugin/checkpoint.go", others: []string{"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"},
		text: "checkpoint.go imports kubelet's checkpoint types only",
	},
	{
		folder: ".", except: []string{"internal/scheduler", "internal/local", "internal/agent/deviceplugin/checkpoint.go", "cmd"},
		never: []string{"k8s.io/kubernetes"},
		text:  "only internal/scheduler, internal/local and cmd import k8s.io/kubernetes",
	},
	{
		folder: ".", except: []string{"cmd/playground"}, never: []string{module + "/test"},
		text: "only the playground uses a stand-in of the tests",
	},
}

func TestImports(t *testing.T) {
	files := sources(t, os.DirFS(".."), "api", "cmd", "internal")
	if len(files) == 0 {
		t.Fatal("no Go file found: the test looks in the wrong place")
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for _, violation := range check(t, name, files[name]) {
			t.Error(violation)
		}
	}
}

// TestRooms: rooms import each other as the picture in docs/architecture.md
// shows. An import needs an arrow or a path of arrows, an arrow needs an import,
// and there is no way back.
func TestRooms(t *testing.T) {
	page, err := os.ReadFile("../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	drawn := picture(string(page))
	if len(drawn) < 10 {
		t.Fatalf("the picture of docs/architecture.md was not read: %v", drawn)
	}
	imports := map[string]map[string]bool{}
	for name, src := range sources(t, os.DirFS(".."), "api", "cmd", "internal", "charts") {
		parsed, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		from := roomOf(name)
		if imports[from] == nil {
			imports[from] = map[string]bool{}
		}
		for _, spec := range parsed.Imports {
			path, ours := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), module+"/")
			if to := roomOf(path); ours && to != from && !below(path, "test") {
				imports[from][to] = true
				if !reaches(drawn, from, to) {
					t.Errorf("%s imports %s: there is no arrow from %s to %s", name, path, from, to)
				}
			}
		}
	}
	for from, targets := range drawn {
		for to := range targets {
			if !imports[from][to] {
				t.Errorf("the arrow from %s to %s has no import", from, to)
			}
			if reaches(drawn, to, from) {
				t.Errorf("%s and %s reach each other", from, to)
			}
		}
	}
}

// roomOf returns the room of a file or package: a folder of internal, or the
// folder at the top.
func roomOf(path string) string {
	parts := strings.Split(path, "/")
	if parts[0] == "internal" {
		return parts[1]
	}
	return parts[0]
}

// picture reads the first mermaid block of a page: "a --> b & c" are two arrows.
func picture(page string) map[string]map[string]bool {
	drawn := map[string]map[string]bool{}
	_, block, _ := strings.Cut(page, "```mermaid\n")
	block, _, _ = strings.Cut(block, "```")
	for line := range strings.Lines(block) {
		from, targets, ok := strings.Cut(strings.TrimSpace(line), " --> ")
		if !ok {
			continue
		}
		drawn[from] = map[string]bool{}
		for to := range strings.SplitSeq(targets, " & ") {
			drawn[from][to] = true
		}
	}
	return drawn
}

func reaches(drawn map[string]map[string]bool, from, to string) bool {
	for next := range drawn[from] {
		if next == to || reaches(drawn, next, to) {
			return true
		}
	}
	return false
}

func TestPicture(t *testing.T) {
	got := picture("text\n```mermaid\nflowchart TD\n  a --> b & c\n  b --> c\n```\n")
	want := map[string]map[string]bool{"a": {"b": true, "c": true}, "b": {"c": true}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("arrows (-want +got):\n%s", diff)
	}
	if !reaches(map[string]map[string]bool{"a": {"b": true}, "b": {"c": true}}, "a", "c") || reaches(got, "c", "a") {
		t.Error("paths are not followed in their direction")
	}
}

func TestCheck(t *testing.T) {
	cases := map[string]struct {
		file string
		src  string
		want []string
	}{
		"the core imports the standard library": {
			file: "internal/place/fit.go",
			src:  file("cmp", "encoding/json", module+"/internal/gpu"),
		},
		"gpu imports another module": {
			file: "internal/gpu/card.go",
			src:  file("fmt", "k8s.io/api/core/v1"),
			want: []string{`internal/gpu/card.go:5: import "k8s.io/api/core/v1": gpu imports the standard library only`},
		},
		"gpu uses cgo, which is not the standard library": {
			file: "internal/gpu/card.go",
			src:  file("C"),
			want: []string{`internal/gpu/card.go:4: import "C": gpu imports the standard library only`},
		},
		"a client where only types may be": {
			file: "internal/inventory/device.go",
			src:  file(module+"/api/v1alpha1", "k8s.io/apimachinery/pkg/types", "sigs.k8s.io/yaml", "k8s.io/client-go/kubernetes"),
			want: []string{`internal/inventory/device.go:7: import "k8s.io/client-go/kubernetes": inventory imports Kubernetes' types only`},
		},
		"a longer name is not a folder below": {
			file: "internal/wire/keys.go",
			src:  file("k8s.io/apiserver/pkg/server"),
			want: []string{`internal/wire/keys.go:4: import "k8s.io/apiserver/pkg/server": wire imports Kubernetes' types only`},
		},
		"discover knows no annotation": {
			file: "internal/agent/discover/finder.go",
			src:  file("k8s.io/klog/v2", module+"/internal/gpu", module+"/internal/wire"),
			want: []string{`internal/agent/discover/finder.go:6: import "` + module + `/internal/wire": discover imports gpu, x/sync, apimachinery's wait, klog and yaml only`},
		},
		"the library is called where it may be": {
			file: "internal/agent/discover/mxsml/library.go",
			src:  file("github.com/ebitengine/purego", module+"/internal/agent/discover"),
		},
		"the library is called elsewhere": {
			file: "internal/agent/agent.go",
			src:  file("github.com/ebitengine/purego"),
			want: []string{`internal/agent/agent.go:4: import "github.com/ebitengine/purego": only internal/agent/discover/mxsml calls a C library`},
		},
		"Kubernetes itself in the playground": {
			file: "cmd/playground/main.go",
			src:  file("k8s.io/kubernetes/cmd/kube-apiserver/app", module+"/test/fake/vendorplugin"),
		},
		"a stand-in in the product": {
			file: "internal/manager/manager.go",
			src:  file(module + "/test/fake"),
			want: []string{`internal/manager/manager.go:4: import "` + module + `/test/fake": only the playground uses a stand-in of the tests`},
		},
		"one import breaks two rules": {
			file: "internal/gpu/card.go",
			src:  file("k8s.io/kubernetes/pkg/apis/core"),
			want: []string{
				`internal/gpu/card.go:4: import "k8s.io/kubernetes/pkg/apis/core": gpu imports the standard library only`,
				`internal/gpu/card.go:4: import "k8s.io/kubernetes/pkg/apis/core": only internal/scheduler, internal/local and cmd import k8s.io/kubernetes`,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, check(t, tc.file, []byte(tc.src))); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
		})
	}
}

// sources reads every Go file of the folders that is built into a program;
// folders that do not exist have none.
func sources(t *testing.T, root fs.FS, folders ...string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for _, folder := range folders {
		err := fs.WalkDir(root, folder, func(name string, entry fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err != nil:
				return err
			case entry.IsDir() && entry.Name() == "testdata":
				return fs.SkipDir
			case entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
				return nil
			}
			files[name], err = fs.ReadFile(root, name)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// check returns one message for each import of a file that breaks a rule, in
// the order of the imports. The name is the file's path in the module.
func check(t *testing.T, name string, src []byte) []string {
	t.Helper()
	positions := token.NewFileSet()
	parsed, err := parser.ParseFile(positions, name, src, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	var violations []string
	for _, spec := range parsed.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatalf("%s: import %s: %v", name, spec.Path.Value, err)
		}
		for _, r := range rules {
			if r.covers(name) && !r.allows(imported) {
				line := positions.Position(spec.Pos()).Line
				violations = append(violations, fmt.Sprintf("%s:%d: import %q: %s", name, line, imported, r.text))
			}
		}
	}
	return violations
}

func (r rule) covers(name string) bool {
	return below(name, r.folder) && !belowAny(name, r.except)
}

func (r rule) allows(imported string) bool {
	switch {
	case standard(imported):
		return true
	case belowAny(imported, r.never):
		return false
	default:
		return below(imported, module) || r.others == nil || belowAny(imported, r.others)
	}
}

// standard reports whether a path is in the standard library, whose paths alone
// have no dot in their first element. Cgo's "C" is no package at all.
func standard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".") && imported != "C"
}

// below reports whether a path is a folder or something in it.
func below(path, folder string) bool {
	return folder == "." || path == folder || strings.HasPrefix(path, folder+"/")
}

func belowAny(path string, folders []string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool { return below(path, folder) })
}

// file is the source of a file whose imports start on line 4.
func file(imports ...string) string {
	var b strings.Builder
	b.WriteString("package p\n\nimport (\n")
	for _, path := range imports {
		fmt.Fprintf(&b, "\t%q\n", path)
	}
	b.WriteString(")\n")
	return b.String()
}
