package cluster

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

const (
	nodeText   = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n"
	podText    = "apiVersion: v1\nkind: Pod\nmetadata: {name: p1}\nspec: {containers: [{name: main}]}\n"
	deviceText = "apiVersion: scheduling.koordinator.sh/v1alpha1\nkind: Device\nmetadata: {name: n1}\nspec: {devices: [{type: gpu, id: GPU-1, minor: 0, health: true}]}\n"

	nodeJSON   = `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}}`
	podJSON    = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p1"}}`
	deviceJSON = `{"apiVersion":"scheduling.koordinator.sh/v1alpha1","kind":"Device","metadata":{"name":"n1"}}`
)

// padding makes a file large enough to be read as a stream.
var padding = strings.Repeat(" ", largeFile)

func readText(text string) (*Objects, error) {
	return ReadFiles([]string{"-"}, strings.NewReader(text))
}

// names is what was read, by name.
type names struct {
	Nodes, Devices, Pods, Quotas, Namespaces, Notes []string
}

func namesOf(o *Objects) names {
	var n names
	for _, node := range o.Nodes {
		n.Nodes = append(n.Nodes, node.Name)
	}
	n.Devices = slices.Sorted(maps.Keys(o.Devices))
	for _, pod := range o.Pods {
		n.Pods = append(n.Pods, pod.Namespace+"/"+pod.Name)
	}
	for _, q := range o.Quotas {
		n.Quotas = append(n.Quotas, q.Namespace+"/"+q.Name)
	}
	for _, namespace := range o.Namespaces {
		n.Namespaces = append(n.Namespaces, namespace.Name)
	}
	n.Notes = o.Notes
	return n
}

