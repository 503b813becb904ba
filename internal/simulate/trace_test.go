package simulate

import (
	"strings"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

const (
	nodeHeader = "sn,cpu_milli,memory_mib,gpu,model\n"
	podHeader  = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase\n"
)

func TestParseNodes(t *testing.T) {
	tests := map[string]struct {
		text    string
		want    []Node
		wantErr string
	}{
		"the public trace's form": {
			text: nodeHeader + "a,64000,262144,2,P100\nb,96000,393216,8,\n",
			want: []Node{{Name: "a", CPU: 64000, Memory: 262144, Cards: 2, Model: "P100"}, {Name: "b", CPU: 96000, Memory: 393216, Cards: 8}},
		},
		"columns in another order, others between, zones": {
			text: "zones,gpu,rack,model,sn,memory_mib,cpu_milli\n4|2,8,x, T4 ,a,1,2\n",
			want: []Node{{Name: "a", CPU: 2, Memory: 1, Cards: 8, Model: "T4", Zones: []int{4, 2}}},
		},
		"a mark at the beginning of the file": {text: "\ufeff" + nodeHeader + "a,1,1,1,m\n", want: []Node{{Name: "a", CPU: 1, Memory: 1, Cards: 1, Model: "m"}}},
		"nothing":                             {text: "", wantErr: `f.csv: the file is empty: its first line names the columns: sn,cpu_milli,memory_mib,gpu,model`},
		"no row":                              {text: nodeHeader, wantErr: "f.csv: no server in it: below the header, write one line for each"},
		"a column is missing":                 {text: "sn,cpu_milli,gpu,model\n", wantErr: `f.csv:1: no column "memory_mib": the first line names the columns: sn,cpu_milli,memory_mib,gpu,model`},
		"a column twice":                      {text: "sn,sn,cpu_milli,memory_mib,gpu,model\n", wantErr: `f.csv:1: column "sn" appears twice: remove one`},
		"no number":                           {text: nodeHeader + "a,1,1,1,m\nb,1.5,1,1,m\n", wantErr: `f.csv:3: column cpu_milli: "1.5" is not in range: write a whole number from 0 to 1099511627776`},
		"more cards than there are":           {text: nodeHeader + "a,1,1,65,m\n", wantErr: `f.csv:2: column gpu: "65" is not in range: write a whole number from 0 to 64`},
		"no name":                             {text: nodeHeader + ",1,1,1,m\n", wantErr: `f.csv:2: column sn: "" is empty: write a name`},
		"a name twice":                        {text: nodeHeader + "a,1,1,1,m\na,2,2,2,m\n", wantErr: `f.csv:3: column sn: "a" is also on line 2: give every server a name of its own`},
		"a field too few":                     {text: nodeHeader + "a,1,1,1\n", wantErr: "f.csv: record on line 2: wrong number of fields"},
		"zones of too many cards":             {text: "sn,cpu_milli,memory_mib,gpu,model,zones\na,1,1,4,m,2|4\n", wantErr: `f.csv:2: column zones: "2|4" adds up to 6 cards, but the server has 4`},
		"zones that are none":                 {text: "sn,cpu_milli,memory_mib,gpu,model,zones\na,1,1,4,m,two\n", wantErr: `f.csv:2: column zones: "two" is not a list of sizes: write how many cards each group has, with "|" in between, up to 4 in all`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseNodes("f.csv", strings.NewReader(tt.text))
			checkParsed(t, got, err, tt.want, tt.wantErr)
		})
	}
}

