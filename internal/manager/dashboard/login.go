package dashboard

import (
	"errors"
	"net/http"
)

var errLongToken = errors.New("the token is too long for a cookie: use one of a service account (kubectl create token), or a proxy that sends the header Authorization")

// login takes a token from the form, and keeps a valid one in a cookie.
func (s *server) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	token := r.PostFormValue("token")
	if len(token) > longestToken {
		s.fail(w, errLongToken)
		return
	}
	kept := &http.Cookie{Name: cookie, Value: token, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode}
	try := r.Clone(r.Context())
	try.Header = http.Header{}
	try.AddCookie(kept)
	if _, err := s.reviews.who(try); err != nil {
		s.askToLogIn(w, err)
		return
	}
	http.SetCookie(w, kept)
	http.Redirect(w, r, "./", http.StatusSeeOther)
}

// logout makes the browser forget the token.
func (s *server) logout(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, &http.Cookie{Name: cookie, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode, MaxAge: -1})
	http.Redirect(w, r, "./", http.StatusSeeOther)
}

// askToLogIn rejects the request with a page that asks for a token.
func (s *server) askToLogIn(w http.ResponseWriter, err error) {
	status, text := s.statusOf(w, err)
	if errors.Is(err, errNoToken) {
		text = "" // the form has it
	}
	s.assets.serveLogin(w, status, text)
}
