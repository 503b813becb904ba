// Package discover finds the MetaX cards of a machine.
//
// There are four [Source]s: the vendor's library (MXSML), its command mx-smi,
// what the kernel shows in sysfs, and a simulation from a YAML profile. They
// all return the same [Snapshot], and nothing outside this package knows which
// one it came from. No source knows everything, so they complete each other:
// identity and links come from the vendor, NUMA nodes and PCIe paths from sysfs.
//
// A look at the hardware either gives a complete picture or fails. The caller
// keeps the last good one: cards don't disappear because a library is broken.
package discover
