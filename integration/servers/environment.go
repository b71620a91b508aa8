package servers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"github.com/redis/go-redis/v9"
	"github.com/testcontainers/testcontainers-go"
	tclog "github.com/testcontainers/testcontainers-go/log"

	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// oldest is the first version of Redis that the stores promise to work with.
const oldest = 7

// environment describes the servers that this process can use. It is detected when a test first
// needs a server.
type environment struct {
	// images are the usable images. Without a container engine they are programs in PATH.
	images   []string
	programs bool // images are programs on this machine
	local    bool // containers can use the network of this machine
	lacking  lacking

	// running has a function for each image that starts its shared server on the first call.
	running map[string]func() (*Server, error)
}

// lacking holds the reasons why tests cannot have something. Empty means that they can.
type lacking struct {
	servers  string // any server
	own      string // a server for one test
	clusters string // a cluster for one test
	networks string // a network for one test
}

var env = sync.OnceValue(func() *environment {
	e := &environment{images: wantedImages(), running: make(map[string]func() (*Server, error))}
	e.find()
	if reason := e.lacking.servers; reason != "" {
		say("no tests on servers: %s", reason)
	}
	return e
})

// wantedImages returns the images in RATELIMIT_IMAGES, separated by commas, or else the newest
// Redis and the newest Valkey, and in a full run the oldest Redis too.
func wantedImages() []string {
	if names := os.Getenv("RATELIMIT_IMAGES"); names != "" {
		return strings.Split(names, ",")
	}
	newest := []string{"redis:8", "valkey/valkey:9"}
	return depth.Of(newest, append([]string{"redis:7"}, newest...))
}

// Images are the servers that every test runs on, oldest first.
func Images() []string { return env().images }

// Newest is the image of the newest server.
func Newest() string {
	all := Images()
	return all[len(all)-1]
}

// EachImage runs f, as a subtest, on every image.
func EachImage(t *testing.T, f func(t *testing.T, image string)) {
	t.Helper()
	onImages(t, Images(), f)
}

// OneImage runs f, as a subtest, on one image, in a full run on all of them.
func OneImage(t *testing.T, one string, f func(t *testing.T, image string)) {
	t.Helper()
	on := Images()
	if !depth.Full && slices.Contains(on, one) {
		on = []string{one}
	}
	onImages(t, on, f)
}

func onImages(t *testing.T, on []string, f func(t *testing.T, image string)) {
	t.Helper()
	for _, image := range on {
		t.Run(strings.ReplaceAll(image, "/", "-"), func(t *testing.T) { f(t, image) })
	}
}

// needServers skips a test if there is no server.
func needServers(t testing.TB) {
	t.Helper()
	Need(t, env().lacking.servers)
}

// NeedOwn skips a test that cannot have its own server.
func NeedOwn(t testing.TB) {
	t.Helper()
	Need(t, env().lacking.own)
}

// needCluster skips a test that cannot have a cluster.
func needCluster(t testing.TB) {
	t.Helper()
	Need(t, env().lacking.clusters)
}

// NeedNetwork skips a test that cannot have a network of containers.
func NeedNetwork(t testing.TB) {
	t.Helper()
	Need(t, env().lacking.networks)
}

// Need skips a test that lacks something, or fails it if servers are required. lacking says what it
// is, or is empty.
func Need(t testing.TB, lacking string) {
	t.Helper()
	if lacking != "" {
		Skip(t, lacking)
	}
}

// find prepares containers if an engine answers, or else programs in PATH. Tests on servers given
// by address need neither, unless they start servers of their own.
func (e *environment) find() {
	noContainers := e.findContainers()
	if noContainers == "" {
		return
	}
	e.lacking.networks = "a network of containers is needed, and " + noContainers
	noPrograms := e.findPrograms(noContainers)
	if noPrograms == "" {
		return
	}
	e.images = wantedImages() // their tests are skipped
	e.lacking.own = noContainers + "; " + noPrograms
	e.lacking.clusters = e.lacking.own
	if len(givenAddresses()) == 0 {
		e.lacking.servers = e.lacking.own
	}
}

