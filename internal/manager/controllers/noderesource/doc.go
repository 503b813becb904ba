// Package noderesource makes nodes advertise the cards that their Devices list:
// koordinator.sh/gpu.shared and its kin in capacity and allocatable, and vendor,
// model and driver version as labels.
//
// Kubelet manages the same fields and does not know these resources, hence five
// rules:
//
//   - Capacity and allocatable are always the same: kubelet computes allocatable
//     from capacity and would overwrite anything else.
//   - Never less than the pods on the node ask for, however few cards are
//     healthy: a kubelet that restarts admits its pods again, and fails those that
//     do not fit into what the node advertises.
//   - A kubelet that lost its own state sets all such resources to zero. They
//     are written again.
//   - What is removed is removed by null and not by zero: kubelet disregards
//     resources that a node does not have, but counts those of which it has none.
//   - Kubelet before 1.31 disregards them in app containers only, and fails a pod whose
//     init container asks for one. There the node also advertises the amounts of each
//     slice, metax-tech.com/vcore and vmemory, with a limit that no sum reaches.
//
// # Ownership
//
// Koordinator's own manager does the same for other vendors' cards. So this one
// acts only on Devices with the vendor MetaX, marks the nodes it writes with an
// annotation ([wire.AnnotationAdvertised]), and removes only from nodes with that
// mark, and only the labels listed there.
//
// # Invalid Devices
//
// While a Device can't be read, what the node advertised stays, and an Event
// reports the problem.
package noderesource
