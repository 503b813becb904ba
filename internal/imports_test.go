// Package internal_test keeps the folder tree honest: what a package may import
// is decided here, once, and a forbidden import fails `make test`.
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

// rule limits the imports of every package in a folder and below it.
//
// A path in a rule stands for itself and everything below it: "k8s.io/api" is
// also k8s.io/api/core/v1, but not k8s.io/apimachinery. Paths without a dot in
// their first element are folders of this module. The standard library and the
// rule's own folder are always allowed.
type rule struct {
	// folder is where the rule applies; "." is the whole module.
	folder string
	// except are folders below it where the rule does not apply.
	except []string
	// ours are the only packages of this module that may be imported, and others
	// the only ones of other modules; nil sets no limit.
	ours, others []string
	// never may not be imported, whatever the two lists say.
	never []string
	// text is the rule in words, for the message.
	text string
}

var (
	none = []string{}
	core = []string{"internal/gpu", "internal/ledger", "internal/place"}
	// kubernetesTypes are modules of types, codecs and small helpers; none of
	// them talks to a cluster.
	kubernetesTypes = []string{
		"k8s.io/api", "k8s.io/apimachinery", "k8s.io/utils", "sigs.k8s.io/yaml",
		"k8s.io/component-helpers/resource", "k8s.io/component-helpers/scheduling/corev1",
	}
)