// findContainers returns why tests cannot use containers, or "". It gets the missing images and
// starts the server of the first image, to check that the engine can. Containers do not share the
// network of this machine if the engine runs in a virtual machine. Then tests connect to published
// ports only, and clients of a cluster cannot connect to its nodes.
func (e *environment) findContainers() string {
	tclog.SetDefault(tclog.NewNoopLogger())
	setDefaultEnv("TESTCONTAINERS_RYUK_DISABLED", "true")
	// If /.dockerenv exists, testcontainers looks for published ports on the default gateway. An
	// engine's bridge shows that the engine runs on this machine.
	timeout := 10 * time.Second
	if _, err := net.InterfaceByName("docker0"); err == nil {
		setDefaultEnv("TESTCONTAINERS_HOST_OVERRIDE", "localhost")
		timeout = startTimeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := dockerAnswers(ctx); err != nil {
		return fmt.Sprintf("no Docker engine answers (%s)", firstLine(err))
	}
	if err := sweep(ctx); err != nil {
		say("removing containers of earlier runs: %v", err)
	}
	if err := e.keep(getImages(e.images)); err != nil {
		return firstLine(err)
	}
	for _, image := range e.images {
		e.running[image] = starter(image, func() (*Server, error) {
			return e.newServer(image, Launch{})
		})
	}
	first := e.images[0]
	ctx, cancel = context.WithTimeout(context.Background(), timeout)
	defer cancel()
	s, err := newOnHost(ctx, first, Launch{})
	if err == nil {
		e.local = true
		e.running[first] = starter(first, func() (*Server, error) { return s, nil })
	} else {
		e.lacking.networks = fmt.Sprintf("containers are not on this machine's network (%s)",
			firstLine(err))
		e.lacking.clusters = e.lacking.networks
	}
	if _, err := e.running[first](); err != nil {
		return firstLine(err)
	}
	return ""
}

// findPrograms returns why tests cannot use programs on this machine either, or "".
func (e *environment) findPrograms(noContainers string) string {
	e.images = nil
	for _, name := range []string{"redis-server", "valkey-server"} {
		if _, err := exec.LookPath(name); err == nil {
			e.images = append(e.images, name)
		}
	}
	if len(e.images) == 0 {
		return "neither redis-server nor valkey-server is in PATH"
	}
	say("using programs instead of containers: %s", noContainers)
	e.programs = true
	tooOld := make(map[string]error)
	for _, image := range e.images {
		e.running[image] = starter(image, func() (*Server, error) {
			return e.newServer(image, Launch{})
		})
		if _, err := e.running[image](); err != nil {
			tooOld[image] = err
		}
	}
	if err := e.keep(tooOld); err != nil {
		return firstLine(err)
	}
	return ""
}

// keep removes the images that are unavailable. It returns an error if none is left.
func (e *environment) keep(cannot map[string]error) error {
	kept := slices.DeleteFunc(slices.Clone(e.images),
		func(image string) bool { return cannot[image] != nil })
	if len(kept) == 0 {
		return errors.Join(slices.Collect(maps.Values(cannot))...)
	}
	e.images = kept
	for image, err := range cannot {
		if err != nil {
			ran.skip(fmt.Sprintf("all tests on %s: %s", image, firstLine(err)))
			say("no tests on %s: %s", image, firstLine(err))
		}
	}
	return nil
}

// starter returns a function that starts the shared server of an image once.
func starter(image string, start func() (*Server, error)) func() (*Server, error) {
	return sync.OnceValues(func() (*Server, error) {
		s, err := start()
		if err != nil {
			return nil, err
		}
		AtEnd(s.close)
		version, err := versionOf(s.Addr)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", image, err)
		}
		Measured("%s is %s", image, version)
		return s, nil
	})
}

func versionOf(addr string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), FaultTimeout)
	defer cancel()
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer c.Close()
	all, err := c.InfoMap(ctx, "server").Result()
	if err != nil {
		return "", err
	}
	info := all["Server"]
	if version := info["valkey_version"]; version != "" {
		return "valkey " + version, nil
	}
	version := info["redis_version"]
	var major int
	if _, err := fmt.Sscanf(version, "%d.", &major); err != nil || major < oldest {
		return "", fmt.Errorf("redis %s is not supported: it is older than %d.0", version, oldest)
	}
	return "redis " + version, nil
}

func setDefaultEnv(name, value string) {
	if _, ok := os.LookupEnv(name); !ok {
		os.Setenv(name, value)
	}
}

// dockerAnswers pings the engine, the one in DOCKER_HOST if set. Testcontainers would try others
// after it, and panics if it finds no socket.
func dockerAnswers(ctx context.Context) (err error) {
	if os.Getenv("DOCKER_HOST") != "" {
		docker, err := client.New(client.FromEnv)
		if err != nil {
			return err
		}
		defer docker.Close()
		if _, err := docker.Info(ctx, client.InfoOptions{}); err != nil {
			return err
		}
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	provider, err := testcontainers.NewDockerProvider()
	if err != nil {
		return err
	}
	defer provider.Close()
	return provider.Health(ctx)
}

func givenAddresses() []given {
	var all []given
	for _, g := range []given{
		{"given redis", "RATELIMIT_REDIS_ADDR"},
		{"given valkey", "RATELIMIT_VALKEY_ADDR"},
	} {
		if addr := os.Getenv(g.addr); addr != "" {
			all = append(all, given{g.name, addr})
		}
	}
	return all
}
