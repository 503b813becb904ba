package allocation_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestParseLock(t *testing.T) {
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	tests := map[string]struct {
		text    string
		want    allocation.Lock
		wantErr string
	}{
		"a pod's":                       {text: "2026-01-02T12:00:00Z,ns,pod-1", want: allocation.Lock{Since: noon, Namespace: "ns", Name: "pod-1"}},
		"of another time zone":          {text: "2026-01-02T20:00:00+08:00,ns,pod-1", want: allocation.Lock{Since: noon, Namespace: "ns", Name: "pod-1"}},
		"of a pod with dots":            {text: "2026-01-02T12:00:00Z,ns,a.b", want: allocation.Lock{Since: noon, Namespace: "ns", Name: "a.b"}},
		"of an old scheduler":           {text: "2026-01-02T12:00:00Z", want: allocation.Lock{Since: noon}},
		"empty":                         {text: "", wantErr: `"" is no time such as 2026-01-02T15:04:05Z`},
		"no time":                       {text: "yesterday,ns,pod", wantErr: `"yesterday" is no time such as 2026-01-02T15:04:05Z`},
		"a namespace but no pod":        {text: "2026-01-02T12:00:00Z,ns", wantErr: "want a time, a namespace and a pod's name, with commas between, or a time alone"},
		"four fields":                   {text: "2026-01-02T12:00:00Z,ns,pod,more", wantErr: "want a time, a namespace and a pod's name, with commas between, or a time alone"},
		"a name that no pod can have":   {text: "2026-01-02T12:00:00Z,ns,../etc", wantErr: `"ns,../etc" is no pod's namespace and name`},
		"an empty name":                 {text: "2026-01-02T12:00:00Z,ns,", wantErr: `"ns," is no pod's namespace and name`},
		"a namespace that can't be one": {text: "2026-01-02T12:00:00Z,a.b,pod", wantErr: `"a.b,pod" is no pod's namespace and name`},
		"too long to be one":            {text: strings.Repeat("x", 600), wantErr: "600 bytes, at most 512 are read"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := allocation.ParseLock(tt.text)
			said := ""
			if err != nil {
				said = err.Error()
			}
			if said != tt.wantErr {
				t.Fatalf("ParseLock() says %q, want %q", said, tt.wantErr)
			}
			if err == nil && (!got.Since.Equal(tt.want.Since) || got.Namespace != tt.want.Namespace || got.Name != tt.want.Name) {
				t.Errorf("ParseLock() = %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestLockFor(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}}
	lock := allocation.LockFor(pod, time.Date(2026, 1, 2, 20, 0, 0, 999, time.FixedZone("", 8*3600)))
	gputest.Equal(t, "lock", "2026-01-02T12:00:00Z,ns,p", lock.String())
	if again, err := allocation.ParseLock(lock.String()); err != nil || again != lock {
		t.Errorf("read back it is %+v (%v), want %+v", again, err, lock)
	}
	other := pod.DeepCopy()
	other.Namespace = "other"
	if !lock.Names(pod) || lock.Names(other) || (allocation.Lock{}).Names(&corev1.Pod{}) {
		t.Error("a lock names its pod and no other, and one without a name names none")
	}
	gputest.Equal(t, "a lock without a pod", "2026-01-02T12:00:00Z", (allocation.Lock{Since: lock.Since}).String())
}

// FuzzParseLock: whatever is read is written and read again as it was.
func FuzzParseLock(f *testing.F) {
	for _, text := range []string{"2026-01-02T12:00:00Z,ns,pod", "2026-01-02T12:00:00+08:00", "", ",,", "garbage"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		lock, err := allocation.ParseLock(text)
		if err != nil {
			return
		}
		again, err := allocation.ParseLock(lock.String())
		if err != nil || !again.Since.Equal(lock.Since.Truncate(time.Second)) || again.Namespace != lock.Namespace || again.Name != lock.Name {
			t.Errorf("%q is %+v, written and read again %+v (%v)", text, lock, again, err)
		}
	})
}
