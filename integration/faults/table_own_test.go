package faults

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/integration/clients"
)

// TestFaultTable checks that the table has a line for each fault, client and server, and that
// nothing is missing.
func TestFaultTable(t *testing.T) {
	var tb table[faultRow]
	for i, lib := range clients.Libraries {
		for _, image := range []string{"b", "a"} {
			tb.add(faultRow{
				fault: "flood", client: lib.Name, image: image, slowest: 1200 * time.Millisecond,
				admitted: 5, recorded: 2 + i, election: 12 * time.Second,
			})
			tb.add(faultRow{fault: "fire", client: lib.Name, image: image, got: got{i, 2, 3},
				slowest: 1600 * time.Microsecond, admitted: 5, unknown: 3, recorded: 7,
				normal: 20 * time.Millisecond})
		}
	}
	records, err := tb.records([]string{"fire", "flood"}, []string{"a", "b"}, faultColumns)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, record := range records {
		lines = append(lines, strings.Join(record, ","))
	}
	for i, want := range map[int]string{
		0: "fault,client,server,answered,unavailable,unknown,slowest call (ms)," +
			"units admitted,units unknown,units recorded,elected after (ms),normal after (ms)",
		1:  "fire,go-redis,a,0,2,3,2,5,3,7,0,20",
		2:  "fire,go-redis,b,0,2,3,2,5,3,7,0,20",
		3:  "fire,rueidis,a,1,2,3,2,5,3,7,0,20",
		12: "flood,valkey-go,b,0,0,0,1200,5,0,4,12000,0",
	} {
		if i >= len(lines) || lines[i] != want {
			t.Errorf("line %d of\n%s\nwant\n%s", i, strings.Join(lines, "\n"), want)
		}
	}
	if _, err := tb.records([]string{"fire", "storm"}, []string{"a", "b"},
		faultColumns); err == nil || !strings.Contains(err.Error(), "storm, rueidis, b") {
		t.Errorf("%v for a table without measurements of a fault", err)
	}
}

// TestFaultShares checks that the picture adds up servers, and keeps faults and clients apart.
func TestFaultShares(t *testing.T) {
	head := []string{"fault", "client", "server", "answered", "unavailable", "unknown"}
	shares, err := sharesOf([][]string{
		head,
		{"fire", "go-redis", "a", "1", "2", "0"},
		{"fire", "go-redis", "b", "0", "1", "4"},
		{"fire", "rueidis", "a", "5", "0", "0"},
		{"flood", "go-redis", "a", "0", "199", "1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []faultShare{
		{"fire", "go-redis", [3]int{1, 3, 4}},
		{"fire", "rueidis", [3]int{5, 0, 0}},
		{"flood", "go-redis", [3]int{0, 199, 1}},
	}
	if !slices.Equal(shares, want) {
		t.Errorf("shares are %v, want %v", shares, want)
	}
	for k, want := range []string{"0", "> 99", "< 1"} {
		if got := inPercent(shares[2].percent(k)); got != want {
			t.Errorf("outcome %d is %s percent, want %s", k, got, want)
		}
	}
	if _, err := sharesOf([][]string{head[:5], {"fire", "go-redis", "a", "1", "2"}}); err == nil {
		t.Error("a column is missing, and there is no error")
	}
}

// TestFaultPicture checks that the committed picture shows the committed measurements, of all
// faults.
func TestFaultPicture(t *testing.T) {
	const docs = "../../docs"
	want, err := drawFaults(filepath.Join(docs, faultsFile))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(docs, faultPicture))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("docs/%s does not show docs/%s: draw it with %s=../../docs go test -run "+
			"TestFaultShares", faultPicture, faultsFile, faultsDirEnv)
	}
	for _, name := range faultNames() {
		if !bytes.Contains(got, []byte(">"+name+"<")) {
			t.Errorf("docs/%s does not show the fault %q", faultPicture, name)
		}
	}
}