var rules = []rule{
	{
		folder: "internal/gpu", ours: none, others: none,
		text: "gpu imports the standard library only",
	},
	{
		folder: "internal/ledger", ours: []string{"internal/gpu"}, others: none,
		text: "ledger imports the standard library and gpu only",
	},
	{
		folder: "internal/place", ours: []string{"internal/gpu", "internal/ledger"}, others: none,
		text: "place imports the standard library, gpu and ledger only",
	},
	{
		folder: "internal/wire", ours: plus(core, "api"), others: kubernetesTypes,
		text: "wire imports the core, api and Kubernetes' types only",
	},
	{
		folder: "internal/scheduler", never: []string{"internal/agent", "internal/manager"},
		text: "scheduler, agent and manager never import each other",
	},
	{
		folder: "internal/agent", never: []string{"internal/scheduler", "internal/manager"},
		text: "scheduler, agent and manager never import each other",
	},
	{
		folder: "internal/agent/discover", except: []string{"internal/agent/discover/mxsml"},
		ours: []string{"internal/gpu"}, others: []string{"golang.org/x/sync", "k8s.io/apimachinery/pkg/util/wait", "k8s.io/klog/v2", "sigs.k8s.io/yaml"},
		text: "discover imports gpu, x/sync, apimachinery's wait, klog and yaml only",
	},
	{
		folder: "internal/agent/discover/mxsml",
		ours:   []string{"internal/gpu", "internal/agent/discover"}, others: []string{"github.com/ebitengine/purego", "github.com/spf13/cobra"},
		text: "mxsml imports gpu, discover, purego and cobra only",
	},
	{
		folder: ".", except: []string{"internal/agent/discover/mxsml"}, never: []string{"github.com/ebitengine/purego"},
		text: "only internal/agent/discover/mxsml calls a C library",
	},
	{
		folder: "internal/manager", never: []string{"internal/scheduler", "internal/agent"},
		text: "scheduler, agent and manager never import each other",
	},
	{
		folder: "internal/simulate", ours: plus(core, "internal/wire", "internal/cli"),
		text: "simulate imports, of this module, the core, wire and cli only",
	},
	{
		folder: "internal/cluster", ours: plus(core, "internal/wire", "api"), others: plus(kubernetesTypes, "k8s.io/client-go", "k8s.io/klog/v2"),
		text: "cluster imports the core, wire, api, client-go, klog and Kubernetes' types only",
	},
	{
		folder: "internal/audit", ours: plus(core, "internal/wire", "internal/cluster"), others: kubernetesTypes,
		text: "audit imports the core, wire, cluster and Kubernetes' types only",
	},
	{
		folder: "internal/view", ours: plus(core, "internal/wire", "internal/cluster", "api"), others: kubernetesTypes,
		text: "view imports the core, wire, cluster, api and Kubernetes' types only",
	},
	{
		folder: "internal/command", ours: plus(core, "internal/wire", "internal/cluster", "internal/audit", "internal/view", "internal/cli"),
		text: "command imports, of this module, the core, wire, cluster, audit, view and cli only",
	},
	{
		folder: "internal/cli", ours: none, others: []string{"github.com/spf13"},
		text: "cli imports cobra and pflag only",
	},
	{
		folder: "api", ours: none, others: []string{"k8s.io/api", "k8s.io/apimachinery"},
		text: "api imports k8s.io/api and k8s.io/apimachinery only",
	},
	{
		// kubelet's checkpoint types link twelve small packages, none of them with state.
		folder: "internal/agent/deviceplugin/checkpoint.go", others: []string{"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"},
		text: "checkpoint.go imports kubelet's checkpoint types only",
	},
	{
		folder: ".", except: []string{"internal/scheduler", "internal/local", "internal/agent/deviceplugin/checkpoint.go", "cmd", "test"},
		never: []string{"k8s.io/kubernetes"},
		text:  "only internal/scheduler, internal/local, cmd and test import k8s.io/kubernetes",
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

func TestCheck(t *testing.T) {
	cases := map[string]struct {
		file string
		src  string
		want []string
	}{
		"the core imports the standard library and the core below it": {
			file: "internal/place/fit.go",
			src:  file("cmp", "encoding/json", module+"/internal/gpu", module+"/internal/ledger"),
		},
		"gpu imports another module": {
			file: "internal/gpu/card.go",
			src:  file("fmt", "k8s.io/api/core/v1"),
			want: []string{`internal/gpu/card.go:5: import "k8s.io/api/core/v1": gpu imports the standard library only`},
		},
		"gpu imports ledger": {
			file: "internal/gpu/card.go",
			src:  file(module + "/internal/ledger"),
			want: []string{`internal/gpu/card.go:4: import "` + module + `/internal/ledger": gpu imports the standard library only`},
		},
		"gpu uses cgo, which is not the standard library": {
			file: "internal/gpu/card.go",
			src:  file("C"),
			want: []string{`internal/gpu/card.go:4: import "C": gpu imports the standard library only`},
		},
		"ledger imports place": {
			file: "internal/ledger/node.go",
			src:  file(module+"/internal/gpu", module+"/internal/place"),
			want: []string{`internal/ledger/node.go:5: import "` + module + `/internal/place": ledger imports the standard library and gpu only`},
		},
		"place imports wire": {
			file: "internal/place/fit.go",
			src:  file(module + "/internal/wire"),
			want: []string{`internal/place/fit.go:4: import "` + module + `/internal/wire": place imports the standard library, gpu and ledger only`},
		},
		"wire imports what it translates between": {
			file: "internal/wire/device.go",
			src:  file(module+"/internal/gpu", module+"/api/v1alpha1", "k8s.io/apimachinery/pkg/types", "sigs.k8s.io/yaml"),
		},
		"wire imports a client": {
			file: "internal/wire/device.go",
			src:  file("k8s.io/client-go/kubernetes"),
			want: []string{`internal/wire/device.go:4: import "k8s.io/client-go/kubernetes": wire imports the core, api and Kubernetes' types only`},
		},
		"a longer name is not a folder below": {
			file: "internal/wire/device.go",
			src:  file("k8s.io/apiserver/pkg/server", module+"/apitest"),
			want: []string{
				`internal/wire/device.go:4: import "k8s.io/apiserver/pkg/server": wire imports the core, api and Kubernetes' types only`,
				`internal/wire/device.go:5: import "` + module + `/apitest": wire imports the core, api and Kubernetes' types only`,
			},
		},
		"the agent imports its own folders and wire": {
			file: "internal/agent/agent.go",
			src:  file(module+"/internal/agent/discover", module+"/internal/wire", "k8s.io/client-go/kubernetes"),
		},
		"discover talks to a cluster": {
			file: "internal/agent/discover/finder.go",
			src:  file("k8s.io/klog/v2", "sigs.k8s.io/yaml", module+"/internal/gpu", module+"/internal/wire", "k8s.io/api/core/v1"),
			want: []string{
				`internal/agent/discover/finder.go:7: import "` + module + `/internal/wire": discover imports gpu, x/sync, apimachinery's wait, klog and yaml only`,
				`internal/agent/discover/finder.go:8: import "k8s.io/api/core/v1": discover imports gpu, x/sync, apimachinery's wait, klog and yaml only`,
			},
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
		"a folder of the agent imports the scheduler": {
			file: "internal/agent/deviceplugin/server.go",
			src:  file(module + "/internal/scheduler"),
			want: []string{`internal/agent/deviceplugin/server.go:4: import "` + module + `/internal/scheduler": scheduler, agent and manager never import each other`},
		},
		"the scheduler imports the manager": {
			file: "internal/scheduler/plugin.go",
			src:  file("k8s.io/kubernetes/pkg/scheduler", module+"/internal/manager/audit"),
			want: []string{`internal/scheduler/plugin.go:5: import "` + module + `/internal/manager/audit": scheduler, agent and manager never import each other`},
		},
		"the manager imports the agent": {
			file: "internal/manager/audit/audit.go",
			src:  file(module + "/internal/agent/discover"),
			want: []string{`internal/manager/audit/audit.go:4: import "` + module + `/internal/agent/discover": scheduler, agent and manager never import each other`},
		},
		"simulate imports cluster": {
			file: "internal/simulate/engine.go",
			src:  file(module+"/internal/wire", module+"/internal/cluster", "github.com/spf13/cobra"),
			want: []string{`internal/simulate/engine.go:5: import "` + module + `/internal/cluster": simulate imports, of this module, the core, wire and cli only`},
		},
		"cluster imports what reads a cluster": {
			file: "internal/cluster/live.go",
			src:  file("k8s.io/client-go/tools/clientcmd", "k8s.io/api/core/v1", module+"/api/v1alpha1"),
		},
		"cluster imports view": {
			file: "internal/cluster/live.go",
			src:  file(module + "/internal/view"),
			want: []string{`internal/cluster/live.go:4: import "` + module + `/internal/view": cluster imports the core, wire, api, client-go, klog and Kubernetes' types only`},
		},
		"view imports a command line": {
			file: "internal/view/place.go",
			src:  file(module+"/internal/cluster", "github.com/spf13/cobra"),
			want: []string{`internal/view/place.go:5: import "github.com/spf13/cobra": view imports the core, wire, cluster, api and Kubernetes' types only`},
		},
		"command imports the scheduler": {
			file: "internal/command/place.go",
			src:  file(module+"/internal/cluster", module+"/internal/scheduler", "github.com/spf13/cobra"),
			want: []string{`internal/command/place.go:5: import "` + module + `/internal/scheduler": command imports, of this module, the core, wire, cluster, audit, view and cli only`},
		},
		"audit talks to a cluster": {
			file: "internal/audit/audit.go",
			src:  file(module+"/internal/cluster", "k8s.io/client-go/kubernetes"),
			want: []string{`internal/audit/audit.go:5: import "k8s.io/client-go/kubernetes": audit imports the core, wire, cluster and Kubernetes' types only`},
		},
		"the manager imports audit": {
			file: "internal/manager/audit/audit.go",
			src:  file(module + "/internal/audit"),
		},
		"api imports an internal package": {
			file: "api/v1alpha1/device_types.go",
			src:  file("k8s.io/api/core/v1", module+"/internal/gpu"),
			want: []string{`api/v1alpha1/device_types.go:5: import "` + module + `/internal/gpu": api imports k8s.io/api and k8s.io/apimachinery only`},
		},
		"Kubernetes itself in the playground": {
			file: "cmd/playground/main.go",
			src:  file("k8s.io/kubernetes/cmd/kube-apiserver/app"),
		},
		"Kubernetes itself in the manager": {
			file: "internal/manager/dashboard/server.go",
			src:  file("k8s.io/kubernetes/pkg/apis/core"),
			want: []string{`internal/manager/dashboard/server.go:4: import "k8s.io/kubernetes/pkg/apis/core": only internal/scheduler, internal/local, cmd and test import k8s.io/kubernetes`},
		},
		"one import breaks two rules": {
			file: "internal/gpu/card.go",
			src:  file("k8s.io/kubernetes/pkg/apis/core"),
			want: []string{
				`internal/gpu/card.go:4: import "k8s.io/kubernetes/pkg/apis/core": gpu imports the standard library only`,
				`internal/gpu/card.go:4: import "k8s.io/kubernetes/pkg/apis/core": only internal/scheduler, internal/local, cmd and test import k8s.io/kubernetes`,
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
	inModule, ours := strings.CutPrefix(imported, module+"/")
	switch {
	case standard(imported):
		return true
	case belowAny(inModule, r.never):
		return false
	case ours:
		return r.ours == nil || below(inModule, r.folder) || belowAny(inModule, r.ours)
	default:
		return r.others == nil || belowAny(imported, r.others)
	}
}

// standard says whether a path is in the standard library, whose paths alone
// have no dot in their first element. Cgo's "C" is no package at all.
func standard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".") && imported != "C"
}

// below says whether a path is a folder or something in it.
func below(path, folder string) bool {
	return folder == "." || path == folder || strings.HasPrefix(path, folder+"/")
}

func belowAny(path string, folders []string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool { return below(path, folder) })
}

func plus(paths []string, more ...string) []string {
	return slices.Concat(paths, more)
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
