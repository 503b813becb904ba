package main

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/audit"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/quota"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

const (
	codesFile = "internal/place/code.go"
	rulesFile = "internal/audit/audit.go"
)

// writeRefusals writes refusal codes, errors of admission, and rules of the audit.
func writeRefusals(p *page) error {
	p.begin("Refusals and findings", "the table in "+codesFile+", the comments in "+rulesFile+", and what admission answers",
		`Refusal codes of nodes, errors of admission, and rules of the audit. The names are stable. They are used in events, in labels
of [metrics](metrics.md), and in the JSON of [commands](cli.md).`)
	p.refusalCodes()
	p.admission()
	return p.auditRules()
}

func (p *page) refusalCodes() {
	p.section("Refusal codes", `Each card is checked in the order of the table; the first code that applies is the code of the card. The code of the node is the
last one in the table that any of its cards has. `+"`want` and `have`"+` are the numbers of the code; for amounts, `+"`have`"+` is that of the best
card. If the containers of a pod fit one by one but not together, `+"`want`"+` is their total and `+"`have`"+` the free capacity of the node
(`+"`total`"+` in JSON). A refusal is `+"`permanent`"+` if it also applies to the empty node. `+"`daybreak explain POD`"+` shows the refusals of a pod.`)
	var rows [][]string
	for _, c := range place.Codes() {
		d := c.Description()
		counted := numbers[d.Unit]
		if c == place.QuotaExceeded {
			counted = "cards, percent or MiB wanted by the pod, left of the ResourceQuota"
		}
		rows = append(rows, []string{code(d.Name), d.Means, inEvents(c, d.Unit), counted, d.Advice})
	}
	p.table([]string{"code", "means", "in events", "want, have", "what to do"}, rows)
}

var numbers = map[place.Unit]string{
	place.UnitNone:    "none",
	place.UnitCards:   "cards wanted, cards that fit",
	place.UnitSlots:   "slots wanted, slots free on the best card",
	place.UnitMiB:     "MiB wanted of a card, MiB free on the best card",
	place.UnitPercent: "percent wanted of a card, percent free on the best card",
}

// inEvents returns what an event reports of two nodes that refuse with the code,
// with numbers as an example.
func inEvents(c place.Code, unit place.Unit) string {
	r := place.Refusal{Code: c, Want: 8, Have: 3, Idle: true}
	switch unit {
	case place.UnitMiB:
		r.Want, r.Have = 12<<10, 4<<10
	case place.UnitPercent:
		r.Want, r.Have = 50, 30
	}
	if c == place.QuotaExceeded {
		r = place.OverBudget(place.Budget{Quota: "team", Limit: string(quota.LimitVCore), Unit: place.UnitPercent, Hard: 200}, 30, 180)
	}
	refusals := []place.Refusal{r, r}
	if c == place.NodeExcluded {
		refusals = nil
		for _, kind := range place.Exclusions() {
			refusals = append(refusals, place.Excluded(kind), place.Excluded(kind))
		}
	}
	return place.ListReasons(refusals, nil)
}

func (p *page) auditRules() error {
	named, err := byName(rulesFile)
	if err != nil {
		return err
	}
	for _, part := range []struct {
		title, text string
		rules       []audit.Rule
	}{
		{"Audit rules", "A violation of one of these rules gives `daybreak audit` the exit code 1. Runbooks are in [docs/runbooks](../runbooks/double-booking.md).", audit.Violations()},
		{"Audit notes", "Conditions that violate no rule.", audit.Notes()},
	} {
		p.section(part.title, part.text)
		var rows [][]string
		for _, rule := range part.rules {
			constant, ok := named[string(rule)]
			if !ok {
				return fmt.Errorf("%s has no comment with fields", rule)
			}
			values, err := constant.need("Do")
			if err != nil {
				return err
			}
			rows = append(rows, append([]string{code(string(rule)), constant.text}, values...))
		}
		p.table([]string{"rule", "means", "what to do"}, rows)
	}
	return nil
}

