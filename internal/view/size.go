package view

import "strconv"

// unit is a unit of memory, with its size in MiB.
type unit struct {
	name string
	mib  int64
}

// units are the units of memory, the largest first.
var units = []unit{{"TiB", 1 << 20}, {"GiB", 1 << 10}, {"MiB", 1}}

// FreeSize renders free memory, given in MiB, in the largest unit that it has one
// of. It rounds down: what is shown as free can be had.
func FreeSize(mib int64) string { return unitOf(mib).render(mib, false) }

// UsedSize renders used memory, given in MiB, in the largest unit that it has one
// of. It rounds up: what is used never reads as nothing.
func UsedSize(mib int64) string { return unitOf(mib).render(mib, true) }

// FreeOf renders free memory and all memory, both given in MiB. The two read the
// same only where all is free.
func FreeOf(free, total int64) (freeText, totalText string) {
	freeText, totalText = FreeSize(free), FreeSize(total)
	for _, u := range units {
		if freeText != totalText || free == total {
			break
		}
		freeText, totalText = u.render(free, false), u.render(total, false)
	}
	return freeText, totalText
}

// unitOf returns the largest unit that the memory has one of.
func unitOf(mib int64) unit {
	for _, u := range units {
		if mib >= u.mib {
			return u
		}
	}
	return units[len(units)-1]
}

// render renders the memory in the unit, with a digit after the point where that
// is not 0 and the number has less than three digits.
func (u unit) render(mib int64, up bool) string {
	if mib <= 0 {
		return "0"
	}
	step := u.mib // what one of the last digit is, times ten
	tenths := mib < 100*u.mib
	if !tenths {
		step *= 10
	}
	n := 10 * mib / step
	if up && n*step < 10*mib {
		n++
	}
	if !tenths {
		return strconv.FormatInt(n, 10) + " " + u.name
	}
	text := strconv.FormatInt(n/10, 10)
	if n%10 != 0 {
		text += "." + strconv.FormatInt(n%10, 10)
	}
	return text + " " + u.name
}
