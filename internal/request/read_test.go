package request

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

const (
	qosName        = "metax-tech.com/sgpu-qos-policy"
	className      = "metax-tech.com/sgpu-app-class"
	topologyName   = "metax-tech.com/sgpu-topology-aware"
	useName        = "metax-tech.com/use-gpuuuid"
	noUseName      = "metax-tech.com/nouse-gpuuuid"
	nodePolicyName = "hami.io/node-scheduler-policy"
	cardPolicyName = "hami.io/gpu-scheduler-policy"
	weightsName    = "hami.io/device-scoring-weights"

	sayQoS   = `write "best-effort", "fixed-share" or "burst-share", or leave the annotation out for best-effort`
	sayClass = `write "online" or "offline", or leave the annotation out`
	sayWord  = `write "true" or "false"`
)

func TestReadQoS(t *testing.T) {
	const ask = "sgpu: 1, vcore: 60, vmemory: 4"
	runRead(t, map[string]readCase{
		"best-effort":                     {pod: app(ask).Annotate(qosName, "best-effort"), want: podOf(gpu.BestEffort, "", slice(1, 60, mib(4096)))},
		"fixed-share":                     {pod: app(ask).Annotate(qosName, "fixed-share"), want: podOf(gpu.FixedShare, "", slice(1, 60, mib(4096)))},
		"burst-share":                     {pod: app(ask).Annotate(qosName, "burst-share"), want: podOf(gpu.BurstShare, "", slice(1, 60, mib(4096)))},
		"none is best-effort":             {pod: app(ask), want: podOf(gpu.BestEffort, "", slice(1, 60, mib(4096)))},
		"whole cards have none":           {pod: app("gpu: 1"), want: podOf("", "", whole(1))},
		"whole cards keep what was named": {pod: app("gpu: 1").Annotate(qosName, "fixed-share"), want: podOf(gpu.FixedShare, "", whole(1))},
		"one container with a slice is enough": {
			pod: app("gpu: 1").App("sgpu: 1, vcore: 60, vmemory: 4"), want: bestEffort(whole(1), slice(1, 60, mib(4096))),
		},
		"unknown":                  refused(app(ask).Annotate(qosName, "guaranteed"), annotation(qosName, "guaranteed", sayQoS)),
		"empty":                    refused(app(ask).Annotate(qosName, ""), annotation(qosName, "", sayQoS)),
		"in capitals":              refused(app(ask).Annotate(qosName, "Fixed-Share"), annotation(qosName, "Fixed-Share", sayQoS)),
		"unknown, for whole cards": refused(app("gpu: 1").Annotate(qosName, "guaranteed"), annotation(qosName, "guaranteed", sayQoS)),
	})
}

