package shipping

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"

	"github.com/truewindow/ratelimit/integration/daemon"
	"github.com/truewindow/ratelimit/integration/servers"
)

// cluster has the objects of the manifests.
type cluster struct {
	deployment apps.Deployment
	limits     core.ConfigMap
	secret     core.Secret
	service    core.Service
	budget     policy.PodDisruptionBudget
}

// readCluster reads the manifests. A field that Kubernetes does not know is an error.
func readCluster(t *testing.T) *cluster {
	t.Helper()
	c := new(cluster)
	objects := map[string]any{
		"deployment": &c.deployment, "configmap": &c.limits, "secret": &c.secret,
		"service": &c.service, "poddisruptionbudget": &c.budget,
	}
	files, err := filepath.Glob(filepath.Join(servers.Module, "deploy/kubernetes/*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(objects) {
		t.Errorf("there are %d manifests, and %d are known", len(files), len(objects))
	}
	for name, object := range objects {
		text, err := os.ReadFile(filepath.Join(servers.Module, "deploy/kubernetes", name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(text, object); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return c
}

func (c *cluster) pod() *core.PodSpec { return &c.deployment.Spec.Template.Spec }

func (c *cluster) container() *core.Container { return &c.pod().Containers[0] }

// TestKubernetesReferences: what the manifests name is in them.
func TestKubernetesReferences(t *testing.T) {
	c := readCluster(t)
	c.checkSelectors(t)
	ports := make(map[string]int32)
	for _, p := range c.container().Ports {
		ports[p.Name] = p.ContainerPort
	}
	c.checkPorts(t, ports)
	mounts := make(map[string]string)
	for _, m := range c.container().VolumeMounts {
		mounts[m.Name] = m.MountPath
		if m.SubPath != "" {
			t.Errorf("the mount %s has a subPath, so it does not change with its source", m.Name)
		}
	}
	for _, v := range c.pod().Volumes {
		if v.ConfigMap != nil && v.ConfigMap.Name != c.limits.Name ||
			v.Secret != nil && v.Secret.SecretName != c.secret.Name {
			t.Errorf("the volume %s has no source", v.Name)
		}
	}
	for _, e := range c.container().Env {
		switch e.Name {
		case "RATELIMIT_CONFIG":
			c.checkFile(t, e.Value, mounts["limits"], c.limits.Data)
		case "RATELIMIT_WRITE_TOKEN_FILE":
			c.checkFile(t, e.Value, mounts["tokens"], c.secret.StringData)
		case "RATELIMIT_ADMIN_ADDR", "RATELIMIT_GRPC_ADDR":
			port := strings.ToLower(e.Name[len("RATELIMIT_"):strings.LastIndex(e.Name, "_")])
			if want := fmt.Sprintf(":%d", ports[port]); e.Value != want {
				t.Errorf("%s is %s, and the port %s", e.Name, e.Value, want)
			}
		case "RATELIMIT_STORE":
			if ref := e.ValueFrom.SecretKeyRef; ref.Name != c.secret.Name ||
				c.secret.StringData[ref.Key] == "" {
				t.Errorf("no Secret has %s of %s", ref.Key, ref.Name)
			}
		}
	}
}

func (c *cluster) checkSelectors(t *testing.T) {
	t.Helper()
	for what, selector := range map[string]map[string]string{
		"Deployment":          c.deployment.Spec.Selector.MatchLabels,
		"Service":             c.service.Spec.Selector,
		"PodDisruptionBudget": c.budget.Spec.Selector.MatchLabels,
		"spread of pods":      c.pod().TopologySpreadConstraints[0].LabelSelector.MatchLabels,
	} {
		if len(selector) == 0 {
			t.Errorf("the %s selects all pods", what)
		}
		for name, value := range selector {
			if c.deployment.Spec.Template.Labels[name] != value {
				t.Errorf("the %s selects %s=%s, which the pods do not have", what, name, value)
			}
		}
	}
}

func (c *cluster) checkPorts(t *testing.T, ports map[string]int32) {
	t.Helper()
	if ports["http"] != 8080 {
		t.Errorf("the port of pods is %d; the image has 8080", ports["http"])
	}
	for _, p := range c.service.Spec.Ports {
		if ports[p.TargetPort.StrVal] == 0 || p.TargetPort.StrVal == "admin" {
			t.Errorf("the Service leads to the port %q", p.TargetPort.StrVal)
		}
	}
	for _, probe := range c.probes() {
		if name := probe.HTTPGet.Port.StrVal; name != "http" {
			t.Errorf("a probe asks the port %q", name)
		}
	}
}

func (c *cluster) probes() []*core.Probe {
	return []*core.Probe{c.container().LivenessProbe, c.container().ReadinessProbe}
}

// checkFile fails unless data, which is mounted at mount, has a file.
func (c *cluster) checkFile(t *testing.T, path, mount string, data map[string]string) {
	t.Helper()
	dir, file := filepath.Split(path)
	if mount != filepath.Clean(dir) || data[file] == "" {
		t.Errorf("no ConfigMap and no Secret has %s", path)
	}
}

// TestKubernetesServes: the service starts with the flags, the variables and the limits of the
// manifests, and answers the probes. With the token of the manifest it does not start.
func TestKubernetesServes(t *testing.T) {
	c, bin, dir := readCluster(t), daemon.Build(t), t.TempDir()
	write := func(name, text string) (path string) {
		path = filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tokens := write("write-tokens", c.secret.StringData["write-tokens"])
	out := daemon.RunRefused(t, bin, "--store=memory", "--write-token-file="+tokens)
	if !strings.Contains(out, "has a token of less than") {
		t.Errorf("with the token of the manifest, got %s", out)
	}

	flags := c.flags(write("limits.yaml", c.limits.Data["limits.yaml"]))
	d := daemon.Start(t, bin, append(flags, "--drain=0s")...) // the tests need none
	for _, probe := range c.probes() {
		if status, body := d.Get(t, probe.HTTPGet.Path); status != http.StatusOK {
			t.Errorf("%s: status %d, %s", probe.HTTPGet.Path, status, body)
		}
	}
	status, body, _ := d.PostJSON(t, "/v1/decide", `{"descriptor":{"user":"ann"}}`)
	if status != http.StatusOK || !strings.Contains(body, `"remaining":99`) {
		t.Errorf("decide: status %d, %s", status, body)
	}
}

// flags returns the flags of the container and its variables as flags, on free ports, with a store
// in memory, limits in a file, and without tokens.
func (c *cluster) flags(limits string) []string {
	flags := slices.Clone(c.container().Args)
	for _, e := range c.container().Env {
		name, ok := strings.CutPrefix(e.Name, "RATELIMIT_")
		if !ok {
			continue
		}
		value := strings.ReplaceAll(e.Value, "$(NAMESPACE)", "default")
		switch name {
		case "STORE":
			value = "memory"
		case "CONFIG":
			value = limits
		case "WRITE_TOKEN_FILE":
			continue
		case "ADMIN_ADDR", "GRPC_ADDR":
			value = "127.0.0.1:0"
		}
		flag := strings.ReplaceAll(strings.ToLower(name), "_", "-")
		flags = append(flags, "--"+flag+"="+value)
	}
	return flags
}

// TestKubernetesStops: a pod has the time to drain and to finish the requests in flight.
func TestKubernetesStops(t *testing.T) {
	const inFlight = 10 * time.Second // of the service
	c := readCluster(t)
	grace := time.Duration(*c.pod().TerminationGracePeriodSeconds) * time.Second
	for _, arg := range c.container().Args {
		value, ok := strings.CutPrefix(arg, "--drain=")
		if !ok {
			continue
		}
		drain, err := time.ParseDuration(value)
		if err != nil || drain <= 0 || grace <= drain+inFlight {
			t.Errorf("pods have %v to drain for %s and to finish requests: %v", grace, value, err)
		}
		return
	}
	t.Error("the pods do not drain")
}
