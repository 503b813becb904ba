package view

import (
	"fmt"
	"strings"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/request"
)

// Request is what a container asks for, in numbers.
type Request struct {
	Container      string `json:"container"`
	Cards          int    `json:"cards"`
	Exclusive      bool   `json:"exclusive,omitempty"`
	ComputePercent int32  `json:"computePercent"`
	MemoryMiB      int64  `json:"memoryMiB,omitempty"`
	MemoryPercent  int32  `json:"memoryPercent,omitempty"`
}

// Asked is what a pod asks for, in numbers; nothing where its request is invalid.
type Asked struct {
	Request []Request `json:"request,omitempty"`
	QoS     string    `json:"qos,omitempty"`
	Class   string    `json:"class,omitempty"`
}

func askedOf(request *gpu.PodRequest) Asked {
	asked := Asked{QoS: string(request.QoS), Class: string(request.Class)}
	for i := range request.Requests {
		if r := &request.Requests[i]; r.Cards > 0 {
			asked.Request = append(asked.Request, Request{
				Container: r.Container, Cards: r.Cards, Exclusive: r.Exclusive, ComputePercent: int32(r.Compute),
				MemoryMiB: int64(r.Memory.Amount), MemoryPercent: int32(r.Memory.Ratio),
			})
		}
	}
	return asked
}

// shownWants is how many different requests of a pod's containers are described.
const shownWants = 3

// wants says in a few words what a pod asks for, container by container. Containers
// that ask for the same are described once.
func wants(ask *request.PodRequest) string {
	var texts []string
	names := map[string][]string{}
	containers := 0
	for i := range ask.Request.Requests {
		r := &ask.Request.Requests[i]
		if r.Cards == 0 {
			continue
		}
		containers++
		text := wantsOf(r)
		if len(names[text]) == 0 {
			texts = append(texts, text)
		}
		names[text] = append(names[text], r.Container)
	}
	for i, text := range texts {
		switch of := names[text]; {
		case containers == 1:
		case len(of) == 1:
			texts[i] = of[0] + ": " + text
		default:
			texts[i] = fmt.Sprintf("%d containers: %s each", len(of), text)
		}
	}
	text := strings.Join(texts, "; ")
	if len(texts) > shownWants {
		text = fmt.Sprintf("%s for %d containers", wantsInAll(&ask.Request), containers)
	}
	if ask.Request.Class != gpu.Normal {
		text = string(ask.Request.Class) + ", " + text
	}
	if ask.Request.QoS != "" && ask.Request.QoS != gpu.BestEffort {
		text += ", " + string(ask.Request.QoS)
	}
	return text
}

// wantsInAll counts whole cards and slices.
func wantsInAll(r *gpu.PodRequest) string {
	whole, shares := 0, 0
	for i := range r.Requests {
		if r.Requests[i].Exclusive {
			whole += r.Requests[i].Cards
		} else {
			shares += r.Requests[i].Cards
		}
	}
	var parts []string
	if whole > 0 {
		parts = append(parts, Count(whole, "whole card"))
	}
	if shares > 0 {
		parts = append(parts, Count(shares, "slice"))
	}
	return strings.Join(parts, " and ")
}

func wantsOf(r *gpu.Request) string {
	memory := r.Memory.Amount.String()
	if r.Memory.Ratio > 0 {
		memory = fmt.Sprintf("%d%%", r.Memory.Ratio)
	}
	switch {
	case r.Exclusive:
		return Count(r.Cards, "whole card")
	case r.Cards == 1:
		return fmt.Sprintf("%d%% compute and %s memory of a card", r.Compute, memory)
	}
	return fmt.Sprintf("%d%% compute and %s memory of each of %d cards", r.Compute, memory, r.Cards)
}
