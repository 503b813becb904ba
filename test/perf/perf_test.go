package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestPlans(t *testing.T) {
	files, err := filepath.Glob("bench*.yaml")
	if err != nil || len(files) != 3 {
		t.Fatalf("plans: %v, %v", files, err)
	}
	for _, file := range files {
		p, err := loadPlan(file)
		gputest.Must(t, err)
		if p.Rounds < 3 || p.Bounds.Ratio == 0 && len(p.Peers) == 0 { // peers have no bound to keep
			t.Errorf("%s: %d rounds and a ratio of %v are no measurement", file, p.Rounds, p.Bounds.Ratio)
		}
		for name := range p.Workloads {
			w := p.Workloads[name]
			if pods := p.backlog(&w, 50); len(pods) < 50 {
				t.Errorf("%s: workload %s has %d pods, want 50", file, name, len(pods))
			}
		}
	}
}

func TestPlanProblems(t *testing.T) {
	const kinds = "kinds: {a: {resources: {cpu: 1}}}\nworkloads: {w: {mix: {a: 1}}}\n"
	tests := map[string]struct{ text, want string }{
		"no rounds":        {text: "rounds: 0", want: "rounds: 0: write 1 or more"},
		"an unknown field": {text: "round: 3", want: `unknown field "round"`},
		"no quantity":      {text: "rounds: 1\nkinds: {a: {resources: {cpu: much}}}", want: `kind a: cpu: "much": write a quantity`},
		"an unknown kind":  {text: "rounds: 1\nworkloads: {w: {mix: {b: 1}}}", want: `workload w: there is no kind "b"`},
		"no nodes":         {text: "rounds: 1\n" + kinds + "clusters: [{nodes: 0}]", want: "cluster 0: nodes: 0: write 1 or more"},
		"one pod":          {text: "rounds: 1\n" + kinds + "clusters: [{nodes: 1, pods: 1, workloads: [w]}]", want: "cluster 0: pods: 1: write 2 or more"},
		"no such workload": {text: "rounds: 1\n" + kinds + "clusters: [{nodes: 1, pods: 9, workloads: [x]}]", want: `there is no workload "x"`},
		"no pod to wake":   {text: "rounds: 1\n" + kinds + "clusters: [{nodes: 1, wake: {waiting: {kind: a, pods: 1}, helped: {kind: a, pods: 1}}}]", want: "there must be residents to end"},
		"an unknown peer":  {text: "rounds: 1\n" + kinds + "peers: [volcano]", want: `peers: "volcano": write koordinator or hami`},
		"no resident to evict": {
			text: "rounds: 1\nkinds: {a: {resources: {cpu: 1}}}\nworkloads: {w: {mix: {a: 1}, preempts: true}}\nclusters: [{nodes: 1, pods: 9, workloads: [w]}]",
			want: "cluster 0: workload w: there must be residents to evict",
		},
		"no amount of a budget": {
			text: "rounds: 1\nkinds: {a: {resources: {cpu: 1}}}\nworkloads: {w: {mix: {a: 1}, quota: {hard: {limits.metax-tech.com/vcore: much}}}}",
			want: `workload w: quota: limits.metax-tech.com/vcore: "much": write a quantity`,
		},
		"fewer shapes than none": {text: "rounds: 1\nkinds: {a: {resources: {cpu: 1}}}\nworkloads: {w: {mix: {a: 1}, shapes: -1}}", want: "workload w: shapes: -1, rare: 0, rounds: 0: write 1 or more, at most 500 shapes"},
		"a core of nothing":      {text: "rounds: 1\n" + kinds + "core: {nodes: [1], pods: 0, workload: w}", want: "core: pods: 0: write 1 or more"},
		"churn of no workload":   {text: "rounds: 1\n" + kinds + "core: {nodes: [1], pods: 1, workload: w, churn: {nodes: 1, pods: 1, workload: x}}", want: `core: churn: workload "x", 1 nodes, 1 pods: name a workload`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "plan.yaml")
			gputest.Must(t, os.WriteFile(file, []byte(tt.text), 0o600))
			_, err := loadPlan(file)
			gputest.ErrorHas(t, "loadPlan()", tt.want, err)
		})
	}
}

