// Starting a control plane, and staying with it when it is to end with its caller.

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

type upOptions struct {
	bin        string
	port       int
	nodes      int
	auditUsers []string
	timeout    time.Duration
	quiet      bool
	foreground bool
	remove     bool
}

// errPortTaken says that a port was free when it was chosen and no longer when a program wanted it.
var errPortTaken = errors.New("a port was taken by another process in the meantime")

// how often all of it is tried when ports get taken in between
const attempts = 5

func up(dir string, o upOptions) error {
	began := time.Now()
	if err := findPrograms(&o); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	watchForEnd(o.foreground, cancel)

	unlock, err := lock(dir)
	if err != nil {
		return err
	}
	// let go of below, before staying in the foreground
	defer func() { unlock() }()

	running, err := clearLast(dir, o)
	if err != nil || running {
		return err
	}

	var c *cluster
	for attempt := 1; ; attempt++ {
		c = &cluster{dir: dir, options: o, began: began}
		err = c.start(ctx)
		if err == nil {
			break
		}
		c.stop()
		if !errors.Is(err, errPortTaken) || attempt == attempts {
			return errors.Join(err, tidy(dir, o.remove))
		}
		c.say("%v; once more with others", errPortTaken)
	}
	fmt.Printf("control plane: ready in %.1f s; export KUBECONFIG=%s\n",
		time.Since(began).Seconds(), filepath.Join(dir, "kubeconfig"))
	if !o.foreground {
		return nil
	}

	unlock()
	err = c.stay(ctx)
	unlock, lockErr := lock(dir)
	if lockErr != nil {
		unlock = func() {}
		c.stop()
		return errors.Join(err, lockErr)
	}
	// Another command may have taken the folder over since; then what is recorded there is not ours to end or remove.
	if s, readErr := readState(dir); readErr == nil && !slices.ContainsFunc(s.only(roleSupervisor), isThis) {
		c.stop()
		return err
	} else if readErr == nil {
		c.state = s // with what was recorded since
	}
	c.stop()
	return errors.Join(err, tidy(dir, o.remove))
}

func isThis(p process) bool { return p.PID == os.Getpid() }

// findPrograms settles where the programs are and sees that all of them are there.
func findPrograms(o *upOptions) error {
	if o.bin == "" {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		o.bin = filepath.Dir(self)
	}
	absolute, err := filepath.Abs(o.bin)
	if err != nil {
		return err
	}
	o.bin = absolute
	var missing []string
	for _, name := range programs {
		if info, err := os.Stat(filepath.Join(o.bin, name)); err != nil || info.IsDir() {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s lacks %s; tools/build.sh builds them, or --bin names another folder",
			o.bin, strings.Join(missing, ", "))
	}
	return nil
}

// watchForEnd cancels with the reason when this process is told to end. In the foreground that is also when standard
// input ends, which it does even when the process at its other end is killed; asking the kernel to signal on the death of
// the parent would not do, because that is about the parent's thread.
func watchForEnd(foreground bool, cancel context.CancelCauseFunc) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() { cancel(fmt.Errorf("got the signal to end (%v)", <-signals)) }()
	// When nobody reads standard output any more, a line of progress must not end this process in the middle: asked for,
	// the signal does nothing.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	if !foreground {
		return
	}
	// /dev/null is at its end from the beginning and says nothing about anyone.
	if null, err := os.Stat(os.DevNull); err == nil {
		if in, err := os.Stdin.Stat(); err != nil || os.SameFile(in, null) {
			return
		}
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel(errors.New("standard input ended"))
	}()
}

// clearLast looks at what an earlier run left under the folder. It says whether that still works; if not, nothing of it is
// left running.
func clearLast(dir string, o upOptions) (bool, error) {
	s, err := readState(dir)
	if err != nil {
		return false, err
	}
	if len(s.Processes) == 0 {
		return false, nil
	}
	var dead []string
	for _, name := range programs {
		if !slices.ContainsFunc(s.Processes, func(p process) bool {
			return p.Role == roleComponent && p.Name == name && p.alive()
		}) {
			dead = append(dead, name)
		}
	}
	reason := strings.Join(dead, ", ") + " no longer running"
	if len(dead) == 0 {
		err := answers(dir, s.Server)
		supervisors := s.only(roleSupervisor)
		orphaned := o.foreground && len(supervisors) > 0 && !slices.ContainsFunc(supervisors, process.alive)
		switch {
		case err == nil && orphaned:
			reason = "the process it ran for is gone"
		case err == nil && o.foreground:
			return false, fmt.Errorf("%s already has a running control plane; give another folder, or end it with "+
				"control-plane down --dir %s", dir, dir)
		case err == nil:
			fmt.Printf("control plane: already running at %s; export KUBECONFIG=%s\n",
				s.Server, filepath.Join(dir, "kubeconfig"))
			if o.port != 0 && s.Server != url(o.port) {
				fmt.Printf("control plane: for port %d, end it first with control-plane down --dir %s\n", o.port, dir)
			}
			return true, nil
		default:
			reason = "kube-apiserver is not ready: " + err.Error()
		}
	}
	ended := endAll(s.Processes)
	if len(dead) < len(programs) {
		fmt.Fprintf(os.Stderr, "control plane: what was left of the last one (%s) was ended: %s; starting afresh, with an "+
			"empty etcd\n", reason, strings.Join(ended, ", "))
	}
	return false, tidy(dir, false)
}

