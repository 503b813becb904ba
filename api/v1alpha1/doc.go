// Package v1alpha1 is the Device of scheduling.koordinator.sh/v1alpha1: one
// object a node, named after it, that lists the node's cards.
//
// The kind is Koordinator's, not ours. Daybreak publishes it so that tools
// written for Koordinator find the cards where they look for them, and reads it
// wherever Koordinator already publishes it. Field names, types, defaults and
// what may be left out therefore follow Koordinator exactly; whatever Daybreak
// wants to say beyond that goes into labels and annotations, whose keys are in
// internal/wire.
//
// There are no functions here except deep copies: a Device is read into cards by
// internal/inventory, because a Device in a cluster can hold anything its schema lets
// through. No scheme knows the type, so that clients read a Device whatever it holds.
//
// Run `make generate` after a change to a type or a marker.
//
// +kubebuilder:object:generate=true
// +groupName=scheduling.koordinator.sh
package v1alpha1
