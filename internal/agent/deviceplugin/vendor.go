package deviceplugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// vendorAbsence is how long the vendor's plugin must be absent before the node is
// taken over without an order. The plugin restarts within seconds, and kubelet
// forgets it after 5 minutes.
const vendorAbsence = 10 * time.Minute

const orderHelp = "to take the node over at once, annotate it with " + wire.AnnotationServedBy + "=" + wire.ServedByVendor + " and remove the annotation again"

// Vendor is what the API server shows of the vendor's plugin on the node.
type Vendor struct {
	// Pod describes the plugin's pod on the node, Marks other traces of it.
	Pod, Marks string
	// Ours: the Node is marked as served by Daybreak.
	Ours bool
}

type vendorNote struct {
	// Seen is how the plugin was noticed; empty since the node was taken over.
	Seen string `json:"seen,omitempty"`
	// Named is the Node that an administrator left to the plugin. Ordered: the
	// administrator took it back, which orders a takeover.
	Named   types.UID `json:"named,omitempty"`
	Ordered bool      `json:"ordered,omitempty"`
}

// hear notes whether an administrator leaves the node to the plugin. A Node that was
// deleted and comes back without the annotation is no order.
func (v *vendorNote) hear(n *Node) {
	switch {
	case n.Yield != "":
		v.Named, v.Ordered = n.UID, false
	case v.Named != "":
		v.Named, v.Ordered = "", v.Named == n.UID
	}
}

// vendorWatch is what is known of the vendor's plugin, for the goroutine of Run.
type vendorWatch struct {
	vendorNote
	// serves has an id for each resource for which kubelet has the plugin.
	serves map[string]string
	// absent is since when nothing of the plugin has been there.
	absent time.Time
}

// lookForOthers asks kubelet for other plugins of the vendor's resources. Without an
// answer the plugin does not count as absent.
func (s *Server) lookForOthers(ctx context.Context) error {
	answer, err := s.holders.allocatable(ctx)
	old := ""
	if errors.Is(err, errOldKubelet) {
		old = err.Error()
	}
	if old != "" && s.Status().OldKubelet == "" {
		klog.FromContext(ctx).Error(err, "The node can't be served")
	}
	s.setStatus(func(st *Status) { st.OldKubelet = old })
	if err != nil {
		s.vendor.absent = time.Time{}
		return err
	}
	serves := foreignIDs(answer)
	s.lastForeign, s.vendor.serves = s.clock.Now(), serves
	text := ""
	if names := slices.Sorted(maps.Keys(serves)); len(names) > 0 {
		text = fmt.Sprintf("%s with device %s", names[0], serves[names[0]])
	}
	if s.Status().Foreign != text {
		s.forgetGrants()
	}
	s.setStatus(func(st *Status) { st.Foreign = text })
	return nil
}

// checkAlone returns an error while kubelet has a plugin of the vendor's.
func (s *Server) checkAlone(ctx context.Context) error {
	if err := s.lookForOthers(ctx); err != nil {
		return err
	}
	if foreign := s.Status().Foreign; foreign != "" {
		return fmt.Errorf("another plugin serves %s", foreign)
	}
	return nil
}

// yields returns why the node is not served. Where the vendor's plugin was seen, it
// takes an administrator's order or a long absence to serve it.
func (s *Server) yields(n *Node) string {
	v, foreign, left := &s.vendor, s.Status().Foreign, s.leftOfVendor(n)
	s.notice(n, foreign, left)
	why, noted := "", v.vendorNote
	switch {
	case foreign != "" || n.Yield != "":
	case v.Seen == "" || v.Ordered || left == "" && s.clock.Since(v.absent) >= vendorAbsence:
		v.Seen, v.Ordered = "", false
	case left != "":
		why = fmt.Sprintf("the vendor's plugin was seen on this node, and %s is left of it; %s", left, orderHelp)
	default:
		why = fmt.Sprintf("the vendor's plugin was seen on this node; the agent takes over when nothing of the plugin has been there for %s; %s", vendorAbsence, orderHelp)
	}
	if !s.saveVendor() && why == "" {
		v.vendorNote = noted
		why = "what was seen of the vendor's plugin can't be written to the journal, so an order to take over would hold again after a restart"
	}
	s.setStatus(func(st *Status) { st.Left = why })
	if foreign != "" {
		return "another plugin serves " + foreign
	}
	return cmp.Or(n.Yield, why)
}

// notice notes what is there of the vendor's plugin, and since when nothing is.
func (s *Server) notice(n *Node, foreign, left string) {
	v := &s.vendor
	v.hear(n)
	v.Seen = cmp.Or(v.Seen, foreign)
	if v.Seen == "" && !n.Vendor.Ours && !slices.ContainsFunc(s.plugins, (*plugin).running) {
		v.Seen = n.Vendor.Pod // it may be about to register
	}
	switch {
	case foreign != "" || left != "":
		v.absent = time.Time{}
	case v.absent.IsZero():
		v.absent = s.clock.Now()
	}
}

// saveVendor brings what was seen of the vendor's plugin to the journal, and
// reports whether the journal has it.
func (s *Server) saveVendor() bool {
	if s.journal.now().Vendor == s.vendor.vendorNote {
		return true
	}
	err := s.journal.change(func(d *document) error {
		d.Vendor = s.vendor.vendorNote
		return nil
	})
	s.sawWrite(err)
	return err == nil
}

// leftOfVendor names what is there of the vendor's plugin apart from devices.
func (s *Server) leftOfVendor(n *Node) string {
	var left []string
	for _, trace := range []string{n.Vendor.Pod, n.Vendor.Marks} {
		if trace != "" {
			left = append(left, trace)
		}
	}
	for _, pattern := range s.cfg.VendorSockets {
		paths, _ := filepath.Glob(filepath.Join(s.cfg.Plugins, pattern)) // the patterns were checked
		for _, path := range paths {
			if name := filepath.Base(path); !strings.HasPrefix(name, socketPrefix) && !slices.Contains(left, "socket "+name) {
				left = append(left, "socket "+name)
			}
		}
	}
	return strings.Join(left, ", ")
}
