package gpu_test

import (
	"fmt"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestModelName(t *testing.T) {
	cases := map[string]string{
		"MXC500": "C500", "MetaX C500": "C500", "C500": "C500", " MXC550-PL ": "C550-PL", "MetaX MXC600-A": "C600-A",
		"MetaX  C500": "C500", "MXC500 VF": "C500 VF", "MXN260": "N260", "MX": "MX", "MetaX": "MetaX", "": "",
	}
	for in, want := range cases {
		gputest.Equal(t, fmt.Sprintf("ModelName(%q)", in), want, gpu.ModelName(in))
	}
}

func TestModeValid(t *testing.T) {
	for _, m := range []gpu.Mode{gpu.ModeNative, gpu.ModeSGPU, gpu.ModeShared, gpu.ModeVGPU} {
		if !m.Valid() {
			t.Errorf("mode %q is not valid", m)
		}
	}
	for _, m := range []gpu.Mode{"", "SGPU", "mig"} {
		if m.Valid() {
			t.Errorf("mode %q is valid", m)
		}
	}
}
