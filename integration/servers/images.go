package servers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/api/pkg/authconfig"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

const (
	imagesTimeout = 10 * time.Minute // for all images together

	// registryTimeout is how long a pull may go without progress.
	registryTimeout = 15 * time.Second
)

// getImages gets the images that the engine lacks: it pulls them, and builds those that no registry
// has. It returns, for each image that is unavailable, the reason.
func getImages(images []string) map[string]error {
	ctx, cancel := context.WithTimeout(context.Background(), imagesTimeout)
	defer cancel()
	docker, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return nil // starting a container reports the error
	}
	defer docker.Close()
	has := func(image string) bool {
		_, err := docker.ImageInspect(ctx, image)
		return err == nil
	}
	missing := slices.DeleteFunc(slices.Clone(images), has)
	if len(missing) == 0 {
		return nil
	}
	say("images: pulling %s", strings.Join(missing, ", "))
	errs := make([]error, len(missing))
	var wg sync.WaitGroup
	for i, image := range missing {
		wg.Go(func() { errs[i] = pull(ctx, docker, image) })
	}
	wg.Wait()
	missing = slices.DeleteFunc(missing, has)
	if len(missing) == 0 {
		say("images: pulled")
		return nil
	}
	say("images: pulling failed: %s", firstLine(errors.Join(errs...)))
	say("images: building %s from Debian packages", strings.Join(missing, ", "))
	err = buildImages(ctx, docker.DaemonHost(), missing)
	lacking := make(map[string]error)
	for _, image := range slices.DeleteFunc(missing, has) {
		lacking[image] = err
	}
	return lacking
}

// hasImage reports whether the engine has an image.
func hasImage(image string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), FaultTimeout)
	defer cancel()
	return withDocker(ctx, func(docker *testcontainers.DockerClient) error {
		_, err := docker.ImageInspect(ctx, image)
		return err
	}) == nil
}

// pull gives up when nothing arrives for registryTimeout.
func pull(ctx context.Context, docker *testcontainers.DockerClient, image string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(registryTimeout, func() {
		cancel(fmt.Errorf("pulling %s: no data for %v", image, registryTimeout))
	})
	defer silence.Stop()
	opts := client.ImagePullOptions{}
	if _, auth, err := testcontainers.DockerImageAuth(ctx, image); err == nil {
		if opts.RegistryAuth, err = authconfig.Encode(auth); err != nil {
			return err
		}
	}
	progress, err := docker.ImagePull(ctx, image, opts)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return err
	}
	defer progress.Close()
	for message, err := range progress.JSONMessages(ctx) {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		case message.Error != nil:
			return message.Error
		}
		silence.Reset(registryTimeout)
	}
	return nil
}

// buildImages runs the script that builds images and reports its output. Scripts that run at the
// same time wait for each other.
func buildImages(ctx context.Context, host string, images []string) error {
	script := Module + "/scripts/offline-images.sh"
	cmd := exec.CommandContext(ctx, "bash", append([]string{script}, images...)...)
	cmd.Env = append(os.Environ(), "DOCKER_HOST="+host)
	out, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	last := ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		last = lines.Text()
		say("images: %s", last)
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("building the image: %w: %s", err, last)
	}
	return nil
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
