package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// rule is a word or phrase that user-facing text does not use.
type rule struct {
	// pattern is a regular expression. A space in it also matches a line break,
	// with the comment mark of the next line.
	pattern string
	use     string   // what to write instead
	except  []string // expressions around the pattern that are allowed
	faults  []string // samples that the rule reports
	correct []string // samples that the rule accepts, at least one for each exception
}

// vocabulary is applied to every text, whatever its language.
var vocabulary = []rule{
	// English: people where there are none.
	{
		pattern: `\b(?:he|him|his|himself)\b`, use: "the component, the administrator, the user",
		faults: []string{"if he insists", "of his own"}, correct: []string{"the history of this"},
	},
	{
		pattern: `\b(?:nobody|somebody|anybody|everybody|whoever)(?:'s)?\b`,
		use:     "the component, the administrator, the user; or the passive voice",
		faults:  []string{"a slice of nobody's", "Somebody else", "whoever asks"}, correct: []string{"the body"},
	},
	{
		pattern: `\b(?:for|to|by|of) who\b`, use: "for cluster administrators, for users",
		faults: []string{"For who runs a cluster", "for\nwho writes pods"}, correct: []string{"for whom"},
	},
	{
		pattern: `\bwho (?:runs?|writes?|wants?|waits?|holds?|asks?|binds?)\b`, use: "the administrator, the pod, the account; pending pods",
		faults: []string{"who runs a cluster", "who waits"}, correct: []string{"users who may list pods"},
	},
	// English: translated phrases.
	{
		pattern: `\b(?:tell|tells|telling|told)\b`, use: "report, show, print, list; tell apart: distinguish",
		faults: []string{"an event that tells it", "is told apart"}, correct: []string{"an intelligent choice"},
	},
	{
		pattern: `\bsay(?:s|ing)? (?:of|so|what|who|why|whether|which|how)\b|\bsaid (?:so|of)\b`, use: "report, show, print, state",
		faults: []string{"it says what to try", "says of nobody", "say so"}, correct: []string{"the label says 8"},
	},
	{
		pattern: `\bcan(?:'t|not| not) be meant\b|\bcan(?:'t|not| not) be made sure\b`, use: "invalid request; cannot be verified",
		faults: []string{"what can't be meant", "cannot be meant", "What can't be made sure of"}, correct: []string{"can't be read"},
	},
	{
		pattern: `\bstrangers?\b`, use: "foreign slice",
		faults: []string{"a stranger's slice", "Strangers"}, correct: []string{"strange"},
	},
	{pattern: `\banew\b`, use: "again; re-read", faults: []string{"read anew"}, correct: []string{"a new node"}},
	{
		pattern: `\bbeside\b`, use: "next to, alongside, in addition to, coexists with",
		faults: []string{"Beside the vendor's plugin", "runs beside it"}, correct: []string{"besides the cards"},
	},
	{pattern: `\bfound out\b|\bfinds? out\b`, use: "is detected", faults: []string{"is found out", "finds out"}, correct: []string{"is found"}},
	{
		pattern: `\brefus(?:e|es|ed|ing)\b`, use: "reject, deny",
		except: []string{`connection refused`, `(?:placed|completed),? (?:or )?refused`}, // values of the label result
		faults: []string{"is refused", "what it refuses"},
		correct: []string{
			"dial: connection refused", "by result: placed, refused or failed", "placed or refused", "untouched, completed, refused", "the refusal's code",
		},
	},
	{
		pattern: `\b(?:mend|mends|mended|mending)\b|\bput(?:s|ting)? right\b|\bright again\b`, use: "fix, repair, revert, resolve",
		faults: []string{"## Mend", "is put right", "what was wrong is right again"}, correct: []string{"amend the commit", "on the right"},
	},
	{
		pattern: `\bever more (?:slowly|rarely|seldom)\b`, use: "with exponential back-off",
		faults: []string{"ever more slowly"}, correct: []string{"more slowly"},
	},
	{
		pattern: `\bseats?\b`, use: "shared slot",
		faults: []string{"seats without bounds", "a seat"}, correct: []string{"the user's seating"},
	},
	{
		pattern: `\bgreedily\b`, use: "by exhaustive search, not a heuristic",
		faults: []string{"exactly, not greedily"}, correct: []string{"a greedy heuristic"},
	},
	{
		pattern: `\b(?:bad|first|second|next|last|every|each|one|a|closer|quick) look\b|\blook(?:s|ed|ing)? after\b`, use: "poll, check; maintain, manage",
		faults: []string{"goes down at the first bad look", "A look in the morning", "looks after nodes"}, correct: []string{"look at the node"},
	},
	{
		pattern: `\band not they\b|\bnot they\b`, use: "plain order of words: this page may be out of date",
		faults: []string{"the page is out of date and not they"}, correct: []string{"not the page"},
	},
	{
		pattern: `\bsays (?:before|goodbye)\b|\bthat it goes\b`, use: "marks the node as not serving before it exits",
		faults: []string{"says before it goes that it goes"}, correct: []string{"before it goes to the node"},
	},
	{
		pattern: `\bfor good\b`, use: "permanently",
		faults: []string{"lost for good", "for\n  # good"}, correct: []string{"for good measure", "a good fit"},
		except: []string{`for good (?:measure|reasons?|placements?)`},
	},
	{pattern: `\bof (?:its|their) own accord\b`, use: "automatically", faults: []string{"of its own accord"}, correct: []string{"of its own"}},
	{
		pattern: `\bin name only\b`, use: "simulated; no containers run",
		faults: []string{"they run in name only"}, correct: []string{"the name only"},
	},
	{
		pattern: `\bas (?:always|ever)\b`, use: "unchanged, as before",
		faults: []string{"scheduled as always"}, correct: []string{"always"},
	},
	{
		pattern: `\b(?:sleeps on|sleeps through|falls? asleep|wakes when)\b`, use: "is re-queued only when; waits",
		faults: []string{"and sleeps on", "wakes when it can help"}, correct: []string{"sleeps for 2 s"},
	},
	{
		pattern: `\b(?:dies|died|lets? go of|nothing to drift)\b`, use: "fails, exits, is lost; releases",
		faults: []string{"when a part dies", "lets go of the card"}, correct: []string{"the command exits"},
	},
	{
		pattern: `\bfor ever\b`, use: "indefinitely",
		faults: []string{"waits for ever"}, correct: []string{"for every pod"},
	},
	{
		pattern: `\b(?:ends?|stops?|exits?|rejected) with a sentence\b`, use: "exits with an error message; is rejected with a message",
		faults: []string{"ends with a sentence", "is rejected with\na sentence"}, correct: []string{"exits with an error"},
	},
	{
		pattern: `\bwhat (?:becomes|became|comes|came) of\b|\bin its turn\b|\bspoke for\b`, use: "the result of; in turn; reasons for",
		faults: []string{"by what became of them", "in its turn", "what comes of it", "what spoke for its node"}, correct: []string{"in turn"},
	},

	// 中文：术语。
	{pattern: `[您你]`, use: "省略主语", faults: []string{"您可以", "你的集群"}, correct: []string{"可以"}},
	{
		pattern: `份`, use: "切片（sGPU）；份额",
		except: []string{`份额`, `份数`, `身份`, `备份`, `[年月]份`, `[一两每几这该\d] ?份(?:清单|代码|缓存|导出|手册|报告|配置|文件|文档|数据|日志|正确|账本|副本|清单|页面)`},
		faults: []string{"占一份", "各得其份"},
		correct: []string{
			"份额", "份数", "以管理员身份", "从备份恢复", "月份", "同一份代码",
		},
	},
	{
		pattern: `[一二两三四五六七八九十几每N\d] ?片`, use: "一个切片",
		faults: []string{"每个一片", "占 3 片"}, correct: []string{"两个切片", "碎片", "一个图片"},
	},
	{pattern: `席位|座位`, use: "共享名额", faults: []string{"没有界限的席位", "座位"}, correct: []string{"共享名额"}},
	{pattern: `互联区`, use: "互联域", faults: []string{"两个互联区"}, correct: []string{"互联域"}},
	{
		pattern: `代理`, use: "agent（首次出现写 agent（节点代理））",
		except:  []string{`（节点代理`, `反向代理`, `正向代理`, `HTTPS? ?代理`, `代理服务器`, `模块代理`, `代理（proxy）(?:[^#]{0,200}代理)?`},
		faults:  []string{"代理在每个节点上", "节点代理上报"},
		correct: []string{"agent（节点代理）", "经过反向代理", "正向代理", "HTTP 代理", "代理服务器", "Go 模块代理", "经过代理（proxy）。请求在代理中排队"},
	},
	{
		pattern: `管理器`, use: "manager",
		except: []string{`包管理器`, `控制器管理器`, `资源管理器`},
		faults: []string{"管理器选主"}, correct: []string{"包管理器", "控制器管理器", "资源管理器", "manager"},
	},
	{
		pattern: `面板`, use: "控制台（面板专指 Grafana）",
		except: []string{`Grafana[^#]{0,300}面板`},
		faults: []string{"打开面板", "## Grafana\n## 面板"}, correct: []string{"Grafana 面板", "Grafana 中\n有六个面板"},
	},
	{pattern: `重复占用`, use: "重复分配", faults: []string{"不会重复占用"}, correct: []string{"重复分配"}},
	{
		pattern: `任务`, use: "作业",
		except: []string{`定时任务`, `后台任务`},
		faults: []string{"四卡任务"}, correct: []string{"作业", "定时任务", "后台任务"},
	},
	{pattern: `并存`, use: "共存", faults: []string{"与厂商插件并存"}, correct: []string{"共存"}},
	{pattern: `拒绝代码`, use: "拒绝码", faults: []string{"拒绝代码"}, correct: []string{"拒绝码"}},
	{
		pattern: `状况`, use: "Condition",
		except: []string{`(?:健康|运行|使用)状况`},
		faults: []string{"Device 的状况"}, correct: []string{"健康状况"},
	},
	{
		pattern: `卡`, use: "GPU（首次出现写“GPU（显卡）”；单位“张”）",
		except: []string{
			`GPU（显卡）`, `[整单双多每跨网声]卡`, `[二两三四五六七八九十\d] ?卡`, `卡[间住死顿在片]`, `选项卡`, `加速卡`,
		},
		faults: []string{"一张卡", "显卡的显存", "空闲卡", "GPU 卡"},
		correct: []string{
			"GPU（显卡）", "整卡", "多卡训练", "8 卡服务器", "八卡", "卡间带宽", "卡住", "选项卡", "加速卡",
		},
	},
	{
		pattern: `\p{Han} ?traces?\b|\btraces? ?\p{Han}`, use: "轨迹（trace）",
		faults: []string{"在 trace 上", "重放trace"}, correct: []string{"轨迹（trace）上"},
	},
	// 中文：文学化的说法。
	{
		pattern: `死掉|弄[懂坏清]|走样|关在门外|没有界限|本意|贪心的|敞开|照看|醒来|继续睡|只有名字|要得比|值多少|不出声|各得其`,
		use:     "组件故障；了解；不产生不一致；隔离（fencing）；不限额；无效的请求；贪心近似；未解决的风险；维护；重新入队；模拟；收益；失联",
		faults: []string{
			"某个部分死掉", "弄懂用到的词", "没有什么会走样", "把旧的关在门外", "没有界限的", "不可能是本意", "选卡是精确的，而不是贪心的", "仍然敞开", "照看", "醒来",
			"继续睡", "只有名字", "要得比有的还多", "值多少", "不出声", "各得其所",
		},
		correct: []string{"而非贪心近似", "死锁"},
	},
	{
		pattern: `给[^，。；\n]{1,12}的人`, use: "面向集群管理员、面向用户",
		faults: []string{"给管理集群的人", "给写 Pod 的人"}, correct: []string{"给容器的"},
	},
}

