// Written by hack/reference from internal/place/code.go. Change that, then run make generate.
export default {
  "NodeExcluded": {"text":"The pod may not use the node","aside":1},
  "NoCards": {"text":"No MetaX cards","aside":2},
  "BadInventory": {"text":"Card inventory can't be read"},
  "QuotaExceeded": {"text":"The namespace's quota is used up"},
  "Unaccounted": {"text":"A pod holds cards that are not known"},
  "ModeConflict": {"text":"Cards are served in another mode"},
  "Unhealthy": {"text":"Cards are unhealthy","unit":"cards"},
  "CardExcluded": {"text":"Cards are excluded by the pod","unit":"cards"},
  "ClassConflict": {"text":"Cards run pods of another class","unit":"cards"},
  "QoSConflict": {"text":"Cards run another QoS class","unit":"cards"},
  "ExclusiveConflict": {"text":"Cards are in use","unit":"cards"},
  "SlicesFull": {"text":"Cards have no free slice","unit":"slots"},
  "MemoryShort": {"text":"Too little free card memory","unit":"MiB"},
  "ComputeShort": {"text":"Too little free card compute","unit":"%"},
  "TooFewCards": {"text":"Too few cards","unit":"cards"},
};
