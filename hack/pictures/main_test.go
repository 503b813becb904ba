package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-gpu/daybreak/internal/simulate/churn"
)

const trace = `{"runs": [
	{"policy": "fgd", "curve": [{"arrivedPercent": 50, "allocatedPercent": 50}, {"arrivedPercent": 90, "allocatedPercent": 90}, {"arrivedPercent": 100, "allocatedPercent": 94}]},
	{"policy": "fgd", "curve": [{"arrivedPercent": 90, "allocatedPercent": 88}, {"arrivedPercent": 100, "allocatedPercent": 96}]},
	{"policy": "random", "curve": [{"arrivedPercent": 90, "allocatedPercent": 80}]},
	{"policy": "daybreak", "curve": [{"arrivedPercent": 90, "allocatedPercent": 70}]}
]}`

// study returns a topology study of our rule at the given loads, as JSON.
func study(t *testing.T, loads ...float64) string {
	t.Helper()
	o := churn.Defaults()
	o.Rules, o.Loads, o.Servers, o.Jobs, o.Seeds = o.Rules[:1], loads, 2, 200, 1
	r, err := churn.Run(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestRun(t *testing.T) {
	cases := map[string]struct {
		trace, churn string
		bench        string
		want         []string
		wantErr      string
	}{
		"a trace": {trace: trace, want: []string{"trace-allocation.svg"}},
		"a study": {churn: study(t, 0.5, 0.8), want: []string{
			"churn-inference-linked.svg", "churn-inference-wait.svg", "churn-mixed-linked.svg",
			"churn-mixed-wait.svg", "churn-training-linked.svg", "churn-training-wait.svg",
		}},
		"a study at one load": {churn: study(t, 0.5), wantErr: "studied at one load only"},
		"not JSON":            {trace: "policy,seed", wantErr: "trace.json: invalid character"},
		"an empty trace":      {trace: "{}", wantErr: "has no lines"},
		"a benchmark": {
			bench: `{"runs": [
				{"nodes": 100, "workload": "slices", "daybreak": {"cpuMillisecondsPerPod": 1}, "plain": {"cpuMillisecondsPerPod": 2}},
				{"nodes": 100, "workload": "mix"},
				{"nodes": 500, "workload": "slices", "daybreak": {"cpuMillisecondsPerPod": 2}, "plain": {"cpuMillisecondsPerPod": 3}}
			], "core": [{"nodes": 100, "microseconds": 50}, {"nodes": 50000, "microseconds": 25000}]}`,
			want: []string{"performance-core.svg", "performance-nodes.svg"},
		},
		"a benchmark of one size": {bench: `{"runs": [{"nodes": 100, "workload": "slices"}]}`},
		"nothing":                 {wantErr: "nothing to draw: give -trace, -churn, -bench or -concepts"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in, out := t.TempDir(), t.TempDir()
			args := []string{"-out", out}
			for flag, data := range map[string]string{"trace": tc.trace, "churn": tc.churn, "bench": tc.bench} {
				if data == "" {
					continue
				}
				file := filepath.Join(in, flag+".json")
				if err := os.WriteFile(file, []byte(data), 0o600); err != nil {
					t.Fatal(err)
				}
				args = append(args, "-"+flag, file)
			}
			err := run(args, io.Discard)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("error %v, want %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			entries, err := os.ReadDir(out)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range entries {
				got = append(got, e.Name())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTraceLines: ours comes first, the others by where they end; seeds are
// averaged.
func TestTraceLines(t *testing.T) {
	in, out := filepath.Join(t.TempDir(), "trace.json"), t.TempDir()
	if err := os.WriteFile(in, []byte(trace), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run([]string{"-trace", in, "-out", out}, io.Discard); err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(filepath.Join(out, "trace-allocation.svg"))
	if err != nil {
		t.Fatal(err)
	}
	const want = "daybreak: 70 at 90. fgd: 89 at 90, 95 at 100. random: 80 at 90."
	if !strings.Contains(string(svg), want) {
		t.Errorf("the description does not say %q", want)
	}
}

// TestConcepts: the pictures in the documentation are what is drawn today.
func TestConcepts(t *testing.T) {
	out := t.TempDir()
	if err := run([]string{"-concepts", "-out", out}, io.Discard); err != nil {
		t.Fatal(err)
	}
	drawn, err := os.ReadDir(out)
	if err != nil || len(drawn) != 12 {
		t.Fatalf("%d pictures (%v), want 6 in two languages", len(drawn), err)
	}
	for _, picture := range drawn {
		want, err := os.ReadFile(filepath.Join(out, picture.Name()))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile("../../docs/images/" + picture.Name())
		if err != nil || string(got) != string(want) {
			t.Errorf("docs/images/%s is out of date (%v): run go run ./hack/pictures -concepts", picture.Name(), err)
		}
	}
}