// checker is a rule ready to use.
type checker struct {
	rule
	match  *regexp.Regexp
	except []*regexp.Regexp
}

// checkers compiles the vocabulary, once.
var checkers = sync.OnceValue(func() []checker {
	compile := func(expression string) *regexp.Regexp {
		return regexp.MustCompile(`(?i)` + strings.ReplaceAll(expression, " ", `(?:[ \t]+|[ \t]*\n[ \t#/*>-]*)`))
	}
	var out []checker
	for _, r := range vocabulary {
		c := checker{rule: r, match: compile(r.pattern)}
		for _, e := range r.except {
			c.except = append(c.except, compile(e))
		}
		out = append(out, c)
	}
	return out
})

// find returns the ranges of the text that break the rule.
func (c *checker) find(text string) [][]int {
	var allowed [][]int
	for _, e := range c.except {
		allowed = append(allowed, e.FindAllStringIndex(text, -1)...)
	}
	return slices.DeleteFunc(c.match.FindAllStringIndex(text, -1), func(m []int) bool {
		return slices.ContainsFunc(allowed, func(a []int) bool { return a[0] <= m[0] && m[1] <= a[1] })
	})
}

// passage is text that a person reads.
type passage struct {
	line int // of its first line, from 1
	text string
}

// check returns what is wrong with a file's passages.
func check(path string, passages []passage) []string {
	var out []string
	for _, c := range checkers() {
		for _, p := range passages {
			for _, m := range c.find(p.text) {
				line := p.line + strings.Count(p.text[:m[0]], "\n")
				out = append(out, fmt.Sprintf("%s:%d: %q: write %s: %s", path, line, p.text[m[0]:m[1]], c.use, excerpt(p.text, m)))
			}
		}
	}
	return out
}

