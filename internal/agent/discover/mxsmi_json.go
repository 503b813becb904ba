package discover

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// jsonReport is what mx-smi -j prints. It names cards by PCI address, and
// tells neither uuid nor memory.
type jsonReport struct {
	driver, maca string
	cards        map[string]*jsonCard
}

// jsonCard is one card of it, as far as it is used. Numbers come as numbers in
// some places and as texts in others, depending on the version.
type jsonCard struct {
	DeviceID    loose  `json:"device_id"`
	BIOS        string `json:"vbios_version"`
	Unavailable string `json:"unavailable_reason"`
	Hotspot     loose  `json:"hotspot"`
	Utilization loose  `json:"utilization"`
	Board       struct {
		Power map[string]loose `json:"power"`
	} `json:"board_power"`
	Slices []struct {
		Minor   loose `json:"minor"`
		ID      loose `json:"sgpu_id"`
		Used    loose `json:"vram_used"`
		Utilize loose `json:"utilization"`
	} `json:"sgpu_info"`
}

// loose is a number that may be written as a text, with a unit after it.
// Anything else is no number and no error: this is shown, not acted upon.
type loose struct {
	value float64
	known bool
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *loose) UnmarshalJSON(text []byte) error {
	word := strings.Trim(string(text), `" `)
	if end := strings.IndexFunc(word, func(r rune) bool { return !strings.ContainsRune("+-.0123456789eE", r) }); end >= 0 {
		word = word[:end]
	}
	v, err := strconv.ParseFloat(word, 64)
	if err == nil && !math.IsInf(v, 0) && math.Abs(v) <= 1e15 {
		*l = loose{value: v, known: true}
	}
	return nil
}

func (l loose) pointer() *float64 {
	if !l.known {
		return nil
	}
	return &l.value
}

// parseJSON reads mx-smi -j. The version line that stands before the document
// in some versions is skipped; what comes after the document does not matter.
func parseJSON(text []byte) (*jsonReport, error) {
	start := bytes.IndexByte(text, '{')
	if start < 0 {
		return nil, errors.New("no JSON in it")
	}
	fields, err := objectFields(text[start:])
	if err != nil {
		return nil, err
	}
	out := &jsonReport{cards: map[string]*jsonCard{}}
	attached := loose{}
	for _, f := range fields {
		switch key := strings.ToLower(f.key); {
		case f.key == "driver_version":
			err = json.Unmarshal(f.value, &out.driver)
		case f.key == "maca_version":
			err = json.Unmarshal(f.value, &out.maca)
		case f.key == "attached_gpus":
			err = json.Unmarshal(f.value, &attached)
		case bdfPattern.MatchString(key):
			if out.cards[key] != nil {
				return nil, fmt.Errorf("card %s is listed twice", key)
			}
			out.cards[key] = &jsonCard{}
			err = json.Unmarshal(f.value, out.cards[key])
		}
		if err != nil {
			return nil, fmt.Errorf("%.60q: %w", f.key, err)
		}
		if len(out.cards) > gpu.MaxCards {
			return nil, fmt.Errorf("more than the %d cards that a node may hold", gpu.MaxCards)
		}
	}
	if attached.known && int(attached.value) != len(out.cards) {
		return nil, fmt.Errorf("attached_gpus is %v, but %d cards are listed", attached.value, len(out.cards))
	}
	return out, nil
}

// field is one field of a JSON object; a map would hide that a key is there
// twice.
type field struct {
	key   string
	value json.RawMessage
}

func objectFields(text []byte) ([]field, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	if _, err := decoder.Token(); err != nil {
		return nil, err
	}
	var fields []field
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		key, ok := token.(string)
		if !ok {
			return nil, fmt.Errorf("%v is no name of a field", token)
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, fmt.Errorf("%.60q: %w", key, err)
		}
		fields = append(fields, field{key, value})
	}
	_, err := decoder.Token()
	return fields, err
}

// apply adds what the report says of a card.
func (j *jsonCard) apply(c *Card) {
	c.Figures.BIOS = printable(j.BIOS)
	if reason := printable(j.Unavailable); reason != "" {
		c.Vitals.Available, c.Vitals.Reason = new(false), reason
	}
	c.Figures.HotspotCelsius, c.Figures.UsagePercent = j.Hotspot.pointer(), j.Utilization.pointer()
	if len(j.Board.Power) > 0 {
		var watt float64
		for _, way := range j.Board.Power {
			watt += way.value
		}
		c.Figures.PowerMilliwatt = new(int64(math.Round(watt * 1000)))
	}
	for i := range c.Figures.Slices {
		slice := &c.Figures.Slices[i]
		for _, s := range j.Slices {
			if !s.ID.known || int(s.ID.value) != slice.ID {
				continue
			}
			slice.Minor, slice.UsagePercent = int(s.Minor.value), s.Utilize.pointer()
			if s.Used.known {
				slice.MemoryUsed = new(gpu.MiB(s.Used.value))
			}
		}
	}
}

// sortedCards returns the addresses of the report's cards.
func (j *jsonReport) sortedCards() []string { return slices.Sorted(maps.Keys(j.cards)) }
