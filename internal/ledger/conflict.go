package ledger

// Conflict is a set of reasons for which shares may not be on one card together.
type Conflict uint8

// The conflicts.
const (
	// ClassConflict: a pod with a class and one without, or an offline pod that
	// joins an online one.
	ClassConflict Conflict = 1 << iota
	// QoSConflict: slices of different QoS classes.
	QoSConflict
	// ExclusiveConflict: one of them is to be alone on the card.
	ExclusiveConflict
)

// Conflict returns why a share may not join what is on the card.
//
//	on the card          may join
//	nothing              every share
//	an exclusive share   none
//	pods without class   shares without class, of the same QoS
//	offline pods         offline shares of the same QoS, online shares
//	online pods, too     online shares
//
// Exclusive shares, online shares and seats have no QoS.
func (u *Usage) Conflict(share *Usage) Conflict {
	var c Conflict
	if u.Idle() {
		return c
	}
	if u.classed() != share.classed() || share.Offline > 0 && u.Online > 0 {
		c |= ClassConflict
	}
	if share.QoS != 0 && u.QoS&^share.QoS != 0 {
		c |= QoSConflict
	}
	if u.Exclusive || share.Exclusive {
		c |= ExclusiveConflict
	}
	return c
}

func (u *Usage) classed() bool { return u.Online+u.Offline > 0 }
