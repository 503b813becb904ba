package discover

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

var (
	listPattern = regexp.MustCompile(`^GPU#(\d{1,4})\s+(\S|\S.*?\S)\s+([0-9a-fA-F:.]{7,20})\s+(Not Available|Available)\s*\((.*)\)$`)
	// A slice's line is indented under its card's and ends with its alias.
	slicePattern = regexp.MustCompile(`^SGPU#(\d{1,4})\s+(\d{1,3})%\s+(\d{1,9}(?:\.\d{1,9})?)\s*([kmgKMG][bB])\s+(Not Available|Available)\s*\((.*?)\)\s*(.*)$`)
)

const uuidPrefix = "UUID:"

// parseList reads mx-smi -L: a line for each card, available or not, and one
// under it for each of its slices.
func parseList(text []byte) (cards []Card, err error) {
	err = eachLine(text, func(_ int, line string) (err error) {
		switch {
		case line == "":
		case strings.HasPrefix(line, bannerPrefix) && len(cards) == 0:
			// Some versions print theirs here too.
		case strings.HasPrefix(line, "SGPU#") && len(cards) == 0:
			return errors.New("a slice before its card")
		case strings.HasPrefix(line, "SGPU#"):
			return addSlice(&cards[len(cards)-1], line)
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

func addSlice(c *Card, line string) error {
	match := slicePattern.FindStringSubmatch(line)
	if match == nil {
		return errors.New("want a slice like SGPU#3   25% 15.625gb   Available (UUID: GPU-…) alias")
	}
	id, percent := atoi(match[1]), atoi(match[2])
	memory, err := sizeMiB(match[3], match[4])
	switch {
	case err != nil:
		return err
	case id >= gpu.MaxSlices:
		return fmt.Errorf("slices are numbered 0 to %d", gpu.MaxSlices-1)
	case percent > int(gpu.FullCompute):
		return fmt.Errorf("%d percent of a card", percent)
	case slices.ContainsFunc(c.Figures.Slices, func(s Slice) bool { return s.ID == id }):
		return errors.New("the slice was listed before")
	}
	uuid, _ := strings.CutPrefix(strings.TrimSpace(match[6]), uuidPrefix)
	c.Sliced = new(true)
	c.Figures.Slices = append(c.Figures.Slices, Slice{
		ID: id, UUID: printable(uuid), Alias: printable(match[7]), Memory: memory, ComputePercent: gpu.Percent(percent),
	})
	return nil
}

// sizeMiB reads "15.625" and "gb".
func sizeMiB(amount, unit string) (gpu.MiB, error) {
	v, err := strconv.ParseFloat(amount, 64)
	if err != nil {
		return 0, err
	}
	switch strings.ToLower(unit) {
	case "gb":
		v *= 1024
	case "kb":
		v /= 1024
	}
	return gpu.MiB(v), nil
}
