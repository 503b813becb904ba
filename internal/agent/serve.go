package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"github.com/daybreak-gpu/daybreak/internal/agent/deviceplugin"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// DefaultDrain is longer than a pod that was just placed takes to get its devices.
const DefaultDrain = 5 * time.Second

// Reasons of the condition Serving.
const (
	reasonServing       = "PluginsRegistered"
	reasonNotRegistered = "PluginsNotRegistered"
	reasonDisk          = "DiskNotWritable"
	reasonNotAsked      = "HoldersUnknown"
	reasonOldKubelet    = "KubeletTooOld"
	reasonOtherMode     = "ModeChanging"
	reasonNotAnnotated  = "NodeNotAnnotated"
	reasonStopping      = "AgentStopping"
	reasonChecking      = "ChecksRunning"
	reasonCheckFailed   = "CheckFailed"
)

// reasonWaived is the reason of the condition ChecksWaived.
const reasonWaived = "WaivedByAdministrator"

// nodeServer serves the node; [deviceplugin.Server] does.
type nodeServer interface {
	Run(ctx context.Context) error
	Update(n *deviceplugin.Node)
	Status() deviceplugin.Status
	Changed() <-chan struct{}
}

// ServeNode makes the agent serve its node, without slices if there is no slicer. It is
// called before Run.
func (a *Agent) ServeNode(cfg deviceplugin.Config, slicer deviceplugin.Slicer) error {
	server, err := deviceplugin.New(cfg, a.pods, slicer, a.metrics.serving, a.clock)
	if err != nil {
		return fmt.Errorf("serve the node: %w", err)
	}
	a.server = server
	return nil
}

// serveNode runs the server, if there is one, and returns its notifications.
func (a *Agent) serveNode(ctx context.Context, group *sync.WaitGroup) <-chan struct{} {
	if a.server == nil {
		return nil
	}
	group.Go(func() {
		if err := a.server.Run(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "The node is not served any more")
		}
	})
	return a.server.Changed()
}

// drain marks the node not serving, and serves pods that were placed on it before.
func (a *Agent) drain(ctx context.Context) {
	if a.server == nil || !a.server.Status().Serving {
		return
	}
	a.stopping = true
	a.device.notBefore = time.Time{}
	a.step(ctx)
	klog.FromContext(ctx).Info("Agent drains", "for", a.cfg.Drain)
	<-a.clock.After(a.cfg.Drain)
}

// service is the condition Serving of the Device.
type service struct {
	serving bool
	why     fault
	// waived are the checks that may fail; no reason if none may.
	waived fault
}

// intends reports whether this agent is to serve the node: no other plugin does.
func (a *Agent) intends(v *view) bool { return a.server != nil && a.yieldsNode(v) == "" }

// yieldsNode returns why the node is left to another plugin, if it is.
func (a *Agent) yieldsNode(v *view) string {
	if a.server == nil {
		return ""
	}
	st := a.server.Status()
	if st.Foreign != "" {
		return "another device plugin serves it: kubelet advertises " + st.Foreign
	}
	return cmp.Or(a.leftToVendor(v), st.Left)
}

// leftToVendor describes the annotation that leaves the Node to the vendor's plugin.
func (a *Agent) leftToVendor(v *view) string {
	if a.servedBy(v) == wire.ServedByVendor {
		return fmt.Sprintf("its annotation %s says %s", wire.AnnotationServedBy, wire.ServedByVendor)
	}
	return ""
}

func (a *Agent) servedBy(v *view) string {
	return a.node.current(v).Annotations[wire.AnnotationServedBy]
}

// vendorOn returns what the API server shows of the vendor's plugin.
func (a *Agent) vendorOn(v *view) deviceplugin.Vendor {
	vendor := deviceplugin.Vendor{Ours: a.servedBy(v) == wire.ServedByDaybreak}
	if v.vendorPod != "" {
		vendor.Pod = "its pod " + v.vendorPod
	}
	if keys := foreignKeys(a.node.current(v)); len(keys) > 0 {
		vendor.Marks = "annotation " + strings.Join(keys, ", ")
	}
	return vendor
}

// serves reports whether the node is to be marked as served by Daybreak: kubelet
// has its plugins, or had them a moment ago and no others since.
func (a *Agent) serves(v *view) bool {
	if !a.intends(v) {
		return false
	}
	ours, _ := owners(a.node.current(v))
	return a.server.Status().Serving || ours[wire.AnnotationServedBy]
}

