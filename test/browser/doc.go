// Package browser tests the dashboard in a real browser: Chromium, headless,
// against a playground. Set CHROMIUM to use another browser than the one called
// chromium.
package browser