// TestPods: pods of the plans are as their workloads and kinds say.
func TestPods(t *testing.T) {
	for _, file := range []string{"bench.yaml", "bench-full.yaml"} {
		p, err := loadPlan(file)
		gputest.Must(t, err)
		shapes := p.Workloads["slices-shapes"]
		different := map[place.Key]bool{}
		for _, pod := range p.backlog(&shapes, 1500) {
			r := pod.Spec.Containers[0].Resources
			if r.Limits.Cpu().Cmp(*r.Requests.Cpu()) != 0 {
				t.Fatalf("limits and requests differ: %v", r)
			}
			ask, problems := request.Read(pod)
			if len(problems) > 0 {
				t.Fatal(problems.ToAggregate())
			}
			different[place.KeyOf(&ask.Request, &ask.Prefer)] = true
		}
		if len(different) != 500 {
			t.Errorf("%s: %d shapes to the scheduler, want 500", file, len(different))
		}
		preempt := p.Workloads["preempt"]
		filler, preemptor := p.Kinds["filler"].pod("f", roleResident), p.backlog(&preempt, 2)[1]
		if preemptor.Spec.PriorityClassName == "" || filler.Spec.PriorityClassName != "" || *filler.Spec.TerminationGracePeriodSeconds != 0 {
			t.Errorf("%s: a preemptor of class %q, a filler of class %q with %d s", file,
				preemptor.Spec.PriorityClassName, filler.Spec.PriorityClassName, *filler.Spec.TerminationGracePeriodSeconds)
		}
		if a := p.Kinds["apart"].pod("a", roleResident); a.Spec.Affinity.PodAntiAffinity == nil || a.Labels[labelApart] == "" {
			t.Errorf("%s: a pod that does not prefer to be apart: %v", file, a.Spec.Affinity)
		}
	}
}

func TestKeep(t *testing.T) {
	p := &Plan{Clusters: []ClusterPlan{{Nodes: 100, Workloads: []string{"slices", "mix"}}, {Nodes: 500, Workloads: []string{"mix"}, Start: true}}, Core: &CorePlan{}}
	gputest.Must(t, p.keep(regexp.MustCompile("100/mix|start")))
	want := []ClusterPlan{{Nodes: 100, Workloads: []string{"mix"}}, {Nodes: 500, Workloads: []string{}, Start: true}}
	if diff := cmp.Diff(want, p.Clusters); diff != "" || p.Core != nil {
		t.Errorf("kept (-want +got):\n%s\ncore: %v", diff, p.Core)
	}
	if err := p.keep(regexp.MustCompile("nothing")); err == nil {
		t.Error("nothing is kept, without an error")
	}
}

const page = `# HELP apiserver_request_total requests
apiserver_request_total{code="201",resource="pods",subresource="binding",verb="POST"} 10
apiserver_request_total{code="409",resource="pods",subresource="binding",verb="POST"} 2
apiserver_request_total{code="201",resource="events",subresource="",verb="POST"} 9
apiserver_request_total{code="200",resource="pods",subresource="",verb="WATCH"} 5
apiserver_request_total{code="200",resource="leases",subresource="",verb="PUT"} 7
apiserver_request_total_more{resource="pods",verb="POST"} 99
cycle_bucket{le="0.001"} 50
cycle_bucket{le="0.002"} 90
cycle_bucket{le="0.004"} 100
cycle_bucket{le="+Inf"} 100
plain_value 3.5
`

