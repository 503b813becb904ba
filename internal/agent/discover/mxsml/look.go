package mxsml

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// restartInterval is how often the library is made to count the cards again
// while something is wrong: it walks over all of the hardware then.
const restartInterval = 30 * time.Second

// session is the library from its start on. Its exported methods are those that
// the agent calls with net/rpc; the first that finds a library loads it.
type session struct {
	path string
	lib  *library
	now  func() time.Time

	// called reports whether the library was ever started, ready whether it is.
	called, ready bool
	// wanted asks for a new count of the cards before the next look; counted is
	// when that was last done.
	wanted  bool
	counted time.Time
	// seen is the identity of each card by its id, which is valid until the
	// next count: a card that has stopped answering is still known by it.
	seen map[uint32]deviceInfo
}

func newSession(path string) *session {
	return &session{path: path, now: time.Now, seen: map[uint32]deviceInfo{}}
}

func (s *session) load() (err error) {
	if s.lib == nil {
		s.lib, err = load(s.path)
	}
	return err
}

// begin starts the library, or makes it count the cards again where that was
// asked for. It reports whether there are devices at all.
func (s *session) begin() (bool, error) {
	if s.ready && (!s.wanted || s.now().Sub(s.counted) < restartInterval) {
		return true, nil
	}
	start := s.lib.start
	if s.called {
		s.counted = s.now()
		if s.lib.startWithFlags != nil {
			start = func() uint32 { return s.lib.startWithFlags(1) }
		}
	}
	s.called, s.ready = true, false
	clear(s.seen)
	code := start()
	if code == noDevice {
		return false, nil
	}
	if err := s.lib.failure(code); err != nil {
		return false, fmt.Errorf("start the library: %w", err)
	}
	s.ready, s.wanted = true, false
	return true, nil
}

// Look asks the library for everything that it knows about all cards.
func (s *session) Look(refresh bool, out *discover.Snapshot) error {
	if err := s.load(); err != nil {
		return err
	}
	s.wanted = s.wanted || refresh
	*out = discover.Snapshot{Source: "mxsml " + s.lib.path, Cards: []discover.Card{}, Missing: s.lib.missing}
	some, err := s.begin()
	if err != nil || !some {
		return err
	}
	n := s.lib.count()
	if n > maxDevices {
		s.wanted = true
		return fmt.Errorf("mxSmlGetDeviceCount reports %d cards: no machine has more than %d, so the answer is rejected", n, maxDevices)
	}
	infos := make([]deviceInfo, n)
	var failures []error
	for id := range n {
		card, info, err := s.card(id)
		if err != nil {
			s.wanted = true
			failures = append(failures, fmt.Errorf("card %d: %w", id, err))
		}
		infos[id] = info
		out.Cards = append(out.Cards, card)
	}
	if n > 0 && len(failures) == int(n) {
		return fmt.Errorf("no card answers: %w", errors.Join(failures...))
	}
	s.applyPhysical(out)
	s.readLinks(out, infos)
	if s.lib.macaVersion != nil {
		out.MACA = readText(s.lib.macaVersion)
	}
	out.Driver, out.NoSlices = s.driver(n), s.noSlices(out.Cards)
	return nil
}

// card reads one card. A card that does not answer is an unavailable one: it
// must neither hide the others nor be left out.
func (s *session) card(id uint32) (discover.Card, deviceInfo, error) {
	card := discover.Card{Minor: int(id)}
	var info padded[deviceInfo]
	if err := s.call("mxSmlGetDeviceInfo", s.lib.info(id, &info.value)); err != nil {
		if known, ok := s.seen[id]; ok {
			card.UUID, card.BDF, card.Model = identity(known)
		}
		card.Vitals.Available, card.Vitals.Reason = new(false), err.Error()
		return card, deviceInfo{}, err
	}
	s.seen[id] = info.value
	card.UUID, card.BDF, card.Model = identity(info.value)
	card.Virtual = info.value.mode == modeVirtual
	s.readVitals(id, &card)
	if info.value.mode == modePhysical {
		card.Vitals.Available, card.Vitals.Reason = new(false), "the card is handed out as virtual functions"
	}
	var memory padded[memoryInfo]
	if err := s.call("mxSmlGetMemoryInfo", s.lib.memory(id, &memory.value)); err != nil {
		card.Vitals.Available, card.Vitals.Reason = new(false), err.Error()
		return card, info.value, err
	}
	total := memory.value.vramTotal
	card.Figures.MemoryTotalKiB, card.Figures.MemoryUsedKiB = &total, &memory.value.vramUsed
	card.Memory = gpu.MiB(total / 1024).RoundDown()
	s.readSlices(id, &card)
	s.readFigures(id, info.value.brand, &card)
	return card, info.value, nil
}

