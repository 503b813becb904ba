package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	folder := t.TempDir()
	for name, tt := range map[string]struct {
		flag, data string
		want       []string
		wantErr    string
	}{
		"a trace": {flag: "-trace", want: []string{"trace-allocation-zh.svg", "trace-allocation.svg"}, data: `{"runs": [
			{"policy": "fgd", "curve": [{"arrivedPercent": 90, "allocatedPercent": 90}, {"arrivedPercent": 100, "allocatedPercent": 94}]}]}`},
		"a study": {flag: "-churn", want: []string{"churn-mixed-linked-zh.svg", "churn-mixed-linked.svg", "churn-mixed-wait-zh.svg", "churn-mixed-wait.svg"}, data: `{"runs": [
			{"policy": "fgd", "mix": "mixed", "load": 0.7}, {"policy": "fgd", "mix": "mixed", "load": 0.9}]}`},
		"a study at one load": {flag: "-churn", data: `{"runs": [{"policy": "fgd", "mix": "mixed", "load": 0.7}]}`, wantErr: "at least two points"},
		"a benchmark": {flag: "-bench", want: []string{"performance-nodes-zh.svg", "performance-nodes.svg"}, data: `{
			"runs": [{"nodes": 100, "workload": "slices"}, {"nodes": 100, "workload": "mix"}, {"nodes": 500, "workload": "slices"}]}`},
		"not JSON": {flag: "-trace", data: "policy,seed", wantErr: "invalid character"},
	} {
		t.Run(name, func(t *testing.T) {
			in, out := filepath.Join(folder, "in.json"), t.TempDir()
			if err := os.WriteFile(in, []byte(tt.data), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := run([]string{tt.flag, in, "-out", out}); (err != nil) != (tt.wantErr != "") || err != nil && !strings.Contains(err.Error(), tt.wantErr) {
				t.Fatalf("error %v, want %q", err, tt.wantErr)
			}
			var got []string
			entries, _ := os.ReadDir(out)
			for _, e := range entries {
				got = append(got, e.Name())
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("pictures %v, want %v", got, tt.want)
			}
		})
	}
}

// TestLines: ours comes first, the others by where they end; seeds are averaged.
func TestLines(t *testing.T) {
	var c chart
	for _, y := range []float64{80, 90} {
		c.add("random", 100, y)
		c.add("fgd", 100, y+5)
		c.add(ours, 100, y-9)
	}
	names, lines := c.lines()
	if !slices.Equal(names, []string{ours, "fgd", "random"}) || lines["fgd"][0].Y != 90 {
		t.Errorf("lines %v: %v", names, lines)
	}
}
