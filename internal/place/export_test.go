package place

// What bounds the rankings of a Board.
const (
	MaxRankings   = maxRankings
	RankingMemory = rankingMemory
	NodeMemory    = nodeMemory
	RecentChanges = recentChanges
)

// Has reports whether the board keeps a ranking of the key.
func (b *Board) Has(key Key) bool { return b.rankings[key] != nil }

// Rankings returns how many rankings the board keeps.
func (b *Board) Rankings() int { return len(b.rankings) }
