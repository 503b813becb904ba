package e2e

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/daybreak-gpu/daybreak/charts"
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

// unused are rights that this test has no use for, with the reason. A part lists
// where the API server does not send what is there with a watch.
var unused = map[string]string{
	"scheduler nodes patch":                  "the lock of nodes that the vendor's plugin serves; there is none here",
	"scheduler leases get kube-scheduler":    "in the place of kube-scheduler",
	"scheduler leases update kube-scheduler": "in the place of kube-scheduler",

	"manager mutatingwebhookconfigurations list daybreak": "",
	"manager secrets list daybreak-manager-webhook":       "",
	"manager tokenreviews create":                         "no login to the dashboard",
	"manager subjectaccessreviews create":                 "nor asks for a page",
	"manager events patch":                                "what it reported happens again",

	"agent devices create":                      "asked for by the API server itself, when the Device is applied for the first time",
	"agent pods get":                            "a pod that kubelet asks about before the watch has shown it",
	"agent events create":                       "a card falls ill, or can't be prepared",
	"agent events patch":                        "and again",
	"agent configmaps list metax-device-config": "",
}

// onlyWhatIsNeeded reads the API server's audit log: nothing that a part did was
// forbidden to it, and everything that it may do it did.
func (w *world) onlyWhatIsNeeded() {
	w.Helper()
	w.Eventually("the audit log is written", 30*time.Second, func() error {
		_, err := os.Stat(w.AuditLog())
		return err
	})
	byPart := map[string][]request{}
	file, err := os.Open(w.AuditLog())
	w.Must(err)
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r request
		w.Must(json.Unmarshal(lines.Bytes(), &r))
		name, ours := strings.CutPrefix(r.User.Username, "system:serviceaccount:"+manager.DefaultNamespace+":daybreak-")
		if !ours {
			continue
		}
		byPart[name] = append(byPart[name], r)
		if r.Annotations["authorization.k8s.io/decision"] == "forbid" || r.ResponseStatus.Code == 403 {
			w.Errorf("%s was forbidden to %s %s: %s", name, r.Verb, r.RequestURI, r.ResponseStatus.Message)
		}
	}
	w.Must(lines.Err())
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

// covers reports whether the request needed the right.
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
	rules, err := charts.RightsOf(part)
	w.Must(err)
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
		w.Fatalf("%s has no rights", part)
	}
	return out
}
