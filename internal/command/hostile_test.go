package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/daybreak-gpu/daybreak/internal/cli"
	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/gputest/hostile"
)

// hostileDump writes a cluster in which everything of the collection is wrong to
// a file, as kubectl would.
func hostileDump(t *testing.T) string {
	t.Helper()
	var items []any
	node := func(name string, annotations map[string]string) {
		items = append(items, map[string]any{
			"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": name, "annotations": annotations},
			"status": map[string]any{"capacity": map[string]string{"metax-tech.com/gpu": "2"}, "conditions": []any{map[string]string{"type": "Ready", "status": "True"}}},
		})
	}
	device := func(name string, d hostile.Device) {
		node(name, nil)
		items = append(items, json.RawMessage(d.JSON(name)))
	}
	for _, d := range hostile.Devices() {
		device("device-"+d.Name, d)
	}
	for _, a := range hostile.NodeAnnotations() {
		node("node-"+a.Name, map[string]string{a.Key: a.Value})
	}
	for name, lock := range hostile.Locks() {
		node("lock-"+name, map[string]string{"hami.io/mutex.lock": lock, "daybreak-gpu.io/served-by": "\x1b[31m"})
	}
	pod := func(b *gputest.PodBuilder) {
		p := b.Obj()
		p.APIVersion, p.Kind = "v1", "Pod"
		items = append(items, p)
	}
	for _, a := range hostile.Allocations() {
		name := "pod-" + a.Name
		device(name, hostile.Sound(name))
		pod(gputest.MakePod(name).App("sgpu: 1, vcore: 10, vmemory: 1").On(name).Annotate(a.Key, strings.ReplaceAll(a.Value, "GPU-0", "GPU-"+name+"-0")))
	}
	for _, a := range hostile.Wishes() {
		pod(gputest.MakePod("wish-"+a.Name).App("sgpu: 1").Annotate(a.Key, a.Value))
	}
	device("sound", hostile.Sound("sound"))
	pod(gputest.MakePod("waits").App("gpu: 16"))
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	gputest.Must(t, err)
	path := filepath.Join(t.TempDir(), "dump.json")
	gputest.Must(t, os.WriteFile(path, text, 0o600))
	return path
}

// TestHostile: one node that can't be read, or a hundred, cost neither the
// others nor the answer, and nothing that is printed upsets a terminal.
func TestHostile(t *testing.T) {
	path := hostileDump(t)
	for _, args := range []string{
		"status -o wide", "status -o json", "audit", "explain waits", "explain pod-vendor-garbage", "explain wish-qos-escape", "place",
	} {
		t.Run(args, func(t *testing.T) {
			root := &cobra.Command{SilenceErrors: true, SilenceUsage: true}
			root.AddCommand(NewStatusCommand(), NewExplainCommand(), NewAuditCommand(), NewPlaceCommand())
			root.SetArgs(append(strings.Fields(args), "-f", path))
			var out, errs bytes.Buffer
			root.SetOut(&out)
			root.SetErr(&errs)
			if err := root.Execute(); err != nil && !errors.Is(err, cli.ErrNo) {
				t.Fatal(err)
			}
			for name, text := range map[string]string{"out": out.String(), "err": errs.String()} {
				if at := strings.IndexFunc(text, upsetting); at >= 0 {
					t.Errorf("std%s has %q in %q", name, text[at], text[max(0, at-200):min(len(text), at+100)])
				}
			}
			if strings.Contains(args, "json") && !json.Valid(out.Bytes()) {
				t.Errorf("no JSON: %.200s", out.String())
			}
			if out.Len() == 0 {
				t.Error("nothing is printed")
			}
		})
	}
}

// upsetting reports whether a character does something to a terminal.
func upsetting(r rune) bool {
	return r < ' ' && r != '\n' && r != '\t' || r == 0x7f || r == '\u202e' || r >= 0x80 && r < 0xa0
}
