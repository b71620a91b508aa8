package servers

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/exec"

	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// HostName is this machine's name in the containers that StartOther starts. Browsers use HTTPS only
// for all names that end in app.
const HostName = "host.test"

// An Other is a container that runs neither Redis nor Valkey.
type Other struct {
	Image, IP string
	container testcontainers.Container
}

// lackingOther returns why an image is unavailable, or "".
var lackingOther = struct {
	mu      sync.Mutex
	reasons map[string]string
}{reasons: make(map[string]string)}

// NeedImage skips a test if an image is not there. A run that is full, or that requires servers,
// gets it.
func NeedImage(t testing.TB, image string) {
	t.Helper()
	NeedNetwork(t)
	lackingOther.mu.Lock()
	defer lackingOther.mu.Unlock()
	reason, known := lackingOther.reasons[image]
	if !known {
		if !depth.Full && !required && !hasImage(image) {
			reason = fmt.Sprintf("the image %s is not there; with RATELIMIT_REQUIRE_SERVERS=1 the "+
				"tests get it", image)
		} else if err := getImages([]string{image})[image]; err != nil {
			reason = fmt.Sprintf("the image %s is unavailable: %s", image, firstLine(err))
		}
		lackingOther.reasons[image] = reason
	}
	Need(t, reason)
}

// StartOther starts a container of an image with files, by absolute name, and with cmd instead of
// the image's command, if given. It does not wait until the program answers. If the test fails, it
// logs the program's output.
func StartOther(t testing.TB, image string, files map[string]string, cmd ...string) *Other {
	t.Helper()
	NeedImage(t, image)
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	opts := []testcontainers.ContainerCustomizer{
		testcontainers.WithHostConfigModifier(func(hc *container.HostConfig) {
			hc.ExtraHosts = append(hc.ExtraHosts, HostName+":host-gateway")
		}),
	}
	if len(cmd) > 0 {
		opts = append(opts,
			testcontainers.WithEntrypoint(cmd[0]), testcontainers.WithCmd(cmd[1:]...))
	}
	for name, content := range files {
		opts = append(opts, testcontainers.WithFiles(testcontainers.ContainerFile{
			Reader: bytes.NewReader([]byte(content)), ContainerFilePath: name, FileMode: 0o644,
		}))
	}
	c, err := runImage(ctx, image, opts...)
	if err != nil {
		t.Fatal(err)
	}
	o := &Other{Image: image, container: c}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s: %s", image, o.logs())
		}
		err := testcontainers.TerminateContainer(c, testcontainers.StopTimeout(0))
		if err != nil {
			t.Error(err)
		}
	})
	if o.IP, err = c.ContainerIP(ctx); err != nil {
		t.Fatal(err)
	}
	CountTest(t, image)
	return o
}

// Exec runs a command in the container and returns its output. If the command fails, so does the
// test.
func (o *Other) Exec(t testing.TB, cmd ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	code, out, err := o.container.Exec(ctx, cmd, exec.Multiplexed())
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(out)
	if err != nil || code != 0 {
		t.Fatalf("%s in %s: exit code %d, %v: %s", cmd[0], o.Image, code, err, text)
	}
	return string(text)
}

func (o *Other) logs() []byte {
	ctx, cancel := context.WithTimeout(context.Background(), FaultTimeout)
	defer cancel()
	logs, err := o.container.Logs(ctx)
	if err != nil {
		return []byte(err.Error())
	}
	defer logs.Close()
	text, _ := io.ReadAll(logs)
	return text
}
