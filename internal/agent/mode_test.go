package agent

import (
	"strings"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestDecide(t *testing.T) {
	slicePod := holder{name: "default/slice", slices: true}
	wholePod := holder{name: "default/whole"}
	both := []holder{slicePod, wholePod}
	ask := func(configured, current gpu.Mode, holders ...holder) modeQuestion {
		return modeQuestion{configured: configured, current: current, driver: "3.8.30", cards: 8, holders: holders, podsKnown: true, servesBoth: true}
	}
	with := func(q modeQuestion, change func(*modeQuestion)) modeQuestion {
		change(&q)
		return q
	}
	old := func(q *modeQuestion) { q.driver = "2.31.9" }
	without := func(q *modeQuestion) { q.noSlices = "no library" }
	virtual := func(n int) func(*modeQuestion) { return func(q *modeQuestion) { q.virtual = n } }
	cases := map[string]struct {
		question modeQuestion
		want     string // mode, pending mode, why no slices, why pending
	}{
		"none chosen: all that the hardware can do":       {ask("", ""), "sgpu"},
		"none chosen, an old driver":                      {with(ask("", ""), old), "native"},
		"none chosen, virtual functions":                  {with(ask("", ""), virtual(8)), "vgpu"},
		"none chosen, a preset":                           {with(ask("", ""), func(q *modeQuestion) { q.preset = "shared" }), "shared"},
		"the ConfigMap comes before the preset":           {with(ask("native", ""), func(q *modeQuestion) { q.preset = "shared" }), "native"},
		"the first driver with slices":                    {with(ask("sgpu", ""), func(q *modeQuestion) { q.driver = "2.32.0" }), "sgpu"},
		"a driver that reports no version":                {with(ask("sgpu", ""), func(q *modeQuestion) { q.driver = "" }), "sgpu"},
		"slices on an old driver":                         {with(ask("sgpu", ""), old), "native DriverTooOld: slices need driver 2.32.0, this is 2.31.9: the node hands out whole cards only"},
		"an old driver does not wait for slices":          {with(ask("sgpu", "sgpu", slicePod), old), "native DriverTooOld: slices need driver 2.32.0, this is 2.31.9: the node hands out whole cards only"},
		"none chosen, and no slices can be made":          {with(ask("", ""), without), "native"},
		"slices that can't be made":                       {with(ask("sgpu", ""), without), "native NoSlices: no library: the node allocates whole GPUs only"},
		"what can't be made does not wait for pods":       {with(ask("sgpu", "sgpu", slicePod), without), "native NoSlices: no library: the node allocates whole GPUs only"},
		"whole cards without slices":                      {with(ask("native", ""), without), "native"},
		"slices with virtual functions among the cards":   {with(ask("sgpu", ""), virtual(4)), "native VirtualCards: some cards are virtual functions, which take no slices: the node hands out whole cards only"},
		"slices of nothing but virtual functions":         {with(ask("sgpu", ""), virtual(8)), "vgpu"},
		"virtual functions that are not there":            {ask("vgpu", ""), "native → vgpu NoVirtualCards: mode vgpu waits for virtual functions: switch them on with mx-smi vm --enable-vf"},
		"virtual functions that are":                      {with(ask("vgpu", "native"), virtual(8)), "vgpu"},
		"a change without pods":                           {ask("native", "sgpu"), "native"},
		"no more slices, but a pod has one":               {ask("native", "sgpu", both...), "sgpu → native PodsHoldCards: mode native waits for 1 pod that holds cards"},
		"no more slices, and only whole cards are held":   {ask("native", "sgpu", wholePod), "native"},
		"slices too takes nothing from whole cards":       {ask("sgpu", "native", wholePod), "sgpu"},
		"slices only, as the vendor's plugin serves them": {with(ask("sgpu", "native", wholePod), func(q *modeQuestion) { q.servesBoth = false }), "native → sgpu PodsHoldCards: mode sgpu waits for 1 pod that holds cards"},
		"seats mean something else to every pod":          {ask("shared", "sgpu", both...), "sgpu → shared PodsHoldCards: mode shared waits for 2 pods that hold cards"},
		"back from seats":                                 {ask("sgpu", "shared", wholePod), "shared → sgpu PodsHoldCards: mode sgpu waits for 1 pod that holds cards"},
		"back from seats on an old driver":                {with(ask("sgpu", "shared", wholePod), old), "shared → native PodsHoldCards: mode native waits for 1 pod that holds cards"},
		"many pods": {
			ask("native", "sgpu", slicePod, holder{"a/3", true}, holder{"a/2", true}, holder{"a/1", true}),
			"sgpu → native PodsHoldCards: mode native waits for 4 pods that hold cards",
		},
		"pods that are not known yet":                   {with(ask("native", "sgpu"), func(q *modeQuestion) { q.podsKnown = false }), "sgpu → native PodsHoldCards: mode native waits for the list of pods"},
		"pods of before any agent have slices":          {ask("native", "", slicePod), "sgpu → native PodsHoldCards: mode native waits for 1 pod that holds cards"},
		"pods of before any agent, and nothing changes": {ask("sgpu", "", both...), "sgpu"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := tc.question.decide()
			parts := []string{string(d.mode)}
			if d.pending != "" {
				parts = append(parts, "→", string(d.pending))
			}
			for _, f := range []fault{d.noSlices, d.waits} {
				if f.reason != "" {
					parts = append(parts, f.reason+":", f.message)
				}
			}
			gputest.Equal(t, "decision", tc.want, strings.Join(parts, " "))
		})
	}
}
