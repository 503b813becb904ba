// Package manager is the part of Daybreak that looks after the cluster as a
// whole. It runs in one or more replicas, of which one leads and writes.
//
// What it does is split into parts, each in a package of its own that this one
// puts together: a part is given a controller-runtime manager and adds its
// controllers and servers to it. Parts do not know of each other.
//
//   - controllers/noderesource makes nodes advertise the cards that their
//     Devices list;
//   - audit keeps checking that no card is booked twice;
//   - webhook admits pods that ask for cards, policy is what the API server is
//     told about them, and cert how it knows the manager;
//   - dashboard serves the page that shows every card.
//
// A [Manager] has no state outside of itself, so that several run in one
// process: the playground and the tests do that.
package manager
