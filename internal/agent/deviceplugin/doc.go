// Package deviceplugin serves a node: it is the device plugin of metax-tech.com/gpu
// and metax-tech.com/sgpu, gives every container the cards that its pod was
// placed on, and makes and removes slices.
//
// kubelet hands out ids of devices without naming the pod. Daybreak's ids are
// tokens that stand for no card. When a container is about to start, kubelet names
// its ids (PreStartContainer), which identify the container:
//
//	Allocate(ids)   ─► a CDI name for each id, used once and never again
//	PreStart(ids)   ─► holders: which pod and container has these ids?
//	                ─► claim:   what is in its allocation, and is it allowed?
//	                ─► slices:  made on the card, or found again
//	                ─► cdi:     a spec under that name, with these nodes only
//
// No node is locked for this, and pods start side by side.
//
// What must hold:
//
//   - Whatever is uncertain is an error, and the container does not start.
//   - A card goes to no two holders that exclude each other, whatever annotations
//     say. Of two pods the one that was placed first keeps it.
//   - What was given stays given until the pod is gone and no container of it
//     lives. The journal on disk remembers it.
//   - A slice is noted in the journal before it is made, so that no crash leaves
//     an unknown one. Foreign slices are never changed.
package deviceplugin
