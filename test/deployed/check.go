package deployed

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/machine"
)

// Inspect reads the metrics of a part: whether it found something wrong, a node that it
// can't read above all.
func (w *World) Inspect(x *Part) {
	if w.Ctx.Err() != nil {
		return
	}
	scheme := "http://"
	if x.Component == "scheduler" {
		scheme = "https://"
	}
	text, err := machine.Get(w.Ctx, scheme+x.addresses["metrics"]+"/metrics")
	if err != nil {
		w.Fault("metrics of %s: %v", x.Pod.Name, err)
		return
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		bad := strings.HasPrefix(line, "daybreak_manager_nodes_with_bad_inventory ") || strings.HasPrefix(line, "daybreak_manager_audit_violations{") ||
			strings.HasPrefix(line, "daybreak_manager_audit_findings_total{") ||
			strings.HasPrefix(line, "daybreak_scheduler_attempts_total{") && strings.Contains(line, fmt.Sprintf("refusal=%q", place.BadInventory))
		if bad && !strings.HasSuffix(line, " 0") && x.said(line) {
			w.Fault("%s (%s) says %s", x.Pod.Name, x.Version, line)
		}
	}
}

// said notes a line of the part's metrics, and reports whether it is new.
func (x *Part) said(line string) bool {
	x.turn.Lock()
	defer x.turn.Unlock()
	if slices.Contains(x.lines, line) {
		return false
	}
	x.lines = append(x.lines, line)
	return true
}

// Requests is how far the API server's audit log was read.
type Requests struct {
	offset int64
	// Count is how many of its lines were read.
	Count int
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

// Denied returns the requests of Daybreak's parts that rights, policies or the
// definition of an object denied since it was last called.
func (r *Requests) Denied(path string) ([]string, error) {
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
		r.Count++
		var x request
		if err := json.Unmarshal(text, &x); err != nil {
			return nil, err
		}
		// client-go lists where a server has no such watch yet.
		if x.ResponseStatus.Code == http.StatusUnprocessableEntity && strings.Contains(x.RequestURI, "sendInitialEvents=true") {
			continue
		}
		switch x.ResponseStatus.Code {
		case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusUnprocessableEntity:
			list = append(list, fmt.Sprintf("%s: %s %s: %d %s", x.User.Username, x.Verb, x.RequestURI, x.ResponseStatus.Code, x.ResponseStatus.Message))
		}
	}
}
