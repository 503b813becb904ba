package integration

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/internal/manager/webhook"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/fake"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// query is what a PromQL expression names. Whether it is right PromQL, promtool
// checks in test/chart.
type query struct {
	selectors []selector
	// grouped are the labels that results are grouped by, added those that the query
	// itself sets.
	grouped, added []string
}

// selector is a metric with matchers, label -> values that must exist.
type selector struct {
	metric   string
	matchers map[string][]string
}

var (
	promSelector = regexp.MustCompile(`\b((?:daybreak|mx)_\w+)(?:\{([^}]*)\})?`)
	promMatcher  = regexp.MustCompile(`(\w+)(?:=~|!~|!=|=)"([^"]*)"`)
	promAdded    = regexp.MustCompile(`, "(\w+)", "\w+", "", ""\)`) // of label_replace
	promGrouping = regexp.MustCompile(`\bby \(([^)]*)\)`)
)

func readQuery(expr string) (q query, err error) {
	for _, m := range promSelector.FindAllStringSubmatch(expr, -1) {
		s := selector{metric: m[1], matchers: map[string][]string{}}
		for _, matcher := range promMatcher.FindAllStringSubmatch(m[2], -1) {
			s.matchers[matcher[1]] = strings.Split(matcher[2], "|")
		}
		q.selectors = append(q.selectors, s)
	}
	for _, m := range promGrouping.FindAllStringSubmatch(expr, -1) {
		q.grouped = append(q.grouped, strings.Split(m[1], ", ")...)
	}
	for _, m := range promAdded.FindAllStringSubmatch(expr, -1) {
		q.added = append(q.added, m[1])
	}
	if len(q.selectors) == 0 {
		return q, fmt.Errorf("%s names no metric of ours", expr)
	}
	return q, nil
}

// exposed is what running processes expose: metric -> label -> values.
type exposed map[string]map[string]map[string]bool

var (
	seriesLine = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$`)
	labelPair  = regexp.MustCompile(`([a-zA-Z_]+)="((?:[^"\\]|\\.)*)"`)
)

// add reads a process's answer.
func (e exposed) add(text string) {
	for line := range strings.Lines(text) {
		m := seriesLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		if e[m[1]] == nil {
			e[m[1]] = map[string]map[string]bool{}
		}
		for _, pair := range labelPair.FindAllStringSubmatch(m[2], -1) {
			if e[m[1]][pair[1]] == nil {
				e[m[1]][pair[1]] = map[string]bool{}
			}
			e[m[1]][pair[1]][pair[2]] = true
		}
	}
}

// ours lists the metrics of our own, histograms by their base name.
func (e exposed) ours() []string {
	names := map[string]bool{}
	for name := range e {
		if !strings.HasPrefix(name, "daybreak_") {
			continue
		}
		if base, ok := strings.CutSuffix(name, "_bucket"); ok {
			names[base] = true
			delete(names, base+"_sum")
			delete(names, base+"_count")
			continue
		}
		for _, suffix := range []string{"_sum", "_count"} {
			if base, ok := strings.CutSuffix(name, suffix); ok && e[base+"_bucket"] != nil {
				name = base
			}
		}
		names[name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// check says what of the query no process exposes.
func (e exposed) check(q *query) error {
	known := map[string]bool{"instance": true, "job": true, "le": true}
	for _, s := range q.selectors {
		labels, ok := e[s.metric]
		if !ok {
			return fmt.Errorf("no process exposes %s", s.metric)
		}
		for label, values := range s.matchers {
			if labels[label] == nil {
				return fmt.Errorf("%s has no label %s", s.metric, label)
			}
			for _, v := range values {
				if !labels[label][v] {
					return fmt.Errorf("%s has no series with %s=%q", s.metric, label, v)
				}
			}
		}
		for label := range labels {
			known[label] = true
		}
	}
	for _, label := range q.grouped {
		if !known[label] {
			return fmt.Errorf("none of its metrics has the label %s", label)
		}
	}
	return nil
}

// exposed starts everything on one cluster and returns what it exposes.
func (w *world) exposed(t *testing.T) exposed {
	t.Helper()
	library := fake.Library(t, fake.V231)
	const node = "watched"
	w.adopt(node, 8)
	h := newHardware(t, 8, 4)
	agentAddress, schedulerAddress, managerAddress, admissionAddress := w.FreeAddress(), w.FreeAddress(), w.FreeAddress(), w.FreeAddress()
	w.agent(node, []string{fake.EnvConfig + "=" + h.path}, "--source=mxsml", "--mxsml="+library, "--sysfs="+h.sysfs(), "--metrics-bind-address="+agentAddress)
	_, port, _ := strings.Cut(schedulerAddress, ":")
	w.Scheduler("scheduler", "--bind-address=127.0.0.1", "--secure-port="+port, "--authorization-always-allow-paths=/metrics")
	w.Must(w.Webhook(w.Ctx, admissionAddress))
	w.Manager("manager", manager.Config{
		MetricsAddress: managerAddress, AuditInterval: time.Second,
		Admission: manager.Admission{Address: admissionAddress, Rules: webhook.Rules{Schedulers: []string{"default-scheduler"}}},
	})
	w.admits()
	w.Create(pod("slice", "sgpu=1", "vcore=30", "vmemory=8"))
	w.Bound("slice")
	for i := range 31 { // the fragmentation is not known of fewer than 32 pods
		w.Create(pod(fmt.Sprintf("wide-%d", i), "gpu=16"))
	}
	budget := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "budget"}}
	budget.Spec.Hard = corev1.ResourceList{}
	for _, name := range wire.AmountResources() {
		budget.Spec.Hard["requests."+name] = resource.MustParse("1Ti")
	}
	_, err := w.Client.CoreV1().ResourceQuotas(budget.Namespace).Create(w.Ctx, budget, metav1.CreateOptions{})
	w.Must(err)
	e := exposed{}
	w.Eventually("all three expose their metrics", time.Minute, func() error {
		clear(e)
		for _, url := range []string{"http://" + agentAddress, "https://" + schedulerAddress, "http://" + managerAddress} {
			text, err := get(url + "/metrics")
			if err != nil {
				return err
			}
			e.add(text)
		}
		for _, name := range []string{"daybreak_manager_node_compute_allocated_percent", "daybreak_manager_node_compute_percent", "daybreak_manager_fragmentation_ratio", "mx_gpu_usage"} {
			if e[name] == nil {
				return fmt.Errorf("no %s yet", name)
			}
		}
		if !e["daybreak_manager_namespace_cards"]["type"]["budget"] {
			return errors.New("no budget yet")
		}
		return nil
	})
	return e
}

// rule is an alert.
type rule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func monitoring(name string) string {
	return filepath.Join(root, "charts", "daybreak", "monitoring", name)
}

func readRules(t *testing.T) []rule {
	t.Helper()
	text, err := os.ReadFile(monitoring("alerts.yaml"))
	gputest.Must(t, err)
	var file struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}
	gputest.Must(t, yaml.UnmarshalStrict(text, &file))
	var rules []rule
	for _, g := range file.Groups {
		rules = append(rules, g.Rules...)
	}
	return rules
}

