package skew

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/internal/audit"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/fake"
	"github.com/daybreak-gpu/daybreak/test/machine"
)

// check ends the test unless everything is well after a step: nothing went wrong
// meanwhile, every new pod runs, the residents run as they did, machines hold what
// their pods do, and both versions' audits find nothing.
func (w *world) check(step string) {
	w.Helper()
	start := time.Now()
	visited := w.load.visited()
	reopen, err := w.load.quiet()
	defer reopen()
	if err = errors.Join(visited, err); err == nil {
		err = machine.Until(w.ctx, time.Minute, func() error { return problems(w.wrong()) })
	}
	for _, x := range w.parts.running() {
		w.inspect(x)
	}
	list := append(w.takeFaults(), w.load.untouched()...)
	list = append(list, w.vendor.Faults()...)
	list = append(list, w.audits()...)
	if err != nil {
		list = append(list, err.Error())
	}
	denied, err := w.requests.denied(w.AuditLog())
	if err != nil {
		list = append(list, err.Error())
	}
	list = append(list, denied...)
	if err := problems(list); err != nil {
		w.Fatalf("%s: %v", step, err)
	}
	w.Logf("%s: well after %s; %d pods came, %d requests of the parts were answered", step, time.Since(start).Round(100*time.Millisecond), w.load.count, w.requests.count)
}

// problems makes one error of what is wrong.
func problems(list []string) error {
	if len(list) == 0 {
		return nil
	}
	slices.Sort(list)
	list = slices.Compact(list)
	const most = 20
	return fmt.Errorf("%d things are wrong:\n  %s", len(list), strings.Join(list[:min(most, len(list))], "\n  "))
}

// wrong returns what may take a moment to be right after pods came or went.
func (w *world) wrong() []string {
	objects, err := cluster.ReadLive(w.ctx, w.config)
	if err != nil {
		return []string{err.Error()}
	}
	var list []string
	for _, m := range w.machines {
		if !m.Serving() {
			list = append(list, m.Node+" is not served")
		}
		list = append(list, m.CheckLeaks(objects)...)
		list = append(list, w.lostSlices(m)...)
	}
	return list
}

// lostSlices returns the residents' slices that are not what they were.
func (w *world) lostSlices(m *machine.Machine) []string {
	_, now, err := fake.Read(m.Driver())
	if err != nil {
		return []string{err.Error()}
	}
	var list []string
	for _, slice := range w.slices[m.Node] {
		if !slices.Contains(now, slice) {
			list = append(list, fmt.Sprintf("%s: slice %+v is gone or another", m.Node, slice))
		}
	}
	return list
}

// audits runs `daybreak audit` of both versions.
func (w *world) audits() []string {
	var list []string
	for _, v := range versions {
		out, err := exec.CommandContext(w.ctx, v.binary(), "audit", "--kubeconfig", w.Kubeconfig("admin")).CombinedOutput()
		if err != nil {
			list = append(list, fmt.Sprintf("daybreak audit of the %s version: %v\n%s", v, err, out))
		}
	}
	return list
}

// watchdog looks every second, while things go on, for what may never be. As the
// command does, it believes what it sees twice: objects are read one by one.
func (w *world) watchdog() {
	var before *audit.Report
	for machine.Sleep(w.ctx, time.Second) {
		objects, err := cluster.ReadLive(w.ctx, w.config)
		if err != nil {
			if w.ctx.Err() == nil {
				w.fault("read the cluster: %v", err)
			}
			return
		}
		now := audit.Check(objects.Snapshot(), time.Now())
		if before != nil {
			for _, v := range now.Confirmed(before).Violations {
				w.fault("audit while it went on: %s: %s (pods %v)", v.Rule, v.Message, v.Pods)
			}
		}
		before = now
	}
}

// inspect reads the metrics of a part: whether it found something wrong, a node that it
// can't read above all.
func (w *world) inspect(x *part) {
	if w.ctx.Err() != nil {
		return
	}
	scheme := "http://"
	if x.component == "scheduler" {
		scheme = "https://"
	}
	text, err := machine.Get(w.ctx, scheme+x.addresses["metrics"]+"/metrics")
	if err != nil {
		w.fault("metrics of %s: %v", x.pod.Name, err)
		return
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		bad := strings.HasPrefix(line, "daybreak_manager_nodes_with_bad_inventory ") || strings.HasPrefix(line, "daybreak_manager_audit_violations{") ||
			strings.HasPrefix(line, "daybreak_manager_audit_findings_total{") ||
			strings.HasPrefix(line, "daybreak_scheduler_attempts_total{") && strings.Contains(line, fmt.Sprintf("refusal=%q", place.BadInventory))
		if bad && !strings.HasSuffix(line, " 0") && x.said(line) {
			w.fault("%s (%s) says %s", x.pod.Name, x.version, line)
		}
	}
}

// said notes a line of the part's metrics, and reports whether it is new.
func (x *part) said(line string) bool {
	x.turn.Lock()
	defer x.turn.Unlock()
	if slices.Contains(x.lines, line) {
		return false
	}
	x.lines = append(x.lines, line)
	return true
}

// requests is how far the API server's audit log was read.
type requests struct {
	offset int64
	count  int
}

// request is a line of that log.
type request struct {
	Verb string `json:"verb"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	RequestURI     string        `json:"requestURI"`
	ResponseStatus metav1.Status `json:"responseStatus"`
}

// denied returns the requests of Daybreak's parts that rights, policies or the
// definition of an object denied since it was last called.
func (r *requests) denied(path string) ([]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if _, err := file.Seek(r.offset, io.SeekStart); err != nil {
		return nil, err
	}
	var list []string
	for lines := bufio.NewReader(file); ; {
		text, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return list, nil // half a line is read next time
		}
		if err != nil {
			return nil, err
		}
		r.offset += int64(len(text))
		r.count++
		var x request
		if err := json.Unmarshal(text, &x); err != nil {
			return nil, err
		}
		switch x.ResponseStatus.Code {
		case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusUnprocessableEntity:
			list = append(list, fmt.Sprintf("%s: %s %s: %d %s", x.User.Username, x.Verb, x.RequestURI, x.ResponseStatus.Code, x.ResponseStatus.Message))
		}
	}
}
