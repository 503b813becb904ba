// Package manager is the part of Daybreak that looks after the cluster as a
// whole. It runs in one or more replicas, of which one leads and writes.
//
// What it does is split into parts, each in a package of its own: a part adds its
// controllers and servers to a controller-runtime manager. Parts do not know of
// each other. A [cluster.Reader] of the caches shows them the cluster.
//
//   - controllers/noderesource makes nodes advertise the cards that their
//     Devices list;
//   - audit keeps checking that no card is booked twice;
//   - webhook admits pods that ask for cards, policy configures the API server for
//     it, and cert keeps the certificates;
//   - dashboard serves the page that shows every card.
//
// A [Manager] has no state outside of itself, so that several run in one
// process: the playground and the tests do that.
package manager
