package local

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Ports are looked for between these two: below those that the kernel gives to
// connections and to listeners that name none, because it would give away one
// that its process has not opened yet, or has left for a moment to start again.
const firstPort, lastPort = 20000, 29999

// marks are UDP sockets with the numbers of the ports that were found. They stay
// open for as long as this process lives and reserve the ports, whether or not a
// process listens on them yet.
var marks struct {
	sync.Mutex
	sockets []net.PacketConn
}

// FreePorts finds ports of 127.0.0.1 for processes that will listen on them. No
// port is found twice while this process lives, by it or by another that asks
// here.
func FreePorts(ctx context.Context, n int) ([]int, error) {
	var ports []int
	for range 4 * (lastPort - firstPort) {
		if len(ports) == n {
			return ports, nil
		}
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if claim(ctx, port) == nil {
			ports = append(ports, port)
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("find a port: %w", context.Cause(ctx))
		}
	}
	return nil, fmt.Errorf("find a port: none of %d to %d on 127.0.0.1 is free; end what listens there", firstPort, lastPort)
}

// FreeAddresses is FreePorts, as addresses.
func FreeAddresses(ctx context.Context, n int) ([]string, error) {
	ports, err := FreePorts(ctx, n)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, p := range ports {
		list = append(list, loopback(p))
	}
	return list, nil
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// claim marks a port, unless it is marked or in use.
func claim(ctx context.Context, port int) error {
	var config net.ListenConfig
	mark, err := config.ListenPacket(ctx, "udp", loopback(port))
	if err != nil {
		return err
	}
	l, err := config.Listen(ctx, "tcp", loopback(port))
	if err != nil {
		return errors.Join(err, mark.Close())
	}
	marks.Lock()
	marks.sockets = append(marks.sockets, mark)
	marks.Unlock()
	return l.Close()
}