// answers asks a control plane started earlier whether it is ready.
func answers(dir, server string) error {
	var admin pair
	var ca []byte
	for name, into := range map[string]*[]byte{"admin.crt": &admin.cert, "admin.key": &admin.key, "ca.crt": &ca} {
		text, err := os.ReadFile(filepath.Join(dir, "pki", name))
		if err != nil {
			return err
		}
		*into = text
	}
	a, err := newAPI(ca, admin)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return a.get(ctx, server+"/readyz", nil)
}

// cluster is one control plane being started or running.
type cluster struct {
	dir     string
	options upOptions
	began   time.Time
	ports   ports
	ca      *authority
	api     *api
	state   *state
	running []*component
}

// component is a started program. gone is closed when it ended, with the way it did in err.
type component struct {
	name string
	log  string
	gone chan struct{}
	err  error
}

func (c *cluster) say(format string, args ...any) {
	if !c.options.quiet {
		fmt.Printf("control plane: "+format+"\n", args...)
	}
}

// start brings everything up, in the order in which one needs the other.
func (c *cluster) start(ctx context.Context) error {
	ctx, cancel := context.WithDeadlineCause(ctx, c.began.Add(c.options.timeout),
		fmt.Errorf("it took longer than %s", c.options.timeout))
	defer cancel()
	c.state = &state{}
	users, err := c.prepare()
	if err != nil {
		return err
	}
	// Named before it starts anything, so that 'down' asks it first.
	if c.options.foreground {
		self, err := describe("control-plane", os.Getpid(), roleSupervisor)
		if err != nil {
			return err
		}
		c.state.Processes = append(c.state.Processes, self)
	}
	server := url(c.ports.apiserver)
	args := arguments(c.dir, c.ports)
	launch := func(name string) error { return c.launch(name, args[name]) }
	healthy := func(name, address string) error {
		return c.await(ctx, name, "up", func() error { return c.api.get(ctx, address, nil) })
	}

	if err := launch("etcd"); err != nil {
		return err
	}
	if err := healthy("etcd", url(c.ports.etcd)+"/health"); err != nil {
		return err
	}
	if err := launch("kube-apiserver"); err != nil {
		return err
	}
	if err := healthy("kube-apiserver", server+"/readyz"); err != nil {
		return err
	}
	for i := range c.options.nodes {
		if err := c.api.post(ctx, server+"/api/v1/nodes", node(i)); err != nil {
			return fmt.Errorf("kube-apiserver does not take the simulated node: %w", err)
		}
	}
	for _, name := range []string{"kube-controller-manager", "kube-scheduler", "kwok"} {
		if err := launch(name); err != nil {
			return err
		}
	}
	// not /readyz, which kube-controller-manager does not have
	if err := healthy("kube-controller-manager", url(c.ports.controllers)+"/healthz"); err != nil {
		return err
	}
	if err := healthy("kube-scheduler", url(c.ports.scheduler)+"/readyz"); err != nil {
		return err
	}
	for i := range c.options.nodes {
		err := c.await(ctx, "kwok", fmt.Sprintf("up, %s ready", nodeName(i)), func() error {
			return c.nodeReady(ctx, server+"/api/v1/nodes/"+nodeName(i))
		})
		if err != nil {
			return err
		}
	}
	// Without it, pods of the namespace are refused.
	err = c.await(ctx, "kube-controller-manager", "made the default service account", func() error {
		return c.api.get(ctx, server+"/api/v1/namespaces/default/serviceaccounts/default", nil)
	})
	if err != nil {
		return err
	}

	// Last, so that whoever sees the files can use them.
	for file, user := range map[string]string{"kubeconfig": "admin", "kubeconfig-operator": operatorUser} {
		text := kubeconfig(server, user, c.ca.pem, users[user])
		if err := writeFile(filepath.Join(c.dir, file), text, 0o600); err != nil {
			return err
		}
	}
	c.state.Server = server
	return c.state.write(c.dir)
}

