package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/daybreak-gpu/daybreak/internal/manager"
)

// request is a line of the API server's audit log, as far as rights go.
type request struct {
	Verb string `json:"verb"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Group       string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	RequestURI     string `json:"requestURI"`
	ResponseStatus struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"responseStatus"`
	Annotations map[string]string `json:"annotations"`
}

// unused are rights that a run of these tests has no use for, with the reason.
var unused = map[string]string{
	"scheduler nodes patch":                  "the lock of nodes that the vendor's plugin serves; there is none here",
	"scheduler leases get kube-scheduler":    "in the place of kube-scheduler",
	"scheduler leases update kube-scheduler": "in the place of kube-scheduler",
}

// onlyWhatIsNeeded reads the API server's audit log: nothing that a part did was
// forbidden to it, and everything that it may do it did.
func (w *world) onlyWhatIsNeeded() {
	w.Helper()
	w.eventually("the audit log is written", 30*time.Second, func() error {
		_, err := os.Stat(w.AuditLog())
		return err
	})
	byPart := map[string][]request{}
	file, err := os.Open(w.AuditLog())
	w.must(err)
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r request
		w.must(json.Unmarshal(lines.Bytes(), &r))
		name, ours := strings.CutPrefix(r.User.Username, "system:serviceaccount:"+manager.DefaultNamespace+":daybreak-")
		if !ours {
			continue
		}
		byPart[name] = append(byPart[name], r)
		if r.Annotations["authorization.k8s.io/decision"] == "forbid" || r.ResponseStatus.Code == 403 {
			w.Errorf("%s was forbidden to %s %s: %s", name, r.Verb, r.RequestURI, r.ResponseStatus.Message)
		}
	}
	w.must(lines.Err())
	for _, part := range []string{"scheduler", "manager", "agent"} {
		w.Logf("%s made %d requests", part, len(byPart[part]))
		for _, right := range w.rights(part) {
			key := strings.TrimSpace(part + " " + right.String())
			_, excused := unused[key]
			if used := slices.ContainsFunc(byPart[part], right.covers); used == excused {
				w.Errorf("the right %q: used %v, listed as unused %v", key, used, excused)
			}
		}
	}
}

// right is one verb on one kind of object, maybe of one name.
type right struct{ group, resource, verb, name string }

func (r right) String() string { return strings.TrimSpace(r.resource + " " + r.verb + " " + r.name) }

// covers tells whether the request needed the right.
func (r right) covers(q request) bool {
	resource := q.ObjectRef.Resource
	if q.ObjectRef.Subresource != "" {
		resource += "/" + q.ObjectRef.Subresource
	}
	return r.group == q.ObjectRef.Group && r.resource == resource && r.verb == q.Verb && (r.name == "" || r.name == q.ObjectRef.Name)
}

// rights are what the chart gives to a part.
func (w *world) rights(part string) []right {
	w.Helper()
	text, err := os.ReadFile(filepath.Join(root, chart, "rbac", part+".yaml"))
	if errors.Is(err, fs.ErrNotExist) {
		w.Fatalf("no rights are written down for %s", part)
	}
	w.must(err)
	var rules struct {
		Cluster   []rbacv1.PolicyRule `json:"cluster"`
		Namespace []rbacv1.PolicyRule `json:"namespace"`
	}
	w.must(yaml.UnmarshalStrict(text, &rules))
	var out []right
	for _, rule := range append(rules.Cluster, rules.Namespace...) {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					for _, name := range names {
						out = append(out, right{group, resource, verb, name})
					}
				}
			}
		}
	}
	if len(out) == 0 {
		w.Fatal(fmt.Errorf("%s has no rights", part))
	}
	return out
}
