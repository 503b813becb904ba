// Package audit checks that what a cluster says about its cards can be true.
//
// The scheduler never books a card beyond its rules, and the agent never hands
// one out against them. But pods are also bound by other schedulers, written to
// by hand, restored from backups, and cards are pulled out of servers. Audit
// reads everything from the objects, trusts no writer, and names each rule that
// is broken with the numbers and the pods.
//
// It is a pure function of a [cluster.Snapshot]: no API, no clock. The audit
// command runs it once, the manager all the time. Findings are values with a
// stable rule name, so that they can be an event, a metric label or a line of a
// table.
//
// A violation is something that must not be: a pod has, or will get, less than it
// was given. A note is something that an administrator should know and that is no
// mistake, such as a pod on a card that became unhealthy.
package audit
