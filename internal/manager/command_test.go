package manager

import (
	"testing"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestCommandRefuses(t *testing.T) {
	tests := map[string]struct {
		args    []string
		wantErr string
	}{
		"audits without a pause": {args: []string{"--audit-interval=10ms"}, wantErr: "--audit-interval 10ms: write at least 1s, or 0 for none"},
		"audits backwards":       {args: []string{"--audit-interval=-1m"}, wantErr: "write at least 1s, or 0 for none"},
		"a drain backwards":      {args: []string{"--drain=-1s"}, wantErr: "--drain -1s: write 0 or more"},
		"a card without memory":  {args: []string{"--quota-card-memory=0"}, wantErr: "--quota-card-memory 0: write the memory of a card, from 1Gi to 1Ti, such as 64Gi"},
		"a card of 64 bytes":     {args: []string{"--quota-card-memory=64"}, wantErr: "--quota-card-memory 64: write the memory of a card"},
		"a card of a planet":     {args: []string{"--quota-card-memory=99999999999999999999Ei"}, wantErr: "write the memory of a card"},
		"a card of words":        {args: []string{"--quota-card-memory=large"}, wantErr: "quota-card-memory"},
		"a key alone":            {args: []string{"--metrics-tls-key-file=k"}, wantErr: "missing [metrics-tls-cert-file]"},
		"a certificate alone":    {args: []string{"--dashboard-tls-cert-file=c"}, wantErr: "missing [dashboard-tls-key-file]"},
		"an argument":            {args: []string{"x"}, wantErr: `unknown command "x"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cmd := NewCommand()
			cmd.SetArgs(tt.args)
			cmd.SilenceUsage, cmd.SilenceErrors = true, true
			gputest.ErrorHas(t, "Execute", tt.wantErr, cmd.ExecuteContext(t.Context()))
		})
	}
}

// The manager's namespace is that of Daybreak's other components.
func TestNamespaceOfComponents(t *testing.T) {
	gputest.Equal(t, "components count in namespace", "apps", (Config{Namespace: "apps"}).withDefaults().VendorPlugin.Daybreak)
}