// service returns the condition in a mode; nil where this agent does not serve.
func (a *Agent) service(v *view, mode gpu.Mode) *service {
	yields := a.yieldsNode(v)
	a.events.warn(eventNotServed, yields, "Daybreak's agent only observes this node: "+yields)
	if !a.intends(v) {
		return nil
	}
	st, checks := a.server.Status(), a.checks.fault()
	a.events.notServed(eventRuntimeReady, st.Runtime.Reason, fault{st.Runtime.Reason, st.Runtime.Message}, "the container runtime answers and injects CDI devices")
	a.events.warn(reasonOldKubelet, st.OldKubelet, "no pod with cards is placed here: "+st.OldKubelet)
	if checks.reason != reasonChecking {
		a.events.notServed(eventChecksPassed, checks.message, checks, "no check keeps this node from being served any more")
	}
	sv := &service{waived: a.checks.waivedFault()}
	switch {
	case a.stopping:
		sv.why = fault{reasonStopping, "the agent is about to end"}
	case st.Disk != "":
		sv.why = fault{reasonDisk, "the journal or CDI specs can't be written: " + st.Disk}
	case st.Runtime.Reason != "":
		sv.why = fault{st.Runtime.Reason, st.Runtime.Message}
	case st.OldKubelet != "":
		sv.why = fault{reasonOldKubelet, st.OldKubelet}
	case checks.reason != "":
		sv.why = checks
	case !st.Serving:
		sv.why = fault{reasonNotRegistered, "kubelet does not have the agent's plugins"}
	case !st.GivenKnown: // the Device lists all that other plugins gave, or pods would be placed on it
		sv.why = fault{reasonNotAsked, "kubelet has not reported yet which devices pods hold that other plugins served"}
	case st.Mode != mode:
		sv.why = fault{reasonOtherMode, fmt.Sprintf("kubelet does not have the devices of mode %s yet", mode)}
	case a.servedBy(v) != wire.ServedByDaybreak:
		sv.why = fault{reasonNotAnnotated, "waits for the annotation " + wire.AnnotationServedBy + " on the Node"}
	default:
		sv.serving, sv.why = true, fault{reasonServing, "kubelet has the agent's plugins"}
	}
	return sv
}

// foreignSlices returns what foreign slices take, and reports when that changes.
func (a *Agent) foreignSlices(v *view) map[gpu.CardID]inventory.ForeignSlice {
	if !a.intends(v) {
		return nil
	}
	now := a.server.Status().ForeignSlices
	for _, id := range slices.Sorted(maps.Keys(now)) {
		if s := now[id]; s != a.foreign[id] {
			a.events.onNode(corev1.EventTypeNormal, eventForeignSlices, "card %s has %d slices that Daybreak did not make, with %d%% of its compute and %v: they stay, and count as used",
				id, s.Slices, s.Compute, s.Memory)
		}
	}
	a.foreign = now
	return now
}

// given returns what kubelet gave to pods without a readable allocation. Until
// kubelet was asked it is what was published before: pods don't change cards.
func (a *Agent) given() map[types.UID]inventory.PluginAllocation {
	if a.server == nil {
		return nil
	}
	if st := a.server.Status(); st.GivenKnown {
		return st.Given
	}
	if a.previous == nil {
		return nil
	}
	return a.previous.PluginAllocations
}

// unserved returns why the node is not served, where it is to be.
func (a *Agent) unserved(v *view) string {
	if !a.intends(v) {
		return ""
	}
	if st := a.server.Status(); !st.Serving {
		return "kubelet: " + st.Waits
	}
	return a.checks.fault().message
}

// updateServer hands over what was published, once the node's pods are known.
func (a *Agent) updateServer(v *view, p *inventory.Publication) {
	if a.server == nil || !v.podsKnown {
		return
	}
	n := &deviceplugin.Node{
		UID: v.node.UID, Mode: p.Mode, Inventory: inventory.ReadInventory(nil, a.device.current(v)), Cards: map[gpu.CardID]deviceplugin.Card{},
		Yield: a.leftToVendor(v), Vendor: a.vendorOn(v),
	}
	for i := range p.Cards {
		card := p.Topology.Card(i)
		if rec := a.roster.member(card.ID); rec != nil {
			n.Cards[card.ID] = deviceplugin.Card{
				BDF: rec.card.BDF, Healthy: card.Healthy, Here: rec.here,
			}
		}
	}
	a.server.Update(n)
}

// podView is how the server sees the node's pods.
type podView struct {
	watch  watcher
	core   corev1client.CoreV1Interface
	events *events
}

// Held implements [deviceplugin.Pods].
func (p *podView) Held() ([]*corev1.Pod, bool) {
	v := p.watch.view()
	return v.pods, v.podsKnown
}

// Get implements [deviceplugin.Pods].
func (p *podView) Get(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	pod, err := p.core.Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get pod %s/%s: %w", namespace, name, err)
	}
	return pod, nil
}

// Event implements [deviceplugin.Pods].
func (p *podView) Event(pod *corev1.Pod, kind, reason, message string) {
	p.events.pod(pod, kind, reason, message)
}