func TestReadClass(t *testing.T) {
	const (
		ask       = "sgpu: 1, vcore: 60, vmemory: 4"
		sayShares = "an online pod shares its card: write metax-tech.com/sgpu: 1 with metax-tech.com/vmemory, or remove the annotation metax-tech.com/sgpu-app-class"
		sayOne    = "a container of an %s pod takes one card: write 1, or remove the annotation metax-tech.com/sgpu-app-class"
	)
	online := func(limits string) *gputest.PodBuilder { return app(limits).Annotate(className, "online") }
	offline := func(limits string) *gputest.PodBuilder { return app(limits).Annotate(className, "offline") }
	runRead(t, map[string]readCase{
		"online ignores vcore":               {pod: online(ask), want: podOf("", gpu.Online, slice(1, 0, mib(4096)))},
		"online without vcore is not alone":  {pod: online("sgpu: 1, vmemory: 4"), want: podOf("", gpu.Online, slice(1, 0, mib(4096)))},
		"online with all vcore is not alone": {pod: online("sgpu: 1, vcore: 100, vmemory: 4"), want: podOf("", gpu.Online, slice(1, 0, mib(4096)))},
		"online with all memory":             {pod: online("sgpu: 1"), want: podOf("", gpu.Online, slice(1, 0, percent(100)))},
		"online ignores a QoS":               {pod: online(ask).Annotate(qosName, "fixed-share"), want: podOf("", gpu.Online, slice(1, 0, mib(4096)))},
		"online ignores an unknown QoS":      {pod: online(ask).Annotate(qosName, "guaranteed"), want: podOf("", gpu.Online, slice(1, 0, mib(4096)))},
		"offline is an ordinary slice":       {pod: offline(ask), want: podOf(gpu.BestEffort, gpu.Offline, slice(1, 60, mib(4096)))},
		"offline with a QoS":                 {pod: offline(ask).Annotate(qosName, "burst-share"), want: podOf(gpu.BurstShare, gpu.Offline, slice(1, 60, mib(4096)))},
		"offline without vcore is alone":     {pod: offline("sgpu: 1"), want: podOf(gpu.BestEffort, gpu.Offline, alone(1, percent(100)))},
		"offline with a whole card":          {pod: offline("gpu: 1"), want: podOf("", gpu.Offline, whole(1))},
		"each container takes one card": {
			pod:  online("sgpu: 1, vmemory: 1").App("sgpu: 1, vmemory: 2"),
			want: podOf("", gpu.Online, slice(1, 0, mib(1024)), slice(1, 0, mib(2048))),
		},
		"online with two cards":                            refused(online("sgpu: 2, vmemory: 4"), limit(sgpuName, "2", fmt.Sprintf(sayOne, "online"))),
		"offline with two cards":                           refused(offline("sgpu: 2, vmemory: 4"), limit(sgpuName, "2", fmt.Sprintf(sayOne, "offline"))),
		"offline with two whole cards":                     refused(offline("gpu: 2"), limit(gpuName, "2", fmt.Sprintf(sayOne, "offline"))),
		"online with a whole card":                         refused(online("gpu: 1"), limit(gpuName, "1", sayShares)),
		"online still can't mean 120":                      refused(online("sgpu: 1, vcore: 120"), limit(vcoreName, "120", sayPercent)),
		"offline with an unknown QoS":                      refused(offline(ask).Annotate(qosName, "best"), annotation(qosName, "best", sayQoS)),
		"an unknown class":                                 refused(app(ask).Annotate(className, "batch"), annotation(className, "batch", sayClass)),
		"an empty class":                                   refused(app(ask).Annotate(className, ""), annotation(className, "", sayClass)),
		"online with a number of whole cards that is none": refused(online("gpu: -1"), limit(gpuName, "-1", sayCount)),
		"two cards in requests, and class": refused(gputest.MakePod("p").AppWith("", "sgpu: 2").Annotate(className, "offline"),
			problem("spec.containers[0].resources.requests[metax-tech.com/sgpu]", "2", fmt.Sprintf(sayOne, "offline"))),
		"two cards in Koordinator's words, and class": refused(offline("gpu.shared: 2, gpu-core: 200, gpu-memory-ratio: 200"), limit(koordSharedName, "2", fmt.Sprintf(sayOne, "offline"))),
		"two cards in Koordinator's percent, and class": refused(offline("gpu-core: 200, gpu-memory-ratio: 200"),
			limit(koordRatioName, "200", "a container of an offline pod takes one card: write at most 100, or remove the annotation metax-tech.com/sgpu-app-class")),
	})
}

func TestReadCardLists(t *testing.T) {
	list := func(n int) string { return strings.TrimSuffix(strings.Repeat("GPU-1,", n), ",") }
	share := func() *gputest.PodBuilder { return app("sgpu: 1") }
	only := func(r *gpu.PodRequest, allow, deny []gpu.CardID) *gpu.PodRequest {
		r.Allow, r.Deny = allow, deny
		return r
	}
	unlimited := func() *gpu.PodRequest { return bestEffort(alone(1, percent(100))) }
	runRead(t, map[string]readCase{
		"none":                     {pod: share(), want: unlimited()},
		"one to use":               {pod: share().Annotate(useName, "GPU-1"), want: only(unlimited(), []gpu.CardID{"GPU-1"}, nil)},
		"two to avoid":             {pod: share().Annotate(noUseName, "GPU-1,GPU-2"), want: only(unlimited(), nil, []gpu.CardID{"GPU-1", "GPU-2"})},
		"for whole ones":           {pod: app("gpu: 1").Annotate(useName, "GPU-1"), want: only(podOf("", "", whole(1)), []gpu.CardID{"GPU-1"}, nil)},
		"blanks and empty places":  {pod: share().Annotate(useName, " GPU-1 ,, \tGPU-2,"), want: only(unlimited(), []gpu.CardID{"GPU-1", "GPU-2"}, nil)},
		"empty lists are no limit": {pod: share().Annotate(useName, "").Annotate(noUseName, " , "), want: unlimited()},
		"both": {
			pod:  share().Annotate(useName, "GPU-1,GPU-2").Annotate(noUseName, "GPU-2"),
			want: only(unlimited(), []gpu.CardID{"GPU-1", "GPU-2"}, []gpu.CardID{"GPU-2"}),
		},
		"as many as may be named": {pod: share().Annotate(noUseName, list(1024)), want: only(unlimited(), nil, slices.Repeat([]gpu.CardID{"GPU-1"}, 1024))},
		"too many": refused(share().Annotate(noUseName, list(1025)),
			annotation(noUseName, "1025 cards", "name at most 1024 cards; to choose among nodes use a node selector")),
	})
}

