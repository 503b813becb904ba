package view

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
)

// WrittenContainer is a container with the cards that the pod's annotation names.
type WrittenContainer struct {
	Name  string        `json:"name"`
	Cards []WrittenCard `json:"cards"`
}

// WrittenCard is a share of a card of which only the UUID is known.
type WrittenCard struct {
	UUID           string `json:"uuid"`
	ComputePercent int32  `json:"computePercent"`
	MemoryMiB      int64  `json:"memoryMiB"`
}

// ExplainAlone explains a pod to a user who may not read the cluster's nodes: what
// the pod itself shows, and the events about it. Limited says which rights are
// missing.
func ExplainAlone(pod *corev1.Pod, events []cluster.Event, limited string) Explanation {
	e := Explanation{Limited: limited}
	_, open := e.begin(newJudge(&cluster.Snapshot{Live: true}, place.Default), pod)
	var own []cluster.Event
	for _, x := range events {
		if x.Kind == "Pod" && x.Namespace == pod.Namespace && x.Name == pod.Name && (x.UID == "" || x.UID == pod.UID) {
			own = append(own, x)
		}
	}
	e.Events, e.Evicted = NewEvents(own), evictedFor(events, pod)
	switch {
	case !open:
	case pod.Spec.NodeName == "":
		c := scheduledCondition(pod)
		e.Unschedulable = c != nil && c.Reason == corev1.PodReasonUnschedulable
	default:
		e.written(pod)
	}
	return e
}

// written fills in the cards that the pod's annotation names.
func (e *Explanation) written(pod *corev1.Pod) {
	lists, ok := allocation.NamedShares(pod)
	if !ok {
		e.State, e.Note = StateUnaccounted, "is on "+pod.Spec.NodeName+", and no annotation names its cards"
		return
	}
	e.State = StatePlaced
	containers := request.Containers(pod)
	for i, list := range lists {
		c := WrittenContainer{Name: "the pod", Cards: []WrittenCard{}}
		if i < len(containers) && len(lists) == len(containers) {
			c.Name = cmp.Or(containers[i].Name, c.Name)
		}
		for _, s := range list {
			c.Cards = append(c.Cards, WrittenCard{UUID: string(s.UUID), ComputePercent: int32(s.Compute), MemoryMiB: int64(s.Memory)})
		}
		e.Written = append(e.Written, c)
	}
}
