package allocation

import (
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Lock is the value of [wire.AnnotationLock]. Kubelet does not pass the pod to a
// device plugin, so the vendor's plugin serves the pod that the node's lock names,
// and takes the lock off when it has. A scheduler that binds a pod with slices to
// such a node puts the lock on first.
type Lock struct {
	// Since is when it was put on, in whole seconds.
	Since time.Time
	// Namespace and Name are of the pod; both are empty in locks of old
	// schedulers, which have the time only.
	Namespace, Name string
}

// maxLock is longer than any lock: a time and the two longest names.
const maxLock = 512

// ParseLock reads a lock, "<RFC 3339 time>,<namespace>,<pod>" or the time alone.
func ParseLock(text string) (Lock, error) {
	if len(text) > maxLock {
		return Lock{}, fmt.Errorf("%d bytes, at most %d are read", len(text), maxLock)
	}
	fields := strings.Split(text, ",")
	since, err := time.Parse(time.RFC3339, fields[0])
	if err != nil {
		return Lock{}, fmt.Errorf("%.40q is no time such as 2026-01-02T15:04:05Z", fields[0])
	}
	switch len(fields) {
	case 1:
		return Lock{Since: since}, nil
	case 3:
		if len(validation.IsDNS1123Label(fields[1])) > 0 || len(validation.IsDNS1123Subdomain(fields[2])) > 0 {
			return Lock{}, fmt.Errorf("%.80q is no pod's namespace and name", fields[1]+","+fields[2])
		}
		return Lock{Since: since, Namespace: fields[1], Name: fields[2]}, nil
	default:
		return Lock{}, errors.New("want a time, a namespace and a pod's name, with commas between, or a time alone")
	}
}

// LockFor returns the lock that names the pod.
func LockFor(pod *corev1.Pod, now time.Time) Lock {
	return Lock{Since: now.UTC().Truncate(time.Second), Namespace: pod.Namespace, Name: pod.Name}
}

// String returns the annotation's value.
func (l Lock) String() string {
	since := l.Since.Format(time.RFC3339)
	if l.Name == "" {
		return since
	}
	return since + "," + l.Namespace + "," + l.Name
}

// Names reports whether the lock names the pod.
func (l Lock) Names(pod *corev1.Pod) bool {
	return l.Name != "" && l.Name == pod.Name && l.Namespace == pod.Namespace
}
