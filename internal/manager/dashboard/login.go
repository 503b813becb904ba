package dashboard

import (
	"context"
	"errors"
	"net/http"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
)

var (
	errExpired   = errors.New("login expired: log in again")
	errLongToken = errors.New("token too long for a cookie: use a token of a service account (kubectl create token), or a proxy that sends the header Authorization")
)

// chinese has the texts of errors that the form to log in shows.
var chinese = []struct {
	err  error
	text string
}{
	{errExpired, "登录已过期，请重新登录"},
	{errBadToken, "令牌无效或已过期"},
	{errForbidden, "没有访问权限：控制台要求对 nodes 和 devices." + v1alpha1.GroupVersion.Group + " 的 list 权限"},
	{errLongToken, "令牌过长，无法保存在 cookie 中：请使用服务账号的令牌（kubectl create token），或使用发送 Authorization 请求头的反向代理"},
	{errBusy, "来自该地址的未知令牌过多，请稍后重试"},
	{context.DeadlineExceeded, "API server 没有响应，请重试"},
	{cluster.ErrStarting, "尚未读取集群，请稍后重试"},
}

// problem is an error on the form to log in, in both languages.
type problem struct{ English, Chinese string }

// problemOf returns the error for the form, with its text in English.
func problemOf(err error, text string) *problem {
	for _, c := range chinese {
		if errors.Is(err, c.err) {
			return &problem{English: text, Chinese: c.text}
		}
	}
	return &problem{English: text, Chinese: "内部错误，请查看 manager 的日志"}
}

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
	status, text := s.statusOf(w, err)
	var p *problem
	if !errors.Is(err, errNoToken) { // the form has it
		p = problemOf(err, text)
	}
	s.assets.serveTemplate(w, status, loginPage, struct{ Problem *problem }{p})
}
