package integration

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// query is what a PromQL expression names.
type query struct {
	selectors []selector
	// grouped are the labels that results are grouped or matched by.
	grouped []string
}

// selector is a metric with matchers, label -> values that must exist: those of
// equality, or the alternatives of a pattern.
type selector struct {
	metric   string
	matchers map[string][]string
}

// promReader reads PromQL, as far as rules and dashboards use it: what it does
// not know is an error, so that nothing goes unread.
type promReader struct {
	tokens []string
	query
}

var (
	promToken   = regexp.MustCompile(`^(?:[a-zA-Z_:][a-zA-Z0-9_:]*|[0-9]+(?:\.[0-9]+)?[smhdwy]?|"(?:[^"\\]|\\.)*"|=~|!~|!=|==|>=|<=|[-+*/%^(){}\[\],=<>])`)
	aggregators = []string{"sum", "max", "min", "avg", "count", "topk", "bottomk"}
	functions   = []string{"rate", "increase", "histogram_quantile", "vector", "time", "absent"}
	operators   = []string{"+", "-", "*", "/", "%", "==", "!=", ">", "<", ">=", "<=", "and", "or", "unless"}
)

func readPromQL(text string) (q query, err error) {
	r := promReader{}
	text = strings.ReplaceAll(text, "$__rate_interval", "5m")
	for rest := strings.TrimSpace(text); rest != ""; rest = strings.TrimSpace(rest) {
		token := promToken.FindString(rest)
		if token == "" {
			return q, fmt.Errorf("what is %.20q?", rest)
		}
		r.tokens = append(r.tokens, token)
		rest = rest[len(token):]
	}
	defer func() {
		if problem, ok := recover().(promProblem); ok {
			err = fmt.Errorf("%s, before %q", problem, r.tokens)
		}
	}()
	r.expression()
	if len(r.tokens) > 0 {
		return q, fmt.Errorf("%q follows", r.tokens)
	}
	return r.query, nil
}

// promProblem ends the reading.
type promProblem string

func (r *promReader) peek() string {
	if len(r.tokens) == 0 {
		return ""
	}
	return r.tokens[0]
}

func (r *promReader) next() string {
	token := r.peek()
	if token == "" {
		panic(promProblem("it ends too early"))
	}
	r.tokens = r.tokens[1:]
	return token
}

func (r *promReader) take(token string) bool {
	if r.peek() != token {
		return false
	}
	r.next()
	return true
}

func (r *promReader) must(token string) {
	if !r.take(token) {
		panic(promProblem("want " + token))
	}
}

func (r *promReader) expression() {
	r.operand()
	for slices.Contains(operators, r.peek()) {
		r.next()
		r.take("bool")
		if r.peek() == "on" || r.peek() == "ignoring" {
			r.next()
			r.labels()
		}
		r.operand()
	}
}

// labels reads a list of labels.
func (r *promReader) labels() {
	r.must("(")
	for !r.take(")") {
		r.grouped = append(r.grouped, r.next())
		r.take(",")
	}
}

func (r *promReader) operand() {
	token := r.next()
	switch {
	case token == "(":
		r.expression()
		r.must(")")
	case token[0] >= '0' && token[0] <= '9':
	case slices.Contains(aggregators, token):
		if r.peek() == "by" || r.peek() == "without" {
			r.next()
			r.labels()
		}
		r.arguments()
	case slices.Contains(functions, token):
		r.arguments()
	case r.peek() == "(":
		panic(promProblem(token + " is no function that is known here"))
	default:
		r.selector(token)
	}
}

func (r *promReader) arguments() {
	r.must("(")
	for !r.take(")") {
		r.expression()
		if !r.take(",") && r.peek() != ")" {
			panic(promProblem("want , or )"))
		}
	}
}

func (r *promReader) selector(metric string) {
	if !regexp.MustCompile(`^[a-z][a-z0-9_]*$`).MatchString(metric) {
		panic(promProblem(metric + " is no metric"))
	}
	s := selector{metric: metric, matchers: map[string][]string{}}
	if r.take("{") {
		for !r.take("}") {
			label, operator, value := r.next(), r.next(), strings.Trim(r.next(), `"`)
			s.matchers[label] = append(s.matchers[label], value)
			if operator == "=~" || operator == "!~" {
				s.matchers[label] = strings.Split(value, "|")
			}
			r.take(",")
		}
	}
	if r.take("[") {
		r.next()
		r.must("]")
	}
	r.selectors = append(r.selectors, s)
}

func TestReadPromQL(t *testing.T) {
	tests := map[string]struct {
		text    string
		want    query
		wantErr bool
	}{
		"a rate by a label": {
			text: `sum by (result) (rate(x_total{a="b",c=~"d|e"}[5m])) > 0`,
			want: query{selectors: []selector{{"x_total", map[string][]string{"a": {"b"}, "c": {"d", "e"}}}}, grouped: []string{"result"}},
		},
		"two metrics": {
			text: `max(x) > 0.5 and on () y >= 8`,
			want: query{selectors: []selector{{"x", map[string][]string{}}, {"y", map[string][]string{}}}},
		},
		"a parenthesis is open":         {text: `max(x`, wantErr: true},
		"an operator without an end":    {text: `x >`, wantErr: true},
		"two metrics without operator":  {text: `x y`, wantErr: true},
		"an unknown function":           {text: `summ(x)`, wantErr: true},
		"a character that does not fit": {text: `x ; y`, wantErr: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := readPromQL(tt.text)
			if (err != nil) != tt.wantErr {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(query{}, selector{})); !tt.wantErr && diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