// excerpt returns the text around a match on one line.
func excerpt(text string, m []int) string {
	from, to := max(0, m[0]-60), min(len(text), m[1]+60)
	return strings.Join(strings.Fields(strings.ToValidUTF8(strings.ReplaceAll(text[from:to], blank, "…"), "")), " ")
}

// blank stands for text that is not prose: code, addresses, commands and what they print.
const blank = "\x00"

var notProse = regexp.MustCompile("(?s)<!--.*?-->|``.*?``|`[^`]*`|\\]\\([^)]*\\)|(?:src|srcset|href|id|name)=\"[^\"]*\"|https?://\\S+")

// names are keys, templates and labels of queries.
var names = regexp.MustCompile(`\b[A-Za-z][\w-]*(?:\.[A-Za-z][\w-]*)+\b|\b\w+=~?\\?"[^"]*"`)

// prose returns the prose of a Markdown page: without fences, comments, code and addresses.
func prose(path, text string) []passage {
	p, _ := parse(path, text)
	var lines []string
	for i, line := range p.lines {
		if p.fenced[i] {
			line = blank
		}
		lines = append(lines, line)
	}
	text = notProse.ReplaceAllStringFunc(strings.Join(lines, "\n"), func(code string) string {
		return blank + strings.Repeat("\n", strings.Count(code, "\n"))
	})
	return []passage{{1, text}}
}

