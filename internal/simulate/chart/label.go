package chart

import (
	"cmp"
	"slices"
)

// label is a line's name at the line's end.
type label struct {
	line       int
	x, y       float64 // end of the line
	at, anchor float64 // where the name goes, and where it would like to
}

// drawLabels writes the names of the lines at their ends, moved apart so that
// none covers another. When there are too many for the height of the plot, the
// legend must do.
func (d *drawing) drawLabels() {
	labels := d.placeLabels()
	for _, l := range labels {
		name := d.figure.Lines[l.line].Name
		if textWidth(name) > width-d.pad-d.right-22 {
			name, _ = cut(name, width-d.pad-d.right-30)
			name += "…"
		}
		d.printf(`<g class="%s">`, d.class(l.line))
		d.printf(`<path class="leader" fill="none" d="M%s %sL%s %s"/>`, num(l.x+6), num(l.y), num(d.right+18), num(l.at))
		d.printf(`<text class="name" x="%s" y="%s">%s</text></g>`+"\n", num(d.right+22), num(l.at+4.5), text(name))
	}
}

func (d *drawing) placeLabels() []label {
	if float64(len(d.figure.Lines))*labelGap > plotHeight+labelGap {
		return nil
	}
	var labels []label
	for i := range d.figure.Lines {
		l := &d.figure.Lines[i]
		end := rightmost(l.X)
		x, y := d.x.at(l.X[end]), d.y.at(l.Y[end])
		labels = append(labels, label{line: i, x: x, y: y, anchor: y})
	}
	slices.SortStableFunc(labels, func(a, b label) int { return cmp.Compare(a.anchor, b.anchor) })
	spread(labels, d.top, d.bottom)
	return labels
}

// spread places labels, sorted by where they would like to be, at least
// labelGap apart between top and bottom, and as near to there as that allows:
// labels that touch form a block, which stands around the mean of its wishes.
func spread(labels []label, top, bottom float64) {
	type block struct {
		first, n int
		start    float64
	}
	var blocks []block
	settle := func(b *block) {
		sum := 0.0
		for k := range b.n {
			sum += labels[b.first+k].anchor - float64(k)*labelGap
		}
		room := bottom - float64(b.n-1)*labelGap
		b.start = max(top, min(room, sum/float64(b.n)))
	}
	for i := range labels {
		b := block{first: i, n: 1}
		settle(&b)
		for len(blocks) > 0 {
			before := blocks[len(blocks)-1]
			if before.start+float64(before.n)*labelGap <= b.start {
				break
			}
			b = block{first: before.first, n: before.n + b.n}
			settle(&b)
			blocks = blocks[:len(blocks)-1]
		}
		blocks = append(blocks, b)
	}
	for _, b := range blocks {
		for k := range b.n {
			labels[b.first+k].at = b.start + float64(k)*labelGap
		}
	}
}

// rightmost returns the position of the greatest value, the last of equals.
func rightmost(x []float64) int {
	best := 0
	for i := range x {
		if x[i] >= x[best] {
			best = i
		}
	}
	return best
}
