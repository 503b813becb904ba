// Package inventory reads which cards a node has, from a Device object, from the
// vendor's node annotation, or from a bare capacity ([ReadInventory]), and writes
// what an agent publishes ([EncodeDevice]).
package inventory
