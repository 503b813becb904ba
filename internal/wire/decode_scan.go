package wire

import "strings"

// scanVendor reads the vendor's format the way everyone writes it: nothing
// between the tokens, nothing but the three fields, plain names and numbers.
// What looks in any way different is not plain, and the JSON decoder's business.
// Every pod with cards is read again whenever its node is looked at, and this is
// ten times as fast.
func scanVendor(text string) (lists [][]vendorShare, plain bool) {
	s := scanner{text}
	s.list(func() {
		var shares []vendorShare
		s.list(func() { shares = append(shares, s.share()) })
		lists = append(lists, shares)
	})
	return lists, s.rest == ""
}

// scanner goes through a text. It comes to its end only if all was plain: what
// is not leaves it stuck, or with a rest that no text ends in.
type scanner struct{ rest string }

// stuck is a rest that nothing follows from.
const stuck = "\x00"

// take takes the token if it comes next.
func (s *scanner) take(token string) (ok bool) {
	s.rest, ok = strings.CutPrefix(s.rest, token)
	return ok
}

// must takes the token, or is stuck.
func (s *scanner) must(token string) {
	if !s.take(token) {
		s.rest = stuck
	}
}

// list goes through a list of what next reads.
func (s *scanner) list(next func()) {
	s.must("[")
	if s.take("]") {
		return
	}
	next()
	for s.take(",") {
		next()
	}
	s.must("]")
}

func (s *scanner) share() (v vendorShare) {
	s.must(`{"uuid":"`)
	v.UUID = s.name()
	if s.take(`,"compute":`) {
		v.Compute = int32(s.number())
	}
	if s.take(`,"vRam":`) {
		v.VRam = s.number()
	}
	s.must("}")
	return v
}

// name takes a string up to and with its closing quote.
func (s *scanner) name() string {
	for i := range len(s.rest) {
		switch c := s.rest[i]; {
		case c == '"':
			name := s.rest[:i]
			s.rest = s.rest[i+1:]
			return name
		case c < ' ' || c > '~' || c == '\\':
			s.rest = stuck
			return ""
		}
	}
	s.rest = stuck
	return ""
}

// number takes a number of at most nine digits, which fits everywhere.
func (s *scanner) number() (v int64) {
	i := 0
	for ; i < len(s.rest) && s.rest[i] >= '0' && s.rest[i] <= '9'; i++ {
		v = v*10 + int64(s.rest[i]-'0')
		if i == 9 {
			break
		}
	}
	if i == 0 || i > 9 || s.rest[0] == '0' && i > 1 {
		s.rest = stuck
		return 0
	}
	s.rest = s.rest[i:]
	return v
}
