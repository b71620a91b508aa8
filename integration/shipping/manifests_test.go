package shipping

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/truewindow/ratelimit/integration/servers"
)

// render returns what kustomize makes of the overlay in docs/deploy.md, with these files beside it.
func render(t *testing.T, files map[string]string) resmap.ResMap {
	t.Helper()
	const repository, ref = "https://github.com/truewindow/ratelimit//", "?ref=main"
	overlay := strings.NewReplacer(repository, "../", ref, "").Replace(
		blockOf(t, "yaml", "# kustomization.yaml"))
	fs := filesys.MakeFsInMemory()
	write := func(path, text string) {
		if err := fs.WriteFile(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"deploy/kubernetes", "deploy/kubernetes/monitoring",
		"docs/metrics"} {
		all, err := filepath.Glob(filepath.Join(servers.Module, dir, "*.*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range all {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			write(filepath.Join("/", dir, filepath.Base(path)), string(text))
		}
	}
	write("/overlay/kustomization.yaml", overlay)
	for name, text := range files {
		write("/overlay/"+name, text)
	}
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(fs, "/overlay")
	if err != nil {
		t.Fatal(err)
	}
	return rendered
}

// TestKustomize: the overlay of the documentation sets the image, the replicas, the limits, the
// server, the tokens and the policy, and adds what Prometheus and Grafana need.
func TestKustomize(t *testing.T) {
	rendered := render(t, map[string]string{"limits.yaml": "limits: []\n",
		"secret.env": "store=redis://db:6379\nread-tokens=r\nwrite-tokens=w\n"})
	texts := make(map[string][]byte)
	for _, r := range rendered.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		texts[r.GetKind()+" "+r.GetName()] = text
		if r.GetNamespace() != "limits" {
			t.Errorf("%s %s is in the namespace %q", r.GetKind(), r.GetName(), r.GetNamespace())
		}
	}
	decode := func(name string, object any) {
		t.Helper()
		if err := yaml.UnmarshalStrict(texts[name], object); err != nil || texts[name] == nil {
			t.Fatalf("%s: %v in %v", name, err, texts)
		}
	}
	var d apps.Deployment
	decode("Deployment ratelimit", &d)
	c := d.Spec.Template.Spec.Containers[0]
	if *d.Spec.Replicas != 3 || c.Image != "ghcr.io/truewindow/ratelimit:v0.1.0" {
		t.Errorf("%d replicas of %s", *d.Spec.Replicas, c.Image)
	}
	env := make(map[string]string)
	for _, e := range c.Env {
		env[e.Name] = e.Value
	}
	if env["RATELIMIT_ON_FAILURE"] != "open" || env["RATELIMIT_ADMIN_ADDR"] == "" {
		t.Errorf("the variables are %v", env)
	}
	var limits, dashboard core.ConfigMap
	decode("ConfigMap ratelimit", &limits)
	if limits.Data["limits.yaml"] != "limits: []\n" {
		t.Errorf("the limits are %v", limits.Data)
	}
	decode("ConfigMap ratelimit-dashboard", &dashboard)
	if !json.Valid([]byte(dashboard.Data["dashboard.json"])) ||
		dashboard.Labels["grafana_dashboard"] != "1" {
		t.Errorf("the dashboard is %v", dashboard)
	}
	var secret core.Secret
	decode("Secret ratelimit", &secret)
	if string(secret.Data["store"]) != "redis://db:6379" || len(secret.Data) != 3 ||
		len(secret.StringData) > 0 {
		t.Errorf("the secret is %v", secret)
	}
	var monitor struct {
		Spec struct {
			Selector            struct{ MatchLabels map[string]string }
			PodMetricsEndpoints []struct {
				Port          string
				Authorization struct {
					Credentials struct{ Name, Key string }
				}
			}
		}
	}
	if err := yaml.Unmarshal(texts["PodMonitor ratelimit"], &monitor); err != nil {
		t.Fatal(err)
	}
	endpoint := monitor.Spec.PodMetricsEndpoints[0]
	for name, value := range monitor.Spec.Selector.MatchLabels {
		if d.Spec.Template.Labels[name] != value {
			t.Errorf("the PodMonitor selects %s=%s", name, value)
		}
	}
	if endpoint.Port != "admin" || secret.Data[endpoint.Authorization.Credentials.Key] == nil ||
		endpoint.Authorization.Credentials.Name != secret.Name {
		t.Errorf("the PodMonitor is %+v", monitor)
	}
}

// TestGatewayManifests: what the manifest that docs/envoy-ai-gateway.md applies has are fields that
// Kubernetes knows, and ports and labels that fit; and the variables are those of the gateway.
func TestGatewayManifests(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(servers.Module, "docs/envoy-ai-gateway.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, command, _ := strings.Cut(string(page), "$ kubectl apply -f ")
	path, _, _ := strings.Cut(command, "\n")
	text, err := os.ReadFile(filepath.Join(servers.Module, path))
	if err != nil {
		t.Fatal(err)
	}
	first, second, _ := strings.Cut(string(text), "\n---\n")
	var d apps.Deployment
	var s core.Service
	for text, object := range map[string]any{first: &d, second: &s} {
		if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
			t.Fatal(err)
		}
	}
	for _, labels := range []map[string]string{s.Spec.Selector, d.Spec.Selector.MatchLabels} {
		for name, value := range labels {
			if d.Spec.Template.Labels[name] != value {
				t.Errorf("pods have no label %s=%s", name, value)
			}
		}
	}
	c := d.Spec.Template.Spec.Containers[0]
	if s.Spec.Ports[0].Port != 8081 || c.Ports[0].ContainerPort != 8081 || s.Name != d.Name {
		t.Errorf("the controller does not find the service: %+v %+v", s.Spec.Ports, c.Ports)
	}
	has := make(map[string]string)
	for _, e := range c.Env {
		has[e.Name] = e.Value
	}
	for _, entry := range readEnvironment(t, "envoy-ai-gateway.env") {
		name, value, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "CONFIG_") && has[name] != value {
			t.Errorf("%s is %q, not %q", name, has[name], value)
		}
	}
}

