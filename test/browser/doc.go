// Package browser tests the dashboard in a real browser: Chromium, without a
// window, against a playground.
//
// The browser is told what to do over its DevTools protocol, through a pipe, so
// that neither a driver nor a library is needed. Set CHROMIUM to use another
// browser than the one called chromium.
package browser
