package local

// Credentials are the files with which a kubelet and the API server
// authenticate each other.
type Credentials struct {
	// Kubeconfig is how the kubelet reaches the API server; CA verifies the
	// clients that call it; Cert and Key are what it serves with.
	Kubeconfig, CA, Cert, Key string
}

// Join lets a real kubelet join under the name of the node: the cluster must
// have been started with [Config.Kubelets].
func (c *Cluster) Join(node string) (Credentials, error) {
	user := "kubelet-" + node
	if err := c.addUser(user, "system:node:"+node, "system:nodes"); err != nil {
		return Credentials{}, err
	}
	return Credentials{Kubeconfig: c.Kubeconfig(user), CA: c.pki.cert("ca"), Cert: c.pki.cert(user), Key: c.pki.keyFile(user)}, nil
}