// envoyGateway has the fields of api/v1alpha1 of Envoy Gateway (d32f2829) that its page uses.
type envoyGateway struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Gateway    struct {
		ControllerName string `json:"controllerName"`
	} `json:"gateway"`
	Provider struct {
		Type       string `json:"type"`
		Kubernetes struct {
			RateLimitDeployment struct {
				Replicas  int32 `json:"replicas"`
				Container struct {
					Image string        `json:"image"`
					Env   []core.EnvVar `json:"env"`
				} `json:"container"`
			} `json:"rateLimitDeployment"`
		} `json:"kubernetes"`
	} `json:"provider"`
	RateLimit struct {
		Backend struct {
			Type  string `json:"type"`
			Redis struct {
				URL string `json:"url"`
			} `json:"redis"`
		} `json:"backend"`
	} `json:"rateLimit"`
}

// TestEnvoyGatewayConfiguration: the file and the examples of the page have the fields that Envoy
// Gateway knows, and the image of this module.
func TestEnvoyGatewayConfiguration(t *testing.T) {
	file := "deploy/envoy-gateway/envoy-gateway.yaml"
	texts := make(map[string]string)
	for _, path := range []string{file, "docs/envoy-gateway.md"} {
		text, err := os.ReadFile(filepath.Join(servers.Module, path))
		if err != nil {
			t.Fatal(err)
		}
		texts[path] = string(text)
	}
	blocks := strings.Split(texts["docs/envoy-gateway.md"], "```")
	for name, text := range map[string]string{
		file: texts[file], "before": strings.TrimPrefix(blocks[1], "yaml"),
		"after": strings.TrimPrefix(blocks[3], "yaml"),
	} {
		var e envoyGateway
		if err := yaml.UnmarshalStrict([]byte(text), &e); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		image := e.Provider.Kubernetes.RateLimitDeployment.Container.Image
		if e.Kind != "EnvoyGateway" || e.RateLimit.Backend.Redis.URL == "" ||
			(name != "before") != strings.HasPrefix(image, "ghcr.io/truewindow/ratelimit:") {
			t.Errorf("%s is %+v", name, e)
		}
	}
}
