// Package local runs a real Kubernetes control plane on one machine, with nodes
// that exist only in the API. The playground and all tests that need a cluster
// start here.
//
// etcd, kube-apiserver, kube-controller-manager, the scheduler and the
// playground's manager are processes of their own, so that users and tests can
// kill and pause them one by one; the playground starts them again. All of them
// are the playground's binary, which runs itself under other names (package
// component). Certificates are created for each cluster, ports are found,
// and nothing outside the cluster's folder is touched: several can run.
//
// Simulated nodes ([Simulator]) are Ready, renew their leases, have a Device
// object and the resources of a node with MetaX cards, and run every pod that
// is bound to them, in name only: containers end after the time that their command
// sleeps or their pod's annotation says, stop within the grace period, and are
// resized in place.
package local