func byName(path string) (map[string]*constant, error) {
	blocks, err := readConstants(path)
	if err != nil {
		return nil, err
	}
	named := map[string]*constant{}
	for _, b := range blocks {
		for i := range b.constants {
			named[b.constants[i].name] = &b.constants[i]
		}
	}
	return named, nil
}

// mistake is an invalid request.
type mistake struct {
	written string
	pod     *corev1.Pod
}

func limits(text string) mistake {
	return mistake{"`" + text + "`", gputest.MakePod("p").App(text).Obj()}
}

func annotated(key, value string) mistake {
	return mistake{"`" + key + ": " + value + "`", gputest.MakePod("p").App("sgpu: 1, vcore: 60, vmemory: 4").Annotate(key, value).Obj()}
}

// mistakes are examples of what admission rejects, one of each kind.
func mistakes() []mistake {
	const ask = "sgpu: 1, vcore: 60, vmemory: 4"
	return []mistake{
		limits("sgpu: 1, vcore: 500m"), limits("sgpu: 1, vcore: 120"), limits("sgpu: 1, vmemory: 0"), limits("sgpu: 1, vmemory: 512Ki"),
		limits("sgpu: 1, vmemory: 4000"), limits("sgpu: 1, vmemory: 2Ti"), limits("sgpu: 65"), limits("vcore: 60, vmemory: 4"),
		limits("gpu: 1, sgpu: 1"), limits("gpu: 1, vcore: 60"), limits("sgpu: 1, metax-tech.com/vcores: 60"),
		{"limits `" + ask + "`, requests `sgpu: 1, vcore: 30, vmemory: 4`", gputest.MakePod("p").AppWith(ask, "sgpu: 1, vcore: 30, vmemory: 4").Obj()},
		annotated(wire.AnnotationQoS, "guaranteed"), annotated(wire.AnnotationClass, "batch"), annotated(wire.AnnotationTopologyAware, "yes"),
		{"`gpu: 1` with `" + wire.AnnotationClass + ": online`", gputest.MakePod("p").App("gpu: 1").Annotate(wire.AnnotationClass, "online").Obj()},
		{"`sgpu: 2` with `" + wire.AnnotationClass + ": offline`", gputest.MakePod("p").App("sgpu: 2, vcore: 60, vmemory: 4").Annotate(wire.AnnotationClass, "offline").Obj()},
		annotated(wire.AnnotationNodePolicy, "binpak"), annotated(wire.AnnotationCardPolicy, "fastest"),
		limits("gpu.shared: 2, gpu-core: 100, gpu-memory: 8Gi"), limits("gpu.shared: 1, gpu-core: 60"), limits("gpu.shared: 1, gpu-memory: 4Gi"),
		limits("gpu.shared: 1, gpu-core: 60, gpu-memory: 4Gi, gpu-memory-ratio: 10"), limits("gpu-core: 150, gpu-memory-ratio: 150"),
		limits("gpu.shared: 0, gpu-core: 60, gpu-memory: 4Gi"), limits("gpu.shared: 1, gpu-core: 60, gpu-memory: 4Gi, vcore: 60, sgpu: 1"),
	}
}

// admission writes what is answered to the mistakes.
func (p *page) admission() {
	p.section("Admission errors", `Invalid requests are rejected when the pod is created. The response lists every error with its field, its value and a valid
alternative. The table has an example of each kind, with resources without their prefix. See also
[Admission](../admission.md#rejected-requests).`)
	var rows [][]string
	for _, m := range mistakes() {
		ask, problems := request.Read(m.pod)
		wrong, _ := allocation.CheckNew(m.pod, ask)
		problems = append(problems, wrong...)
		sentences := make([]string, 0, len(problems))
		for _, problem := range problems {
			if s := code(problem.Error()); !slices.Contains(sentences, s) {
				sentences = append(sentences, s)
			}
		}
		if len(sentences) == 0 {
			sentences = []string{"admitted"}
		}
		rows = append(rows, []string{m.written, strings.Join(sentences, "<br>")})
	}
	p.table([]string{"request", "error"}, rows)
}
