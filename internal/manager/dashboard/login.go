package dashboard

import (
	"errors"
	"net/http"
)

var (
	errExpired   = errors.New("login expired: log in again")
	errLongToken = errors.New("token too long for a cookie: use a token of a service account (kubectl create token), or a proxy that sends the header Authorization")
)

// login takes a token from the form, and keeps a valid one in a cookie.
func (s *server) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	token := r.PostFormValue("token")
	if len(token) > longestToken {
		s.askToLogIn(w, errLongToken)
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
	p := s.problemOf(w, err)
	var form struct{ Problem *problem }
	if !errors.Is(err, errNoToken) { // the form has it
		form.Problem = p
	}
	s.assets.serveTemplate(w, p.status, loginPage, form)
}
