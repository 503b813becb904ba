package chart

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// promtool runs Prometheus' own checker.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), bin("promtool"), args...).CombinedOutput()
	if err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// TestAlerts: Prometheus accepts the rules, and every alert fires for its reason
// and not in a healthy cluster.
func TestAlerts(t *testing.T) {
	const tests = "testdata/alerts.yaml"
	rules := filepath.Join(dir, "monitoring", "alerts.yaml")
	promtool(t, "check", "rules", rules)
	promtool(t, "test", "rules", tests)
	var file struct {
		Groups []struct{ Rules []struct{ Alert string } }
	}
	text, err := os.ReadFile(rules)
	gputest.Must(t, err)
	gputest.Must(t, yaml.Unmarshal(text, &file))
	cases, err := os.ReadFile(tests)
	gputest.Must(t, err)
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if !bytes.Contains(cases, []byte(`alertname="`+r.Alert+`"`)) {
				t.Errorf("no case of %s makes %s fire", tests, r.Alert)
			}
		}
	}
}

// TestPanels: Prometheus accepts the queries of the Grafana dashboard.
func TestPanels(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(dir, "monitoring", "dashboard.json"))
	gputest.Must(t, err)
	var board struct {
		Panels []struct {
			Targets []struct{ Expr string }
		}
	}
	gputest.Must(t, json.Unmarshal(text, &board))
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	var rules []rule
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			expr := strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")
			rules = append(rules, rule{Record: fmt.Sprintf("panel:%d", len(rules)), Expr: expr})
		}
	}
	if len(rules) == 0 {
		t.Fatal("the dashboard has no queries")
	}
	file, err := json.Marshal(map[string]any{"groups": []any{map[string]any{"name": "panels", "rules": rules}}})
	gputest.Must(t, err)
	path := filepath.Join(t.TempDir(), "panels.json")
	gputest.Must(t, os.WriteFile(path, file, 0o644))
	promtool(t, "check", "rules", path)
}
