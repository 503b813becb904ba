package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	yaml "go.yaml.in/yaml/v3" //nolint:depguard // comments are read, which sigs.k8s.io/yaml drops

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestReadConstants(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.go")
	text := `package keys

// Names on pods.
// Read by: all.
const (
	// First is the first
	// of all; see [Other].
	// On: Pod.
	// Written by: users; others.
	First = "a/b"
	// Plain has one field.
	// Read by: few.
	Plain  = "c"
	hidden = "d"
)

// Alone is in a block without fields.
const Alone = "e"
`
	gputest.Must(t, os.WriteFile(path, []byte(text), 0o600))
	got, err := readConstants(path)
	gputest.Must(t, err)
	want := []block{{text: "Names on pods.", constants: []constant{
		{name: "First", value: "a/b", text: "the first of all", fields: map[string]string{"On": "Pod", "Written by": "users; others", "Read by": "all"}},
		{name: "Plain", value: "c", text: "has one field", fields: map[string]string{"Read by": "few"}},
	}}}
	gputest.Equal(t, "blocks", want, got, cmp.AllowUnexported(block{}, constant{}))
	_, err = got[0].constants[0].need("On", "Format")
	gputest.ErrorHas(t, "a missing line", `no line that begins with "Format:"`, err)
}

// TestMetrics: types are those that are reported, labels those of the description,
// and what shows no value yet is a gauge.
func TestMetrics(t *testing.T) {
	r := recorder{registry: prometheus.NewRegistry()}
	counter := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "b_total", Help: `By "kind".`}, []string{"kind", "of"})
	counter.WithLabelValues("x", "y")
	r.MustRegister(counter, prometheus.NewHistogram(prometheus.HistogramOpts{Name: "c_seconds", Help: "C."}), silent{})
	got, err := r.metrics()
	gputest.Must(t, err)
	want := []metric{
		{name: "a", kind: "gauge", help: "A.", labels: []string{"node"}},
		{name: "b_total", kind: "counter", help: `By "kind".`, labels: []string{"kind", "of"}},
		{name: "c_seconds", kind: "histogram", help: "C."},
	}
	gputest.Equal(t, "metrics", want, got, cmp.AllowUnexported(metric{}))
}

// silent describes a metric and has no value of it.
type silent struct{}

func (silent) Describe(out chan<- *prometheus.Desc) {
	out <- prometheus.NewDesc("a", "A.", []string{"node"}, nil)
}

func (silent) Collect(chan<- prometheus.Metric) {}

func TestValues(t *testing.T) {
	least := 1.0
	s := &schema{Properties: map[string]*schema{
		"mode":  {Enum: []any{"second", ""}},
		"count": {Type: "integer", Minimum: &least},
		"budget": {Properties: map[string]*schema{
			"enabled": {Type: "boolean"}, "max": {Type: []any{"integer", "string"}},
		}},
	}}
	cases := map[string]struct {
		text    string
		want    [][]string
		wantErr string
	}{
		"comments, defaults and limits": {
			text: "# How it\n# runs.\nmode: second\n# How many.\ncount: 2\n# Who may be away.\nbudget:\n  enabled: true\n  # How many of them.\n  max: 10%\n",
			want: [][]string{
				{"`p.mode`", "`\"second\"`", "`\"second\"`, `\"\"`", "How it runs."},
				{"`p.count`", "`2`", "integer from 1", "How many."},
				{"`p.budget.enabled`", "`true`", "boolean", "Who may be away."},
				{"`p.budget.max`", "`\"10%\"`", "integer or string", "How many of them."},
			},
		},
		"a value without a comment":        {text: "count: 2\n", wantErr: "p.count: no comment in"},
		"a value that no schema speaks of": {text: "# X.\nother: 2\n", wantErr: "p.other is not in"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var document yaml.Node
			gputest.Must(t, yaml.Unmarshal([]byte(tc.text), &document))
			var got [][]string
			err := collect(&got, "p", "", document.Content[0], s)
			if tc.wantErr != "" {
				gputest.ErrorHas(t, "values", tc.wantErr, err)
				return
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
				t.Errorf("error %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// TestMistakes: every example of what admission refuses is refused.
func TestMistakes(t *testing.T) {
	var p page
	p.admission()
	if strings.Contains(p.String(), "| admitted |") {
		t.Errorf("some example is admitted:\n%s", p.String())
	}
}

func TestTable(t *testing.T) {
	var p page
	p.table([]string{"a", "b"}, [][]string{{"x|y", "two\nlines"}})
	gputest.Equal(t, "table", "\n| a | b |\n|---|---|\n| x\\|y | two lines |\n", p.String())
}
