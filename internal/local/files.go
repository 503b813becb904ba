package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
)

// contextName is the name of the cluster and of the context in a playground's
// kubeconfig.
const contextName = "playground"

// folderPrefix begins the name of a cluster's folder that is temporary.
const folderPrefix = "daybreak-playground-"

// claimFiles makes the cluster's folder and reserves it and the kubeconfig's path
// for this playground, until release is called.
func (p *playground) claimFiles() (dir string, release func(), err error) {
	var undo []func()
	release = func() {
		for _, back := range slices.Backward(undo) {
			back()
		}
	}
	dir, remove, err := p.folder()
	if err != nil {
		return "", nil, err
	}
	undo = append(undo, remove)
	if err := p.claim(dir, &undo); err != nil {
		release()
		return "", nil, err
	}
	return dir, release, nil
}

// folder returns where the cluster is, and what removes it afterwards.
func (p *playground) folder() (dir string, remove func(), err error) {
	if p.data == "" {
		dir, err = os.MkdirTemp("", folderPrefix)
		return dir, func() { _ = os.RemoveAll(dir) }, err
	}
	if dir, err = filepath.Abs(p.data); err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		err = fmt.Errorf("--data %s: %w", p.data, err)
	}
	return dir, func() {}, err
}

// claim locks the kubeconfig's path and the folder, and makes a link to the folder
// next to the kubeconfig, so that its path can be written down before it exists.
func (p *playground) claim(dir string, undo *[]func()) error {
	kubeconfig, err := filepath.Abs(p.kubeconfig)
	if err != nil {
		return err
	}
	holder := fmt.Sprintf("process %d (kubeconfig %s, files in %s)", os.Getpid(), kubeconfig, dir)
	for _, l := range []struct{ path, flag, value, other string }{
		{kubeconfig + ".lock", "--kubeconfig", p.kubeconfig, "other.kubeconfig"},
		{filepath.Join(dir, "lock"), "--data", p.data, "other-folder"},
	} {
		release, err := takeLock(l.path, holder)
		if held, ok := errors.AsType[*heldError](err); ok {
			return fmt.Errorf("%s %s is in use by the playground of %s: stop that one, or start this one with %s %s", l.flag, l.value, held.holder, l.flag, l.other)
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", l.flag, l.value, err)
		}
		*undo = append(*undo, release)
	}
	if err := p.checkKubeconfig(); err != nil {
		return err
	}
	remove := func() { _ = os.Remove(kubeconfig) }
	remove() // of a playground that was killed
	*undo = append(*undo, remove)
	link := p.files()
	if info, err := os.Lstat(link); err == nil && info.Mode()&fs.ModeSymlink == 0 {
		return fmt.Errorf("%s is in the way of a link to the playground's files: move it, or name another --kubeconfig", link)
	}
	removeStaleLink(link)
	if err := os.Symlink(dir, link); err != nil {
		return err
	}
	*undo = append(*undo, func() { _ = os.Remove(link) })
	return nil
}

// removeStaleLink removes the link that a playground left which was killed, and its
// folder unless --data named it.
func removeStaleLink(link string) {
	dir, err := os.Readlink(link)
	if err == nil && filepath.Dir(dir) == filepath.Clean(os.TempDir()) && strings.HasPrefix(filepath.Base(dir), folderPrefix) {
		_ = os.RemoveAll(dir)
	}
	_ = os.Remove(link)
}

// files returns the path of the link to the cluster's folder.
func (p *playground) files() string {
	return strings.TrimSuffix(p.kubeconfig, ".kubeconfig") + ".files"
}

// checkKubeconfig returns an error if there is a file at the kubeconfig's path that
// no playground wrote: it would be overwritten, and removed in the end.
func (p *playground) checkKubeconfig() error {
	config, err := clientcmd.LoadFromFile(p.kubeconfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && len(config.Clusters) == 1 && config.Clusters[contextName] != nil && config.CurrentContext == contextName {
		return nil
	}
	return fmt.Errorf("--kubeconfig %s: the file exists and is not a playground's: name another", p.kubeconfig)
}
