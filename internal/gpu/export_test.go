package gpu

// MemosKinds returns how many kinds of topologies are remembered.
func MemosKinds(m *Memos) int { return len(m.alike) }