// literals returns the strings of a Go file, each sum of strings as one. Strings of one word are
// keys and names.
func literals(path string, text []byte) ([]passage, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var out []passage
	seen := map[ast.Node]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field: // its tag is no text
			seen[n.Tag] = true
		case ast.Expr:
			if s := sum(n, seen); strings.ContainsFunc(strings.TrimSpace(s), func(r rune) bool { return r == ' ' || r > 0x2fff }) {
				out = append(out, passage{set.Position(n.Pos()).Line, s})
			}
		}
		return true
	})
	return out, nil
}

// sum returns the text of a string or of a sum with strings, once.
func sum(n ast.Expr, seen map[ast.Node]bool) string {
	switch n := n.(type) {
	case *ast.BasicLit:
		if n.Kind == token.STRING && !seen[n] {
			seen[n] = true
			if s, err := strconv.Unquote(n.Value); err == nil {
				return s
			}
		}
	case *ast.BinaryExpr:
		if n.Op == token.ADD {
			left, right := sum(n.X, seen), sum(n.Y, seen)
			if left == "" && right == "" {
				return ""
			}
			return orBlank(left) + orBlank(right)
		}
	}
	return ""
}

func orBlank(s string) string {
	if s == "" {
		return blank
	}
	return s
}

// passagesOf returns what a person reads of a file, and false if the vocabulary does not apply to it.
func passagesOf(path string, text []byte) ([]passage, bool, error) {
	under := func(folder string) bool { return strings.HasPrefix(path, folder+"/") }
	switch ext := filepath.Ext(path); {
	case ext == ".md" && (under("docs") || under("examples") || under("charts") || regexp.MustCompile(`^README(\.\w+)?\.md$`).MatchString(path)):
		return prose(path, string(text)), true, nil
	case under("charts"), under("examples"), ext == ".svg" && under("docs"),
		under("internal/manager/dashboard/assets/strings"), under("internal/manager/dashboard/assets") && ext == ".html":
		return []passage{{1, names.ReplaceAllString(string(text), blank)}}, true, nil
	case ext == ".go" && !strings.HasSuffix(path, "_test.go") && (under("cmd") || under("internal") || under("api")):
		p, err := literals(path, text)
		return p, true, err
	}
	return nil, false, nil
}