func TestSamples(t *testing.T) {
	s := samples(page)
	gputest.Equal(t, "calls", map[string]float64{"POST pods/binding": 12, "POST events": 9}, calls(s))
	if got := s.Sum("plain_value"); got != 3.5 {
		t.Errorf("sum = %v, want 3.5", got)
	}
	before := samples("cycle_bucket{le=\"0.001\"} 50\ncycle_bucket{le=\"0.002\"} 50\ncycle_bucket{le=\"0.004\"} 50\ncycle_bucket{le=\"+Inf\"} 50\n")
	for _, q := range []struct {
		q, want float64
		before  samples
	}{
		{0.5, 0.001, ""}, {0.7, 0.0015, ""}, {0.95, 0.003, ""}, {0.4, 0.0015, before}, {0.99, 0, s},
	} {
		if got := s.Quantile(q.q, "cycle", q.before); math.Abs(got-q.want) > 1e-9 {
			t.Errorf("quantile(%v) = %v, want %v", q.q, got, q.want)
		}
	}
	gputest.Equal(t, "mean", 2.0, samples("took_sum{at=\"a\"} 6\ntook_count{at=\"a\"} 3\ntook_sum{at=\"b\"} 9\n").Mean("took", "at", "a"))
	gputest.Equal(t, "fewer", map[string]float64{"a": 2.0}, fewer(map[string]float64{"a": 5, "b": 1}, map[string]float64{"a": 3, "b": 1}))
}

func TestMedians(t *testing.T) {
	got := medians([]Figures{
		{PodsPerSecond: 300, PeakMiB: 1, Calls: map[string]float64{"POST events": 1}},
		{PodsPerSecond: 100, PeakMiB: 3, Calls: map[string]float64{"POST events": 0.5}},
		{PodsPerSecond: 200, PeakMiB: 2, Calls: map[string]float64{"POST events": 0.8}},
	})
	want := Figures{PodsPerSecond: 200, PeakMiB: 2, Calls: map[string]float64{"POST events": 0.8}}
	gputest.Equal(t, "medians", want, got)
	if got := median([]float64{4, 1}); got != 2.5 || median(nil) != 0 {
		t.Errorf("median of two = %v, want 2.5", got)
	}
}

// TestVerdicts: every bound can be missed.
func TestVerdicts(t *testing.T) {
	plan, err := loadPlan("bench-full.yaml")
	gputest.Must(t, err)
	run := func(nodes int, workload string, residents int, daybreak, plain, calls, p99, mib float64) Run {
		return Run{
			Nodes: nodes, Workload: workload, Residents: residents, DaybreakPodsPerSecond: daybreak, PlainPodsPerSecond: plain, Ratio: daybreak / plain,
			Daybreak: Figures{CallsPerPod: calls, CycleP99Milliseconds: p99, PeakMiB: mib}, Plain: Figures{CallsPerPod: 2},
		}
	}
	good := Result{
		Runs: []Run{
			run(500, "slices", 0, 101, 100, 2, 1, 100), run(5000, "slices", 0, 101, 100, 2, 3, 1000), run(500, "slices-unfit", 0, 101, 100, 2, 1, 100),
			run(500, "ordinary", 0, 99, 100, 2, 1, 100), run(5000, "cards-left", 38000, 101, 100, 2, 1, 1500),
		},
		Starts: []Start{{DaybreakSeconds: 14}}, Wakes: []Wake{{Ends: 1, Daybreak: WakeFigures{MaxMilliseconds: 900, AttemptsPerEnd: 1}}},
	}
	good.judge(plan)
	if good.missed() || len(good.Bounds) != 20 {
		t.Errorf("%d verdicts: %+v", len(good.Bounds), good.Bounds)
	}
	bad := Result{
		Runs: []Run{
			run(500, "slices", 0, 99, 100, 3, 1, 2000), run(5000, "slices", 0, 99, 100, 3, 4, 2000), run(500, "slices-unfit", 0, 80, 100, 3, 1, 2000),
			run(500, "ordinary", 0, 97, 100, 3, 1, 2000), run(5000, "cards-left", 38000, 99, 100, 3, 1, 2000),
		},
		Starts: []Start{{DaybreakSeconds: 16}}, Wakes: []Wake{{Ends: 1, Daybreak: WakeFigures{MaxMilliseconds: 1100, AttemptsPerEnd: 2}}},
	}
	bad.judge(plan)
	for _, v := range bad.Bounds {
		if v.Holds {
			t.Errorf("%+v holds", v)
		}
	}
}

