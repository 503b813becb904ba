// Package check tests on a node what Daybreak assumes of the driver, its
// library, the cards, their device nodes, links and slices, the container
// runtime and kubelet. Much of it is not confirmed on hardware.
//
// [Asker.Ask] collects the answers of the node once, [Facts]; each check of the
// table is a function of them and asks nothing itself. So the command and the
// agent come to the same result, and a bundle has what a result came from.
package check
