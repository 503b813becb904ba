package agent

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// source lists and watches no ConfigMap, which counts what it answers.
func source(namespace string, denied *bool, answers *[]string) *cache.ListWatch {
	answer := func(what string) error {
		if *denied {
			return apierrors.NewForbidden(corev1.Resource("configmaps"), "", nil)
		}
		*answers = append(*answers, what+" "+namespace)
		return nil
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &corev1.ConfigMapList{}, answer("list")
		},
		WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if o.SendInitialEvents != nil {
				return watch.NewFake(), answer("stream")
			}
			return watch.NewFake(), answer("watch")
		},
	}
}

// TestAllOrOwn: without the right to read all namespaces the agent reads its own, and
// all once it has the right again.
func TestAllOrOwn(t *testing.T) {
	var answers []string
	denied, never := false, false
	s := allOrOwn(source("all", &denied, &answers), source("own", &never, &answers))
	try := func(stream bool) {
		t.Helper()
		if stream {
			if _, err := s.WatchWithContext(t.Context(), metav1.ListOptions{SendInitialEvents: new(true)}); err == nil {
				_, err = s.WatchWithContext(t.Context(), metav1.ListOptions{})
				if err != nil {
					t.Error(err)
				}
				return
			}
		}
		if _, err := s.ListWithContext(t.Context(), metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
		if _, err := s.WatchWithContext(t.Context(), metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
	}
	for _, tt := range []struct {
		denied, stream bool
		want           []string
	}{
		{stream: true, want: []string{"stream all", "watch all"}},
		{want: []string{"list all", "watch all"}},
		{denied: true, stream: true, want: []string{"list own", "watch own"}},
		{denied: true, want: []string{"list own", "watch own"}},
		{stream: true, want: []string{"stream all", "watch all"}},
	} {
		answers, denied = nil, tt.denied
		try(tt.stream)
		if len(answers) != 2 || answers[0] != tt.want[0] || answers[1] != tt.want[1] {
			t.Errorf("denied %v, stream %v: answered %q, want %q", tt.denied, tt.stream, answers, tt.want)
		}
	}
}
