package request

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// annotationKeys returns every annotation that package wire has a name for.
func annotationKeys(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../wire/keys.go", nil, 0)
	gputest.Must(t, err)
	var keys []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Annotation") {
			return true
		}
		literal, ok := spec.Values[0].(*ast.BasicLit)
		if !ok {
			t.Fatalf("%s is not a literal", spec.Names[0].Name)
		}
		key, err := strconv.Unquote(literal.Value)
		gputest.Must(t, err)
		keys = append(keys, key)
		return true
	})
	if len(keys) < 20 {
		t.Fatalf("only %v", keys)
	}
	return keys
}

// TestAskAnnotations: the lists are those of the annotations by which what a pod
// asks for changes, and what quotas count of it, no more and no less. Policies freeze
// them by these lists.
func TestAskAnnotations(t *testing.T) {
	pods := map[string]func() *gputest.PodBuilder{
		"a slice":     func() *gputest.PodBuilder { return gputest.MakePod("p").App("sgpu: 1, vcore: 10, vmemory: 1") },
		"whole cards": func() *gputest.PodBuilder { return gputest.MakePod("p").App("gpu: 2") },
		"Koordinator": func() *gputest.PodBuilder { return gputest.MakePod("p").App("gpu-core: 10, gpu-memory: 1Gi") },
	}
	values := []string{"x", "", "true", "false", "online", "offline", "fixed-share", "binpack", "spread", "mutex", "GPU-1", "[]", "{}", "1"}
	read, counted := map[string]bool{}, map[string]bool{}
	for _, key := range annotationKeys(t) {
		for _, make := range pods {
			before, _ := Read(make().Obj())
			for _, value := range values {
				ask, problems := Read(make().Annotate(key, value).Obj())
				if ask != nil {
					ask.Warnings = nil // they change nothing
				}
				if len(problems) > 0 || !cmp.Equal(before, ask) {
					read[key] = true
				}
				// The lists of cards may rule out the largest.
				if ask != nil && (ledger.PeakOf(&before.Request, gputest.Memory) != ledger.PeakOf(&ask.Request, gputest.Memory) || len(ask.Request.Allow)+len(ask.Request.Deny) > 0) {
					counted[key] = true
				}
			}
		}
	}
	gputest.Equal(t, "annotations listed and counted", slices.Sorted(slices.Values(wire.CountedAnnotations())), slices.Sorted(maps.Keys(counted)))
	gputest.Equal(t, "annotations listed and read", slices.Sorted(slices.Values(wire.AskAnnotations())), slices.Sorted(maps.Keys(read)))
}

// TestAnnotationsAreNamed: what reads a pod names annotations by the constants of
// keys.go, so that the test before knows all that can be read.
func TestAnnotationsAreNamed(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "read.go", nil, 0)
	gputest.Must(t, err)
	reads := 0
	ast.Inspect(file, func(n ast.Node) bool {
		index, ok := n.(*ast.IndexExpr)
		if !ok {
			return true
		}
		if selector, ok := index.X.(*ast.SelectorExpr); !ok || selector.Sel.Name != "Annotations" {
			return true
		}
		reads++
		if _, literal := index.Index.(*ast.BasicLit); literal {
			t.Errorf("an annotation is read by a literal: %v", index.Index)
		}
		return true
	})
	if reads < 5 {
		t.Errorf("found %d places that read annotations", reads)
	}
}