// TestContenders: in as many rounds as there are schedulers, each is first once. Next to
// peers, each has its own limits too.
func TestContenders(t *testing.T) {
	var first []string
	for round := range 5 {
		c := contenders(round, koordinator)[0]
		first = append(first, string(c.side)+" "+string(c.limits))
	}
	gputest.Equal(t, "first", []string{"daybreak equal", "plain equal", "koordinator equal", "plain own", "koordinator own"}, first)
	gputest.Equal(t, "with an earlier Daybreak", "[{earlier equal} {daybreak equal} {plain equal}]", fmt.Sprint(contenders(2, earlier)))
	if got := len(contenders(0)); got != 2 {
		t.Errorf("%d contenders without peers, want 2", got)
	}
}

func TestPeersTable(t *testing.T) {
	r := Result{Runs: []Run{{
		Nodes: 100, Workload: "slices", PlainPodsPerSecond: 200, Daybreak: Figures{PodsPerSecond: 300}, Plain: Figures{PodsPerSecond: 200},
		Peers: []Peer{
			{Scheduler: koordinator, Limits: equalLimits, Figures: Figures{PodsPerSecond: 10}},
			{Scheduler: plain, Limits: ownLimits, Figures: Figures{PodsPerSecond: 50}}, {Scheduler: koordinator, Limits: ownLimits, Figures: Figures{PodsPerSecond: 5}},
		},
	}}}
	var table bytes.Buffer
	gputest.Must(t, r.print(&table))
	for _, row := range []string{
		"equal   daybreak     300.0   1.50", "equal   plain        200.0   1.00", "equal   koordinator  10.0    0.05",
		"own     daybreak     300.0   6.00", "own     plain        50.0    1.00", "own     koordinator  5.0     0.10",
	} {
		if !strings.Contains(table.String(), "100    slices    "+row) {
			t.Errorf("no row %q in:\n%s", row, table.String())
		}
	}
}

// TestContract: the fields that others script against are there under their
// names.
func TestContract(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bench.json")
	r := Result{Runs: []Run{{Nodes: 100, Workload: "slices", DaybreakPodsPerSecond: 3, PlainPodsPerSecond: 2, Ratio: 1.5}}}
	gputest.Must(t, r.save(file))
	text, err := os.ReadFile(file)
	gputest.Must(t, err)
	var got struct {
		Runs []map[string]any `json:"runs"`
	}
	gputest.Must(t, json.Unmarshal(text, &got))
	for key, want := range map[string]any{"nodes": 100.0, "workload": "slices", "daybreakPodsPerSecond": 3.0, "plainPodsPerSecond": 2.0, "ratio": 1.5} {
		if got.Runs[0][key] != want {
			t.Errorf("%s = %v, want %v", key, got.Runs[0][key], want)
		}
	}
	var table bytes.Buffer
	gputest.Must(t, r.print(&table))
	if !strings.Contains(table.String(), "100    slices    0     3           2        1.50") {
		t.Errorf("table:\n%s", table.String())
	}
}

func TestKeepEarlier(t *testing.T) {
	now := &Result{
		Runs:  []Run{{Nodes: 500, Workload: "slices", Ratio: 2}, {Nodes: 100, Workload: "mix", Ratio: 2}},
		Wakes: []Wake{{Nodes: 500, Waiting: 10}},
	}
	now.keep(&Result{
		Runs:   []Run{{Nodes: 500, Workload: "slices", Ratio: 1}, {Nodes: 500, Workload: "mix", Ratio: 1}, {Nodes: 500, Workload: "mix", Residents: 7, Ratio: 1}},
		Starts: []Start{{Nodes: 5000, BoundPods: 9}},
		Core:   []CoreFigures{{Nodes: 100}},
	})
	want := &Result{
		Runs: []Run{
			{Nodes: 100, Workload: "mix", Ratio: 2},
			{Nodes: 500, Workload: "mix", Ratio: 1},
			{Nodes: 500, Workload: "slices", Ratio: 2},
			{Nodes: 500, Workload: "mix", Residents: 7, Ratio: 1},
		},
		Starts: []Start{{Nodes: 5000, BoundPods: 9}},
		Wakes:  []Wake{{Nodes: 500, Waiting: 10}},
		Core:   []CoreFigures{{Nodes: 100}},
	}
	gputest.Equal(t, "keep()", want, now)
}
