package version

import (
	"runtime/debug"
	"testing"
)

func TestVersionOf(t *testing.T) {
	built := &debug.BuildInfo{
		Main: debug.Module{Version: "v1.2.3"},
		Settings: []debug.BuildSetting{
			{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "abc"}},
	}
	for _, tt := range []struct {
		version, commit string
		info            *debug.BuildInfo
		want            string
	}{
		{"", "", new(debug.BuildInfo), "(devel)"},
		{"", "", built, "v1.2.3 commit abc"},
		{"v2.0.0", "def", built, "v2.0.0 commit def"},
		{"v2.0.0", "", new(debug.BuildInfo), "v2.0.0"},
		{"", "def", new(debug.BuildInfo), "(devel) commit def"},
	} {
		if got := versionOf(tt.version, tt.commit, tt.info); got != tt.want {
			t.Errorf("versionOf(%q, %q): got %q, want %q", tt.version, tt.commit, got, tt.want)
		}
	}
}