// TestVocabulary: text that users read keeps to the vocabulary of the project.
func TestVocabulary(t *testing.T) {
	files, faults := 0, 0
	for _, path := range walk(t, "") {
		text, err := os.ReadFile(filepath.Join(root, path))
		gputest.Must(t, err)
		passages, applies, err := passagesOf(path, text)
		gputest.Must(t, err)
		if !applies {
			continue
		}
		files++
		t.Run(path, func(t *testing.T) {
			for _, fault := range check(path, passages) {
				faults++
				t.Error(fault)
			}
		})
	}
	t.Logf("%d rules, %d files, %d faults", len(vocabulary), files, faults)
}

// TestVocabularyRules: each rule reports its faults and accepts its exceptions, each of which is needed.
func TestVocabularyRules(t *testing.T) {
	for _, c := range checkers() {
		for _, text := range c.faults {
			if len(c.find(text)) == 0 {
				t.Errorf("%s: %q is not reported", c.pattern, text)
			}
		}
		for _, text := range c.correct {
			if len(c.find(text)) > 0 {
				t.Errorf("%s: %q is reported", c.pattern, text)
			}
		}
		if len(c.faults) == 0 || c.use == "" {
			t.Errorf("%s: no sample or no replacement", c.pattern)
		}
		for _, e := range c.except {
			if !slices.ContainsFunc(c.correct, func(text string) bool { return e.MatchString(text) && c.match.MatchString(text) }) {
				t.Errorf("%s: no sample needs the exception %s", c.pattern, e)
			}
		}
	}
}

// TestVocabularyPassages: prose is checked, code is not.
func TestVocabularyPassages(t *testing.T) {
	for name, c := range map[string]struct {
		path, text string
		lines      []string // the faults begin so
	}{
		"page":           {"docs/x.md", "told\n`told` [a](told.md) <a id=\"told\"></a> <!-- told -->\n<!-- docs:run\ntold\n-->\n```sh\ntold\n```\n任务\n", []string{"docs/x.md:1:", "docs/x.md:9:"}},
		"README":         {"README.zh.md", "您\n", []string{"README.zh.md:1:"}},
		"names":          {"charts/daybreak/monitoring/x.yaml", "a: {{ include \"daybreak.nobody\" . }}\nb: x{result=\"refused\"}\n", nil},
		"another page":   {"CONTRIBUTING.md", "told\n", nil},
		"chart":          {"charts/daybreak/values.yaml", "a: b\n# lost for\n# good\n", []string{"charts/daybreak/values.yaml:2:"}},
		"picture":        {"docs/images/x.svg", "<svg>\n<text>空闲卡</text></svg>", []string{"docs/images/x.svg:2:"}},
		"dashboard":      {"internal/manager/dashboard/assets/strings/zh.js", "a: '席位'", []string{"internal/manager/dashboard/assets/strings/zh.js:1:"}},
		"not the script": {"internal/manager/dashboard/assets/app.js", "// told", nil},
		"Go": {
			"internal/x/x.go", "package x\n\n// told\nimport _ \"told a\"\n\nvar a, b, c = \"told\", \"is told\",\n\t\"lost for \" +\n\t\t\"good \" + a\n\ntype t struct {\n\td int `is told`\n}\n",
			[]string{"internal/x/x.go:6:", "internal/x/x.go:7:"},
		},
		"Chinese in Go": {"cmd/x/x.go", "package x\n\nvar a = \"任务\"\n", []string{"cmd/x/x.go:3:"}},
		"a Go test":     {"internal/x/x_test.go", "package x\n\nvar a = \"is told\"\n", nil},
	} {
		passages, _, err := passagesOf(c.path, []byte(c.text))
		gputest.Must(t, err)
		got := check(c.path, passages)
		slices.Sort(got)
		if len(got) != len(c.lines) {
			t.Errorf("%s: %q, want %q", name, got, c.lines)
			continue
		}
		for i, line := range c.lines {
			if !strings.HasPrefix(got[i], line) {
				t.Errorf("%s: %q, want %q", name, got[i], line)
			}
		}
	}
}
