package compat

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/rest"

	"github.com/daybreak-gpu/daybreak/test/harness"
)

// rejectForged wants writes that would take or hide cards to be rejected, by
// Daybreak's rules.
func (s *suite) rejectForged() {
	s.Helper()
	f := &harness.Forger{
		World: s.World.World, Agent: s.configOf("agent", s.Machines[0].Node), Scheduler: s.configOf("scheduler", ""), Manager: s.configOf("manager", ""),
		Node: s.Machines[0].Node, Other: s.Machines[1].Node,
		NoConditions: version.MustParseGeneric(s.version).LessThan(version.MajorMinor(1, 28)),
	}
	f.Settle()
	s.result.rejected = f.Play()
	f.Copied()
	for namespace, names := range map[string][]string{"default": {"bound", "pending", "touched", "ordinary", "copied"}, "victims": {"victim"}} {
		for _, name := range names {
			s.Must(s.Client.CoreV1().Pods(namespace).Delete(s.Ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
		}
	}
	s.progress("%d forged writes rejected", s.result.rejected)
}

// configOf returns how a part reaches the API server: the one of a node, or any.
func (s *suite) configOf(component, node string) *rest.Config {
	s.Helper()
	for _, x := range s.Parts.Ready(component) {
		if node == "" || x.Pod.Spec.NodeName == node {
			config, err := harness.ConfigOf(s.Ctx, s.Cluster, x.Pod)
			s.Must(err)
			return config
		}
	}
	s.Fatalf("no %s on %q", component, node)
	return nil
}