// TestReadFiles: what a file holds, JSON also where it is large enough to be read as a
// stream.
func TestReadFiles(t *testing.T) {
	one := names{Nodes: []string{"n1"}, Devices: []string{"n1"}, Pods: []string{"default/p1"}}
	three := []string{nodeText, deviceText, podText}
	cases := map[string]struct {
		text string
		want names
	}{
		"nothing":                      {text: "", want: names{}},
		"only comments":                {text: "# one\n---\n# two\n---\n---\n", want: names{}},
		"several documents":            {text: strings.Join(three, "---\n"), want: one},
		"a separator before and after": {text: "---\n" + strings.Join(three, "---\n") + "---\n", want: one},
		"separators with comments":     {text: "# about\n--- # first\n" + strings.Join(three, "--- # next\n"), want: one},
		"documents between dots":       {text: strings.Join(three, "...\n---\n") + "...\n", want: one},
		"dots instead of separators":   {text: strings.Join(three, "...\n"), want: one},
		"lines that end in CR LF":      {text: strings.ReplaceAll("# about\n---\n"+strings.Join(three, "...\n---\n"), "\n", "\r\n"), want: one},
		"a byte order mark":            {text: "\ufeff" + strings.Join(three, "---\n"), want: one},
		"no line break at the end":     {text: strings.TrimSpace(strings.Join(three, "---\n")), want: one},
		"JSON between separators":      {text: nodeJSON + "\n---\n" + deviceJSON + "\n---\n" + podJSON, want: one},
		"JSON line by line":            {text: nodeJSON + "\n" + deviceJSON + "\n" + podJSON + "\n", want: one},
		"JSON on one line":             {text: "---\n" + nodeJSON + deviceJSON + podJSON, want: one},
		"JSON, then YAML":              {text: nodeJSON + "\n# the rest\n---\n" + deviceText + "---\n" + podText, want: one},
		"a List":                       {text: `{"apiVersion":"v1","kind":"List","items":[` + nodeJSON + "," + deviceJSON + "," + podJSON + `]}`, want: one},
		"a List in a List": {
			text: `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"List","items":[` + nodeJSON + `]},` + deviceJSON + "," + podJSON + `]}`,
			want: one,
		},
		"lists as the API server gives them, without kinds": {
			text: `{"apiVersion":"v1","kind":"NodeList","items":[{"metadata":{"name":"n1"}}]}
			{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"p1","namespace":"default"}}]}
			{"apiVersion":"scheduling.koordinator.sh/v1alpha1","kind":"DeviceList","items":[{"metadata":{"name":"n1"}}]}`,
			want: one,
		},
		"lists whose kinds come last": {
			text: `{"apiVersion":"v1","items":[{"metadata":{"name":"n1"}}],"kind":"NodeList"}{"apiVersion":"v1","items":[{"metadata":{"name":"p1"}}],"kind":"PodList"}` +
				`{"apiVersion":"scheduling.koordinator.sh/v1alpha1","items":[{"metadata":{"name":"n1"}}],"kind":"DeviceList"}`,
			want: one,
		},
		"a list of another kind": {
			text: `{"apiVersion":"v1","items":[{"metadata":{"name":"web"}}],"kind":"ServiceList"}`,
			want: names{Notes: []string{
				"standard input, document 1: passed over v1 ServiceList : only Nodes, Devices, Pods, workloads, ResourceQuotas, Namespaces, PriorityClasses, Leases, Events and Lists are read",
			}},
		},
		"a DeviceList with kinds": {
			text: `{"apiVersion":"scheduling.koordinator.sh/v1alpha1","kind":"DeviceList","items":[` + deviceJSON + `]}`,
			want: names{Devices: []string{"n1"}},
		},
		"other kinds": {
			text: "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n---\n" + podText + "---\napiVersion: v2\nkind: Pod\nmetadata: {name: later}\n",
			want: names{Pods: []string{"default/p1"}, Notes: []string{
				"standard input, document 1: passed over v1 Service web: only Nodes, Devices, Pods, workloads, ResourceQuotas, Namespaces, PriorityClasses, Leases, Events and Lists are read",
				"standard input, document 3: passed over v2 Pod later: only Nodes, Devices, Pods, workloads, ResourceQuotas, Namespaces, PriorityClasses, Leases, Events and Lists are read",
			}},
		},
		"quotas and namespaces": {
			text: "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: gpus, namespace: team}\nspec: {hard: {limits.metax-tech.com/vcore: 200}}\n---\n" +
				"apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: gpus}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n",
			want: names{Quotas: []string{"team/gpus", "default/gpus"}, Namespaces: []string{"team"}},
		},
		"lists of quotas and namespaces": {
			text: `{"apiVersion":"v1","kind":"ResourceQuotaList","items":[{"metadata":{"name":"gpus","namespace":"team"}}]}
			{"apiVersion":"v1","kind":"NamespaceList","items":[{"metadata":{"name":"team"}}]}`,
			want: names{Quotas: []string{"team/gpus"}, Namespaces: []string{"team"}},
		},
		"pods in the order of the text": {
			text: strings.ReplaceAll(podText, "p1", "z") + "---\n" + strings.ReplaceAll(podText, "name: p1", "name: a, namespace: team") + "---\n" + podText,
			want: names{Pods: []string{"default/z", "team/a", "default/p1"}},
		},
		"names are made up where the API server would": {
			text: strings.ReplaceAll(podText, "name: p1", "generateName: p-") + "---\n" + strings.ReplaceAll(podText, "name: p1", "generateName: p-"),
			want: names{Pods: []string{"default/p-1", "default/p-2"}},
		},
		"one name in two namespaces": {
			text: podText + "---\n" + strings.ReplaceAll(podText, "name: p1", "name: p1, namespace: team"),
			want: names{Pods: []string{"default/p1", "team/p1"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			objects, err := readText(tc.text)
			gputest.Must(t, err)
			gputest.Equal(t, "read", tc.want, namesOf(objects))
			if !strings.HasPrefix(tc.text, "{") {
				return
			}
			large, err := readText(tc.text + "\n---\n#" + padding)
			gputest.Must(t, err)
			gputest.Equal(t, "read as a stream, small and large", objects, large, cmpopts.IgnoreFields(Objects{}, "VendorPlugin"))
		})
	}
}

// TestReadFilesErrors: an error names the file and the document, counted
// without those that hold comments only.
func TestReadFilesErrors(t *testing.T) {
	const listed = `, item 2: `
	cases := map[string]struct {
		text, want string
	}{
		"no YAML":                {podText + "---\nx: y\na: b: c\n", "a.yaml, document 2: yaml: line 2: mapping values are not allowed in this context"},
		"no YAML after comments": {"# one\n---\n# two\n---\nx: y\na: b: c\n", "a.yaml, document 1: yaml: line 2: mapping values are not allowed in this context"},
		"a key twice":            {"apiVersion: v1\nkind: Node\nkind: Pod\n", `a.yaml, document 1: yaml: unmarshal errors:` + "\n" + `  line 3: key "kind" already set in map`},
		"something after ---":    {podText + "--- {a: b}\n", "a.yaml, document 1: invalid Yaml document separator: {a: b}"},
		"JSON that is cut off":   {nodeJSON + podJSON[:20], "a.yaml, document 2: "},
		"words after JSON":       {nodeJSON + " and more", "a.yaml, document 2: not a Kubernetes object: the document is a string, want a mapping"},
		"a list":                 {"- a\n- b\n", "a.yaml, document 1: not a Kubernetes object: the document is a list, want a mapping"},
		"a word":                 {"hello\n", "a.yaml, document 1: not a Kubernetes object: the document is a string, want a mapping"},
		"no kind":                {"apiVersion: v1\nmetadata: {name: p1}\n", "a.yaml, document 1: no apiVersion or no kind: want a v1 Node, Pod or List, or a scheduling.koordinator.sh/v1alpha1 Device"},
		"no apiVersion":          {"kind: Pod\nmetadata: {name: p1}\n", "a.yaml, document 1: no apiVersion or no kind: want a v1 Node, Pod or List, or a scheduling.koordinator.sh/v1alpha1 Device"},
		"no kind in a List":      {`{"apiVersion":"v1","kind":"List","items":[` + nodeJSON + `,{"metadata":{"name":"p1"}}]}`, "a.yaml, document 1" + listed + "no apiVersion or no kind: want a v1 Node, Pod or List, or a scheduling.koordinator.sh/v1alpha1 Device"},
		"another kind of name":   {"apiVersion: v1\nkind: Pod\nmetadata: {name: no}\n", "a.yaml, document 1: not a Kubernetes object: metadata.name is a bool, want a string (in quotes)"},
		"a Node without a name":  {"apiVersion: v1\nkind: Node\n", "a.yaml, document 1: a Node without a name"},
		"a Pod without a name":   {"apiVersion: v1\nkind: Pod\n", "a.yaml, document 1: a Pod without a name"},
		"a Device without one":   {"apiVersion: scheduling.koordinator.sh/v1alpha1\nkind: Device\n", "a.yaml, document 1: a Device without a name"},
		"a Pod of wrong types":   {"apiVersion: v1\nkind: Pod\nmetadata: {name: p1}\nspec: {containers: {name: main}}\n", "a.yaml, document 1: Pod: spec.containers is a mapping, want a list"},
		"a Node of wrong types":  {"apiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {zone: 7}}\n", "a.yaml, document 1: Node: metadata.labels is a number, want a string (in quotes)"},
		"a number of wrong size": {"apiVersion: v1\nkind: Pod\nmetadata: {name: p1}\nspec: {priority: 5000000000}\n", "a.yaml, document 1: Pod: spec.priority is a number, want a whole number in range"},
		"a word for a number":    {"apiVersion: v1\nkind: Pod\nmetadata: {name: p1}\nspec: {hostNetwork: 1}\n", "a.yaml, document 1: Pod: spec.hostNetwork is a number, want true or false"},
		"no quantity in a Pod": {
			"apiVersion: v1\nkind: Pod\nmetadata: {name: p1}\nspec: {containers: [{name: a}, {name: b, resources: {limits: {cpu: 2, metax-tech.com/vmemory: 4GB}}}]}\n",
			`a.yaml, document 1: Pod: spec.containers[1].resources.limits[metax-tech.com/vmemory]: "4GB" is no quantity: write a number, or one with a unit such as 512Mi or 4Gi`,
		},
		"no quantity in a Node": {
			"apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus: {capacity: {metax-tech.com/gpu: eight}}\n",
			`a.yaml, document 1: Node: status.capacity[metax-tech.com/gpu]: "eight" is no quantity: write a number, or one with a unit such as 512Mi or 4Gi`,
		},
		"no quantity in a quota": {
			"apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: gpus}\nspec: {hard: {requests.daybreak-gpu.io/compute: many}}\n",
			`a.yaml, document 1: ResourceQuota: spec.hard[requests.daybreak-gpu.io/compute]: "many" is no quantity: write a number, or one with a unit such as 512Mi or 4Gi`,
		},
		"a huge quantity in a quota": {
			"apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: gpus}\nspec: {hard: {limits.metax-tech.com/vmemory: \"1e-999999999\"}}\n",
			`a.yaml, document 1: ResourceQuota: spec.hard[limits.metax-tech.com/vmemory]: "1e-999999999" is no amount of anything: write a number without an exponent`,
		},
		"a quota twice": {
			"apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: gpus}\n---\napiVersion: v1\nkind: ResourceQuota\nmetadata: {name: gpus, namespace: default}\n",
			"a.yaml, document 2: ResourceQuota default/gpus was already read from a.yaml, document 1",
		},
		"a Namespace of wrong types": {"apiVersion: v1\nkind: Namespace\nmetadata: {name: team, labels: [a]}\n", "a.yaml, document 1: Namespace: metadata.labels is a list, want a mapping"},
		"a Node twice":               {nodeText + "---\n" + nodeText, "a.yaml, document 2: Node n1 was already read from a.yaml, document 1"},
		"a Device twice":             {deviceText + "---\n" + deviceText, "a.yaml, document 2: Device n1 was already read from a.yaml, document 1"},
		"a Pod twice":                {podText + "---\n" + `{"apiVersion":"v1","kind":"List","items":[` + nodeJSON + "," + podJSON + `]}`, "a.yaml, document 2" + listed + "Pod default/p1 was already read from a.yaml, document 1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			gputest.Must(t, os.WriteFile("a.yaml", []byte(tc.text), 0o600))
			_, err := ReadFiles([]string{"a.yaml"}, nil)
			switch {
			case err == nil:
				t.Errorf("no error, want %q", tc.want)
			case strings.HasSuffix(tc.want, ": ") && !strings.HasPrefix(err.Error(), tc.want),
				!strings.HasSuffix(tc.want, ": ") && err.Error() != tc.want:
				t.Errorf("error %q, want %q", err, tc.want)
			}
		})
	}
}

