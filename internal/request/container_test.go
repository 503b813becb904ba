package request

import (
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// Names and sentences of HAMi's dialect, as users read them.
const (
	gpuName     = "metax-tech.com/gpu"
	sgpuName    = "metax-tech.com/sgpu"
	vcoreName   = "metax-tech.com/vcore"
	vmemoryName = "metax-tech.com/vmemory"

	sayCount      = "cards are counted: write a whole number from 1 to 64"
	sayPercent    = "is in percent: write a whole number from 0 to 100"
	sayGiB        = "a number without a unit is GiB: write 1 to 999, or an amount with a unit such as 512Mi"
	sayBytes      = "card memory goes from 1Mi to 1Ti: write for example 4Gi or 4096Mi"
	sayAddCards   = "is an amount of each card, but no card is asked for: add metax-tech.com/sgpu: 1"
	sayWholeHas   = "is an amount of a share, and a whole card comes with all of it: remove it, or write metax-tech.com/sgpu in place of metax-tech.com/gpu"
	sayOneKind    = "a container takes whole cards or shares of cards: remove metax-tech.com/gpu or metax-tech.com/sgpu"
	sayDialectGPU = "a container asks in one dialect: remove metax-tech.com/gpu, or the koordinator.sh amounts"
	sayDialect    = "a container asks in one dialect: keep the koordinator.sh amounts, or metax-tech.com/vcore and metax-tech.com/vmemory"
)

// sayKept is the sentence about vmemory that the API server rewrites.
func sayKept(as string) string {
	return "Kubernetes keeps it as " + as + ", which is no amount of card memory: write whole GiB from 1 to 999 or an amount with a unit, such as 4, 4Gi or 4096Mi"
}

func TestReadCards(t *testing.T) {
	runRead(t, map[string]readCase{
		"one whole card":                            {pod: app("gpu: 1"), want: podOf("", "", whole(1))},
		"eight whole cards":                         {pod: app("gpu: 8"), want: podOf("", "", whole(8))},
		"as many as a node may hold":                {pod: app("gpu: 64"), want: podOf("", "", whole(64))},
		"more whole cards than a node may hold":     refused(app("gpu: 65"), limit(gpuName, "65", sayCount)),
		"no whole card is how a template says none": {pod: app("gpu: 0")},
		"half a whole card":                         refused(app("gpu: 0.5"), limit(gpuName, "500m", sayCount)),

		"a share without amounts is a card alone":                        {pod: app("sgpu: 1"), want: bestEffort(alone(1, percent(100)))},
		"two shares without amounts":                                     {pod: app("sgpu: 2"), want: bestEffort(alone(2, percent(100)))},
		"shares of as many as a node may hold":                           {pod: app("sgpu: 64, vcore: 1, vmemory: 1"), want: bestEffort(slice(64, 1, mib(1024)))},
		"no share is how a template says none":                           {pod: app("sgpu: 0")},
		"neither whole cards nor shares of any":                          {pod: app("gpu: 0, sgpu: 0")},
		"whole cards where a template has sgpu: 0":                       {pod: app("gpu: 2, sgpu: 0"), want: podOf("", "", whole(2))},
		"shares where a template has gpu: 0":                             {pod: app("gpu: 0, sgpu: 1, vcore: 5"), want: bestEffort(slice(1, 5, percent(100)))},
		"shares of more than a node may hold":                            refused(app("sgpu: 65"), limit(sgpuName, "65", sayCount)),
		"a fraction of a share":                                          refused(app("sgpu: 1500m"), limit(sgpuName, "1500m", sayCount)),
		"less than no share":                                             refused(app("sgpu: -1"), limit(sgpuName, "-1", sayCount)),
		"a number of shares past all counting":                           refused(app("sgpu: 9223372036854775808"), limit(sgpuName, "9223372036854775808", sayCount)),
		"a bad number of shares and nothing else is still a bad request": refused(app("sgpu: 4Gi, vcore: 10"), limit(sgpuName, "4Gi", sayCount)),
	})
}

func TestReadCompute(t *testing.T) {
	runRead(t, map[string]readCase{
		"some of a card":                    {pod: app("sgpu: 1, vcore: 60, vmemory: 4"), want: bestEffort(slice(1, 60, mib(4096)))},
		"as little as there is":             {pod: app("sgpu: 1, vcore: 1, vmemory: 4"), want: bestEffort(slice(1, 1, mib(4096)))},
		"almost all of a card is a slice":   {pod: app("sgpu: 1, vcore: 99, vmemory: 4"), want: bestEffort(slice(1, 99, mib(4096)))},
		"all of it means alone":             {pod: app("sgpu: 1, vcore: 100, vmemory: 4"), want: bestEffort(alone(1, mib(4096)))},
		"none written means alone":          {pod: app("sgpu: 1, vmemory: 4"), want: bestEffort(alone(1, mib(4096)))},
		"zero reserves memory only":         {pod: app("sgpu: 1, vcore: 0, vmemory: 4"), want: bestEffort(slice(1, 0, mib(4096)))},
		"amounts are of each card":          {pod: app("sgpu: 2, vcore: 60, vmemory: 4"), want: bestEffort(slice(2, 60, mib(4096)))},
		"percent in thousandths and whole":  {pod: app("sgpu: 1, vcore: 60000m"), want: bestEffort(slice(1, 60, percent(100)))},
		"more than a card has":              refused(app("sgpu: 1, vcore: 120"), limit(vcoreName, "120", sayPercent)),
		"two cards do not make 200 percent": refused(app("sgpu: 2, vcore: 200"), limit(vcoreName, "200", sayPercent)),
		"half a percent":                    refused(app("sgpu: 1, vcore: 500m"), limit(vcoreName, "500m", sayPercent)),
		"negative":                          refused(app("sgpu: 1, vcore: -1"), limit(vcoreName, "-1", sayPercent)),
		"huge":                              refused(app("sgpu: 1, vcore: 1e18"), limit(vcoreName, "1e18", sayPercent)),
		"past the largest number":           refused(app("sgpu: 1, vcore: 99999999999999999999"), limit(vcoreName, "99999999999999999999", sayPercent)),
	})
}

func TestReadMemory(t *testing.T) {
	accepted := map[string]gpu.Memory{
		"4":       mib(4096),
		"1":       mib(1024),
		"999":     mib(999 << 10),
		"1024":    mib(1 << 20),
		"4Gi":     mib(4096),
		"2048Mi":  mib(2048),
		"1Mi":     mib(128),
		"128Mi":   mib(128),
		"129Mi":   mib(256),
		"1.5Gi":   mib(1536),
		"1Ti":     mib(1 << 20),
		"4G":      mib(3840), // 3815 MiB and a bit less
		"2M":      mib(128),
		"1100Ki":  mib(128),
		"640Mi":   mib(640),
		"65537Mi": mib(65664),
	}
	cases := make(map[string]readCase)
	for text, want := range accepted {
		cases["vmemory of "+text] = readCase{pod: app("sgpu: 1, vcore: 10, vmemory: " + text), want: bestEffort(slice(1, 10, want))}
	}
	rejected := map[string]struct{ kept, sentence string }{
		"0":      {"0", sayGiB},
		"-1":     {"-1", sayGiB},
		"1025":   {"1025", sayGiB},
		"4096":   {"4096", sayGiB},
		"1500":   {"1500", sayGiB},
		"512Ki":  {"512Ki", sayBytes},
		"1M":     {"1M", sayBytes},
		"0Gi":    {"0", sayGiB},
		"-4Gi":   {"-4Gi", sayBytes},
		"1025Gi": {"1025Gi", sayBytes},
		"8Ei":    {"9223372036854775807", sayGiB},
		"1k":     {"1k", sayKept("1k")},
		"1000":   {"1k", sayKept("1k")},
		"4000":   {"4k", sayKept("4k")},
		"500m":   {"500m", sayKept("500m")},
		"0.5":    {"500m", sayKept("500m")},
		"1.5":    {"1500m", sayKept("1500m")},
		"1e3":    {"1e3", sayKept("1e3")},
		"4e9":    {"4e9", sayKept("4e9")},
		"1u":     {"1u", sayKept("1u")},
		"1n":     {"1n", sayKept("1n")},
		"1E":     {"1E", sayBytes},
	}
	for text, r := range rejected {
		cases["vmemory of "+text] = refused(app("sgpu: 1, vcore: 10, vmemory: "+text), limit(vmemoryName, r.kept, r.sentence))
	}
	cases["no vmemory is the whole card's"] = readCase{pod: app("sgpu: 1, vcore: 10"), want: bestEffort(slice(1, 10, percent(100)))}
	runRead(t, cases)
}

func TestReadWhereAmountsStand(t *testing.T) {
	runRead(t, map[string]readCase{
		"in requests only":             {pod: gputest.MakePod("p").AppWith("", "sgpu: 1, vcore: 30, vmemory: 2"), want: bestEffort(slice(1, 30, mib(2048)))},
		"whole cards in requests only": {pod: gputest.MakePod("p").AppWith("cpu: 4", "gpu: 2"), want: podOf("", "", whole(2))},
		"cards in limits, amounts in requests": {
			pod:  gputest.MakePod("p").AppWith("sgpu: 1", "vcore: 30, vmemory: 2"),
			want: bestEffort(slice(1, 30, mib(2048))),
		},
		"the same in both, in two ways": {
			pod:  gputest.MakePod("p").AppWith("sgpu: 1, vcore: 30, vmemory: 2Gi", "sgpu: 1, vcore: 30, vmemory: 2048Mi"),
			want: bestEffort(slice(1, 30, mib(2048))),
		},
		"a bad amount in requests is reported there": refused(gputest.MakePod("p").AppWith("", "sgpu: 1, vcore: 130"),
			problem("spec.containers[0].resources.requests[metax-tech.com/vcore]", "130", sayPercent)),
		"less requested than the limit": refused(gputest.MakePod("p").AppWith("sgpu: 1, vcore: 30", "vcore: 10"),
			problem("spec.containers[0].resources.requests[metax-tech.com/vcore]", "10", "differs from the limit: write 30 in both, or in limits alone")),
		"other cards requested than the limit": refused(gputest.MakePod("p").AppWith("gpu: 2", "gpu: 1"),
			problem("spec.containers[0].resources.requests[metax-tech.com/gpu]", "1", "differs from the limit: write 2 in both, or in limits alone")),
	})
}

func TestReadConflicts(t *testing.T) {
	runRead(t, map[string]readCase{
		"whole cards and shares":                               refused(app("gpu: 1, sgpu: 1"), limit(gpuName, "1", sayOneKind)),
		"whole cards and shares with amounts, one of them bad": refused(app("gpu: 1, sgpu: 1, vcore: 120"), limit(vcoreName, "120", sayPercent), limit(gpuName, "1", sayOneKind)),
		"vcore without a card":                                 refused(app("vcore: 10"), limit(vcoreName, "10", sayAddCards)),
		"vmemory without a card":                               refused(app("vmemory: 4"), limit(vmemoryName, "4", sayAddCards)),
		"both amounts without a card take one sentence":        refused(app("vcore: 10, vmemory: 4"), limit(vcoreName, "10", sayAddCards)),
		"amounts of no share":                                  refused(app("sgpu: 0, vcore: 10"), limit(vcoreName, "10", sayAddCards)),
		"a bad amount without a card":                          refused(app("vmemory: 4000"), limit(vmemoryName, "4k", sayKept("4k")), limit(vmemoryName, "4k", sayAddCards)),
		"vcore of a whole card":                                refused(app("gpu: 1, vcore: 10"), limit(vcoreName, "10", sayWholeHas)),
		"vmemory of a whole card":                              refused(app("gpu: 1, vmemory: 4"), limit(vmemoryName, "4", sayWholeHas)),
	})
}
