package command

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/view"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

const (
	examples       = "../../examples/"
	exampleCluster = examples + "cluster.yaml"
	// exampleAnswers has the answer for each example, in a folder that is not
	// applied with the examples.
	exampleAnswers = "testdata/examples/"
)

// whereExamplesGo is worked out by hand from the rules, not copied from an
// answer. What counts on the example cluster:
//
//   - metax-a is the fullest node, and 4 to 7 are its idle cards, all linked.
//     2 runs fixed-share at 30%, 3 best-effort at 20%; both have 48 GiB left.
//   - metax-b has the rings 0-1-2-3 and 4-5-6-7, where 6 is unhealthy.
//   - metax-c is idle and all linked.
var whereExamplesGo = map[string]struct {
	node  string
	cards [][]view.Card
}{
	// One card has no pairs, so every node scores 0; spread takes the emptier:
	// b and c are empty, and b is the first by name. On b the card whose loss
	// hurts least is an end of the broken ring: 5 and 7 weigh 110 + 50 + 4*10.
	"hami/gpu-spread": {"metax-b", [][]view.Card{on(100, 65536, 5)}},
	// Four of one full zone score 660 on a and on c, four of a ring 540 on b.
	// Without a policy the fuller node wins the tie.
	"hami/gpu-default": {"metax-a", [][]view.Card{on(100, 65536, 4, 5, 6, 7)}},
	// Two cards cost 4*110 = 440 on a, 12*110 on c, and on b 110 + 50 + 8*10 =
	// 240 from the broken ring: 4 with 5, or 4 with 7.
	"hami/gpu-binpack": {"metax-b", [][]view.Card{on(100, 65536, 4, 5)}},
	// Slices go to the fullest node and there to the fullest card that fits:
	// best-effort fits on 3 and on the idle ones.
	"hami/sgpu-default":    {"metax-a", [][]view.Card{on(60, 4096, 3)}},
	"hami/sgpu-memory-mib": {"metax-a", [][]view.Card{on(30, 2048, 3)}},
	// The first container brings card 3 to 70%, which leaves no room for 40.
	"hami/sgpu-several-containers": {"metax-a", [][]view.Card{on(50, 8192, 3), on(40, 8192, 4), {}}},
	"hami/sgpu-specific-card":      {"metax-c", [][]view.Card{on(25, 8192, 5)}},
	// Burst-share fits neither on 2 nor on 3; idle cards are equally full.
	"hami/sgpu-specific-qos": {"metax-a", [][]view.Card{on(40, 8192, 4)}},
	// Exclusive cards are chosen like whole ones.
	"hami/sgpu-exclusive":      {"metax-a", [][]view.Card{on(100, 65536, 4)}},
	"hami/sgpu-topology-aware": {"metax-a", [][]view.Card{on(100, 65536, 4, 5, 6, 7)}},
	// Pods with a class keep off the cards of those without. An idle card is
	// as little disturbed on one node as on another, so fullness decides.
	"hami/sgpu-online":  {"metax-a", [][]view.Card{on(0, 8192, 4)}},
	"hami/sgpu-offline": {"metax-a", [][]view.Card{on(50, 8192, 4)}},
	// Fixed-share fits on 2 and on the idle ones.
	"koordinator/sgpu-fixed-share":    {"metax-a", [][]view.Card{on(10, 1024, 2)}},
	"koordinator/sgpu-fixed-share-zh": {"metax-a", [][]view.Card{on(10, 1024, 2)}},
	// Any linked pair scores 110, on every node.
	"koordinator/two-whole-cards": {"metax-a", [][]view.Card{on(100, 65536, 4, 5)}},
}

// on is a share of each of the cards.
func on(compute int32, mib int64, indices ...int) []view.Card {
	var cards []view.Card
	for _, i := range indices {
		cards = append(cards, view.Card{Index: i, ComputePercent: compute, MemoryMiB: mib})
	}
	return cards
}

func TestExamples(t *testing.T) {
	names := exampleNames(t)
	gputest.Equal(t, "examples expected and there", slices.Sorted(maps.Keys(whereExamplesGo)), names)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			file := examples + name + ".yaml"
			o := placeOptions{source: source{files: []string{exampleCluster, file}}, format: format{output: "json"}}
			stdout, stderr, ok := o.place(t, "")
			if !ok || stderr != "" {
				t.Errorf("ok is %v, want a place for the pod without a word on stderr, got %q", ok, stderr)
			}
			golden(t, exampleAnswers+name+".json", stdout)

			got := onlyPlacement(t, stdout)
			want := whereExamplesGo[name]
			gputest.Equal(t, "node", want.node, got.Node)
			gputest.Equal(t, "cards", want.cards, cardsIn(got), cmpopts.EquateEmpty(), cmpopts.IgnoreFields(view.Card{}, "UUID"))
			checkIdentities(t, got)
			if given, n := len(slices.Concat(cardsIn(got)...)), asked(t, file); given != n || n == 0 {
				t.Errorf("%d cards, the pod asks for %d", given, n)
			}
		})
	}
}

func TestExamplesHaveGoldenFiles(t *testing.T) {
	gputest.Equal(t, "examples and golden files", exampleNames(t), namesIn(t, exampleAnswers, ".json"))
}

