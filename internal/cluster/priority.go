package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
)

// systemClasses are the PriorityClasses that every cluster has.
var systemClasses = map[string]int32{"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}

// NeedsPriorityClasses reports whether a pod's priority can only be known from the
// cluster's PriorityClasses.
func (o *Objects) NeedsPriorityClasses() bool {
	for _, pod := range o.Pods {
		if pod.Spec.NodeName == "" && pod.Spec.Priority == nil {
			return true
		}
	}
	return len(o.Workloads) > 0
}

// ReadPriorityClasses reads the cluster's PriorityClasses.
func (c *Client) ReadPriorityClasses(ctx context.Context) ([]*schedulingv1.PriorityClass, error) {
	classes, err := list[*schedulingv1.PriorityClass](ctx, c.typed.SchedulingV1().PriorityClasses().List)
	if err != nil {
		return nil, listing("priorityclasses", err)
	}
	return classes, nil
}

// prioritize resolves the pod's priority class, as the API server does. A pod of a
// class that is not known keeps priority 0.
func (o *Objects) prioritize(pod *corev1.Pod) {
	if pod.Spec.Priority != nil {
		return
	}
	name := pod.Spec.PriorityClassName
	if value, ok := systemClasses[name]; ok {
		pod.Spec.Priority = &value
		return
	}
	var found *schedulingv1.PriorityClass
	for _, class := range o.PriorityClasses {
		switch {
		case name != "" && class.Name == name:
			found = class
		case name == "" && class.GlobalDefault && (found == nil || class.Value < found.Value):
			found = class
		}
	}
	switch {
	case found != nil:
		pod.Spec.Priority = &found.Value
		if pod.Spec.PreemptionPolicy == nil {
			pod.Spec.PreemptionPolicy = found.PreemptionPolicy
		}
	case name != "":
		o.Notes = append(o.Notes, fmt.Sprintf("pod %s/%s: there is no PriorityClass %s: priority 0 is assumed", pod.Namespace, pod.Name, name))
	}
}
