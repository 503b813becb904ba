package check

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/daybreak-gpu/daybreak/internal/agent/deviceplugin"
)

const noAnswer = "the container runtime does not answer"

func runtimeAnswers(f *Facts) Outcome {
	if f.Node.Runtime == nil {
		return failed("%s", f.Node.Fault.Message)
	}
	return ok("%s %s", f.Node.Runtime.Name, f.Node.Runtime.Version)
}

func runtimeCDI(f *Facts) Outcome {
	switch fault := f.Node.Fault; {
	case fault.Reason == "":
		return ok("it injects CDI devices")
	case fault.Reason == deviceplugin.ReasonNoCDI:
		return failed("%s", fault.Message)
	case f.Node.Runtime == nil:
		return unknown("%s", noAnswer)
	default:
		return unknown("%s", fault.Message)
	}
}

func runtimeOfKubelet(f *Facts) Outcome {
	n := f.Node
	switch {
	case n.Runtime == nil:
		return unknown("%s", noAnswer)
	case n.PodResources != "" || n.SandboxesError != "":
		return unknown("%s", cmp.Or(n.SandboxesError, n.PodResources))
	case n.Pods == 0:
		return unknown("kubelet has no pod")
	case n.Sandboxes == 0:
		return failed("kubelet has %d pods, the runtime has none of them", n.Pods)
	}
	return ok("it has %d of kubelet's %d pods", n.Sandboxes, n.Pods)
}

// unless fails with the reason if there is one.
func unless(why, fine string) Outcome {
	if why != "" {
		return failed("%s", why)
	}
	return ok("%s", fine)
}

func otherPlugin(f *Facts) Outcome {
	if f.Node.PodResources != "" {
		return unknown("kubelet does not list devices")
	}
	if f.Node.Foreign != "" {
		return unknown("another plugin serves %s: the agent only observes", f.Node.Foreign)
	}
	return ok("none serves the vendor's resources")
}

func cdiFolder(f *Facts) Outcome {
	if f.Node.Persists != "" {
		return failed("CDI specs outlive a reboot: %s", f.Node.Persists)
	}
	return ok("CDI specs end with a reboot")
}

func folders(f *Facts) Outcome {
	if _, why := firstFault(f.Node.Folders); why != "" {
		return failed("%s", why)
	}
	return ok("%s", strings.Join(slices.Sorted(maps.Keys(f.Node.Folders)), " and "))
}
