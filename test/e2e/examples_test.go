package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/manifest"
)

// TestExamples: the pods of Koordinator's and HAMi's documentation, unchanged,
// reach Running and have their cards in them.
func TestExamples(t *testing.T) {
	batches := map[string][]string{
		"slices": {
			"hami/sgpu-specific-card", // first, while the card is free
			"koordinator/sgpu-fixed-share", "hami/sgpu-default", "hami/sgpu-memory-mib", "hami/sgpu-specific-qos", "hami/sgpu-offline",
			"hami/sgpu-online", "hami/sgpu-several-containers", "hami/sgpu-exclusive",
		},
		"whole cards": {"koordinator/sgpu-fixed-share-zh", "koordinator/two-whole-cards", "hami/gpu-binpack", "hami/gpu-spread"},
		"four cards":  {"hami/gpu-default", "hami/sgpu-topology-aware"},
	}
	seen := 0
	for name, files := range batches {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := w.serve()
			args := []string{"apply"}
			var names []string
			for _, file := range files {
				path := filepath.Join("examples", file+".yaml")
				args = append(args, "-f", path)
				names = append(names, nameIn(t, path))
			}
			start := time.Now()
			w.Kubectl(args...)
			pods := w.running(2*time.Minute, names...)
			t.Logf("%d pods run after %s", len(pods), time.Since(start).Round(10*time.Millisecond))
			for _, p := range pods {
				// As the documentation says it, through a shell.
				line := bin("kubectl") + " --kubeconfig " + w.Kubeconfig("admin") + " exec " + p.Name + " -- ls /dev/mx*"
				out, err := exec.CommandContext(w.Ctx, "sh", "-c", line).Output()
				if err != nil || strings.TrimSpace(string(out)) != "/dev/mxcd" {
					t.Errorf("%s: %v\n%s", line, err, out)
				}
			}
			w.inspect(c, pods...)
			w.slicesAre(c, 0, pods...)
			w.noWarnings(names...)
		})
		seen += len(files)
	}
	// A pod that is added to the examples is to be tried here as well.
	files, err := manifest.Examples(root)
	if err != nil || len(files) != seen {
		t.Errorf("%d examples were tried, there are %d (%v)", seen, len(files), err)
	}
}

// nameIn returns the name of the pod in a file of the repository.
func nameIn(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	gputest.Must(t, err)
	var p corev1.Pod
	gputest.Must(t, yaml.Unmarshal(text, &p))
	return p.Name
}
