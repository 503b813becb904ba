package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/agent"
	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/manager/policy"
	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/harness"
)

// idleEnv makes TestAgentIdle watch for longer: DAYBREAK_IDLE=1m.
const idleEnv = "DAYBREAK_IDLE"

// TestAgentIdle: an agent with sixteen cards of which nothing changes writes
// nothing to the API server, and takes little memory. What it takes of a core
// is logged.
func TestAgentIdle(t *testing.T) {
	t.Parallel()
	watch := 15 * time.Second
	if text := os.Getenv(idleEnv); text != "" {
		var err error
		if watch, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", idleEnv, err)
		}
	}
	auditPolicy := filepath.Join(t.TempDir(), "policy.yaml")
	writeFile(t, auditPolicy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n")
	w := newOwnWorld(t, harness.Audited(t.TempDir(), auditPolicy))
	const node = "idle"
	w.adopt(node, 16)
	a := w.agent(node, nil, "--source=simulated", "--profile=c600-16", "--poll="+agent.DefaultPoll.String())
	w.deviceSays(node, "sixteen cards", func(d *v1alpha1.Device) bool { return healthyCards(d) == 16 })
	time.Sleep(3 * time.Second) // its first events and its one write to the Node

	user := policy.ServiceAccount(local.AgentNamespace, local.AgentAccount)
	before := len(w.writesOf(user))
	cpu := cpuOf(t, a.PID())
	time.Sleep(watch)
	cpu = cpuOf(t, a.PID()) - cpu
	memory := anonymousKiB(t, a.PID())
	writes := w.writesOf(user)
	t.Logf("in %s: %d writes, %.2f %% of a core, %.1f MiB of anonymous memory; %d writes before: %s",
		watch, len(writes)-before, 100*cpu.Seconds()/watch.Seconds(), float64(memory)/1024, before, strings.Join(writes[:before], ", "))
	if len(writes) != before {
		t.Errorf("writes while nothing changes: %v", writes[before:])
	}
	if before < 2 {
		t.Errorf("%d writes are in the log, want at least the Device and the Node: is it read right?", before)
	}
	if memory > 60<<10 {
		t.Errorf("%d KiB of anonymous memory, want less than 60 MiB", memory)
	}
}

// writesOf returns what the user wrote, from the audit log, when that has come
// to rest.
func (w *world) writesOf(user string) []string {
	w.Helper()
	time.Sleep(2 * time.Second) // the log is written in batches
	file, err := os.Open(w.AuditLog())
	w.Must(err)
	defer file.Close()
	var writes []string
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			Verb string `json:"verb"`
			User struct {
				Username string `json:"username"`
			} `json:"user"`
			ObjectRef struct {
				Resource string `json:"resource"`
				Name     string `json:"name"`
			} `json:"objectRef"`
		}
		w.Must(json.Unmarshal(lines.Bytes(), &e))
		if e.User.Username == user && !slices.Contains([]string{"get", "list", "watch"}, e.Verb) {
			writes = append(writes, fmt.Sprintf("%s %s/%s", e.Verb, e.ObjectRef.Resource, e.ObjectRef.Name))
		}
	}
	w.Must(lines.Err())
	return writes
}

// cpuOf returns the processor time that a process has used.
func cpuOf(t *testing.T, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	gputest.Must(t, err)
	// The name in brackets may hold spaces; user and system time are the 12th
	// and 13th field after it, in hundredths of a second.
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	var sum time.Duration
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		gputest.Must(t, err)
		sum += time.Duration(n) * 10 * time.Millisecond
	}
	return sum
}

// anonymousKiB returns the memory of a process that no file stands for.
func anonymousKiB(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	gputest.Must(t, err)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			gputest.Must(t, err)
			return n
		}
	}
	t.Fatal("no RssAnon")
	return 0
}
