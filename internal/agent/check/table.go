package check

import (
	"fmt"
	"maps"
	"slices"
)

// check is one assumption.
type check struct {
	name string
	// matters: a container may get a wrong card, or none, if the check fails, and
	// nothing else, such as a full disk, keeps the agent from serving.
	matters bool
	// run returns the result and its detail.
	run func(*Facts) Outcome
	// advice is for a check that failed; always: also for one that is unknown.
	advice string
	always bool
}

func ok(format string, args ...any) Outcome      { return outcome(OK, format, args) }
func failed(format string, args ...any) Outcome  { return outcome(Failed, format, args) }
func unknown(format string, args ...any) Outcome { return outcome(Unknown, format, args) }

func outcome(r Result, format string, args []any) Outcome {
	return Outcome{Result: r, Detail: fmt.Sprintf(format, args...)}
}

// firstFault returns the first name with a fault, and the fault.
func firstFault(of map[string]string) (name, why string) {
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if of[name] != "" {
			return name, of[name]
		}
	}
	return "", ""
}

// table is every assumption, from the driver up to kubelet.
var table = []check{
	{name: "pci-cards", run: pciCards, advice: "MetaX cards are expected as PCI devices of vendor 0x9999: attach the output of lspci -nn to a report"},
	{name: "driver-module", run: driverModule, advice: "the kernel module is expected as metax: load the vendor's driver, or attach the output of lsmod to a report"},
	{name: "driver-version", run: driverVersion, advice: "slices need driver 2.32.0 or later; older ones serve whole cards"},
	{name: "library", run: libraryLoads, advice: "install the vendor's driver, which brings libmxsml.so, or name its path with --mxsml; the agent's pod mounts agent.driverDirs"},
	{name: "library-functions", run: libraryFunctions, advice: "a library with all functions comes with newer drivers; what is missing is listed in the compatibility page"},
	{name: "slice-support", run: sliceSupport, advice: "whole GPUs need no slices; install a driver and GPUs that have them for mode sgpu"},
	{name: "library-steady", run: librarySteady, advice: "the library lists other cards from one moment to the next: look for a card that resets in the kernel's log"},
	{name: "mx-smi", run: command, advice: "mx-smi is used where the library is missing; attach the bundle to a report if it is installed and fails"},
	{name: "card-identity", matters: true, run: cardIdentity, advice: "library, mx-smi and the PCI bus name different cards: attach the bundle to a report before you waive it"},
	{name: "card-memory", matters: true, run: cardMemory, advice: "the memory of a card is read in KiB: attach the bundle to a report before you waive it"},
	{name: "control-device", matters: true, run: controlDevice, advice: "every container needs it: load the driver, or name the device with --control-device in agent.extraArgs"},
	{name: "card-devices", matters: true, run: cardDevices, advice: "sysfs and /dev disagree, or a device is of another name: restart udev, or name the devices with --card-device and --render-device"},
	{name: "slice-driver", matters: true, run: sliceDriver, advice: "the major number of slices is expected under the name sgpu in /proc/devices: attach the bundle to a report"},
	{name: "slice-devices", matters: true, run: sliceDevices, advice: "remove the wrong device node, or name the device of slices with --slice-device"},
	{name: "slice-minors", matters: true, run: sliceMinors, advice: "a minor number is expected to be of one slice of the node: attach the bundle to a report before you waive it"},
	{name: "slice-sizes", run: sliceSizes, advice: "slices are expected in steps of 128 MiB, with numbers 0 to 15: attach the bundle to a report"},
	{name: "links", run: linksRead, advice: "cards count as not linked until the links are read: attach the bundle to a report"},
	{name: "container-view", always: true, run: containerView, advice: "start a pod with a slice and one with a whole card, run mx-smi -L in both, and attach what they print to a report"},
	{name: "runtime", run: runtimeAnswers, advice: "the endpoint that kubelet uses is containerRuntimeEndpoint of its configuration"},
	{name: "runtime-cdi", run: runtimeCDI, advice: "switch CDI on in the container runtime; a node without it is never served, and the check can't be waived"},
	{name: "runtime-of-kubelet", matters: true, run: runtimeOfKubelet, advice: "the endpoint is of a runtime that has none of kubelet's pods: set agent.runtimeSocket to kubelet's containerRuntimeEndpoint"},
	{name: "kubelet-plugins", run: func(f *Facts) Outcome { return unless(f.Node.Plugins, "kubelet takes plugins") }, advice: "set agent.kubeletDir to kubelet's folder (k0s: /var/lib/k0s/kubelet)"},
	{name: "kubelet-pod-resources", run: func(f *Facts) Outcome { return unless(f.Node.PodResources, "kubelet lists devices of plugins") }, advice: "kubelet 1.23 or later serves it; set agent.kubeletDir to kubelet's folder"},
	{name: "kubelet-checkpoint", run: func(f *Facts) Outcome { return unless(f.Node.Checkpoint, "kubelet's file of devices is read") }, advice: "init containers with cards do not start without it; attach the version of kubelet to a report"},
	{name: "other-plugin", run: otherPlugin, advice: "the agent only observes a node that another plugin serves; remove that plugin to have Daybreak serve it"},
	{name: "cdi-folder", matters: true, run: cdiFolder, advice: "old specs would start containers with the devices of others: mount tmpfs at /run of the node, or set --cdi-dir in agent.extraArgs to a folder on tmpfs that the container runtime reads; waive the check if the folder is emptied at every boot"},
	{name: "folders", run: folders, advice: "the agent writes its journal and CDI specs there: free or remount the disk"},
}
