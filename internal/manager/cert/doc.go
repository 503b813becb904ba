// Package cert creates and renews the certificates of the manager's webhook, so
// that nothing else has to be installed for it.
//
// One Secret, shared by all replicas, holds an authority and a serving
// certificate that it signed. The webhook configurations hold, as caBundle, the
// authorities that the API server trusts. A [Keeper] in every replica keeps them
// in step, serves the certificate, and renews both before they expire:
//
//   - a new serving certificate is signed by an authority that is trusted
//     already, and used at once;
//   - a new authority first waits in the Secret. It signs only when the
//     configuration has listed it for a while (the overlap), so that every API
//     server knows it. The old one stays trusted until it expires.
//
// There is no leader. Each replica reads, computes the next step (a pure function
// of the Secret, the configuration and the time), and writes under the version it
// has read; on a conflict it reads again. A Secret that is damaged or empty is
// written from what a replica has in memory, and from nothing only where no replica
// has any. The Secret is created empty by the installation, since the right to create
// Secrets can create a token of any account. While there is none, replicas serve what
// they have.
package cert
