package request

import (
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// Names and sentences of Koordinator's dialect, as users read them.
const (
	koordGPUName    = "koordinator.sh/gpu"
	koordSharedName = "koordinator.sh/gpu.shared"
	koordCoreName   = "koordinator.sh/gpu-core"
	koordMemoryName = "koordinator.sh/gpu-memory"
	koordRatioName  = "koordinator.sh/gpu-memory-ratio"

	sayAlone       = "stands alone, since it is koordinator.sh/gpu-core and koordinator.sh/gpu-memory-ratio in one: remove it or the others"
	sayTwice       = "duplicates koordinator.sh/gpu-memory: keep one of the two"
	sayNoMemory    = "requires memory: add koordinator.sh/gpu-memory (such as 4Gi) or koordinator.sh/gpu-memory-ratio (in percent)"
	sayNoCompute   = "requires compute: add koordinator.sh/gpu-core in percent, or take whole cards with koordinator.sh/gpu-memory-ratio: 100"
	sayShared      = "is a number of cards: write 1 for a share of one card, at most 64"
	sayHundreds    = "more than one card is taken whole: write a multiple of 100, or at most 100"
	sayOverTwo     = "MetaX does not share over several cards: take 2 whole cards with koordinator.sh/gpu-core: 200 and koordinator.sh/gpu-memory-ratio: 200, or a share of one card with koordinator.sh/gpu.shared: 1"
	sayOfTwo       = "is for 2 cards together: write a multiple of 2, at most 200"
	sayOfOne       = "is for one card: write at most 100"
	sayRatio       = "is the part of a card's memory in percent: write 1 to 100"
	sayManyPercent = "is in percent: write a whole number from 0 to 6400"
)

func TestReadKoordinatorShares(t *testing.T) {
	runRead(t, map[string]readCase{
		"a share with everything that Koordinator's users write": {
			pod:  app("gpu.shared: 1, gpu-core: 5, gpu-memory: 1Gi, sgpu: 1"),
			want: bestEffort(slice(1, 5, mib(1024))),
		},
		"a share without sgpu":                    {pod: app("gpu.shared: 1, gpu-core: 5, gpu-memory: 1Gi"), want: bestEffort(slice(1, 5, mib(1024)))},
		"a share without gpu.shared":              {pod: app("gpu-core: 30, gpu-memory: 1Gi"), want: bestEffort(slice(1, 30, mib(1024)))},
		"memory by ratio":                         {pod: app("gpu.shared: 1, gpu-core: 30, gpu-memory-ratio: 25"), want: bestEffort(slice(1, 30, percent(25)))},
		"all memory but not all compute":          {pod: app("gpu-core: 30, gpu-memory-ratio: 100"), want: bestEffort(slice(1, 30, percent(100)))},
		"all compute but not all memory is alone": {pod: app("gpu-core: 100, gpu-memory-ratio: 50"), want: bestEffort(alone(1, percent(50)))},
		"no compute reserved":                     {pod: app("gpu.shared: 1, gpu-core: 0, gpu-memory: 1Gi"), want: bestEffort(slice(1, 0, mib(1024)))},
		"memory is rounded up":                    {pod: app("gpu.shared: 1, gpu-core: 5, gpu-memory: 1G"), want: bestEffort(slice(1, 5, mib(1024)))},
		"both percentages in one":                 {pod: app("koordinator.sh/gpu: 50"), want: bestEffort(slice(1, 50, percent(50)))},
		"amounts in requests": {
			pod:  gputest.MakePod("p").AppWith("", "gpu.shared: 1, gpu-core: 5, gpu-memory: 1Gi, sgpu: 1"),
			want: bestEffort(slice(1, 5, mib(1024))),
		},
		"a named QoS": {
			pod:  app("gpu.shared: 1, gpu-core: 5, gpu-memory: 1Gi").Annotate(wire.AnnotationQoS, "fixed-share"),
			want: podOf(gpu.FixedShare, "", slice(1, 5, mib(1024))),
		},
		"an online pod's compute is not metered": {
			pod:  app("gpu.shared: 1, gpu-core: 100, gpu-memory: 1Gi").Annotate(wire.AnnotationClass, "online"),
			want: podOf("", gpu.Online, slice(1, 0, mib(1024))),
		},
	})
}

func TestReadKoordinatorWholeCards(t *testing.T) {
	runRead(t, map[string]readCase{
		"two cards as Koordinator's users write them": {
			pod: app("gpu-core: 200, gpu-memory-ratio: 200, sgpu: 2"), want: bestEffort(alone(2, percent(100))),
		},
		"two cards without sgpu":      {pod: app("gpu-core: 200, gpu-memory-ratio: 200"), want: bestEffort(alone(2, percent(100)))},
		"two cards in one amount":     {pod: app("koordinator.sh/gpu: 200"), want: bestEffort(alone(2, percent(100)))},
		"one card in one amount":      {pod: app("koordinator.sh/gpu: 100"), want: bestEffort(alone(1, percent(100)))},
		"as many as a node may hold":  {pod: app("koordinator.sh/gpu: 6400"), want: bestEffort(alone(64, percent(100)))},
		"all memory and no gpu-core":  {pod: app("gpu-memory-ratio: 100"), want: bestEffort(alone(1, percent(100)))},
		"memory of two, no gpu-core":  {pod: app("gpu-memory-ratio: 200"), want: bestEffort(alone(2, percent(100)))},
		"two shared, both all memory": {pod: app("gpu.shared: 2, gpu-memory-ratio: 200"), want: bestEffort(alone(2, percent(100)))},
		"two shared and both taken whole": {
			pod: app("gpu.shared: 2, gpu-core: 200, gpu-memory-ratio: 200"), want: bestEffort(alone(2, percent(100))),
		},
		"two alone with an amount of memory together": {
			pod: app("gpu.shared: 2, gpu-core: 200, gpu-memory: 64Gi"), want: bestEffort(alone(2, mib(32<<10))),
		},
		"compute of two, an amount of memory together":    {pod: app("gpu-core: 200, gpu-memory: 64Gi"), want: bestEffort(alone(2, mib(32<<10)))},
		"compute of two, half the memory of one together": {pod: app("gpu-core: 200, gpu-memory-ratio: 50"), want: bestEffort(alone(2, percent(25)))},
		"memory of two whole cards goes to 2Ti":           {pod: app("gpu-core: 200, gpu-memory: 2Ti"), want: bestEffort(alone(2, mib(1<<20)))},
		"a card and a half":                               refused(app("koordinator.sh/gpu: 150"), limit(koordGPUName, "150", sayHundreds)),
		"a card and a half of compute":                    refused(app("gpu-core: 150, gpu-memory: 4Gi"), limit(koordCoreName, "150", sayHundreds)),
		"a card and a half of memory":                     refused(app("gpu-core: 50, gpu-memory-ratio: 150"), limit(koordRatioName, "150", sayHundreds)),
		"more than a node may hold":                       refused(app("koordinator.sh/gpu: 6500"), limit(koordGPUName, "6500", sayManyPercent)),
		"half a percent":                                  refused(app("gpu-core: 500m, gpu-memory: 1Gi"), limit(koordCoreName, "500m", sayManyPercent)),
		"less than nothing":                               refused(app("gpu-core: -100, gpu-memory-ratio: 100"), limit(koordCoreName, "-100", sayManyPercent)),
	})
}

func TestReadKoordinatorSharingOverCards(t *testing.T) {
	runRead(t, map[string]readCase{
		"half the compute of each of two": refused(app("gpu.shared: 2, gpu-core: 100, gpu-memory-ratio: 200"), limit(koordSharedName, "2", sayOverTwo)),
		"half of each of two":             refused(app("gpu.shared: 2, gpu-core: 100, gpu-memory-ratio: 100"), limit(koordSharedName, "2", sayOverTwo)),
		"two by memory, compute of one":   refused(app("gpu-core: 100, gpu-memory-ratio: 200"), limit(koordCoreName, "100", sayOverTwo)),
		"compute that can't be halved":    refused(app("gpu.shared: 2, gpu-core: 101, gpu-memory-ratio: 200"), limit(koordCoreName, "101", sayOfTwo)),
		"compute and memory that can't be halved": refused(app("gpu.shared: 2, gpu-core: 101, gpu-memory-ratio: 101"),
			limit(koordRatioName, "101", sayOfTwo),
			limit(koordCoreName, "101", sayOfTwo)),
		"compute of two on one":         refused(app("gpu.shared: 1, gpu-core: 200, gpu-memory: 4Gi"), limit(koordCoreName, "200", sayOfOne)),
		"compute of two, memory of one": refused(app("gpu-core: 200, gpu-memory-ratio: 100"), limit(koordCoreName, "200", sayOfOne)),
		"memory of two on one":          refused(app("gpu.shared: 1, gpu-core: 50, gpu-memory-ratio: 200"), limit(koordRatioName, "200", sayOfOne)),
		"all memory of one of two": refused(app("gpu.shared: 2, gpu-memory-ratio: 100"),
			limit(koordRatioName, "100", "requires compute: add koordinator.sh/gpu-core in percent, or take whole cards with koordinator.sh/gpu-memory-ratio: 200")),
		"a share of no card":               refused(app("gpu.shared: 0, gpu-core: 50, gpu-memory: 4Gi"), limit(koordSharedName, "0", sayShared)),
		"a share of half a card by number": refused(app("gpu.shared: 500m, gpu-core: 50, gpu-memory: 4Gi"), limit(koordSharedName, "500m", sayShared)),
		"shares of more cards than a node may hold": refused(app("gpu.shared: 65, gpu-core: 6500, gpu-memory: 4Gi"),
			limit(koordCoreName, "6500", sayManyPercent),
			limit(koordSharedName, "65", sayShared)),
		"sgpu of another number": refused(app("gpu.shared: 1, gpu-core: 50, gpu-memory: 4Gi, sgpu: 2"),
			limit(sgpuName, "2", "the koordinator.sh amounts are for 1: write 1, or leave it out")),
		"fewer sgpu than whole cards": refused(app("gpu-core: 200, gpu-memory-ratio: 200, sgpu: 1"), limit(sgpuName, "1", "the koordinator.sh amounts are for 2: write 2, or leave it out")),
		"sgpu of none":                refused(app("gpu.shared: 1, gpu-core: 50, gpu-memory: 4Gi, sgpu: 0"), limit(sgpuName, "0", "the koordinator.sh amounts are for 1: write 1, or leave it out")),
	})
}

func TestReadKoordinatorCombinations(t *testing.T) {
	runRead(t, map[string]readCase{
		"compute alone":                    refused(app("gpu-core: 50"), limit(koordCoreName, "50", sayNoMemory)),
		"a number alone":                   refused(app("gpu.shared: 1"), limit(koordSharedName, "1", sayNoMemory)),
		"a number and compute":             refused(app("gpu.shared: 1, gpu-core: 50, sgpu: 1"), limit(koordCoreName, "50", sayNoMemory)),
		"memory in two ways":               refused(app("gpu.shared: 1, gpu-core: 50, gpu-memory: 4Gi, gpu-memory-ratio: 10"), limit(koordRatioName, "10", sayTwice)),
		"memory without compute":           refused(app("gpu.shared: 1, gpu-memory: 4Gi"), limit(koordMemoryName, "4Gi", sayNoCompute)),
		"half the memory without compute":  refused(app("gpu-memory-ratio: 50"), limit(koordRatioName, "50", sayNoCompute)),
		"both in one with one of them":     refused(app("koordinator.sh/gpu: 100, gpu-core: 100"), limit(koordGPUName, "100", sayAlone)),
		"both in one with a number":        refused(app("koordinator.sh/gpu: 100, gpu.shared: 1"), limit(koordGPUName, "100", sayAlone)),
		"no memory at all":                 refused(app("gpu-core: 50, gpu-memory-ratio: 0"), limit(koordRatioName, "0", sayRatio)),
		"nothing of both in one":           refused(app("koordinator.sh/gpu: 0"), limit(koordGPUName, "0", sayRatio)),
		"memory under 1Mi":                 refused(app("gpu-core: 50, gpu-memory: 512Ki"), limit(koordMemoryName, "512Ki", sayBytes)),
		"memory as a bare number is bytes": refused(app("gpu-core: 50, gpu-memory: 4"), limit(koordMemoryName, "4", sayBytes)),
		"memory over 1Ti":                  refused(app("gpu-core: 50, gpu-memory: 1025Gi"), limit(koordMemoryName, "1025Gi", sayBytes)),
		"memory over 1Ti of each of two":   refused(app("gpu-core: 200, gpu-memory: 2049Gi"), limit(koordMemoryName, "2049Gi", sayBytes)),
		"negative memory":                  refused(app("gpu-core: 50, gpu-memory: -1Gi"), limit(koordMemoryName, "-1Gi", sayBytes)),
		"with vcore":                       refused(app("gpu.shared: 1, gpu-core: 50, gpu-memory: 4Gi, sgpu: 1, vcore: 50"), limit(koordSharedName, "1", sayDialect)),
		"with vmemory":                     refused(app("koordinator.sh/gpu: 50, sgpu: 1, vmemory: 4"), limit(koordGPUName, "50", sayDialect)),
		"with whole cards":                 refused(app("koordinator.sh/gpu: 50, gpu: 1"), limit(gpuName, "1", sayDialectGPU)),
	})
}

func TestReadReportsKoordinator(t *testing.T) {
	cases := map[string]struct {
		pod  *gputest.PodBuilder
		want bool
	}{
		"HAMi's":                     {pod: app("sgpu: 1, vcore: 10, vmemory: 4")},
		"whole cards":                {pod: app("gpu: 1")},
		"Koordinator's":              {pod: app("gpu.shared: 1, gpu-core: 5, gpu-memory: 1Gi"), want: true},
		"one each in two containers": {pod: app("koordinator.sh/gpu: 50").App("sgpu: 1, vcore: 10"), want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ask, problems := Read(tc.pod.Obj())
			if len(problems) > 0 {
				t.Fatalf("refused: %v", problems)
			}
			gputest.Equal(t, "Koordinator", tc.want, ask.Koordinator)
		})
	}
}
