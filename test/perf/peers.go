package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	compat "github.com/daybreak-gpu/daybreak/test/compat/koordinator"
)

// koordinator is Koordinator's scheduler with the configuration of its release.
const koordinator side = "koordinator"

func (b *bench) koordinator() compat.Release {
	return compat.Release(filepath.Join(b.peers, "koordinator"))
}

func (w *world) newKoordinator(name string, qps, burst int, args []string) (*local.Process, error) {
	return w.koordinator().NewScheduler(w.cluster, name, compat.Scheduler{Profile: corev1.DefaultSchedulerName, QPS: qps, Burst: burst}, args...)
}

// addPeers installs what the peers need and writes koordlet's Devices. From then on
// every lock is taken off as soon as its pod is bound: the vendor's plugin, in no time.
func (w *world) addPeers(ctx context.Context) error {
	if err := w.koordinator().Install(ctx, w.cluster); err != nil {
		return err
	}
	kinds, err := discover.LoadProfiles(w.bench.plan.Profile)
	if err != nil {
		return err
	}
	simulator, err := local.NewSimulator(ctx, w.cluster.RESTAs("simulator"), local.WithoutAgents())
	if err != nil {
		return err
	}
	defer simulator.Stop()
	nodes, err := w.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range nodes.Items {
		node := &nodes.Items[i]
		topology, err := kinds[0].Topology(node.Name)
		if err != nil {
			return err
		}
		group.Go(func() error { return simulator.CreateDevice(groupCtx, compat.Device(node, topology)) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return w.unlock(ctx)
}

// unlock takes the lock off the node of every pod that is bound with cards. No
// other pod's lock can be there: a scheduler waits until this one is gone.
func (w *world) unlock(ctx context.Context) error {
	factory := informers.NewSharedInformerFactoryWithOptions(w.client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector, o.LabelSelector = "spec.nodeName!=", labelRole+"="+roleRun
	}))
	ctx, w.unlocking = context.WithCancel(ctx)
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, wire.AnnotationLock)
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
		if pod, ok := obj.(*corev1.Pod); ok && pod.Annotations[wire.AnnotationAllocated] != "" {
			go func() {
				if _, err := w.client.CoreV1().Nodes().Patch(ctx, pod.Spec.NodeName, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil && ctx.Err() == nil {
					w.logf("take the lock off %s: %v", pod.Spec.NodeName, err)
				}
			}()
		}
	}})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return nil
}

// printPeers prints a row for each scheduler of the runs that have peers, first with
// equal limits, then with each scheduler's own. Daybreak's own are the equal ones: its
// figures are the same.
func (r *Result) printPeers(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	with := slices.DeleteFunc(slices.Clone(r.Runs), func(x Run) bool { return len(x.Peers) == 0 })
	if len(with) > 0 {
		fmt.Fprintln(t, "NODES\tWORKLOAD\tLIMITS\tSCHEDULER\tPODS/s\tTO PLAIN\tCYCLE P99 ms\tCPU ms/POD\tPEAK MiB\tCALLS/POD\tATTEMPTS/POD")
	}
	for i := range with {
		x := &with[i]
		all := append([]Peer{
			{Scheduler: daybreak, Limits: equalLimits, Figures: x.Daybreak}, {Scheduler: plain, Limits: equalLimits, Figures: x.Plain},
		}, x.Peers...)
		if slices.ContainsFunc(x.Peers, func(p Peer) bool { return p.Limits == ownLimits }) {
			all = append(all, Peer{Scheduler: daybreak, Limits: ownLimits, Figures: x.Daybreak})
		}
		slices.SortStableFunc(all, func(a, b Peer) int { return cmp.Compare(a.Limits, b.Limits) })
		base := map[limits]float64{}
		for _, p := range all {
			if p.Scheduler == plain {
				base[p.Limits] = p.PodsPerSecond
			}
		}
		for _, p := range all {
			fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%.1f\t%.2f\t%.2f\t%.2f\t%.0f\t%.2f\t%.2f\n", x.Nodes, x.Workload, p.Limits, p.Scheduler, p.PodsPerSecond,
				p.PodsPerSecond/base[p.Limits], p.CycleP99Milliseconds, p.CPUMillisecondsPerPod, p.PeakMiB, p.CallsPerPod, p.AttemptsPerPod)
		}
	}
	return t.Flush()
}