func TestReadPolicies(t *testing.T) {
	const (
		ask       = "sgpu: 1, vcore: 60, vmemory: 4"
		sayNode   = `%q is no policy: write "binpack" or "spread", or leave the annotation out`
		sayCards  = `%q is no policy: write "binpack", "spread", "numa" or "mutex", or several with commas`
		warnLinks = `hami.io/gpu-scheduler-policy: "topology-aware" has no effect: links always count for whole cards, and slices have none`
		warnScore = "hami.io/device-scoring-weights has no effect: slots, compute and memory weigh the same"
	)
	node := func(value string) *gputest.PodBuilder { return app(ask).Annotate(nodePolicyName, value) }
	card := func(value string) *gputest.PodBuilder { return app(ask).Annotate(cardPolicyName, value) }
	links := func(value string) *gputest.PodBuilder { return app(ask).Annotate(topologyName, value) }
	keys := func(keys ...place.CardKey) PodRequest {
		return PodRequest{Prefer: place.Preference{Cards: keys}, CardPolicyGiven: true}
	}
	cases := map[string]struct {
		pod          *gputest.PodBuilder
		want         PodRequest // without the request
		wantProblems []string
	}{
		"none is the default":        {pod: app(ask)},
		"node: binpack":              {pod: node("binpack"), want: PodRequest{Prefer: place.Preference{Node: place.Binpack}, NodePolicyGiven: true}},
		"node: spread":               {pod: node("spread"), want: PodRequest{Prefer: place.Preference{Node: place.Spread}, NodePolicyGiven: true}},
		"node: empty is the default": {pod: node("")},
		"node: unknown":              {pod: node("numa"), wantProblems: []string{annotation(nodePolicyName, "numa", fmt.Sprintf(sayNode, "numa"))}},
		"node: in capitals":          {pod: node("Spread"), wantProblems: []string{annotation(nodePolicyName, "Spread", fmt.Sprintf(sayNode, "Spread"))}},
		"card: binpack":              {pod: card("binpack"), want: keys(place.Fullest)},
		"card: spread":               {pod: card("spread"), want: keys(place.Emptiest)},
		"card: numa":                 {pod: card("numa"), want: keys(place.SameNUMA)},
		"card: mutex":                {pod: card("mutex"), want: keys(place.Unused)},
		"card: empty is the default": {pod: card("")},
		"card: keys in order":        {pod: card("mutex, numa,spread"), want: keys(place.Unused, place.SameNUMA, place.Emptiest)},
		"card: a key counts once":    {pod: card("spread,mutex,spread"), want: keys(place.Emptiest, place.Unused)},
		"card: links have no effect": {pod: card("topology-aware"), want: PodRequest{CardPolicyGiven: true, Warnings: []string{warnLinks}}},
		"card: links with a key that has": {
			pod: card("topology-aware,binpack"),
			want: PodRequest{
				Prefer: place.Preference{Cards: []place.CardKey{place.Fullest}}, CardPolicyGiven: true, Warnings: []string{warnLinks},
			},
		},
		"card: unknown": {pod: card("random"), wantProblems: []string{annotation(cardPolicyName, "random", fmt.Sprintf(sayCards, "random"))}},
		"card: unknown in a list": {
			pod: card("binpack, best"), wantProblems: []string{annotation(cardPolicyName, "binpack, best", fmt.Sprintf(sayCards, "best"))},
		},
		"card: a hole in the list": {
			pod: card("binpack,"), wantProblems: []string{annotation(cardPolicyName, "binpack,", fmt.Sprintf(sayCards, ""))},
		},
		"both, each for itself": {
			pod: node("spread").Annotate(cardPolicyName, "binpack"),
			want: PodRequest{
				Prefer:          place.Preference{Node: place.Spread, Cards: []place.CardKey{place.Fullest}},
				NodePolicyGiven: true, CardPolicyGiven: true,
			},
		},
		"links: true":            {pod: links("true")},
		"links: false":           {pod: links("false"), want: PodRequest{Prefer: place.Preference{IgnoreLinks: true}}},
		"links: a word":          {pod: links("sometimes"), wantProblems: []string{annotation(topologyName, "sometimes", sayWord)}},
		"links: no word":         {pod: links(""), wantProblems: []string{annotation(topologyName, "", sayWord)}},
		"weights have no effect": {pod: app(ask).Annotate(weightsName, "slot=1,core=2,memory=3"), want: PodRequest{Warnings: []string{warnScore}}},
		"hints of Koordinator's have no effect": {
			pod: app(ask).Annotate("scheduling.koordinator.sh/device-allocate-hint", `{"gpu":{}}`).
				Annotate("scheduling.koordinator.sh/device-joint-allocate", "{}").Annotate("scheduling.koordinator.sh/gpu-partition-spec", "{}"),
			want: PodRequest{Warnings: []string{
				"scheduling.koordinator.sh/device-allocate-hint has no effect: cards are chosen by their links; to name cards write metax-tech.com/use-gpuuuid",
				"scheduling.koordinator.sh/device-joint-allocate has no effect: cards are placed without looking at other devices",
				"scheduling.koordinator.sh/gpu-partition-spec has no effect: the best-linked set of free cards is always looked for",
			}},
		},
	}
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		tc := cases[name]
		t.Run(name, func(t *testing.T) {
			ask, problems := Read(tc.pod.Obj())
			if diff := cmp.Diff(tc.wantProblems, sentences(problems)); diff != "" {
				t.Fatalf("problems (-want +got):\n%s", diff)
			}
			if ask == nil {
				return
			}
			gputest.Equal(t, "ask", tc.want, *ask, cmpopts.IgnoreFields(PodRequest{}, "Request"))
		})
	}
}