func TestReadFilesNamesThem(t *testing.T) {
	t.Chdir(t.TempDir())
	gputest.Must(t, os.WriteFile("a.yaml", []byte(podText), 0o600))
	gputest.Must(t, os.Mkdir("folder", 0o700))
	cases := map[string]struct {
		paths []string
		want  string
	}{
		"a file that is not there": {[]string{"a.yaml", "b.yaml"}, "open b.yaml: no such file or directory"},
		"an empty folder":          {[]string{"folder"}, "folder: the folder has no file that ends in .json, .yaml, .yml"},
		"a file twice":             {[]string{"a.yaml", "a.yaml"}, "a.yaml is named twice"},
		"standard input twice":     {[]string{"-", "-"}, "standard input is named twice"},
		"an object in two files":   {[]string{"a.yaml", "-"}, "standard input, document 1: Pod default/p1 was already read from a.yaml, document 1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := ReadFiles(tc.paths, strings.NewReader(podText)); err == nil || err.Error() != tc.want {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

// TestReadFolders: of a folder the files are read that kubectl reads, those of
// folders below it on demand only.
func TestReadFolders(t *testing.T) {
	t.Chdir(t.TempDir())
	gputest.Must(t, os.MkdirAll("cluster/pods", 0o700))
	for path, text := range map[string]string{
		"cluster/b.yaml": nodeText, "cluster/a.yml": podText, "cluster/c.json": deviceJSON, "cluster/README.md": "no YAML: no: at all",
		"cluster/pods/z.yaml": strings.ReplaceAll(podText, "p1", "p2"),
	} {
		gputest.Must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	want := names{Nodes: []string{"n1"}, Devices: []string{"n1"}, Pods: []string{"default/p1"}}
	objects, err := ReadFiles([]string{"cluster"}, nil)
	gputest.Must(t, err)
	gputest.Equal(t, "read", want, namesOf(objects))
	want.Pods = append(want.Pods, "default/p2")
	objects, err = ReadFilesBelow([]string{"cluster"}, true, nil)
	gputest.Must(t, err)
	gputest.Equal(t, "read with the folders below", want, namesOf(objects))
}

// TestBadDeviceCostsItsNode: whatever a Device holds, reading goes on, and the
// node says what is wrong.
func TestBadDeviceCostsItsNode(t *testing.T) {
	cases := map[string]struct {
		device, want string
	}{
		"a field of another type":  {"spec: {devices: [{type: gpu, id: GPU-1, minor: zero}]}", "the Device can't be decoded: spec.devices.minor is a string, want a whole number in range"},
		"a spec that is no spec":   {"spec: [1, 2]", "the Device can't be decoded: spec is a list, want a mapping"},
		"an amount that is none":   {"spec: {devices: [{type: gpu, id: GPU-1, minor: 0, resources: {koordinator.sh/gpu-memory: 64GB}}]}", `the Device can't be decoded: spec.devices[0].resources[koordinator.sh/gpu-memory]: "64GB" is no quantity: write a number, or one with a unit such as 512Mi or 4Gi`},
		"a year with five digits":  {"spec: {devices: [{type: gpu, id: GPU-1, minor: 0, conditions: [{lastTransitionTime: \"20256-03-15T10:00:00Z\"}]}]}", "the Device can't be decoded: parsing time"},
		"sound, but without sense": {"spec: {devices: [{type: gpu, id: GPU-1, health: true}]}", "spec.devices[0]: card GPU-1 has no minor number"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			text := "apiVersion: scheduling.koordinator.sh/v1alpha1\nkind: Device\nmetadata: {name: n1}\n" + tc.device + "\n"
			for _, node := range []string{"", "---\n" + nodeText} {
				objects, err := readText(text + node + "---\n" + podText)
				gputest.Must(t, err)
				s := objects.Snapshot()
				if len(s.Nodes) != 1 || len(s.Pending) != 1 {
					t.Fatalf("%d nodes and %d pending pods, want one of each", len(s.Nodes), len(s.Pending))
				}
				if problem := s.Nodes[0].Problem; problem == nil || !strings.HasPrefix(problem.Error(), tc.want) {
					t.Errorf("problem %v, want %q", problem, tc.want)
				}
				if want := "node n1 takes no pods: its cards can't be read: " + tc.want; len(s.Notes) != 1 || !strings.HasPrefix(s.Notes[0], want) {
					t.Errorf("notes %q, want %q", s.Notes, want)
				}
			}
		})
	}
}

func TestConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: \"https://gpu.example\"}}]\ncontexts: [{name: x, context: {cluster: c}}]\ncurrent-context: x\n"
	gputest.Must(t, os.WriteFile(path, []byte(text), 0o600))
	config, err := Access{Kubeconfig: path}.Config()
	gputest.Must(t, err)
	gputest.Equal(t, "host", "https://gpu.example", config.Host)
	if _, err := (Access{Kubeconfig: path, Context: "y"}).Config(); err == nil || !strings.HasSuffix(err.Error(), "; there are x") {
		t.Errorf("error %v, want one that says which contexts there are", err)
	}
}

// TestMissingKubeconfig: a kubeconfig that does not exist is reported by its name,
// whatever names it.
func TestMissingKubeconfig(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("HOME", t.TempDir())
	there := filepath.Join(t.TempDir(), "kubeconfig")
	gputest.Must(t, os.WriteFile(there, nil, 0o600))
	list := func(files ...string) string { return strings.Join(files, string(filepath.ListSeparator)) }
	for name, tc := range map[string]struct {
		access Access
		env    string
		want   string
	}{
		"--kubeconfig":               {access: Access{Kubeconfig: "none"}, env: there, want: "kubeconfig none: the file does not exist"},
		"--kubeconfig and --context": {access: Access{Kubeconfig: "none", Context: "x"}, want: "kubeconfig none: the file does not exist"},
		"$KUBECONFIG":                {env: "none", want: "kubeconfig none: the file that $KUBECONFIG names does not exist"},
		"$KUBECONFIG and --context":  {access: Access{Context: "x"}, env: "none", want: "kubeconfig none: the file that $KUBECONFIG names does not exist"},
		"all of $KUBECONFIG":         {env: list("none", "", "nil"), want: "kubeconfig none, nil: the files that $KUBECONFIG names do not exist"},
		"nothing":                    {want: ErrNoCluster.Error()},
		"some of $KUBECONFIG":        {env: list("none", there), want: ErrNoCluster.Error()}, // the other one is empty
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", tc.env)
			if _, err := tc.access.Config(); err == nil || err.Error() != tc.want {
				t.Errorf("error %v, want %s", err, tc.want)
			}
		})
	}
}
