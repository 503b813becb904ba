package main

import (
	"bytes"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// look is the style of the pictures that explain: one for light pages and one
// for dark ones. The colours of QoS classes are the dashboard's.
const look = `<style>
:root {
  --paper: #ffffff; --ink: #1d232b; --faint: #5b6672; --edge: #aab4bf; --zone: #eef2f7; --free: #ffffff;
  --busy: #8a949f; --chosen: #1f5fbf; --best: #2f74d0; --fixed: #d98324; --burst: #2f9a55; --whole: #39424d; --on: #ffffff;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --paper: #12161c; --ink: #e6eaef; --faint: #a3adb9; --edge: #56616e; --zone: #1c232c; --free: #12161c;
    --busy: #6b7683; --chosen: #74acff; --best: #74acff; --fixed: #f0ab5c; --burst: #6fcf8e; --whole: #cfd6de; --on: #12161c;
  }
}
svg { font-family: system-ui, "Segoe UI", "Noto Sans", "Noto Sans CJK SC", sans-serif; font-size: 13px; }
text { fill: var(--ink); } .faint { fill: var(--faint); font-size: 12px; } .on { fill: var(--on); font-weight: 600; }
.middle { text-anchor: middle; } .end { text-anchor: end; } .strong { font-weight: 600; }
.paper { fill: var(--paper); } .zone { fill: var(--zone); }
.free { fill: var(--free); stroke: var(--edge); } .busy { fill: var(--busy); } .chosen { fill: var(--chosen); }
.best-effort { fill: var(--best); } .fixed-share { fill: var(--fixed); } .burst-share { fill: var(--burst); } .whole { fill: var(--whole); }
.link, .chosen-link, .curve, .axis { fill: none; stroke: var(--edge); stroke-width: 1.3; }
.chosen-link { stroke: var(--chosen); stroke-width: 2; } .curve { stroke: var(--chosen); stroke-width: 2.5; } .bar { fill: var(--edge); }
</style>
`

// words are what the pictures say, in the two languages of the documentation.
type words struct {
	suffix                                                 string // of the file's name
	zone, pcieSwitch, numa, link, weights                  string
	inUse, chosen, bars, card, whole                       string
	neighbour, busy, idle                                  string
	scattered, packed, scatteredNote, packedNote           string
	zones, spread, binpack, slices, classes, fragmentation string
}

func languages() []words {
	return []words{
		{
			suffix: "", zone: "zone", pcieSwitch: "PCIe switch", numa: "NUMA node", link: "arcs are MetaXLinks",
			weights: "weight of a pair: 110 linked, 50 in one zone or under one switch, 10 otherwise",
			inUse:   "in use", chosen: "chosen", bars: "upper bar: memory, lower bar: compute", card: "card", whole: "whole card",
			neighbour: "neighbour:", busy: "busy", idle: "idle",
			scattered: "Four slices of half a card, scattered", packed: "The same slices, packed",
			scatteredNote: "six cards' worth is free, and a job of four linked cards does not fit",
			packedNote:    "six cards' worth is free, and a job of four linked cards fits",
			zones:         "A server with eight cards in two zones", spread: "Four cards with the policy spread", binpack: "Two cards with the policy binpack",
			slices: "Slices on cards", classes: "The three QoS classes", fragmentation: "Fragmentation",
		},
		{
			suffix: "-zh", zone: "互联域", pcieSwitch: "PCIe 交换机", numa: "NUMA 节点", link: "弧线是 MetaXLink",
			weights: "一对卡的权重：直接互联 110，同域或同一交换机 50，其他 10",
			inUse:   "已占用", chosen: "选中", bars: "上条：显存，下条：算力", card: "卡", whole: "整卡",
			neighbour: "邻居：", busy: "忙", idle: "空闲",
			scattered: "四个半卡切片，分散放置", packed: "同样的切片，集中放置",
			scatteredNote: "空闲量相当于六张卡，但放不下需要四张互联卡的任务",
			packedNote:    "空闲量相当于六张卡，放得下需要四张互联卡的任务",
			zones:         "一台服务器：八张卡，两个互联域", spread: "spread 策略选四张卡", binpack: "binpack 策略选两张卡",
			slices: "卡上的切片", classes: "三种 QoS", fragmentation: "碎片",
		},
	}
}

// drawConcepts draws the pictures that explain, in both languages.
func drawConcepts(out string) error {
	for _, w := range languages() {
		for name, c := range map[string]*canvas{
			"concepts-zones": drawZones(&w), "concepts-slices": drawSlices(&w), "concepts-qos": drawClasses(&w),
			"concepts-fragmentation": drawFragmentation(&w),
			"topology-spread":        drawChoice(&w, w.spread, 4, 5, 6, 7), "topology-binpack": drawChoice(&w, w.binpack, 2, 3),
		} {
			if err := os.WriteFile(filepath.Join(out, name+w.suffix+".svg"), c.svg(), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// canvas is a picture in the making.
type canvas struct {
	width, height int
	title         string
	body          bytes.Buffer
}

func (c *canvas) svg() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" aria-labelledby=\"title\">\n", c.width, c.height)
	fmt.Fprintf(&b, "<title id=\"title\">%s</title>\n%s", html.EscapeString(c.title), look)
	fmt.Fprintf(&b, "<rect class=\"paper\" width=\"%d\" height=\"%d\"/>\n", c.width, c.height)
	b.Write(c.body.Bytes())
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func (c *canvas) rect(class string, x, y, width, height int) {
	fmt.Fprintf(&c.body, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"4\"/>\n", class, x, y, width, height)
}

func (c *canvas) text(class string, x, y int, text string) {
	fmt.Fprintf(&c.body, "<text class=\"%s\" x=\"%d\" y=\"%d\">%s</text>\n", class, x, y, html.EscapeString(text))
}

// path draws what SVG's path data says.
func (c *canvas) path(class, data string) {
	fmt.Fprintf(&c.body, "<path class=\"%s\" d=\"%s\"/>\n", class, data)
}

// Where the cards of a server stand.
const (
	cardWidth  = 58
	cardHeight = 46
	cardStep   = 68
	zoneGap    = 28
	margin     = 24
	zoneCards  = 4
)

// cardX is the left edge of a card of a server in two zones of four.
func cardX(card int) int { return margin + 12 + card*cardStep + card/zoneCards*zoneGap }

// server draws eight cards in two zones, their links above them; top is the
// upper edge of the cards. State gives a card's class, and what is linked is
// drawn strongly where both ends are chosen.
func (c *canvas) server(w *words, top int, state func(card int) string) {
	c.field(w, top, state)
	for card := range 2 * zoneCards {
		label := "middle on"
		if state(card) == "free" {
			label = "middle strong"
		}
		c.text(label, cardX(card)+cardWidth/2, top+cardHeight/2+5, strconv.Itoa(card))
	}
}

// field is server without the cards' numbers.
func (c *canvas) field(w *words, top int, state func(card int) string) {
	for zone := range 2 {
		x := cardX(zone * zoneCards)
		c.rect("zone", x-12, top-62, (zoneCards-1)*cardStep+cardWidth+24, cardHeight+74)
		c.text("faint", x-4, top-46, fmt.Sprintf("%s %d", w.zone, zone+1))
		for a := range zoneCards {
			for b := a + 1; b < zoneCards; b++ {
				one, other := zone*zoneCards+a, zone*zoneCards+b
				class := "link"
				if state(one) == "chosen" && state(other) == "chosen" {
					class = "chosen-link"
				}
				from, to := cardX(one)+cardWidth/2, cardX(other)+cardWidth/2
				c.path(class, fmt.Sprintf("M%d %d Q%d %d %d %d", from, top, (from+to)/2, top-24*(b-a)-8, to, top))
			}
		}
	}
	for card := range 2 * zoneCards {
		c.rect(state(card), cardX(card), top, cardWidth, cardHeight)
	}
}

// serverWidth is the width of a picture with a server.
const serverWidth = 2*margin + 24 + 7*cardStep + zoneGap + cardWidth

// drawZones draws links, zones, PCIe switches and NUMA nodes.
func drawZones(w *words) *canvas {
	c := &canvas{width: serverWidth, height: 262, title: w.zones}
	const top = 90
	c.server(w, top, func(int) string { return "free" })
	for pair := range 4 {
		x := cardX(2 * pair)
		c.rect("bar", x, top+66, cardStep+cardWidth, 5)
		c.text("faint middle", x+(cardStep+cardWidth)/2, top+86, w.pcieSwitch)
	}
	for node := range 2 {
		x := cardX(node * zoneCards)
		c.rect("bar", x, top+100, (zoneCards-1)*cardStep+cardWidth, 5)
		c.text("faint middle", x+((zoneCards-1)*cardStep+cardWidth)/2, top+120, fmt.Sprintf("%s %d", w.numa, node))
	}
	c.text("", margin, top+146, w.link)
	c.text("", margin, top+164, w.weights)
	return c
}

// drawChoice draws which cards a job gets while the first two are in use.
func drawChoice(w *words, title string, cards ...int) *canvas {
	c := &canvas{width: serverWidth, height: 190, title: title}
	c.server(w, 80, func(card int) string {
		switch {
		case slices.Contains(cards, card):
			return "chosen"
		case card < 2:
			return "busy"
		}
		return "free"
	})
	c.rect("busy", margin, 160, 14, 14)
	c.text("", margin+20, 172, w.inUse)
	c.rect("chosen", margin+110, 160, 14, 14)
	c.text("", margin+130, 172, w.chosen)
	return c
}

// slice is a share of a card in a picture, in percent of it.
type slice struct{ memory, compute int }

// drawSlices draws cards with slices of each class, and one that is taken whole.
func drawSlices(w *words) *canvas {
	c := &canvas{width: serverWidth, height: 236, title: w.slices}
	const left, full = 86, 450
	for i, row := range []struct {
		class  string
		slices []slice
	}{
		{"best-effort", []slice{{12, 60}, {25, 25}}},
		{"fixed-share", []slice{{25, 10}, {25, 50}, {12, 20}}},
		{"burst-share", []slice{{50, 40}}},
		{"whole", []slice{{100, 100}}},
	} {
		y := 34 + i*50
		c.text("end strong", left-12, y+20, fmt.Sprintf("%s %d", w.card, i))
		for bar := range 2 {
			c.rect("free", left, y+bar*17, full, 14)
			x := left
			for _, s := range row.slices {
				part := []int{s.memory, s.compute}[bar] * full / 100
				c.rect(row.class, x, y+bar*17, part-2, 14)
				x += part
			}
		}
		label := row.class
		if label == "whole" {
			label = w.whole
		}
		c.text("faint", left+full+8, y+20, label)
	}
	c.text("faint", left, 22, w.bars)
	return c
}

// drawClasses draws what a slice of 40 % uses while its neighbour is busy, idle
// and busy again.
func drawClasses(w *words) *canvas {
	c := &canvas{width: serverWidth, height: 184, title: w.classes}
	const wide, tall, base = 162, 100, 150
	for i, panel := range []struct {
		class string
		used  [3]int // percent
	}{
		{"best-effort", [3]int{50, 100, 50}}, {"fixed-share", [3]int{40, 40, 40}}, {"burst-share", [3]int{40, 100, 40}},
	} {
		x := margin + 56 + i*(wide+22)
		c.text("middle strong", x+wide/2, 28, panel.class)
		c.rect("zone", x+wide/3, base-tall, wide/3, tall)
		c.path("axis", fmt.Sprintf("M%d %d V%d H%d", x, base-tall, base, x+wide))
		height := func(step int) int { return base - panel.used[step]*tall/100 }
		c.path("curve", fmt.Sprintf("M%d %d H%d V%d H%d V%d H%d", x, height(0), x+wide/3, height(1), x+2*wide/3, height(2), x+wide))
		for third, label := range []string{w.busy, w.idle, w.busy} {
			c.text("faint middle", x+(2*third+1)*wide/6, base+18, label)
		}
	}
	c.text("faint end", margin+50, base+18, w.neighbour)
	c.text("faint end", margin+50, base-tall+5, "100 %")
	c.text("faint end", margin+50, base-tall*40/100+4, "40 %")
	return c
}

// drawFragmentation draws the same slices on one server in two ways.
func drawFragmentation(w *words) *canvas {
	c := &canvas{width: serverWidth, height: 392, title: w.fragmentation}
	for i, row := range []struct {
		title, note string
		used        [8]int // halves
	}{
		{w.scattered, w.scatteredNote, [8]int{1, 0, 1, 0, 1, 0, 1, 0}},
		{w.packed, w.packedNote, [8]int{2, 2, 0, 0, 0, 0, 0, 0}},
	} {
		top := 106 + i*196
		c.text("strong", margin, top-74, row.title)
		c.field(w, top, func(int) string { return "free" })
		for card, halves := range row.used {
			if height := halves * cardHeight / 2; height > 0 {
				c.rect("best-effort", cardX(card), top+cardHeight-height, cardWidth, height)
				c.text("middle on", cardX(card)+cardWidth/2, top+cardHeight-height/2+5, []string{"", "½", "½ ½"}[halves])
			}
		}
		c.text("faint", margin, top+cardHeight+30, row.note)
	}
	return c
}
