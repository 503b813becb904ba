package discover

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

var listPattern = regexp.MustCompile(`^GPU#(\d{1,4})\s+(\S|\S.*?\S)\s+([0-9a-fA-F:.]{7,20})\s+(Not Available|Available)\s*\((.*)\)$`)

const uuidPrefix = "UUID:"

// parseList reads mx-smi -L: a line for each card, available or not. The slices
// under it are the library's to report, since it alone makes them.
func parseList(text []byte) (cards []Card, err error) {
	err = eachLine(text, func(_ int, line string) (err error) {
		switch {
		case line == "", strings.HasPrefix(line, "SGPU#") && len(cards) > 0:
		case strings.HasPrefix(line, bannerPrefix) && len(cards) == 0:
			// Some versions print theirs here too.
		default:
			cards, err = addCard(cards, line)
		}
		return err
	})
	return cards, err
}

func addCard(cards []Card, line string) ([]Card, error) {
	match := listPattern.FindStringSubmatch(line)
	if match == nil {
		return nil, errors.New("want a card like GPU#0    MXC500      0000:37:00.0   Available (UUID: GPU-…)")
	}
	name, virtual := strings.CutSuffix(match[2], " VF")
	c := Card{Minor: atoi(match[1]), BDF: strings.ToLower(match[3]), Model: gpu.ModelName(name), Virtual: virtual}
	c.Vitals.Available = new(match[4] == "Available")
	uuid, isUUID := strings.CutPrefix(strings.TrimSpace(match[5]), uuidPrefix)
	switch {
	case !bdfPattern.MatchString(c.BDF):
		return nil, errors.New("its PCI address is not one like 0000:0e:00.0")
	case isUUID:
		c.UUID = strings.TrimSpace(uuid)
	case !c.Unavailable():
		return nil, errors.New("an available card without a uuid")
	default:
		c.Vitals.Reason = strings.TrimSpace(match[5])
	}
	for i := range cards {
		if cards[i].Minor == c.Minor || cards[i].BDF == c.BDF {
			return nil, errors.New("the card was listed before")
		}
	}
	if len(cards) == gpu.MaxCards {
		return nil, fmt.Errorf("more than the %d cards that a node may hold", gpu.MaxCards)
	}
	return append(cards, c), nil
}
