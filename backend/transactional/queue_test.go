package transactional

import "testing"

// TestGiveUpGivesBack: a call that gives up while it waits gives back the places that it keeps.
func TestGiveUpGivesBack(t *testing.T) {
	var q queue
	var begun []*turn
	for range mostAtOnce {
		begun = append(begun, q.enter([]string{"a"}), q.enter([]string{"b"}))
	}
	both := q.enter([]string{"a", "b"})
	begun[0].leave(true) // both keeps this place, and waits for one of b
	waiting := q.enter([]string{"a"})
	if both.kept != 1 || waiting.ready == nil {
		t.Fatalf("%d places are kept: this test proves nothing", both.kept)
	}
	both.leave(false)
	select {
	case <-waiting.ready:
	default:
		t.Error("the place that was kept is not given back")
	}
	for _, other := range append(begun[1:], waiting) {
		other.leave(true)
	}
	if len(q.keys) != 0 {
		t.Errorf("%d lines are left", len(q.keys))
	}
}
