package deviceplugin

import (
	"errors"
	"reflect"

	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
)

// Status is how the node is served.
type Status struct {
	// Serving: kubelet has accepted all plugins, and has what they serve in Mode.
	Serving bool
	Mode    gpu.Mode
	// Waits is what is missing while it is not.
	Waits string
	// Second: another agent may work with the state folder.
	Second bool
	// Disk is why the journal or specs can't be written; empty if they can.
	Disk string
	// Runtime is why the runtime can't start containers; RuntimeKnown: it was asked.
	Runtime      RuntimeFault
	RuntimeKnown bool
	// OldKubelet is why kubelet is too old to be served; empty if it is not known to be.
	OldKubelet string
	// Foreign is a resource and an id of another plugin that serves the node.
	Foreign string
	// Left is why the node is left to the vendor's plugin without its devices.
	Left string
	// ForeignSlices is what foreign slices take of each card.
	ForeignSlices map[gpu.CardID]inventory.ForeignSlice
	// Given is what kubelet gave to pods of other plugins without a readable
	// allocation; GivenKnown: kubelet was asked since another plugin came or went.
	Given      map[types.UID]inventory.PluginAllocation
	GivenKnown bool
}

// Changed has something to receive when the status has changed.
func (s *Server) Changed() <-chan struct{} { return s.changed }

// Status returns how the node is served now.
func (s *Server) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

func (s *Server) setStatus(change func(*Status)) {
	s.mu.Lock()
	before := s.status
	change(&s.status)
	same := reflect.DeepEqual(before, s.status)
	s.mu.Unlock()
	if !same {
		notify(s.changed)
	}
}

// unfit returns why the node can't be served although kubelet has the plugins.
func (st *Status) unfit() error {
	switch {
	case st.Disk != "":
		return errors.New(st.Disk)
	case !st.RuntimeKnown:
		return errors.New("the container runtime has not answered yet")
	case st.Runtime.Reason != "":
		return errors.New(st.Runtime.Message)
	}
	return nil
}
