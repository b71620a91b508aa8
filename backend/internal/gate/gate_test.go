package gate

import "testing"

// TestParent: each request of a batch reports whether it was sent, and none is sent once the batch
// has been abandoned.
func TestParent(t *testing.T) {
	var all, one, two Gate
	one.Reset(&all)
	two.Reset(&all)
	if !one.Open() || !all.Opened() || two.Opened() {
		t.Errorf("one of two is sent: all %t, the other %t", all.Opened(), two.Opened())
	}
	if !one.Shut() || one.Opened() || !all.Opened() {
		t.Error("a request that was not run shuts what others have opened")
	}
	if !all.Abandon() || !all.Abandoned() {
		t.Error("a batch that was sent is abandoned as one that was not")
	}
	if one.Shut() || two.Open() || two.Opened() {
		t.Error("sent although the batch has been abandoned")
	}
	one.Reset(nil)
	if one.Opened() || !one.Open() {
		t.Error("a gate that was reset is open, or cannot be opened")
	}
}

// TestRace: a request is never both reported as not sent and written.
func TestRace(t *testing.T) {
	for range 2000 {
		var g Gate
		opened := make(chan bool)
		go func() { opened <- g.Open() }()
		sent := g.Abandon()
		if wrote := <-opened; wrote && !sent {
			t.Fatal("written after the caller got an error that nothing was sent")
		}
	}
}