// panel is what a dashboard's panel asks for.
type panel struct {
	Title, Type, Description string
	Targets                  []struct{ Expr, LegendFormat string }
}

func readDashboard(t *testing.T) []panel {
	t.Helper()
	var board struct{ Panels []panel }
	readJSON(t, monitoring("dashboard.json"), &board)
	return board.Panels
}

// templateLabel is a label that a text fills in.
var templateLabel = regexp.MustCompile(`\$labels\.(\w+)|\{\{(\w+)\}\}`)

// fills checks that what the text fills in is there.
func fills(text string, q *query) error {
	for _, m := range templateLabel.FindAllStringSubmatch(text, -1) {
		if label := m[1] + m[2]; !slices.Contains(q.grouped, label) && !slices.Contains(q.added, label) {
			return fmt.Errorf("%q fills in %s, which the result does not have", text, label)
		}
	}
	return nil
}

// TestMonitoring: every alert and every panel asks for figures that the
// processes expose, with the labels and values that they have, and what they expose
// is written down.
func TestMonitoring(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.exposed(t)
	rules := readRules(t)
	if len(rules) == 0 {
		t.Error("there are no rules")
	}
	for _, r := range rules {
		q, err := readQuery(r.Expr)
		if err == nil {
			err = errors.Join(e.check(&q), fills(r.Annotations["summary"], &q), fills(r.Annotations["description"], &q), complete(&r))
		}
		if err != nil {
			t.Errorf("alert %s: %v", r.Alert, err)
		}
	}
	panels := readDashboard(t)
	if len(panels) == 0 {
		t.Error("the dashboard is empty")
	}
	for _, p := range panels {
		if p.Type != "row" && (p.Title == "" || p.Description == "" || len(p.Targets) == 0) {
			t.Errorf("panel %q lacks a title, a description or a query", p.Title)
		}
		for _, target := range p.Targets {
			q, err := readQuery(target.Expr)
			if err == nil {
				err = errors.Join(e.check(&q), fills(target.LegendFormat, &q))
			}
			if err != nil {
				t.Errorf("panel %s: %v", p.Title, err)
			}
		}
	}
	for _, page := range []string{"docs/monitor.md", "docs/zh/monitor.md"} {
		if err := documented(e.ours(), page); err != nil {
			t.Errorf("%s: %v", page, err)
		}
	}
}

// complete says what an alert lacks.
func complete(r *rule) error {
	for _, key := range []string{"summary", "description", "runbook_url"} {
		if r.Annotations[key] == "" {
			return fmt.Errorf("no %s", key)
		}
	}
	if r.Labels["severity"] == "" {
		return errors.New("no severity")
	}
	page := r.Annotations["runbook_url"][strings.LastIndex(r.Annotations["runbook_url"], "/")+1:]
	for _, folder := range []string{"docs/runbooks", "docs/zh/runbooks"} {
		text, err := os.ReadFile(filepath.Join(root, folder, page))
		if err != nil {
			return err
		}
		if !strings.Contains(string(text), r.Alert) {
			return fmt.Errorf("%s/%s does not name it", folder, page)
		}
	}
	return nil
}

