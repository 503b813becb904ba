package fake

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// Slice is a slice as the fake library keeps it.
type Slice struct {
	Card        int
	ID          int
	MiB         int
	Compute     int
	Minor       int
	UUID, Alias string
}

// Read reads a configuration that [Machine.Write] wrote, and the slices that
// the fake library made since.
func Read(path string) (*Machine, []Slice, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	m, state := &Machine{}, ""
	for line := range strings.Lines(string(text)) {
		key, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		rest = unescape(rest)
		switch key {
		case "smi":
			m.SMI = rest
		case "driver":
			m.Driver = rest
		case "maca":
			m.MACA = rest
		case "state":
			state = rest
		case "card":
			err = m.readCard(rest)
		case "link":
			l, down := Link{}, 0
			_, err = fmt.Sscan(rest, &l.A, &l.APort, &l.B, &l.BPort, &down)
			l.Down = down != 0
			m.Links = append(m.Links, l)
		case "fault":
			f, card := Fault{}, 0
			_, err = fmt.Sscan(rest, &f.Kind, &f.Function, &f.Code, &card)
			f.Function = strings.ReplaceAll(f.Function, "+", " ")
			m.Faults = append(m.Faults, f)
		case "inuse":
			var s [2]int
			_, err = fmt.Sscan(rest, &s[0], &s[1])
			m.InUse = append(m.InUse, s)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %q: %w", path, line, err)
		}
	}
	slices, err := m.readSlices(state)
	return m, slices, err
}

func (m *Machine) readCard(rest string) error {
	var n int
	var key string
	if _, err := fmt.Sscan(rest, &n, &key); err != nil {
		return err
	}
	value := strings.TrimPrefix(rest, strconv.Itoa(n)+" "+key+" ")
	if n < 0 || n > 1024 {
		return errors.New("too many cards")
	}
	for len(m.Cards) <= n {
		m.Cards = append(m.Cards, Card{})
	}
	c := &m.Cards[n]
	for name, field := range map[string]*string{"bdf": &c.BDF, "uuid": &c.UUID, "model": &c.Model, "bios": &c.BIOS, "switch": &c.Switch, "reason": &c.Reason} {
		if key == name {
			*field = value
			return nil
		}
	}
	if key == "ecc" {
		_, err := fmt.Sscan(value, &c.ECC[0], &c.ECC[1], &c.ECC[2], &c.ECC[3], &c.ECC[4])
		return err
	}
	v, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return err
	}
	c.set(key, v)
	return nil
}

func (c *Card) set(key string, v int64) {
	switch key {
	case "memory":
		c.MemoryKiB = v
	case "used":
		c.UsedKiB = v
	case "numa":
		c.NUMA = int(v)
	case "drmcard":
		c.DRMCard = int(v)
	case "render":
		c.Render = int(v)
	case "lost":
		c.Lost = v != 0
	case "limited":
		c.Limited = v != 0
	case "mode":
		c.Physical = v == 1
	case "physical":
		if v >= 0 {
			c.VirtualOf = new(int(v))
		}
	case "sgpu":
		c.SGPU = v != 0
	case "temperature":
		c.CentiCelsius = int(v)
	case "power":
		c.Milliwatt = int(v)
	case "usage":
		c.Usage = int(v)
	}
}

func (m *Machine) readSlices(path string) ([]Slice, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var slices []Slice
	scanner := bufio.NewScanner(f)
	for scanner.Scan() {
		fields := strings.Fields(scanner.Text())
		if len(fields) < 8 || fields[0] != "slice" {
			continue
		}
		s := Slice{Card: -1, UUID: fields[7]}
		for i := range m.Cards {
			if m.Cards[i].BDF == fields[1] {
				s.Card = i
			}
		}
		for i, to := range []*int{&s.ID, &s.MiB, &s.Compute, &s.Minor} {
			if *to, err = strconv.Atoi(fields[2+i]); err != nil {
				return nil, err
			}
		}
		if len(fields) > 8 {
			s.Alias = fields[8]
		}
		slices = append(slices, s)
	}
	return slices, scanner.Err()
}

func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if strings.HasPrefix(s[i:], `\x`) && i+4 <= len(s) {
			if v, err := strconv.ParseUint(s[i+2:i+4], 16, 8); err == nil {
				b.WriteByte(byte(v))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
