// Package view holds what users are shown of a cluster, as data: its status, why
// a pod is pending or where it is, where pods would be placed, and advice. The
// commands print it, the dashboard serves it. The JSON forms are contracts:
// fields may be added, none renamed or removed.
package view