var documentedMetric = regexp.MustCompile("`(daybreak_[a-z_]+)")

// documented says what a page leaves out, or lists without reason. The
// agent's metrics have a page of their own.
func documented(served []string, page string) error {
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		return err
	}
	named := map[string]bool{}
	for _, m := range documentedMetric.FindAllStringSubmatch(string(text), -1) {
		named[m[1]] = true
	}
	var problems []error
	for _, name := range served {
		if !named[name] && !strings.HasPrefix(name, "daybreak_agent_") {
			problems = append(problems, fmt.Errorf("%s is left out", name))
		}
		delete(named, name)
	}
	for name := range named {
		problems = append(problems, fmt.Errorf("no process exposes %s", name))
	}
	return errors.Join(problems...)
}

// TestContinuousAudit: a card is given to two pods, around the scheduler
// and where no policy forbids it. The manager notices, says so once on both pods
// and on the node, and counts it.
func TestContinuousAudit(t *testing.T) {
	t.Parallel()
	w := newOpenWorld(t)
	w.AddNodes(1)
	address := w.FreeAddress()
	w.Manager("manager", manager.Config{MetricsAddress: address, AuditInterval: time.Second})
	d := w.device("metax-1")
	allocated := fmt.Sprintf(`[[{"uuid":%q,"compute":100,"vRam":65536}]]`, d.Spec.Devices[0].UUID)
	for _, name := range []string{"first", "second"} {
		p := pod(name, "gpu=1")
		p.Annotations = map[string]string{wire.AnnotationAllocated: allocated}
		p.Spec.NodeName = "metax-1"
		w.Create(p)
	}
	served := running{url: "http://" + address}
	w.Eventually("the double booking is counted", time.Minute, func() error {
		n, err := served.metric("daybreak_manager_double_bookings_total")
		if err == nil && n == 0 {
			err = errors.New("none yet")
		}
		return err
	})
	reported := func() map[string]int {
		list, err := w.Client.CoreV1().Events("").List(w.Ctx, metav1.ListOptions{})
		w.Must(err)
		count := map[string]int{}
		for i := range list.Items {
			if e := &list.Items[i]; e.Reason == "ExclusiveShared" && e.Type == corev1.EventTypeWarning {
				count[e.InvolvedObject.Kind+" "+e.InvolvedObject.Name] += 1 + seriesCount(e)
			}
		}
		return count
	}
	w.Eventually("it is reported", time.Minute, func() error {
		if n := len(reported()); n < 3 {
			return fmt.Errorf("%d objects have an event", n)
		}
		return nil
	})
	time.Sleep(5 * time.Second) // several audits more
	for object, n := range reported() {
		if n != 1 {
			t.Errorf("%s was reported %d times", object, n)
		}
	}
	w.Delete("second")
	w.Eventually("the violation is resolved", time.Minute, func() error {
		n, err := served.metric(`daybreak_manager_audit_violations{rule="ExclusiveShared"}`)
		if err == nil && n > 0 {
			err = fmt.Errorf("%v violations", n)
		}
		return err
	})
	if n, err := served.metric("daybreak_manager_double_bookings_total"); err != nil || n == 0 {
		t.Errorf("double bookings: %v, %v", n, err)
	}
}

// seriesCount returns how often an event was repeated.
func seriesCount(e *corev1.Event) int {
	if e.Series == nil {
		return 0
	}
	return int(e.Series.Count)
}

// TestPlacementEvent: the one event of a pod that was bound names its cards.
func TestPlacementEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.AddNodes(2)
	w.Scheduler("scheduler")
	w.Create(pod("slice", "sgpu=1", "vcore=25", "vmemory=8"), pod("pair", "gpu=2"))
	plain := pod("plain")
	plain.Spec.SchedulerName = "default-scheduler"
	w.Create(plain)
	for name, want := range map[string]string{
		"slice": "25% and 8 GiB of card ", "pair": " (all linked), picked from 2 nodes with room", "plain": "",
	} {
		node := w.Bound(name).Spec.NodeName
		assigned := fmt.Sprintf("Successfully assigned default/%s to %s", name, node)
		var messages []string
		w.Eventually("event of "+name, time.Minute, func() error {
			list, err := w.Client.CoreV1().Events("default").List(w.Ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
			if err != nil {
				return err
			}
			messages = nil
			for i := range list.Items {
				if list.Items[i].ReportingController == "default-scheduler" && list.Items[i].Type == corev1.EventTypeNormal {
					messages = append(messages, list.Items[i].Message)
				}
			}
			if len(messages) == 0 {
				return errors.New("none yet")
			}
			return nil
		})
		t.Logf("%s: %q", name, messages)
		if len(messages) != 1 || !strings.HasPrefix(messages[0], assigned) || !strings.Contains(messages[0], want) || want == "" && messages[0] != assigned {
			t.Errorf("the events of %s are %q, want one: %s … %s", name, messages, assigned, want)
		}
	}
}
