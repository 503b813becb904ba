package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const slow = "1e-999999999"

// decoders decode the three kinds, and forget what they decoded.
var decoders = map[string]func([]byte) error{
	"Pod":    func(text []byte) error { _, err := Decode[corev1.Pod](text); return err },
	"Node":   func(text []byte) error { _, err := Decode[corev1.Node](text); return err },
	"Device": func(text []byte) error { _, err := DecodeDevice(text); return err },
}

func TestSlowQuantitiesAreRejected(t *testing.T) {
	container := func(limits string) string {
		return `{"spec":{"containers":[{"name":"c","resources":{"limits":` + limits + `}}]}}`
	}
	cases := map[string]struct{ kind, object string }{
		"a text":                          {"Pod", container(`{"cpu":"1e-999999999"}`)},
		"a number":                        {"Pod", container(`{"cpu":1e-999999999}`)},
		"behind a blank":                  {"Pod", container(`{"cpu":" 1e-999999999"}`)},
		"before a blank":                  {"Pod", container(`{"cpu":"1e-999999999  "}`)},
		"of a resource called metadata":   {"Pod", container(`{"metadata":"1e-999999999"}`)},
		"in capitals":                     {"Pod", strings.ToUpper(container(`{"cpu":"1e-999999999"}`))},
		"then written again":              {"Pod", container(`{"cpu":"1e-999999999","cpu":"1"}`)},
		"then all of it written again":    {"Pod", `{"spec":{"overhead":{"cpu":"1e-999999999"}},"spec":{"overhead":{"cpu":"1"}}}`},
		"with a plus":                     {"Pod", container(`{"cpu":"+.5E+999999999"}`)},
		"with zeros before the exponent":  {"Pod", container(`{"cpu":"1e-00000000000999999999"}`)},
		"with more digits than any has":   {"Pod", container(`{"cpu":"` + strings.Repeat("7", 1<<20) + `"}`)},
		"of an init container":            {"Pod", `{"spec":{"initContainers":[{"resources":{"requests":{"cpu":"1e-999999999"}}}]}}`},
		"a divisor":                       {"Pod", `{"spec":{"containers":[{"env":[{"valueFrom":{"resourceFieldRef":{"divisor":"1e-999999999"}}}]}]}}`},
		"a size":                          {"Pod", `{"spec":{"volumes":[{"emptyDir":{"sizeLimit":"1e-999999999"}}]}}`},
		"a claim":                         {"Pod", `{"spec":{"volumes":[{"ephemeral":{"volumeClaimTemplate":{"spec":{"resources":{"requests":{"storage":"1e-999999999"}}}}}}]}}`},
		"of a node":                       {"Node", `{"status":{"capacity":{"cpu":"1e-999999999"}}}`},
		"of a Device":                     {"Device", `{"spec":{"devices":[{"resources":{"koordinator.sh/gpu-memory":"1e-999999999"}}]}}`},
		"of a Device, called metadata":    {"Device", `{"spec":{"devices":[{"resources":{"metadata":" 1e-999999999"}}]}}`},
		"of a Device, then written again": {"Device", `{"spec":{"devices":[{"resources":{"a":"1e-999999999","a":"1"}}]}}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := decoders[tc.kind]([]byte(tc.object))
			if err == nil || !strings.Contains(err.Error(), "is no amount of anything") {
				t.Errorf("err = %v, want that it is no amount of anything", err)
			}
		})
	}
}

func TestHarmlessTextsAreRead(t *testing.T) {
	cases := map[string]struct{ kind, object string }{
		"a label":                     {"Pod", `{"metadata":{"labels":{"limits":"1e-999999999"}}}`},
		"an annotation":               {"Pod", `{"metadata":{"annotations":{"resources":"1e-999999999"}}}`},
		"an environment":              {"Pod", `{"spec":{"containers":[{"env":[{"name":"limits","value":"1e-999999999"}],"args":["1e-999999999"],"image":"a:5e10987654"}]}}`},
		"a field that is not there":   {"Pod", `{"spec":{"nothing":{"limits":{"cpu":"1e-999999999"}},"containers":[{"limits":{"cpu":"1e-999999999"}}]}}`},
		"an ordinary exponent":        {"Pod", `{"spec":{"overhead":{"cpu":"1e3","memory":"1E6","x":12e-3,"y":"1e007"}}}`},
		"units":                       {"Pod", `{"spec":{"overhead":{"a":"2Ei","b":"3E","c":"4Gi","d":"5m"}}}`},
		"a label of a node":           {"Node", `{"metadata":{"labels":{"capacity":"1e-999999999"}},"status":{"capacity":{"cpu":"8"}}}`},
		"a label of a device":         {"Device", `{"spec":{"devices":[{"labels":{"resources":"1e-999999999"},"id":"1e-999999999"}]}}`},
		"a condition's message":       {"Node", `{"status":{"conditions":[{"type":"Ready","status":"True","message":"1e-999999999"}]}}`},
		"long numbers in annotations": {"Pod", `{"metadata":{"annotations":{"a":"` + strings.Repeat("7", 500) + `"}}}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if err := decoders[tc.kind]([]byte(tc.object)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestBadQuantitiesAreLocated: a text that is no quantity is reported with its
// place, also behind texts that only look like quantities.
func TestBadQuantitiesAreLocated(t *testing.T) {
	text := `{"spec":{"nothing":{"limits":{"cpu":"1e-999999999"}},"containers":[{"resources":{"limits":{"cpu":"1"}}},{"resources":{"limits":{"cpu":"two"}}}]}}`
	want := `spec.containers[1].resources.limits[cpu]: "two" is no quantity: write a number, or one with a unit such as 512Mi or 4Gi`
	if _, err := Decode[corev1.Pod]([]byte(text)); err == nil || err.Error() != want {
		t.Errorf("err = %v, want %s", err, want)
	}
}

// FuzzQuantity compares the guard of one quantity with what reading it takes.
func FuzzQuantity(f *testing.F) {
	for _, text := range []string{"1", "4Gi", "1e3", "1e99", "1e100", " 1e-999999999", "e999", "1e0000001", "2Ei", "-.5E+12", "+1.5e-1000", "1e1000x", "1.e2", strings.Repeat("9", 128), strings.Repeat("9", 129)} {
		f.Add(text)
	}
	grammar := regexp.MustCompile(`^([+-]?[0-9.]*)[eE]([+-]?\d+)$`)
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<16 {
			return
		}
		trimmed := strings.TrimSpace(text)
		if checkQuantity(text) == nil {
			start := time.Now()
			if q, err := resource.ParseQuantity(trimmed); err == nil {
				_, _ = q.String(), q.Value()
			}
			if took := time.Since(start); took > time.Second {
				t.Errorf("%q passes, and takes %v", text, took)
			}
			return
		}
		parts := grammar.FindStringSubmatch(trimmed)
		if parts == nil {
			if digits := len(regexp.MustCompile(`[0-9.]+`).FindString(trimmed)); digits > maxQuantityDigits {
				return // too long, whatever follows
			}
			if _, err := resource.ParseQuantity(trimmed); err == nil {
				t.Errorf("%q is rejected, and harmless", text)
			}
			return
		}
		exponent, _ := new(big.Int).SetString(parts[2], 10)
		if exponent.CmpAbs(big.NewInt(99)) <= 0 && len(parts[1]) <= maxQuantityDigits && len(parts[2]) <= maxQuantityDigits {
			if _, err := resource.ParseQuantity(trimmed); err == nil {
				t.Errorf("%q is rejected, and harmless", text)
			}
		}
	})
}

// FuzzQuantityPlaces compares the places that are guarded with those that the
// decoder reads as quantities: each value of an object in turn is replaced by
// something that is no quantity, which only the decoder of one minds, and by
// something slow, which the guard must reject there and nowhere else.
func FuzzQuantityPlaces(f *testing.F) {
	f.Add("Pod", `{"metadata":{"name":"p","labels":{"limits":"1"}},"spec":{"containers":[{"name":"c","image":"i","args":["1"],"env":[{"name":"X","value":"1"},{"name":"Y","valueFrom":{"resourceFieldRef":{"resource":"limits.cpu","divisor":"1"}}}],"resources":{"limits":{"metadata":"1","cpu":2},"requests":{"cpu":"1"}}}],"volumes":[{"name":"v","emptyDir":{"sizeLimit":"1Gi"}}],"overhead":{"cpu":"1"}}}`)
	f.Add("Pod", `{"SPEC":{"Containers":[{"Resources":{"LIMITS":{"cpu":"1","cpu":"2"}}}],"containers":[]},"status":{"containerStatuses":[{"allocatedResources":{"cpu":"1"},"resources":{"limits":{"cpu":"1"}}}],"resize":"x"}}`)
	f.Add("Pod", `{"spec":{"resources":{"limits":{"cpu":"1"}},"volumes":[{"ephemeral":{"volumeClaimTemplate":{"metadata":{"labels":{"limits":"1"}},"spec":{"resources":{"requests":{"storage":"1"}}}}}}],"limits":{"cpu":"1"},"unknown":{"limits":{"cpu":"1"}}}}`)
	f.Add("Node", `{"metadata":{"name":"n","annotations":{"capacity":"1"}},"status":{"capacity":{"cpu":"1"},"allocatable":{"cpu":1},"conditions":[{"type":"Ready","message":"1"}],"nodeInfo":{"kernelVersion":"1"}}}`)
	f.Add("Device", `{"metadata":{"name":"n"},"spec":{"devices":[{"type":"gpu","id":"1","labels":{"a":"1"},"resources":{"metadata":"1","b":2}}]},"status":{"allocations":[{"entries":[{"name":"1"}]}]}}`)
	f.Fuzz(func(t *testing.T, kind, text string) {
		decode, ok := decoders[kind]
		if !ok || len(text) > 4096 || decode([]byte(text)) != nil {
			return
		}
		for _, at := range scalars(text) {
			with := func(value string) []byte { return []byte(text[:at[0]] + value + text[at[1]:]) }
			err := decode(with(`"!"`))
			read := err != nil && strings.Contains(err.Error(), "is no quantity")
			for _, value := range []string{`"` + slow + `"`, `" ` + slow + ` "`} {
				err = decode(with(value))
				if guarded := err != nil && strings.Contains(err.Error(), "is no amount"); guarded != read {
					t.Fatalf("%s: read as a quantity: %v, guarded: %v (%v)\n%s", text[at[0]:at[1]], read, guarded, err, with(value))
				}
			}
		}
	})
}

// scalars returns where the texts and numbers of the JSON stand that are no
// names of fields.
func scalars(text string) [][2]int {
	var found [][2]int
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var open []bool // of an object
	name := false   // what comes next is a name
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) || err != nil {
			return found
		}
		end := int(dec.InputOffset())
		scalar := false
		switch token := token.(type) {
		case json.Delim:
			if token == '{' || token == '[' {
				open = append(open, token == '{')
				name = token == '{'
				continue
			}
			open = open[:len(open)-1]
		case string:
			if name {
				name = false
				continue
			}
			scalar = true
		case json.Number:
			scalar = true
		}
		if scalar {
			raw := strings.TrimRight(text[:end], " \t\r\n")
			start := len(raw)
			if n, ok := token.(json.Number); ok {
				start -= len(n.String())
			} else {
				for start--; start > 0; {
					start--
					if raw[start] == '"' && !escaped(raw, start) {
						break
					}
				}
			}
			found = append(found, [2]int{start, len(raw)})
		}
		name = len(open) > 0 && open[len(open)-1]
	}
}

// escaped reports whether the character at the position stands behind an odd
// number of backslashes.
func escaped(text string, at int) bool {
	n := 0
	for at > n && text[at-n-1] == '\\' {
		n++
	}
	return n%2 == 1
}

// TestScalars keeps the helper honest.
func TestScalars(t *testing.T) {
	text := `{"a" : "x\"y", "b":[1, -2.5e3 ,true,null,{"c":"\\"}], "d":{}}`
	var got []string
	for _, at := range scalars(text) {
		got = append(got, text[at[0]:at[1]])
	}
	if want := []string{`"x\"y"`, `1`, `-2.5e3`, `"\\"`}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("scalars = %v, want %v", got, want)
	}
	if !bytes.Contains([]byte(text), []byte(got[0])) {
		t.Error("not a part of the text")
	}
}
