// Package fake stands in for MetaX hardware, at its own boundary.
//
// A [Machine] says which cards there are, how they are joined and what is wrong
// with them. It is written to files that a fake libmxsml.so (mxsml/, in C, with
// the vendor's ABI) and a fake mx-smi (mxsmi/, with the vendor's formats) read
// at every call, and to a tree of files like sysfs; what looks at cards can't
// distinguish them from real ones. Changing the Machine and writing it again makes
// faults happen while a program runs.
//
// Slices are kept in a file next to the configuration, by the library, and are
// shared by all processes that load it.
package fake
