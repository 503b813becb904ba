// Package cert makes, keeps and renews the certificates by which the API server
// knows the manager, so that nothing else has to be installed for it.
//
// One Secret, shared by all replicas, holds an authority and a serving
// certificate that it signed. The webhook configuration holds, as caBundle, the
// authorities that the API server is to trust. A [Keeper] in every replica keeps
// the two in step, serves the certificate, and renews both before they end:
//
//   - a new serving certificate is signed by an authority that is trusted
//     already, and used at once;
//   - a new authority first waits in the Secret. It signs only when the
//     configuration has named it for a while (the overlap), so that every API
//     server has heard of it. The old one stays trusted until it ends.
//
// Replicas do not elect anyone for this. Each reads, works out the next step
// (a pure function of the Secret, the configuration and the time), and writes
// under the version it has read; who comes second reads again. A Secret that is
// deleted, damaged or empty is written from what a replica remembers, and only
// where none does from nothing. A replica that may not create the Secret serves
// what it has while there is none.
package cert
