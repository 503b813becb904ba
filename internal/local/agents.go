package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/agent"
	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
)

// AgentNamespace is where the agents of simulated nodes look for the ConfigMap
// with the modes.
const AgentNamespace = "daybreak-system"

// agents runs the agents of the simulated nodes: real agents with simulated
// cards.
type agents struct {
	off bool
	// dir has a profile for each node, and the agents' log; temporary reports
	// whether it goes with the simulation.
	dir       string
	temporary bool

	clients *agent.Clients
	events  record.EventBroadcaster
	log     *os.File
	running sync.WaitGroup
	has     sync.Map // names of nodes that have one
}

func (a *agents) open(ctx context.Context, config *rest.Config) error {
	var err error
	a.temporary = a.dir == ""
	if a.temporary {
		a.dir, err = os.MkdirTemp("", "daybreak-profiles-")
	} else {
		err = os.MkdirAll(a.dir, 0o755)
	}
	if err != nil {
		return err
	}
	if a.clients, err = agent.NewClients(config); err != nil {
		return err
	}
	a.log, err = os.OpenFile(filepath.Join(a.dir, "agents.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	a.events = agent.NewBroadcaster(a.logging(ctx), a.clients.Core)
	return err
}

// logging returns a context whose logger writes to the agents' own file.
func (a *agents) logging(ctx context.Context) context.Context {
	return klog.NewContext(ctx, textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(a.log))))
}

// close waits for the agents, whose context has ended.
func (a *agents) close() {
	a.running.Wait()
	a.events.Shutdown()
	_ = a.log.Close()
	if a.temporary {
		_ = os.RemoveAll(a.dir)
	}
}

// profile writes the profile of a node to a file, unless it is there from an
// earlier run, and returns a source that reads it.
func (a *agents) profile(name string, p *discover.Profile) (*discover.Finder, error) {
	text, err := yaml.Marshal(p)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(a.dir, name+".yaml")
	if _, err := os.Stat(path); a.temporary || err != nil {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return nil, fmt.Errorf("write the profile of %s: %w", name, err)
		}
	}
	return discover.New(discover.Config{Sources: []string{discover.SourceSimulated}, Profile: path, Node: name})
}

// add runs an agent for the node until the simulation ends, and returns when
// it has published the cards.
func (a *agents) add(simulation, ctx context.Context, name string, p *discover.Profile) error {
	if _, there := a.has.LoadOrStore(name, true); there {
		return nil
	}
	source, err := a.profile(name, p)
	if err != nil {
		return err
	}
	clients := *a.clients
	clients.Events = agent.NewRecorder(a.events, name)
	cfg := agent.Config{Node: name, Namespace: AgentNamespace, Mode: p.Mode, VendorAnnotations: true}
	one := agent.New(cfg, source, &clients, clock.RealClock{})
	a.running.Go(func() {
		if err := one.Run(a.logging(simulation)); err != nil {
			klog.FromContext(simulation).Error(err, "Simulated agent", "node", name)
		}
	})
	err = wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return one.Ready() == nil, nil
	})
	if err != nil {
		return fmt.Errorf("agent of %s: %w", name, one.Ready())
	}
	return nil
}

// describe returns the Device that an agent of the node would publish.
func (a *agents) describe(ctx context.Context, node *corev1.Node, p *discover.Profile) (*v1alpha1.Device, error) {
	source, err := a.profile(node.Name, p)
	if err != nil {
		return nil, err
	}
	snapshot, err := source.Look(a.logging(ctx))
	if err != nil {
		return nil, err
	}
	return agent.Describe(node.Name, node.UID, p.Mode, snapshot, time.Now())
}
