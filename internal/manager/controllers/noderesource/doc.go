// Package noderesource makes nodes advertise the cards that their Devices list:
// koordinator.sh/gpu.shared and its kin in capacity and allocatable, and vendor,
// model and driver version as labels.
//
// Kubelet looks after the same fields and knows nothing of these resources,
// which makes for four rules:
//
//   - Capacity and allocatable are always the same: kubelet computes allocatable
//     from capacity and would overwrite anything else.
//   - Never less than the pods on the node ask for, however few cards are well:
//     a kubelet that restarts admits its pods anew, and fails those that do not
//     fit into what the node advertises.
//   - A kubelet that lost its own state sets all such resources to zero. They
//     are written again.
//   - What is taken away is taken away whole, by null and not by zero: kubelet
//     disregards resources that a node does not have, but counts those of which
//     it has none.
//
// # Whose it is
//
// Koordinator's own manager does the same for other vendors' cards. So this one
// acts only on Devices that say they are MetaX's, marks the nodes it writes to
// with an annotation ([wire.AnnotationAdvertised]), and takes away only from
// nodes with that mark, and only the labels listed there.
//
// # What can't be read
//
// A Device that can't be read says nothing about the cards. What the node
// advertised stays, and an Event says what is wrong.
package noderesource
