package deviceplugin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// Whether a runtime injects CDI devices, by what it reports. Where the
// configurations come from is in testdata/runtime/README.md.
func TestCDISupport(t *testing.T) {
	t.Parallel()
	const specs = "/var/run/cdi"
	for name, tc := range map[string]struct {
		runtime, version string
		// config is a file, with one text replaced by another.
		config, old, new string
		assume           []string
		want, advice     string
	}{
		"containerd 1.6":                         {runtime: "containerd", version: "1.6.38", config: "containerd-1.6", want: ReasonNoCDI, advice: "container runtime containerd 1.6.38 has CDI off and would start containers without their cards: it can't inject them; use containerd 1.7 or later or CRI-O 1.24 or later, or leave the node to the vendor's device plugin with the annotation daybreak-gpu.io/served-by=vendor"},
		"containerd 1.7":                         {runtime: "containerd", version: "1.7.28", config: "containerd-1.7", want: ReasonNoCDI, advice: `write enable_cdi = true and cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"] under [plugins."io.containerd.grpc.v1.cri"]`},
		"containerd 1.7 of Debian":               {runtime: "containerd", version: "1.7.24~ds1", config: "containerd-1.7", want: ReasonNoCDI, advice: "enable_cdi = true"},
		"containerd 1.7, on":                     {runtime: "containerd", version: "1.7.28", config: "containerd-1.7", old: `"enableCDI": false`, new: `"enableCDI": true`},
		"containerd 1.7 of k3s, on":              {runtime: "containerd", version: "v1.7.27-k3s1", config: "containerd-1.7", old: `"enableCDI": false`, new: `"enableCDI": true`},
		"containerd 2.0":                         {runtime: "containerd", version: "v2.0.14", config: "containerd-2.0"},
		"containerd 2.2":                         {runtime: "containerd", version: "2.2.1+unknown", config: "containerd-2.2"},
		"containerd 2.2, off":                    {runtime: "containerd", version: "v2.2.1", config: "containerd-2.2", old: `"enableCDI": true`, new: `"enableCDI": false`, want: ReasonNoCDI, advice: `under [plugins."io.containerd.cri.v1.runtime"]`},
		"containerd 2.2, not in our folder":      {runtime: "containerd", version: "v2.2.1", config: "containerd-2.2", old: `"/var/run/cdi"`, new: `"/var/cdi/dynamic"`, want: ReasonNoCDI, advice: `cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]`},
		"containerd 2.2, our folder by its link": {runtime: "containerd", version: "v2.2.1", config: "containerd-2.2", old: `"/var/run/cdi"`, new: `"/run/cdi/"`},
		"containerd 2.3":                         {runtime: "containerd", version: "v2.3.7", config: "containerd-2.3"},
		"containerd 2.3, not said":               {runtime: "containerd", version: "v2.3.7", config: "containerd-2.3", old: `"enableCDI": true`, new: `"enableCDI": null`},
		"containerd 2.3, off":                    {runtime: "containerd", version: "v2.3.7", config: "containerd-2.3", old: `"enableCDI": true`, new: `"enableCDI": false`, want: ReasonNoCDI, advice: "enable_cdi = true"},
		"containerd 2.4":                         {runtime: "containerd", version: "v2.4.2", config: "containerd-2.4"},
		"containerd 2.4, not in our folder":      {runtime: "containerd", version: "v2.4.2", config: "containerd-2.4", old: `"/var/run/cdi"`, new: `"/var/cdi/dynamic"`, want: ReasonNoCDI, advice: "cdi_spec_dirs"},
		"containerd of no version":               {runtime: "containerd", version: "main", config: "containerd-2.4", want: ReasonCDIUnknown, advice: `add "containerd" to agent.assumeCDI`},
		"containerd that shows no configuration": {runtime: "containerd", version: "v2.4.2", want: ReasonCDIUnknown},
		"a word in place of true":                {runtime: "containerd", version: "v2.2.1", config: "containerd-2.2", old: `"enableCDI": true`, new: `"enableCDI": "auto"`, want: ReasonCDIUnknown},
		"off is off, whatever is assumed":        {runtime: "containerd", version: "1.7.28", config: "containerd-1.7", assume: []string{"containerd"}, want: ReasonNoCDI, advice: "enable_cdi"},
		"CRI-O":                                  {runtime: "cri-o", version: "1.33.0", config: "cri-o-1.33"},
		"CRI-O that reads annotations only":      {runtime: "cri-o", version: "1.24.6", config: "cri-o-1.33"},
		"CRI-O before CDI":                       {runtime: "cri-o", version: "1.23.5", config: "cri-o-1.33", want: ReasonNoCDI, advice: "use containerd 1.7 or later or CRI-O 1.24 or later"},
		"cri-dockerd":                            {runtime: "docker", version: "28.0.1", want: ReasonNoCDI, advice: "container runtime docker 28.0.1 would start containers without their cards"},
		"an unknown runtime":                     {runtime: "pouch", version: "28.0.1", want: ReasonCDIUnknown, advice: `add "pouch" to agent.assumeCDI (--assume-cdi)`},
		"an unknown runtime, assumed":            {runtime: "docker", version: "28.0.1", assume: []string{"podman", "docker"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &RuntimeAnswer{Name: tc.runtime, Version: tc.version}
			if tc.config != "" {
				text, err := os.ReadFile(filepath.Join("testdata", "runtime", tc.config+".json"))
				gputest.Must(t, err)
				if !strings.Contains(string(text), tc.old) {
					t.Fatalf("%s has no %s", tc.config, tc.old)
				}
				a.Info = map[string]string{"config": strings.Replace(string(text), tc.old, tc.new, 1), "golang": `"go1.24"`}
			}
			got := a.Fault(specs, tc.assume)
			if got.Reason != tc.want || !strings.Contains(got.Message, tc.advice) {
				t.Errorf("%+v, want %q with advice %q", got, tc.want, tc.advice)
			}
		})
	}
}
