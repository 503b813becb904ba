// Package wire translates between Kubernetes and the core, in both directions.
// It is the only place that knows the names and formats others chose:
//
//   - what pods ask for, in HAMi's dialect (metax-tech.com/*) and Koordinator's
//     (koordinator.sh/*): [Admit] turns a pod into a [gpu.PodRequest] or says,
//     problem by problem, what to write instead;
//   - which cards a node has, from a Device object, from the vendor's node
//     annotation, or from a bare capacity: [ReadInventory];
//   - what pods hold, in the vendor's, HAMi's and Koordinator's annotations:
//     [Annotations] writes them, [Inventory.NewNode] reads them back.
//
// Nothing read here is trusted. Types, ranges and sizes are checked; fields
// that a newer writer added are ignored. What is wrong with a node costs that
// node, never the process.
package wire
