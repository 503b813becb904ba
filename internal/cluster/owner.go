package cluster

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ownerKind is a kind of workload.
type ownerKind struct {
	kind     string
	resource schema.GroupVersionResource
	// words are what kubectl calls it.
	words []string
	// through is the kind that it owns pods through, if any.
	through string
}

var ownerKinds = []ownerKind{
	{"Deployment", appsv1.SchemeGroupVersion.WithResource("deployments"), []string{"deployment", "deployments", "deploy", "deployment.apps", "deployments.apps"}, "ReplicaSet"},
	{"ReplicaSet", appsv1.SchemeGroupVersion.WithResource("replicasets"), []string{"replicaset", "replicasets", "rs", "replicaset.apps", "replicasets.apps"}, ""},
	{"StatefulSet", appsv1.SchemeGroupVersion.WithResource("statefulsets"), []string{"statefulset", "statefulsets", "sts", "statefulset.apps", "statefulsets.apps"}, ""},
	{"DaemonSet", appsv1.SchemeGroupVersion.WithResource("daemonsets"), []string{"daemonset", "daemonsets", "ds", "daemonset.apps", "daemonsets.apps"}, ""},
	{"Job", batchv1.SchemeGroupVersion.WithResource("jobs"), []string{"job", "jobs", "job.batch", "jobs.batch"}, ""},
	{"CronJob", batchv1.SchemeGroupVersion.WithResource("cronjobs"), []string{"cronjob", "cronjobs", "cj", "cronjob.batch", "cronjobs.batch"}, "Job"},
	{"ReplicationController", corev1.SchemeGroupVersion.WithResource("replicationcontrollers"), []string{"replicationcontroller", "replicationcontrollers", "rc"}, ""},
}

func kindOf(kind string) *ownerKind {
	i := slices.IndexFunc(ownerKinds, func(k ownerKind) bool { return k.kind == kind })
	return &ownerKinds[i]
}

// Owner is a workload whose pods are looked for.
type Owner struct {
	Kind, Namespace, Name string
	// through are the ReplicaSets or Jobs that it owns. Where they were not read,
	// they are known by their names.
	through []string
	read    bool
}

// OwnerKind returns the kind of workload that kubectl calls by the word.
func OwnerKind(word string) (kind string, ok bool) {
	for i := range ownerKinds {
		if slices.Contains(ownerKinds[i].words, strings.ToLower(word)) {
			return ownerKinds[i].kind, true
		}
	}
	return "", false
}

// OwnerResource returns the resource of a kind of workload, for [Names].
func OwnerResource(kind string) string {
	return kindOf(kind).resource.GroupResource().String()
}

// ReadOwner finds the workload in the cluster, and what it owns pods through. What
// the user may not see is left to names.
func (c *Client) ReadOwner(ctx context.Context, o *Owner) error {
	k := kindOf(o.Kind)
	_, err := c.names.Resource(k.resource).Namespace(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no %s %s in namespace %s", o.Kind, o.Name, o.Namespace)
	case err != nil && !apierrors.IsForbidden(err):
		return fmt.Errorf("get %s %s: %w", o.Kind, o.Name, err)
	case k.through == "":
		return nil
	}
	owned, err := c.names.Resource(kindOf(k.through).resource).Namespace(o.Namespace).List(ctx, metav1.ListOptions{})
	if apierrors.IsForbidden(err) {
		return nil
	}
	if err != nil {
		return listing(kindOf(k.through).resource.Resource, err)
	}
	o.read = true
	for i := range owned.Items {
		if by := metav1.GetControllerOfNoCopy(&owned.Items[i]); by != nil && by.Kind == o.Kind && by.Name == o.Name {
			o.through = append(o.through, owned.Items[i].Name)
		}
	}
	return nil
}

// suffix is what the controllers add to the names of what they create.
var suffix = regexp.MustCompile(`^[a-z0-9]+$`)

// is reports whether the object is the workload or one that it owns pods through.
func (o *Owner) is(kind, namespace, name string) bool {
	if namespace != o.Namespace {
		return false
	}
	if kind == o.Kind && name == o.Name {
		return true
	}
	if kind == "" || kind != kindOf(o.Kind).through {
		return false
	}
	if o.read {
		return slices.Contains(o.through, name)
	}
	rest, ok := strings.CutPrefix(name, o.Name+"-")
	return ok && suffix.MatchString(rest)
}

// PodsOf returns the pods of the workload, in the order of their names.
func (o *Objects) PodsOf(owner *Owner) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, pod := range o.Pods {
		if c := metav1.GetControllerOfNoCopy(pod); c != nil && owner.is(c.Kind, pod.Namespace, c.Name) {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, byName)
	return pods
}

// FailuresOf returns the events of pods of the workload that could not be created,
// the latest first. Those before the last of its pods was created are past.
func (o *Objects) FailuresOf(owner *Owner, pods []*corev1.Pod) []Event {
	var failures []Event
	for _, e := range o.Events {
		past := slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.CreationTimestamp.After(e.Last) })
		if e.Reason == ReasonFailedCreate && owner.is(e.Kind, e.Namespace, e.Name) && !past {
			failures = append(failures, e)
		}
	}
	sortEvents(failures)
	return failures
}