// prepare makes everything the programs read, and returns the certificates of the users.
func (c *cluster) prepare() (map[string]pair, error) {
	if err := tidy(c.dir, false); err != nil {
		return nil, err
	}
	for _, name := range []string{"logs", "pki", "config"} {
		if err := os.MkdirAll(filepath.Join(c.dir, name), 0o755); err != nil {
			return nil, err
		}
	}
	// etcd insists on a folder nobody else can look into.
	if err := os.Mkdir(filepath.Join(c.dir, "etcd"), 0o700); err != nil {
		return nil, err
	}
	// The last run's, for whoever looks for why it ended; a log that is begun anew counts this run's requests only.
	for _, name := range append(logNames(), "audit.log") {
		path := filepath.Join(c.dir, name)
		if err := os.Rename(path, path+".old"); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}

	var err error
	if c.ports, err = choosePorts(c.options.port); err != nil {
		return nil, err
	}
	if c.ca, err = newAuthority(); err != nil {
		return nil, err
	}
	users := map[string]pair{}
	// The controllers run with this one identity, and RBAC binds what each of them may do to service accounts; kwok has no
	// rules of its own at all.
	groups := map[string]string{
		"admin": masters, operatorUser: masters, "kwok": masters, "system:kube-controller-manager": masters,
		"system:kube-scheduler": "", "etcd-client": "",
	}
	for user, group := range groups {
		var in []string
		if group != "" {
			in = []string{group}
		}
		if users[user], err = c.ca.client(user, in...); err != nil {
			return nil, err
		}
	}
	server, err := c.ca.server()
	if err != nil {
		return nil, err
	}
	private, public, err := serviceAccountKeys()
	if err != nil {
		return nil, err
	}
	kwokStages, err := stages()
	if err != nil {
		return nil, err
	}

	pki, config, address := filepath.Join(c.dir, "pki"), filepath.Join(c.dir, "config"), url(c.ports.apiserver)
	err = errors.Join(
		server.write(pki, "server"),
		users["admin"].write(pki, "admin"),
		users["etcd-client"].write(pki, "etcd-client"),
		os.WriteFile(filepath.Join(pki, "ca.crt"), c.ca.pem, 0o644),
		os.WriteFile(filepath.Join(pki, "sa.key"), private, 0o600),
		os.WriteFile(filepath.Join(pki, "sa.pub"), public, 0o644),
		os.WriteFile(filepath.Join(config, "audit-policy.yaml"), auditPolicy(c.options.auditUsers), 0o644),
		os.WriteFile(filepath.Join(config, "stages.yaml"), kwokStages, 0o644),
	)
	for name, user := range map[string]string{
		"kube-controller-manager": "system:kube-controller-manager", "kube-scheduler": "system:kube-scheduler", "kwok": "kwok",
	} {
		text := kubeconfig(address, user, c.ca.pem, users[user])
		err = errors.Join(err, os.WriteFile(filepath.Join(config, name+".kubeconfig"), text, 0o600))
	}
	if err != nil {
		return nil, err
	}
	// etcd wants a client certificate as well; the administrator's does for both.
	c.api, err = newAPI(c.ca.pem, users["admin"])
	return users, err
}

func logNames() []string {
	names := make([]string, len(programs))
	for i, name := range programs {
		names[i] = filepath.Join("logs", name+".log")
	}
	return names
}

// choosePorts finds free ports. All of them are held until the last one is found, so that none is given twice.
func choosePorts(apiserver int) (ports, error) {
	var held []net.Listener
	defer func() {
		for _, listener := range held {
			listener.Close()
		}
	}()
	choose := func(port int) (int, error) {
		listener, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return 0, err
		}
		held = append(held, listener)
		return listener.Addr().(*net.TCPAddr).Port, nil
	}
	p := ports{}
	var err error
	if p.apiserver, err = choose(apiserver); err != nil {
		return p, fmt.Errorf("kube-apiserver cannot have port %d: %w; choose another with --port, or leave it out for a "+
			"free one", apiserver, err)
	}
	for _, port := range []*int{&p.etcd, &p.peer, &p.controllers, &p.scheduler} {
		if *port, err = choose(0); err != nil {
			return p, err
		}
	}
	return p, nil
}

