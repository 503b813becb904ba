package scheduler

// tournament keeps the best of a set of rows at hand while members come, go and
// change: each change plays again the matches on the way from its leaf to the
// top, and so takes the logarithm of the number of rows.
type tournament struct {
	// first is the position of the first leaf. The matches before it have their
	// winners: match i is between 2i and 2i+1, and match 1 is the final.
	first  int
	winner []int32
}

// absent is in place of a row that is not a member.
const absent = -1

func newTournament(rows int) tournament {
	first := 1
	for first < rows {
		first *= 2
	}
	t := tournament{first: first, winner: make([]int32, 2*first)}
	for i := range t.winner {
		t.winner[i] = absent
	}
	return t
}

// top returns the best member, if there is one.
func (t *tournament) top() (row int, ok bool) {
	return int(t.winner[1]), t.winner[1] != absent
}

// update makes the row a member or not, and plays the matches that it is in.
func (t *tournament) update(row int, member bool, better func(a, b int) bool) {
	t.enter(row, member)
	for i := (t.first + row) / 2; i > 0; i /= 2 {
		t.match(i, better)
	}
}

// play sets who is a member, and plays all matches.
func (t *tournament) play(member []bool, better func(a, b int) bool) {
	for row, in := range member {
		t.enter(row, in)
	}
	for i := t.first - 1; i > 0; i-- {
		t.match(i, better)
	}
}

func (t *tournament) enter(row int, member bool) {
	t.winner[t.first+row] = absent
	if member {
		t.winner[t.first+row] = int32(row)
	}
}

func (t *tournament) match(i int, better func(a, b int) bool) {
	a, b := t.winner[2*i], t.winner[2*i+1]
	if a == absent || b != absent && better(int(b), int(a)) {
		a = b
	}
	t.winner[i] = a
}
