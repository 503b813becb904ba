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
// of, to a tenth. It rounds down: what is shown as free can be had.
func FreeSize(mib int64) string { return unitOf(mib).render(mib, false) }

// UsedSize renders used memory, given in MiB, in the largest unit that it has one
// of, to a tenth. It rounds up: what is used never reads as nothing.
func UsedSize(mib int64) string {
	u := unitOf(mib)
	if next := unitOf(mib + u.mib/10); next.render(mib, true) == "1 "+next.name {
		u = next // 1024 of the smaller one
	}
	return u.render(mib, true)
}

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

// render renders the memory in the unit.
func (u unit) render(mib int64, up bool) string {
	if mib <= 0 {
		return "0"
	}
	tenths := 10 * mib / u.mib
	if up && tenths*u.mib < 10*mib {
		tenths++
	}
	text := strconv.FormatInt(tenths/10, 10)
	if tenths%10 != 0 {
		text += "." + strconv.FormatInt(tenths%10, 10)
	}
	return text + " " + u.name
}