func TestParsePods(t *testing.T) {
	tests := map[string]struct {
		text    string
		want    []Pod
		wantErr string
	}{
		"the public trace's form": {
			text: podHeader + "a,12000,16384,1,1000,,LS,Running\nb,6000,1,1,460,T4|P100|T4,BE,\nc,1,1,0,0,,Burstable,\n",
			want: []Pod{
				{Name: "a", CPU: 12000, Memory: 16384, Cards: 1, Milli: 1000, QoS: gpu.FixedShare},
				{Name: "b", CPU: 6000, Memory: 1, Cards: 1, Milli: 460, Models: []string{"P100", "T4"}, QoS: gpu.BestEffort},
				{Name: "c", CPU: 1, Memory: 1, QoS: gpu.BurstShare},
			},
		},
		"its short form": {
			text: "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,8,1000\n",
			want: []Pod{{Name: "a", CPU: 1, Memory: 1, Cards: 8, Milli: 1000, QoS: gpu.BestEffort}},
		},
		"no row":                  {text: podHeader, wantErr: "f.csv: no pod in it: below the header, write one line for each"},
		"a part of no card":       {text: podHeader + "a,1,1,0,500,,,\n", wantErr: `f.csv:2: column gpu_milli: "500" is a part of each card, but num_gpu is 0: write 0, or num_gpu 1`},
		"nothing of a card":       {text: podHeader + "a,1,1,1,0,,,\n", wantErr: `f.csv:2: column gpu_milli: "0" is no part of a card: write 1 to 1000, or num_gpu 0`},
		"a part of several cards": {text: podHeader + "a,1,1,2,500,,,\n", wantErr: `f.csv:2: column gpu_milli: "500" of each of 2 cards is not supported: write 1000, or num_gpu 1`},
		"more than a card":        {text: podHeader + "a,1,1,1,1001,,,\n", wantErr: `f.csv:2: column gpu_milli: "1001" is not in range: write a whole number from 0 to 1000`},
		"an empty model":          {text: podHeader + "a,1,1,1,10,T4|,,\n", wantErr: `f.csv:2: column gpu_spec: "T4|" has an empty name in it: write models with "|" in between, or nothing for any`},
		"an unknown class":        {text: podHeader + "a,1,1,1,10,,best,\n", wantErr: `f.csv:2: column qos: "best" is unknown: write BE, LS, Guaranteed or Burstable, or best-effort, fixed-share or burst-share`},
		"a quote that never ends": {text: podHeader + "\"a,1,1,1,10,,,\n", wantErr: `f.csv: parse error on line 2, column 16: extraneous or missing " in quoted-field`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parsePods("f.csv", strings.NewReader(tt.text))
			checkParsed(t, got, err, tt.want, tt.wantErr)
		})
	}
}

func checkParsed[T any](t *testing.T, got []T, err error, want []T, wantErr string) {
	t.Helper()
	switch {
	case wantErr == "" && err != nil:
		t.Fatal(err)
	case wantErr != "" && (err == nil || err.Error() != wantErr):
		t.Errorf("error %q\nwant  %q", err, wantErr)
	case wantErr == "":
		gputest.Equal(t, "rows", want, got)
	}
}

// FuzzTrace: whatever is in the files, what is read keeps its bounds and can be
// run, and what is not read is reported with the file's name.
func FuzzTrace(f *testing.F) {
	f.Add(nodeHeader+"a,64000,262144,2,P100\n", podHeader+"a,12000,16384,1,1000,,LS,Running\nb,6000,1,1,460,T4|P100,BE,\n")
	f.Add("sn,cpu_milli,memory_mib,gpu,model,zones\na,1,1,4,m,2|2\n", podHeader+"a,1,1,0,0,,,\n")
	f.Add("", "\"")
	f.Fuzz(func(t *testing.T, nodeText, podText string) {
		nodes, err := parseNodes("nodes.csv", strings.NewReader(nodeText))
		if err != nil && !strings.HasPrefix(err.Error(), "nodes.csv:") {
			t.Errorf("error %q does not name the file", err)
		}
		pods, err2 := parsePods("pods.csv", strings.NewReader(podText))
		if err2 != nil && !strings.HasPrefix(err2.Error(), "pods.csv:") {
			t.Errorf("error %q does not name the file", err2)
		}
		if err != nil || err2 != nil || len(nodes) > 20 || len(pods) > 20 {
			return
		}
		for i := range pods {
			if p := &pods[i]; p.Demand() < 0 || p.Demand() > int64(gpu.MaxCards)*wholeCard || p.Cards > 1 && p.Milli != wholeCard {
				t.Errorf("pod %+v", p)
			}
		}
		for _, policy := range names(tracePolicies) {
			if _, err := Place(t.Context(), &Trace{Nodes: nodes, Pods: pods}, policy, Options{OneQoS: true}); err != nil {
				t.Errorf("%s: %v", policy, err)
			}
		}
	})
}
