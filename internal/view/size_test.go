package view

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestSizes: free memory rounds down and used memory up. The page renders sizes in
// the browser: the table is a file so that its tests can read it too.
func TestSizes(t *testing.T) {
	text, err := os.ReadFile("testdata/sizes.json")
	gputest.Must(t, err)
	var cases []struct {
		MiB        int64
		Free, Used string
	}
	if err := json.Unmarshal(text, &cases); err != nil || len(cases) < 10 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	for _, tc := range cases {
		if got := FreeSize(tc.MiB); got != tc.Free {
			t.Errorf("%d MiB free reads %q, want %q", tc.MiB, got, tc.Free)
		}
		if got := UsedSize(tc.MiB); got != tc.Used {
			t.Errorf("%d MiB used reads %q, want %q", tc.MiB, got, tc.Used)
		}
	}
}

// TestFreeOf: only where all is free the two numbers read the same.
func TestFreeOf(t *testing.T) {
	const gib, tib = 1 << 10, 1 << 20
	cases := map[string]struct {
		free, total int64
		want        string
	}{
		"4 GiB of 20 TiB are used":            {20*tib - 4*gib, 20 * tib, "19.9 TiB of 20 TiB"},
		"all is free":                         {1472 * gib, 1472 * gib, "1.4 TiB of 1.4 TiB"},
		"used is less than a digit":           {1468 * gib, 1472 * gib, "1468 GiB of 1472 GiB"},
		"used is less than a GiB":             {1472*gib - 128, 1472 * gib, "1471.8 GiB of 1472 GiB"},
		"used is less than a tenth of a GiB":  {100*gib - 1, 100 * gib, "99.9 GiB of 100 GiB"},
		"used is less than a tenth of a rest": {100*gib + 110, 100*gib + 128, "102510 MiB of 102528 MiB"},
		"nothing is free":                     {0, 64 * gib, "0 of 64 GiB"},
		"there is nothing":                    {0, 0, "0 of 0"},
		"free and total in different units":   {512 * gib, 2 * tib, "512 GiB of 2 TiB"},
		"more is used than a digit of a TiB ": {1300 * gib, 1472 * gib, "1.2 TiB of 1.4 TiB"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			free, total := FreeOf(tc.free, tc.total)
			gputest.Equal(t, "sizes", tc.want, free+" of "+total)
		})
	}
}
