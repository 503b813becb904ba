package discover

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// What mx-smi prints is read strictly: it is made for people and changes from
// version to version, and a line that is not understood may be a card.

const (
	bannerPrefix = "mx-smi"
	attachedKey  = "Attached GPUs"
	endOfLog     = "End of Log"
)

// headerPattern is the line that starts a card's part of a log.
var headerPattern = regexp.MustCompile(`^GPU#(\d{1,4})\s+\S.*\S\s+([0-9a-fA-F:.]{7,20})$`)

// logCard is one card's part of what a --show command prints.
type logCard struct {
	number  int
	bdf     string
	entries []logEntry
}

// logEntry is one line of it: "vram total : 67108864 KB".
type logEntry struct {
	key, value string
	line       int
}

// lineError is an error in a line of an output, with the line in it.
func lineError(number int, line, why string) error {
	return fmt.Errorf("line %d, %.120q: %s", number, strings.TrimSpace(line), why)
}

// eachLine calls f with the number and the text of each line. The last line must
// be complete: an output that ends in the middle of one was cut off.
func eachLine(text []byte, f func(number int, line string) error) error {
	if len(text) == 0 {
		return errors.New("it printed nothing")
	}
	lines := strings.Split(string(text), "\n")
	last := len(lines) - 1
	if lines[last] != "" {
		return lineError(last+1, lines[last], "the output ends in the middle of a line")
	}
	for i, line := range lines[:last] {
		if err := f(i+1, strings.TrimSpace(line)); err != nil {
			return lineError(i+1, line, err.Error())
		}
	}
	return nil
}

// keyValue splits a line at the colon that ends its key. Keys have no colon;
// values may.
func keyValue(line string) (key, value string, ok bool) {
	key, value, ok = strings.Cut(line, ":")
	return strings.TrimSpace(key), strings.TrimSpace(value), ok
}

// afterVersion is eachLine for an output that starts with the version, which it
// returns: "mx-smi  version: 2.2.12".
func afterVersion(text []byte, f func(number int, line string) error) (version string, err error) {
	err = eachLine(text, func(number int, line string) error {
		switch key, value, _ := keyValue(line); {
		case version != "":
			return f(number, line)
		case line == "":
		case strings.Join(strings.Fields(key), " ") != bannerPrefix+" version" || value == "":
			return errors.New("want the version first, like mx-smi  version: 2.2.12")
		default:
			version = printable(value)
		}
		return nil
	})
	if err == nil && version == "" {
		err = errors.New("it printed nothing")
	}
	return version, err
}

// attachedCards reads the number of cards that an output announces.
func attachedCards(value string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 || n > gpu.MaxCards {
		return 0, fmt.Errorf("want the number of cards: a node may hold %d cards", gpu.MaxCards)
	}
	return n, nil
}

// parseLog reads what a --show command prints: a banner with the version, the
// number of cards, a part for each, and a closing line.
func parseLog(text []byte) (version string, cards []logCard, err error) {
	p := logParser{attached: -1}
	version, err = afterVersion(text, p.line)
	switch {
	case err != nil:
	case p.attached < 0:
		err = fmt.Errorf("no line %q: the output is cut off", attachedKey)
	case !p.ended:
		err = fmt.Errorf("no line %q: the output is cut off after %d of %d cards", endOfLog, len(p.cards), p.attached)
	case len(p.cards) != p.attached:
		err = fmt.Errorf("%s is %d, but %d are listed", attachedKey, p.attached, len(p.cards))
	}
	return version, p.cards, err
}

// logParser goes through the lines of a log.
type logParser struct {
	attached int
	cards    []logCard
	ended    bool
}

func (p *logParser) line(number int, line string) (err error) {
	key, value, pair := keyValue(line)
	switch {
	case line == "" || p.ended || strings.HasPrefix(line, "==="):
	case strings.EqualFold(strings.Trim(line, "=- "), endOfLog):
		p.ended = true
	case strings.HasPrefix(line, "GPU#"):
		return p.card(line)
	case key == attachedKey && p.attached >= 0:
		return errors.New("the number of cards was given before")
	case key == attachedKey:
		p.attached, err = attachedCards(value)
		return err
	case p.attached < 0: // the banner
	case len(p.cards) == 0:
		return errors.New("want a card like GPU#0  MXC500  0000:37:00.0")
	case pair: // other lines are titles of sections
		card := &p.cards[len(p.cards)-1]
		card.entries = append(card.entries, logEntry{key: key, value: value, line: number})
	}
	return nil
}

func (p *logParser) card(line string) error {
	if p.attached < 0 {
		return errors.New("a card before the number of cards")
	}
	match := headerPattern.FindStringSubmatch(line)
	if match == nil {
		return errors.New("want a card like GPU#0  MXC500  0000:37:00.0")
	}
	card := logCard{number: atoi(match[1]), bdf: strings.ToLower(match[2])}
	if !bdfPattern.MatchString(card.bdf) {
		return errors.New("its PCI address is not one like 0000:0e:00.0")
	}
	for i := range p.cards {
		if p.cards[i].number == card.number || p.cards[i].bdf == card.bdf {
			return errors.New("the card was listed before")
		}
	}
	p.cards = append(p.cards, card)
	return nil
}

// value returns the value of a key, in whatever section.
func (c *logCard) value(key string) (logEntry, bool) {
	for _, e := range c.entries {
		if e.key == key {
			return e, true
		}
	}
	return logEntry{}, false
}

// amount reads a number with a unit after it, "67108864 KB".
func (c *logCard) amount(e logEntry, unit string) (float64, error) {
	number, rest, _ := strings.Cut(e.value, " ")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || strings.TrimSpace(rest) != unit || !(v >= -1e15 && v <= 1e15) {
		return 0, fmt.Errorf("GPU#%d: %w", c.number, lineError(e.line, e.key+" : "+e.value, strings.TrimSpace("want a number and "+unit)))
	}
	return v, nil
}

// count reads a number that counts something and must be there.
func (c *logCard) count(key, unit string) (int64, error) {
	e, ok := c.value(key)
	if !ok {
		return 0, fmt.Errorf("GPU#%d: no line %q", c.number, key)
	}
	v, err := c.amount(e, unit)
	if err == nil && (v < 0 || v != math.Trunc(v)) {
		err = fmt.Errorf("GPU#%d: %w", c.number, lineError(e.line, e.key+" : "+e.value, "want a whole number"))
	}
	return int64(v), err
}

// atoi reads digits that a pattern has checked.
func atoi(digits string) int {
	n, err := strconv.Atoi(digits)
	if err != nil {
		return -1
	}
	return n
}