func TestParsePolicy(t *testing.T) {
	cases := map[string]struct {
		want    place.Policy
		wantErr string
	}{
		"binpack": {want: place.Binpack},
		"spread":  {want: place.Spread},
		"":        {wantErr: `"" is no policy: write "binpack" or "spread"`},
		"mutex":   {wantErr: `"mutex" is no policy: write "binpack" or "spread"`},
	}
	for name, tc := range cases {
		t.Run("policy "+name, func(t *testing.T) {
			got, err := ParsePolicy(name)
			if errText(err) != tc.wantErr || got != tc.want {
				t.Errorf("got %v, %q, want %v, %q", got, errText(err), tc.want, tc.wantErr)
			}
		})
	}
}

func TestKinds(t *testing.T) {
	cases := map[string]struct {
		pod           *gputest.PodBuilder
		whole, slices bool
	}{
		"whole cards":                 {pod: app("gpu: 2"), whole: true},
		"a slice":                     {pod: app("sgpu: 1, vcore: 10"), slices: true},
		"a card alone, as a slice":    {pod: app("sgpu: 1"), slices: true},
		"one of each":                 {pod: app("gpu: 1").App("sgpu: 1"), whole: true, slices: true},
		"no card":                     {pod: app("cpu: 1")},
		"a request that is a mistake": {pod: app("gpu: 1, sgpu: 1"), whole: true, slices: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if whole, slices := Kinds(tc.pod.Obj()); whole != tc.whole || slices != tc.slices {
				t.Errorf("whole %t, slices %t", whole, slices)
			}
		})
	}
}