func identity(info deviceInfo) (uuid, bdf, model string) {
	name := strings.TrimSuffix(text(info.name[:]), " VF")
	return text(info.uuid[:]), strings.ToLower(text(info.bdf[:])), gpu.ModelName(name)
}

func (s *session) readVitals(id uint32, card *discover.Card) {
	v := &card.Vitals
	if state, ok := read(s.lib.state, id); ok {
		v.Available = new(state != 0)
	}
	if reason, ok := read(s.lib.unavailable, id); ok && reason.code != 0 {
		v.Available = new(false)
		v.Reason = cleanOr(text(reason.reason[:]), fmt.Sprintf("code %d", reason.code))
	}
	if e, ok := read(s.lib.ecc, id); ok {
		v.ECC = &discover.ECC{
			SRAMCorrectable: int64(e.sramCorrectable), SRAMUncorrectable: int64(e.sramUncorrectable),
			DRAMCorrectable: int64(e.dramCorrectable), DRAMUncorrectable: int64(e.dramUncorrectable),
			RetiredPages: int64(e.retiredPages),
		}
	}
}

func (s *session) readFigures(id, brand uint32, card *discover.Card) {
	f := &card.Figures
	unit := uint32(usageXCore)
	if brand == brandN {
		unit = usageDLA
	}
	if usage, ok := readPart(s.lib.usage, id, unit); ok {
		f.UsagePercent = new(float64(usage))
	}
	if temperature, ok := readPart(s.lib.temperature, id, sensorHotspot); ok {
		f.HotspotCelsius = new(float64(temperature) / temperatureScale)
	}
	if s.lib.boardPower != nil {
		var ways padded[[16]electricInfo]
		n := uint32(len(ways.value))
		if s.lib.boardPower(id, &n, &ways.value[0]) == success {
			var sum int64
			for _, way := range ways.value[:min(int(n), len(ways.value))] {
				sum += int64(way.power)
			}
			f.PowerMilliwatt = &sum
		}
	}
	f.BIOS = s.versionOf(id, versionBIOS)
}

// applyPhysical gives virtual functions the faults of their card.
func (s *session) applyPhysical(out *discover.Snapshot) {
	if s.lib.physicalCount == nil {
		return
	}
	n := s.lib.physicalCount()
	if n > maxPhysical {
		return
	}
	for id := firstPhysicalID + uint32(0); id < firstPhysicalID+n; id++ {
		var physical discover.Card
		s.readVitals(id, &physical)
		virtual, ok := read(s.lib.virtualDevices, id)
		if !physical.Unavailable() || !ok {
			continue
		}
		for i := range out.Cards {
			if c := &out.Cards[i]; c.Virtual && slices.Contains(virtual.list(), int32(c.Minor)) {
				c.Vitals.Available = new(false)
				c.Vitals.Reason = cmp.Or(c.Vitals.Reason, physical.Vitals.Reason, "its card is not available")
			}
		}
	}
}

// driver returns the driver's version from the first card that knows it.
func (s *session) driver(n uint32) string {
	for id := range n {
		if version := s.versionOf(id, versionDriver); version != "" {
			return version
		}
	}
	return ""
}

func (s *session) versionOf(id, unit uint32) string {
	if s.lib.version == nil {
		return ""
	}
	return readText(func(b *byte, size *uint32) uint32 { return s.lib.version(id, unit, b, size) })
}
