package wire

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestScanVendor(t *testing.T) {
	tests := map[string]struct {
		text      string
		wantPlain bool
	}{
		"a slice":                          {`[[{"uuid":"GPU-a","compute":60,"vRam":4096}]]`, true},
		"zeros are left out":               {`[[],[{"uuid":"GPU-a"},{"uuid":"GPU-b","vRam":0}]]`, true},
		"no containers":                    {`[]`, true},
		"nine digits":                      {`[[{"uuid":"GPU-a","vRam":999999999}]]`, true},
		"ten digits":                       {`[[{"uuid":"GPU-a","vRam":1000000000}]]`, false},
		"a leading zero is no JSON":        {`[[{"uuid":"GPU-a","vRam":01}]]`, false},
		"no number":                        {`[[{"uuid":"GPU-a","vRam":}]]`, false},
		"negative":                         {`[[{"uuid":"GPU-a","compute":-1}]]`, false},
		"a fraction":                       {`[[{"uuid":"GPU-a","compute":1.5}]]`, false},
		"white space":                      {`[[ {"uuid":"GPU-a"}]]`, false},
		"another order":                    {`[[{"compute":60,"uuid":"GPU-a"}]]`, false},
		"another field":                    {`[[{"uuid":"GPU-a","model":"C500"}]]`, false},
		"an escaped letter":                {`[[{"uuid":"GPU-\u0061"}]]`, false},
		"an open string":                   {`[[{"uuid":"GPU-a`, false},
		"a letter that is not ASCII":       {`[[{"uuid":"卡"}]]`, false},
		"something follows":                {`[[]]]`, false},
		"a comma too many":                 {`[[],]`, false},
		"nothing":                          {``, false},
		"null":                             {`null`, false},
		"what a scanner that is stuck has": {"\x00", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, plain := scanVendor(tt.text)
			if plain != tt.wantPlain {
				t.Fatalf("plain is %t, want %t", plain, tt.wantPlain)
			}
			if plain {
				sameAsJSON(t, tt.text, got)
			}
		})
	}
}

// sameAsJSON checks that the JSON decoder reads the same.
func sameAsJSON(t *testing.T, text string, got [][]vendorShare) {
	t.Helper()
	var want [][]vendorShare
	if err := json.Unmarshal([]byte(text), &want); err != nil {
		t.Fatalf("%q is no JSON: %v", text, err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%q (-JSON +scanned):\n%s", text, diff)
	}
}

func FuzzScanVendor(f *testing.F) {
	for _, text := range []string{
		`[[{"uuid":"GPU-a","compute":60,"vRam":4096}],[]]`, `[[{"uuid":"GPU-a"},{"uuid":"GPU-b","compute":100,"vRam":65536}]]`,
		`[[{"uuid":"GPU-a","vRam":007}]]`, `[[{"uuid":"\"","vRam":1e9}]]`, `[`, "[[{\"uuid\":\"\x7f\"}]]",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if lists, plain := scanVendor(text); plain {
			sameAsJSON(t, text, lists)
		}
	})
}

func BenchmarkDecodeVendor(b *testing.B) {
	text := `[[{"uuid":"GPU-6a8a3c1e-0000-0000-0000-000000000000","compute":60,"vRam":4096}]]`
	for name, text := range map[string]string{"plain": text, "other": strings.Replace(text, ",", ", ", 1)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := decodeVendor(text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