// launch starts one program and records it before anything else can go wrong.
func (c *cluster) launch(name string, args []string) error {
	path := filepath.Join(c.dir, "logs", name+".log")
	log, err := os.Create(path)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(c.options.bin, name), args...)
	cmd.Dir = c.dir
	cmd.Stdout, cmd.Stderr = log, log // and standard input is /dev/null
	// Little of the caller's environment: neither its proxies nor a configuration in its home folder is meant for these.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.dir, "TMPDIR=" + os.TempDir()}
	// A session of its own, so that Ctrl-C in the terminal of the caller does not reach it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s does not start: %w", name, err)
	}
	started := &component{name: name, log: path, gone: make(chan struct{})}
	p, err := describe(name, cmd.Process.Pid, roleComponent)
	if err == nil {
		c.state.Processes = append(c.state.Processes, p)
	} // else it is gone already, which await reports
	go func() {
		started.err = cmd.Wait()
		close(started.gone)
	}()
	c.running = append(c.running, started)
	return c.state.write(c.dir)
}

// await asks again and again until there is no error. It ends early when the program does, or the context.
func (c *cluster) await(ctx context.Context, name, what string, ask func() error) error {
	part := c.running[slices.IndexFunc(c.running, func(p *component) bool { return p.name == name })]
	for {
		err := ask()
		select {
		case <-part.gone:
			return c.ended(part)
		default:
		}
		if err == nil {
			c.say("%s %s after %.1f s", name, what, time.Since(c.began).Seconds())
			return nil
		}
		select {
		case <-part.gone:
			return c.ended(part)
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("%s is not ready: %w; last answer: %w; %s", name, context.Cause(ctx), err, tail(part.log))
			}
			return fmt.Errorf("%w while waiting for %s; what had started was ended", context.Cause(ctx), name)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// ended says how a program ended that should not have.
func (c *cluster) ended(part *component) error {
	how := "with exit status 0"
	if part.err != nil {
		how = "with " + part.err.Error()
	}
	text, _ := os.ReadFile(part.log)
	err := fmt.Errorf("%s ended by itself %s; %s", part.name, how, tail(part.log))
	if bytes.Contains(text, []byte("address already in use")) {
		return fmt.Errorf("%w: %w", errPortTaken, err)
	}
	return err
}

// tail gives the end of a log, for a message.
func tail(path string) string {
	text, err := os.ReadFile(path)
	text = bytes.TrimSpace(text)
	if err != nil || len(text) == 0 {
		return "its log " + path + " is empty"
	}
	lines := strings.Split(string(text), "\n")
	lines = lines[max(0, len(lines)-15):]
	return "the end of " + path + ":\n  | " + strings.Join(lines, "\n  | ")
}

// stay waits until it is told to end, which is no error, or until a program ends, which is one.
func (c *cluster) stay(ctx context.Context) error {
	gone := make(chan *component, len(c.running))
	for _, part := range c.running {
		go func() {
			<-part.gone
			gone <- part
		}()
	}
	select {
	case <-ctx.Done():
		c.say("%v; ending", context.Cause(ctx))
		return nil
	case part := <-gone:
		return c.ended(part)
	}
}

// stop ends everything this run started, and what was recorded with it.
func (c *cluster) stop() {
	if c.state != nil {
		endAll(c.state.Processes)
	}
}

// nodeReady asks whether pods can be put on a node: it is Ready, and the taint is gone that every new node gets.
func (c *cluster) nodeReady(ctx context.Context, address string) error {
	var node struct {
		Spec struct {
			Taints []struct{ Key string }
		}
		Status struct {
			Conditions []struct{ Type, Status string }
		}
	}
	if err := c.api.get(ctx, address, &node); err != nil {
		return err
	}
	if len(node.Spec.Taints) > 0 {
		return fmt.Errorf("the node has the taint %s", node.Spec.Taints[0].Key)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == "Ready" && condition.Status == "True" {
			return nil
		}
	}
	return errors.New("the node is not Ready")
}

// api is a client of the servers of one control plane.
type api struct{ http *http.Client }

func newAPI(ca []byte, user pair) (*api, error) {
	config, err := clientTLS(ca, user)
	if err != nil {
		return nil, err
	}
	return &api{&http.Client{Transport: &http.Transport{TLSClientConfig: config}, Timeout: 10 * time.Second}}, nil
}

// get succeeds when the answer is 200, and reads it into the given value if there is one.
func (a *api) get(ctx context.Context, address string, into any) error {
	return a.do(ctx, http.MethodGet, address, nil, into)
}

func (a *api) post(ctx context.Context, address string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return a.do(ctx, http.MethodPost, address, text, nil)
}

func (a *api) do(ctx context.Context, method, address string, body []byte, into any) error {
	request, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := a.http.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s: %s", method, address, answer.Status, brief(string(text)))
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}

// brief makes one line of an answer. Of what a /readyz lists, it leaves out what is fine.
func brief(answer string) string {
	lines := strings.Split(strings.TrimSpace(answer), "\n")
	return strings.Join(slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "[+]") }), "; ")
}
