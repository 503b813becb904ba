package webhook

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/daybreak-gpu/daybreak/internal/manager/policy"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// FuzzHTTP: whatever is sent to the port, by whatever method, there is an
// answer, and a pod that can't be read is never let pass.
func FuzzHTTP(f *testing.F) {
	h, _ := newHandler()
	pod := string(encode(f, gputest.MakePod("p").App("sgpu: 1").Obj()))
	asked := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE","object":` + pod + `}}`
	for _, body := range []string{
		asked, "", "null", "[]", "{}", "\x00\xff", strings.Repeat("[", 10_000), strings.Replace(asked, pod, "null", 1), strings.Replace(asked, pod, "7", 1), strings.Replace(asked, pod, `{"spec":{"containers":7}}`, 1),
		strings.Replace(asked, "CREATE", "DELETE", 1), strings.Replace(asked, "v1", "v9", 1), strings.Replace(asked, "AdmissionReview", "Pod", 1), strings.Replace(asked, `"1"`, `"1e-999999999"`, 1),
		strings.Replace(asked, `"request"`, `"response"`, 1), asked + asked,
	} {
		f.Add(http.MethodPost, policy.Path, "application/json", body)
	}
	f.Add(http.MethodGet, policy.Path, "application/json", asked)
	f.Add(http.MethodPost, "/", "application/json", asked)
	f.Add(http.MethodPost, policy.PathPrivileged+"/../x", "text/plain", asked)
	f.Add("BREW", policy.Path, "application/json; charset=\x00", asked)
	f.Fuzz(func(t *testing.T, method, path, content, body string) {
		if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, " \x7f") || strings.ContainsFunc(path, func(r rune) bool { return r < ' ' }) {
			return // a server would not even call us
		}
		req, err := http.NewRequestWithContext(t.Context(), method, "http://webhook"+path, strings.NewReader(body))
		if err != nil {
			return
		}
		req.Header.Set("Content-Type", content)
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, req)
		if rec.Code != http.StatusOK {
			if rec.Code < 300 || rec.Code >= 500 {
				t.Fatalf("status %d", rec.Code)
			}
			return
		}
		var answer admissionv1.AdmissionReview
		if err := json.Unmarshal(rec.Body.Bytes(), &answer); err != nil || answer.Response == nil {
			t.Fatalf("answer %s: %v", rec.Body, err)
		}
		if r := answer.Response; !r.Allowed && (r.Result == nil || r.Result.Code < 400) {
			t.Fatalf("refused without a reason: %s", rec.Body)
		}
		if answer.Response.Allowed && (content != "application/json" || !strings.Contains(body, "request")) {
			t.Fatalf("let pass: %s %q %q", method, content, body)
		}
	})
}

// endlessReader never comes to an end, and counts.
type endlessReader struct{ read int64 }

func (e *endlessReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	e.read += int64(len(p))
	return len(p), nil
}

// TestHugeBody: a body without an end is read to a limit and refused.
func TestHugeBody(t *testing.T) {
	h, _ := newHandler()
	body := &endlessReader{}
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, policy.Path, io.NopCloser(body))
	req.Header.Set("Content-Type", "application/json")
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	if !bytes.Contains(rec.Body.Bytes(), []byte("too large")) || body.read > 8<<20 {
		t.Errorf("%d bytes were read: %s", body.read, rec.Body)
	}
}

// TestHugeExponents: a number that would take hours to read is rejected at once,
// also from a client that is not the API server.
func TestHugeExponents(t *testing.T) {
	h, _ := newHandler()
	for _, number := range []string{`"1e-999999999"`, `1e-999999999`, `"-.5E+999999999"`} {
		pod := []byte(`{"spec":{"containers":[{"name":"c","resources":{"limits":{"metax-tech.com/sgpu":` + number + `}}}]}}`)
		if r := review(t, h, policy.Path, pod); r.Allowed || !strings.Contains(r.Result.Message, "is no amount of anything") {
			t.Errorf("%s: %+v", number, r)
		}
	}
	shouted := []byte(`{"SPEC":{"CONTAINERS":[{"NAME":"c","RESOURCES":{"LIMITS":{"metax-tech.com/sgpu":"1e-999999999"}}}]}}`)
	if r := review(t, h, policy.Path, shouted); r.Allowed {
		t.Errorf("in capitals: %+v", r)
	}
	pod := []byte(`{"metadata":{"annotations":{"mine":"1e-999999999"}},"spec":{"containers":[{"name":"c","env":[{"name":"X","value":"1e-999999999"}]}]}}`)
	if r := review(t, h, policy.Path, pod); !r.Allowed {
		t.Errorf("what is no amount was refused: %+v", r.Result)
	}
}
