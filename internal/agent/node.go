package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// vendorKeys are those of our annotations that the vendor's readers use.
var vendorKeys = []string{wire.AnnotationNodeCards, wire.AnnotationScores, wire.AnnotationLosses}

// nodeWriter keeps the vendor's annotations on the Node current until a plugin of the
// vendor's writes them: the Node's managed fields show who did.
type nodeWriter struct {
	// applied is the Node as the API server answered our last write.
	applied *metav1.PartialObjectMetadata
	next    time.Time
}

// write writes our annotations, and returns when to check again.
func (w *nodeWriter) write(ctx context.Context, a *Agent, v *view, p *inventory.Publication) time.Duration {
	if !v.podsKnown {
		return idleTick
	}
	node := w.current(v)
	want, err := a.annotations(node, v, p)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Annotations of the node not computed")
		return idleTick
	}
	foreign := foreignKeys(node)
	if a.events.changed(eventAnnotations, strconv.FormatBool(len(foreign) > 0)) && len(foreign) > 0 {
		a.events.onNode(corev1.EventTypeNormal, eventAnnotations, "another client writes %s on this node, so Daybreak's agent does not; an administrator in admission.publishers can remove them", strings.Join(foreign, ", "))
	}
	if len(foreign) > 0 {
		want = map[string]string{}
	}
	ours, _ := owners(node)
	serves := a.serves(v)
	if serves {
		want[wire.AnnotationServedBy] = wire.ServedByDaybreak
	}
	if upToDate(node, want) {
		return idleTick
	}
	now := a.clock.Now()
	if now.Before(w.next) && serves == ours[wire.AnnotationServedBy] {
		return w.next.Sub(now)
	}
	w.next = now.Add(nodeInterval)
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	applied, err := a.api.applyNode(ctx, a.cfg.Node, want)
	a.metrics.write(writtenNode, err)
	if err != nil {
		if !apierrors.IsConflict(err) { // else the watch will show whose they are
			klog.FromContext(ctx).Error(err, "Annotations of the node not written")
		}
		return nodeInterval
	}
	w.applied = applied
	if serves != ours[wire.AnnotationServedBy] {
		return 0 // what the Device says depends on it
	}
	return idleTick
}

func (w *nodeWriter) current(v *view) *metav1.PartialObjectMetadata {
	if w.applied != nil && w.applied.UID == v.node.UID && older(v.node, w.applied) {
		return w.applied
	}
	return v.node
}

// annotations returns the node's annotations: none where the vendor's plugin serves
// it, and the list of cards in mode sgpu only, as that plugin does.
func (a *Agent) annotations(node *metav1.PartialObjectMetadata, v *view, p *inventory.Publication) (map[string]string, error) {
	want := map[string]string{}
	if node.Annotations[wire.AnnotationServedBy] == wire.ServedByVendor {
		return want, nil
	}
	inv := a.inventory(a.device.current(v), v)
	n, _ := allocation.NewNode(inv, v.pods)
	if inv.Problem != nil || n.Topology().Len() != p.Topology.Len() {
		return nil, fmt.Errorf("the Device has other cards than it should: %w", cmp.Or(inv.Problem, errHeldBack))
	}
	if a.cfg.VendorAnnotations && p.Mode == gpu.ModeSGPU {
		text, err := inventory.EncodeNodeCards(inventory.NodeCards(p, n))
		if err != nil {
			return nil, err
		}
		want[wire.AnnotationNodeCards] = text
	}
	if a.cfg.TopologyAnnotations && p.Mode != gpu.ModeShared {
		scores, losses := inventory.Tables(n)
		for key, table := range map[string][]int64{wire.AnnotationScores: scores, wire.AnnotationLosses: losses} {
			text, err := inventory.EncodeTable(table)
			if err != nil {
				return nil, err
			}
			want[key] = text
		}
	}
	return want, nil
}

func upToDate(node *metav1.PartialObjectMetadata, want map[string]string) bool {
	ours, _ := owners(node)
	for _, key := range wire.AgentAnnotations() {
		text, wanted := want[key]
		if wanted != ours[key] || wanted && node.Annotations[key] != text {
			return false
		}
	}
	return true
}

// foreignKeys returns the vendor's annotations that others write.
func foreignKeys(node *metav1.PartialObjectMetadata) []string {
	ours, others := owners(node)
	return slices.DeleteFunc(slices.Clone(vendorKeys), func(key string) bool {
		_, there := node.Annotations[key]
		return !there || ours[key] && !others[key]
	})
}

// owners returns which annotations we own, and which others do.
func owners(node *metav1.PartialObjectMetadata) (ours, others map[string]bool) {
	ours, others = map[string]bool{}, map[string]bool{}
	for _, m := range node.ManagedFields {
		if m.FieldsV1 == nil {
			continue
		}
		var fields struct {
			Metadata struct {
				Annotations map[string]json.RawMessage `json:"f:annotations"`
			} `json:"f:metadata"`
		}
		if err := json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields); err != nil {
			continue
		}
		into := others
		if m.Manager == FieldManager && m.Operation == metav1.ManagedFieldsOperationApply {
			into = ours
		}
		for key := range fields.Metadata.Annotations {
			into[strings.TrimPrefix(key, "f:")] = true
		}
	}
	return ours, others
}
