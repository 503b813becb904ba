package cluster

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/quota"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Scheduler is one of Daybreak's schedulers, as the arguments of its pod show.
type Scheduler struct {
	// Profiles are the names of schedulers that it is.
	Profiles []string
	// Policy stands in for pods that name none. It is not known where a
	// configuration file says it.
	Policy      place.Policy
	PolicyKnown bool
	// QuotaKeys is what it does about HAMi's keys in quotas.
	QuotaKeys string
}

// IsScheduler reports whether the pod is one of the chart's scheduler.
func IsScheduler(pod *corev1.Pod) bool { return wire.IsComponent(pod, "scheduler") }

func readScheduler(pod *corev1.Pod) Scheduler {
	for i := range pod.Spec.Containers {
		if args := pod.Spec.Containers[i].Args; len(args) > 0 && args[0] == "scheduler" {
			return schedulerOf(args[1:])
		}
	}
	return Scheduler{}
}

// schedulerOf reads --flag=value and --flag value.
func schedulerOf(args []string) Scheduler {
	s := Scheduler{PolicyKnown: true}
	for i, arg := range args {
		flag, value, ok := strings.Cut(arg, "=")
		if !ok && i+1 < len(args) {
			value = args[i+1]
		}
		switch flag {
		case "--config":
			s.PolicyKnown = false
		case "--profile":
			s.Profiles = append(s.Profiles, value)
		case "--quota-keys":
			s.QuotaKeys = value
		case "--policy":
			policy, err := request.ParsePolicy(value)
			if err != nil && value != "" {
				return Scheduler{}
			}
			s.Policy = policy
		}
	}
	return s
}

// chartProfiles are the names that the chart gives the scheduler, in its two modes
// together.
var chartProfiles = []string{"daybreak", corev1.DefaultSchedulerName}

// Profiles returns the schedulerNames that Daybreak serves. Where its pods do not
// show all of them, known is false and the names are those of the chart.
func (s *Snapshot) Profiles() (names []string, known bool) {
	for _, x := range s.Schedulers {
		if len(x.Profiles) == 0 {
			return chartProfiles, false // a configuration file has them
		}
		names = append(names, x.Profiles...)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) == 0 {
		return chartProfiles, false
	}
	return names, true
}

// QuotaKeys returns what the schedulers do about HAMi's keys in quotas: they enforce
// them, unless all say otherwise.
func (s *Snapshot) QuotaKeys() string {
	keys := ""
	for _, x := range s.Schedulers {
		own := cmp.Or(x.QuotaKeys, quota.Enforce)
		if keys != "" && own != keys {
			return quota.Enforce
		}
		keys = own
	}
	return cmp.Or(keys, quota.Enforce)
}

// QuotaEverywhere reports whether pods with cards that carry no amounts are rejected
// in all namespaces, as the chart labels the manager's pods.
func (s *Snapshot) QuotaEverywhere() bool {
	return slices.ContainsFunc(s.Facts, func(f Facts) bool {
		return slices.ContainsFunc(f.Pods, func(pod *corev1.Pod) bool {
			return wire.IsComponent(pod, "manager") && pod.Labels[wire.LabelQuota] == wire.QuotaEnforced
		})
	})
}

// Policy returns the policy of the schedulers that the pod is for, or of all of
// them where none goes by the pod's schedulerName: admission may be yet to give
// it one. It is not known where they differ, or none can be read.
func (s *Snapshot) Policy(pod *corev1.Pod) (policy place.Policy, known bool) {
	for _, all := range []bool{false, true} {
		var found []Scheduler
		for _, x := range s.Schedulers {
			if all || slices.Contains(x.Profiles, pod.Spec.SchedulerName) {
				found = append(found, x)
			}
		}
		if len(found) == 0 {
			continue
		}
		for i := range found {
			if !found[i].PolicyKnown || found[i].Policy != found[0].Policy {
				return place.Default, false
			}
		}
		return found[0].Policy, true
	}
	return place.Default, false
}
