// Package allocation reads and writes what pods hold, in the vendor's, HAMi's and
// Koordinator's annotations: [Annotations] writes them, [NewNode] reads them back
// into the account of a node. The lock of a node and the term of a scheduler,
// which are written together with them, are here too.
package allocation
