package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/audit"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/view"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// The size that the tools are measured at.
const (
	manyNodes = 5000
	manyPods  = 40000
)

// large is a cluster of servers with eight cards, filled by the core with a mix
// of slices, whole cards and pods of several containers. Objects carry about as
// much else as those of a real cluster do.
func large(tb testing.TB, nodes, pods int) *cluster.Objects {
	tb.Helper()
	o := &cluster.Objects{Devices: map[string]cluster.Device{}}
	for i := range nodes {
		node, device := largeNode(tb, fmt.Sprintf("metax-%05d", i))
		o.Nodes = append(o.Nodes, node)
		o.Devices[node.Name] = cluster.Device{Device: device}
	}
	ledgers := o.Snapshot().Nodes
	limits := []string{
		"sgpu: 1, vcore: 10, vmemory: 4", "sgpu: 1, vcore: 25, vmemory: 8", "gpu: 1", "sgpu: 1, vcore: 40, vmemory: 20Gi",
		"gpu.shared: 1, gpu-core: 30, gpu-memory: 12Gi", "sgpu: 1, vcore: 20, vmemory: 6Gi", "gpu: 2", "sgpu: 1, vcore: 15, vmemory: 4",
	}
	for i := range pods {
		pod := largePod(fmt.Sprintf("job-%05d-worker-0", i), limits[i%len(limits)])
		ask, problems := request.Read(pod)
		if len(problems) > 0 {
			tb.Fatal(problems)
		}
		// The first server from its own on that has room, so that all are used.
		for k := range nodes {
			n := ledgers[(i/8+k)%nodes]
			offer, refusal := place.Fit(n, &ask.Request, &ask.Prefer)
			if refusal.Code != place.Fits {
				continue
			}
			h, err := n.Commit(offer, allocation.HolderOf(pod), &ask.Request)
			if err != nil {
				tb.Fatal(err)
			}
			annotations, err := allocation.Annotations(n, ask, &h, noon().Add(time.Duration(i)*time.Second))
			if err != nil {
				tb.Fatal(err)
			}
			maps.Copy(pod.Annotations, annotations)
			pod.Spec.NodeName, pod.Status.Phase = n.Name, corev1.PodRunning
			break
		}
		if pod.Spec.NodeName == "" {
			tb.Fatalf("no room for pod %d", i)
		}
		o.Pods = append(o.Pods, pod)
	}
	return o
}

func largeNode(tb testing.TB, name string) (*corev1.Node, *v1alpha1.Device) {
	tb.Helper()
	labels := map[string]string{wire.LabelVendor: wire.VendorMetaX, wire.LabelModel: "C500", "kubernetes.io/hostname": name}
	node := &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Labels: labels, Annotations: map[string]string{wire.AnnotationServedBy: wire.ServedByDaybreak}},
		Status: corev1.NodeStatus{
			Capacity:   gputest.MakeResources("cpu: 128, memory: 1Ti, pods: 110, gpu: 8, sgpu: 128"),
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"}},
		},
	}
	device := &v1alpha1.Device{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Device"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: map[string]string{wire.AnnotationMode: "sgpu"}},
	}
	topology := gputest.Zones(4, 4)
	cards := make([]gpu.Card, topology.Len())
	for i := range cards {
		cards[i] = *topology.Card(i)
		cards[i].ID = gpu.CardID(fmt.Sprintf("GPU-%s-c500-0000-0000-00000000000%d", name, i))
		device.Spec.Devices = append(device.Spec.Devices, v1alpha1.DeviceInfo{
			Type: v1alpha1.DeviceTypeGPU, UUID: string(cards[i].ID), Minor: new(int32(i)), Health: true,
			Labels:     map[string]string{wire.LabelLinkZone: strconv.Itoa(1 + i/4), wire.LabelPCIeSwitch: fmt.Sprintf("switch-%d", i/2)},
			Resources:  corev1.ResourceList{wire.KoordCore: resource.MustParse("100"), wire.KoordMemory: resource.MustParse("64Gi"), wire.KoordMemoryRatio: resource.MustParse("100")},
			Topology:   &v1alpha1.DeviceTopology{SocketID: -1, NodeID: int32(i / 4), PCIEID: "pci0000:0c", BusID: fmt.Sprintf("0000:%02x:00.0", i)},
			Conditions: []metav1.Condition{{Type: "Healthy", Status: metav1.ConditionTrue, Reason: "DeviceHealthy", Message: "device is healthy", LastTransitionTime: metav1.NewTime(noon())}},
		})
	}
	links, err := inventory.EncodeLinks(gputest.MustTopology(cards, gpu.ZoneLinks([]int{1, 1, 1, 1, 2, 2, 2, 2})))
	if err != nil {
		tb.Fatal(err)
	}
	device.Annotations[wire.AnnotationLinks] = links
	return node, device
}