// TestExampleFolders: a folder of pods can be applied as a whole, and all of them
// at once: each pod has a name of its own.
func TestExampleFolders(t *testing.T) {
	var files []string
	for _, name := range namesIn(t, examples, "") {
		if folder, _, _ := strings.Cut(name, "/"); !slices.Contains([]string{"hami", "koordinator", "budgets"}, folder) {
			continue // not of pods alone
		}
		if filepath.Ext(name) != ".yaml" {
			t.Errorf("%s is no YAML file", name)
		}
		files = append(files, examples+name)
	}
	objects, err := cluster.ReadFiles(files, nil) // fails when a name comes twice
	gputest.Must(t, err)
	if len(objects.Pods) != len(files) || len(objects.Notes) > 0 {
		t.Errorf("%d pods and %v in %d files", len(objects.Pods), objects.Notes, len(files))
	}
}

// TestExampleClusterLinks keeps the two places where cluster.yaml describes
// links, and the text of the annotation, in step with the code that reads them.
func TestExampleClusterLinks(t *testing.T) {
	objects, err := cluster.ReadFiles([]string{exampleCluster}, nil)
	gputest.Must(t, err)
	for _, inv := range objects.Snapshot().Inventories {
		device := objects.Devices[inv.Name]
		text, err := inventory.EncodeLinks(inv.Topology)
		gputest.Must(t, err)
		gputest.Equal(t, inv.Name+": links, encoded and written", text, device.Annotations[wire.AnnotationLinks])
		for i := range device.Spec.Devices {
			zone, _ := inv.Topology.ZoneOf(i)
			if label := device.Spec.Devices[i].Labels[wire.LabelLinkZone]; label != strconv.Itoa(zone) {
				t.Errorf("%s: card %d has the label of zone %q, its links say %d", inv.Name, i, label, zone)
			}
		}
	}
}

// TestExamplesReadme: both languages link every example, or its folder, and show
// what daybreak place prints.
func TestExamplesReadme(t *testing.T) {
	for _, page := range []string{"README.md", "README.zh.md"} {
		text, err := os.ReadFile(examples + page)
		gputest.Must(t, err)
		readme := string(text)
		err = filepath.WalkDir(examples, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
				return err
			}
			file, err := filepath.Rel(examples, path)
			if file = filepath.ToSlash(file); !strings.Contains(readme, "]("+file+")") && !strings.Contains(readme, "]("+filepath.ToSlash(filepath.Dir(file))+")") {
				t.Errorf("%s has no link to %s", page, file)
			}
			return err
		})
		gputest.Must(t, err)
		checkShown(t, page, readme, "place")
	}
}

// exampleNames lists the examples of both dialects, without ".yaml".
func exampleNames(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(namesIn(t, examples, ".yaml"), func(name string) bool {
		return !strings.HasPrefix(name, "hami/") && !strings.HasPrefix(name, "koordinator/")
	})
}

// namesIn lists the files with the given ending in the subfolders, without it.
func namesIn(t *testing.T, folder, ending string) []string {
	t.Helper()
	paths, err := filepath.Glob(folder + "*/*" + ending)
	if err != nil || len(paths) == 0 {
		t.Fatalf("no *%s in %s: %v", ending, folder, err)
	}
	var names []string
	for _, path := range paths {
		names = append(names, strings.TrimSuffix(strings.TrimPrefix(filepath.ToSlash(path), folder), ending))
	}
	slices.Sort(names)
	return names
}

// onlyPlacement decodes an answer about one pod.
func onlyPlacement(t *testing.T, text string) *view.Placement {
	t.Helper()
	var got view.Placements
	gputest.Must(t, json.Unmarshal([]byte(text), &got))
	if len(got.Pods) != 1 {
		t.Fatalf("an answer about %d pods, want 1", len(got.Pods))
	}
	return &got.Pods[0]
}

// cardsIn returns the cards of each container.
func cardsIn(p *view.Placement) [][]view.Card {
	var all [][]view.Card
	for _, c := range p.Containers {
		all = append(all, c.Cards)
	}
	return all
}

// checkIdentities checks that the cards are those that the example cluster has
// at these positions, and that the vendor's annotation names the same.
func checkIdentities(t *testing.T, p *view.Placement) {
	t.Helper()
	var named [][]struct {
		UUID    string `json:"uuid"`
		Compute int32  `json:"compute"`
		VRam    int64  `json:"vRam"`
	}
	gputest.Must(t, json.Unmarshal([]byte(p.Annotations["metax-tech.com/gpu-devices-allocated"]), &named))
	if len(named) != len(p.Containers) {
		t.Fatalf("the annotation names %d containers, want %d", len(named), len(p.Containers))
	}
	letter := strings.TrimPrefix(p.Node, "metax-")
	for i, c := range p.Containers {
		if len(named[i]) != len(c.Cards) {
			t.Errorf("container %s: the annotation names %d cards, want %d", c.Name, len(named[i]), len(c.Cards))
			continue
		}
		for j, card := range c.Cards {
			if prefix := fmt.Sprintf("GPU-000000%s%d-", letter, card.Index); !strings.HasPrefix(card.UUID, prefix) {
				t.Errorf("container %s: card %d is %s, want %s...", c.Name, card.Index, card.UUID, prefix)
			}
			if n := named[i][j]; n.UUID != card.UUID || n.Compute != card.ComputePercent || n.VRam != card.MemoryMiB {
				t.Errorf("container %s: the annotation says %+v, the answer %+v", c.Name, n, card)
			}
		}
	}
}

// asked counts the cards that the limits of the pod's containers name.
func asked(t *testing.T, file string) int {
	t.Helper()
	objects, err := cluster.ReadFiles([]string{file}, nil)
	gputest.Must(t, err)
	n := int64(0)
	for _, c := range objects.Pods[0].Spec.Containers {
		for _, name := range []corev1.ResourceName{"metax-tech.com/gpu", "metax-tech.com/sgpu"} {
			q := c.Resources.Limits[name]
			n += q.Value()
		}
	}
	return int(n)
}
