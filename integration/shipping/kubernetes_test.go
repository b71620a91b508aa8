package shipping

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/daemon"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/layer"
)

// cluster has the objects of the manifests.
type cluster struct {
	deployment apps.Deployment
	limits     core.ConfigMap
	secret     core.Secret
	service    core.Service
	admin      core.Service
	network    networking.NetworkPolicy
	budget     policy.PodDisruptionBudget
}

// readCluster reads the manifests. A field that Kubernetes does not know is an error.
func readCluster(t *testing.T) *cluster {
	t.Helper()
	c := new(cluster)
	objects := map[string]any{
		"deployment": &c.deployment, "configmap": &c.limits, "secret": &c.secret,
		"service": &c.service, "service-admin": &c.admin, "networkpolicy": &c.network,
		"poddisruptionbudget": &c.budget,
	}
	files, err := filepath.Glob(filepath.Join(servers.Module, "deploy/kubernetes/*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(objects)+2 { // kustomization.yaml and monitoring
		t.Errorf("there are %d manifests, and %d are known", len(files)-2, len(objects))
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
		case "RATELIMIT_READ_TOKEN_FILE", "RATELIMIT_WRITE_TOKEN_FILE":
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
		"Service admin":       c.admin.Spec.Selector,
		"NetworkPolicy":       c.network.Spec.PodSelector.MatchLabels,
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

// checkFile fails unless data, which is mounted at mount, has a file, and the volume shows it.
func (c *cluster) checkFile(t *testing.T, path, mount string, data map[string]string) {
	t.Helper()
	dir, file := filepath.Split(path)
	if mount != filepath.Clean(dir) || data[file] == "" {
		t.Errorf("no ConfigMap and no Secret has %s", path)
	}
	for _, v := range c.pod().Volumes {
		if v.Secret != nil && data["store"] != "" &&
			!slices.ContainsFunc(v.Secret.Items, func(item core.KeyToPath) bool {
				return item.Key == file && item.Path == file
			}) {
			t.Errorf("the volume %s does not show %s", v.Name, file)
		}
	}
}

// TestKubernetesServes: the service starts with the flags, the variables and the limits of the
// manifests, and answers the probes. With a token of the manifest it does not start. Only who has a
// token of the Secret scrapes the address of the Service for Prometheus.
func TestKubernetesServes(t *testing.T) {
	c, bin, dir := readCluster(t), daemon.Build(t), t.TempDir()
	write := func(name, text string) (path string) {
		path = filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, right := range []string{"read", "write"} {
		tokens := write("tokens", c.secret.StringData[right+"-tokens"])
		out := daemon.RunRefused(t, bin, "--store=memory", "--"+right+"-token-file="+tokens)
		if !strings.Contains(out, "has a token of less than") {
			t.Errorf("with the token of the manifest, got %s", out)
		}
	}

	const reading = "a-token-for-prometheus"
	flags := c.flags(write("limits.yaml", c.limits.Data["limits.yaml"]),
		write("read-tokens", reading))
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
	if status, _ := d.Get(t, "/metrics"); status != http.StatusNotFound {
		t.Errorf("metrics at the port of decisions: status %d", status)
	}
	admin := othersLogged.FindStringSubmatch(d.Logged())
	if admin == nil {
		t.Fatalf("no second address in %s", d.Logged())
	}
	for token, want := range map[string]int{
		"": http.StatusUnauthorized, reading: http.StatusOK, daemon.Token: http.StatusOK,
	} {
		if got := scrape(t, admin[1], "ratelimit-admin", token); got != want {
			t.Errorf("a scrape with the token %q: status %d, want %d", token, got, want)
		}
	}
}

var othersLogged = regexp.MustCompile(`"others":\["([^"]*)"`)

// scrape returns the status of the metrics at an address under a name, with a token if it is not
// empty.
func scrape(t *testing.T, addr, name, token string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/metrics",
		http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = name
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// flags returns the flags of the container and its variables as flags, on free ports, with a store
// in memory, limits and tokens in files, and without write tokens.
func (c *cluster) flags(limits, readTokens string) []string {
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
		case "READ_TOKEN_FILE":
			value = readTokens
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

// TestKubernetesStops: a pod has the time to drain and to finish the requests in flight. While it
// drains, each connection of gRPC ends, so that its client finds another pod.
func TestKubernetesStops(t *testing.T) {
	const inFlight = 10 * time.Second // of the service
	c := readCluster(t)
	grace := time.Duration(*c.pod().TerminationGracePeriodSeconds) * time.Second
	drain := c.duration(t, "drain")
	if drain <= 0 || grace <= drain+inFlight {
		t.Errorf("pods have %v to drain for %v and to finish requests", grace, drain)
	}
	age := c.duration(t, "grpc-max-connection-age")
	if longest := age + age/10; age <= 0 || longest >= drain {
		t.Errorf("a connection lasts for up to %v, and the drain for %v", longest, drain)
	}
}

// duration returns the value of a flag of the container.
func (c *cluster) duration(t *testing.T, flag string) time.Duration {
	t.Helper()
	for _, arg := range c.container().Args {
		value, ok := strings.CutPrefix(arg, "--"+flag+"=")
		if !ok {
			continue
		}
		d, err := time.ParseDuration(value)
		if err != nil {
			t.Error(err)
		}
		return d
	}
	t.Errorf("the pods have no --%s", flag)
	return 0
}

// TestKubernetesNetwork: the policy lets pods reach each port, those of decisions from the same
// namespace and that of the metrics from another one only.
func TestKubernetesNetwork(t *testing.T) {
	c := readCluster(t)
	if got := c.network.Spec.PolicyTypes; !slices.Equal(got,
		[]networking.PolicyType{networking.PolicyTypeIngress}) {
		t.Errorf("the policy is for %v; with egress, the service does not reach its server", got)
	}
	from := make(map[string]string) // from the name of a port to who may reach it
	for _, rule := range c.network.Spec.Ingress {
		if len(rule.From) == 0 || len(rule.Ports) == 0 {
			t.Error("a rule is for everyone or for every port")
		}
		for _, port := range rule.Ports {
			for _, peer := range rule.From {
				switch {
				case peer.IPBlock != nil || peer.NamespaceSelector == nil &&
					peer.PodSelector == nil:
					t.Errorf("the rule for %s is %+v", port.Port, peer)
				case peer.NamespaceSelector == nil:
					from[port.Port.StrVal] += "same "
				case len(peer.NamespaceSelector.MatchLabels) > 0:
					from[port.Port.StrVal] += "other "
				default:
					t.Errorf("all namespaces reach %s", port.Port)
				}
			}
		}
	}
	want := map[string]string{"http": "same ", "grpc": "same ", "admin": "other "}
	if !maps.Equal(from, want) {
		t.Errorf("the policy lets %v reach the ports, want %v", from, want)
	}
	for _, port := range c.container().Ports {
		if from[port.Name] == "" {
			t.Errorf("nobody reaches the port %s", port.Name)
		}
	}
}

// TestKubernetesScrape: the job of the page leads to each pod, by the name of the Service for
// Prometheus.
func TestKubernetesScrape(t *testing.T) {
	c := readCluster(t)
	spec := c.admin.Spec
	if spec.ClusterIP != core.ClusterIPNone || !spec.PublishNotReadyAddresses {
		t.Errorf("the name is of one pod, or only of those that are ready: %+v", spec)
	}
	if len(spec.Ports) != 1 || spec.Ports[0].TargetPort.StrVal != "admin" {
		t.Fatalf("the ports are %+v", spec.Ports)
	}
	var job []struct {
		DNS []struct {
			Names []string
			Type  string
			Port  int32
		} `json:"dns_sd_configs"`
		Authorization map[string]string
	}
	if err := yaml.Unmarshal([]byte(blockOf(t, "yaml", "dns_sd_configs")), &job); err != nil {
		t.Fatal(err)
	}
	dns := job[0].DNS[0]
	if !slices.Equal(dns.Names, []string{c.admin.Name + ".NAMESPACE.svc"}) || dns.Type != "A" ||
		dns.Port != spec.Ports[0].Port || job[0].Authorization["credentials_file"] == "" {
		t.Errorf("the job is %+v", job)
	}
	for _, p := range c.container().Ports {
		if p.Name == "admin" && p.ContainerPort != dns.Port {
			t.Errorf("the job asks port %d, and the pods have %d", dns.Port, p.ContainerPort)
		}
	}
}

// TestKubernetesMemory: a pod has the memory for the local decisions of an outage when there is no
// room for another key, which is more than a full memory store takes. Its garbage collector knows
// how much that is.
func TestKubernetesMemory(t *testing.T) {
	c := readCluster(t)
	limit := c.container().Resources.Limits.Memory().Value()
	var most int64 // of what the collector lets the process use
	for _, e := range c.container().Env {
		if e.Name == "GOMEMLIMIT" {
			quantity, err := resource.ParseQuantity(strings.TrimSuffix(e.Value, "B"))
			if err != nil {
				t.Fatal(err)
			}
			most = quantity.Value()
		}
	}
	if most < limit*8/10 || most > limit*19/20 {
		t.Errorf("GOMEMLIMIT is %d, of %d", most, limit)
	}

	store, err := layer.NewDegraded(down{}, &layer.DegradedOptions{Instances: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }() // it has recorded nothing
	limiter, err := ratelimit.New(store,
		algorithm.SlidingLog(ratelimit.PerHour("requests", 100)))
	if err != nil {
		t.Fatal(err)
	}
	const service = 60 << 20 // of the program without a store, and its requests
	before := heap()
	for i := range memorystore.DefaultMaxKeys {
		if _, err := limiter.Allow(t.Context(), fmt.Sprintf("user:%016d", i)); err != nil {
			t.Fatal(err)
		}
	}
	full := heap() - before
	runtime.KeepAlive(limiter)
	t.Logf("a full store takes %d MB of %d", full>>20, most>>20)
	if full+full/4+service > most { // a quarter for the collector
		t.Errorf("a full store takes %d bytes, of %d", full, most)
	}
}

// down is a store in an outage.
type down struct{}

func (down) Take(context.Context, driver.Demand) (ratelimit.Result, error) {
	return ratelimit.Result{}, ratelimit.ErrUnavailable
}

func (down) TakeAll(context.Context, []driver.Demand, []ratelimit.Result) error {
	return ratelimit.ErrUnavailable
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