func largePod(name, limits string) *corev1.Pod {
	pod := gputest.MakePod(name).App(limits).Obj()
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	pod.Namespace = "team"
	pod.UID = types.UID("uid-" + name)
	pod.CreationTimestamp = metav1.NewTime(noon())
	pod.Labels = map[string]string{"app": "job", "batch.kubernetes.io/job-name": name}
	pod.Annotations = map[string]string{}
	pod.Spec.Containers[0].Image = "registry.example.com/team/trainer:v1.2.3"
	pod.Spec.Containers[0].Command = []string{"python", "train.py", "--config", "/etc/config/train.yaml"}
	pod.Spec.RestartPolicy, pod.Spec.SchedulerName = corev1.RestartPolicyNever, "default-scheduler"
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return pod
}

// writeLarge writes the cluster as kubectl would, in one list.
func writeLarge(tb testing.TB, o *cluster.Objects) string {
	tb.Helper()
	items := make([]any, 0, 2*len(o.Nodes)+len(o.Pods))
	for _, n := range o.Nodes {
		items = append(items, n, o.Devices[n.Name].Device)
	}
	for _, p := range o.Pods {
		items = append(items, p)
	}
	text, err := json.MarshalIndent(map[string]any{"apiVersion": "v1", "kind": "List", "items": items}, "", "    ")
	if err != nil {
		tb.Fatal(err)
	}
	path := filepath.Join(tb.TempDir(), "all.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

// BenchmarkAudit: the audit command at full size, from files to the answer, and
// what its time is made of.
func BenchmarkAudit(b *testing.B) {
	o := large(b, manyNodes, manyPods)
	path := writeLarge(b, o)
	info, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("read", func(b *testing.B) {
		b.SetBytes(info.Size())
		defer reportCPU(b)()
		for b.Loop() {
			if _, err := cluster.ReadFiles([]string{path}, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("command", func(b *testing.B) {
		b.SetBytes(info.Size())
		defer reportCPU(b)()
		for b.Loop() {
			var out bytes.Buffer
			cmd := NewAuditCommand()
			cmd.SetArgs([]string{"-f", path})
			cmd.SetOut(&out)
			if err := cmd.ExecuteContext(b.Context()); err != nil || !strings.Contains(out.String(), "40000 pods: no rule is broken") {
				b.Fatalf("%v\n%s", err, out.String())
			}
		}
	})
	b.Run("snapshot", func(b *testing.B) {
		defer reportCPU(b)()
		for b.Loop() {
			o.Snapshot()
		}
	})
	s := o.Snapshot()
	b.Run("check", func(b *testing.B) {
		defer reportCPU(b)()
		for b.Loop() {
			audit.Check(s, noon())
		}
	})
}

// reportCPU reports the processor time that a benchmark takes, all processors
// added up: on a machine that does other things too it says more than a clock.
func reportCPU(b *testing.B) func() {
	b.Helper()
	used := func() time.Duration {
		var usage syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
			b.Fatal(err)
		}
		return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	before := used()
	return func() { b.ReportMetric((used()-before).Seconds()/float64(b.N), "cpu-s/op") }
}

// BenchmarkExplain: why a pod waits on all of the nodes, and why one is where it
// is, from the objects to the answer.
func BenchmarkExplain(b *testing.B) {
	o := large(b, manyNodes, manyPods)
	waiting := largePod("waiting", "gpu: 8")
	o.Pods = append(o.Pods, waiting)
	for name, pod := range map[string]*corev1.Pod{"pending": waiting, "placed": o.Pods[manyPods/2]} {
		b.Run(name, func(b *testing.B) {
			defer reportCPU(b)()
			for b.Loop() {
				if text := podText(view.Explain(o.Snapshot(), pod, place.Default), false, nil); strings.Count(text, "\n") > 10 {
					b.Fatal(text)
				}
			}
		})
	}
}
