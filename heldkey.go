package ratelimit

import (
	"container/list"
	"strings"
	"time"
)

// A heldKey is a key of which this process holds units, or whose units calls of this process wait
// for.
type heldKey struct {
	key     string
	units   int64     // that reservations of this process hold
	checked time.Time // when the store was last asked, or has admitted some of them

	// asleep has the calls that wait for units, as chan struct{}: first the one that nothing has
	// woken for longest. They may be in queues of other limiters and keys.
	asleep list.List

	handing time.Time // when releases began to wake calls of this process; zero: they do not
	leaving bool      // units that are released are left to other processes
	left    int       // how often units were released meanwhile
}

const (
	// handsFor is how long the units that this process releases go to its own calls. Then they are
	// left to other processes for lastReleasePause, in which each of these asks the store. That
	// costs at most a seventeenth of what a limit admits.
	handsFor = 16 * lastReleasePause
	// trustsFor is how long calls rely on units alone and do not ask the store. Another process may
	// have reset the key.
	trustsFor = 8 * lastReleasePause
)

// ofLocked returns the entry of key, which is new if there was none.
func (w *waitQueues) ofLocked(key string) *heldKey {
	k := w.held[key]
	if k == nil {
		k = &heldKey{key: strings.Clone(key)} // it may outlive this call
		w.held[k.key] = k
	}
	return k
}

func (w *waitQueues) tidyLocked(k *heldKey) {
	if k.units == 0 && k.asleep.Len() == 0 && !k.leaving {
		delete(w.held, k.key)
	}
}

// hold adds n, which the store has admitted, to the units of key that this process holds. If they
// are then more than most, which is all that the limits admit, the earlier ones are not counted any
// more: the store does not hold all of them.
func (w *waitQueues) hold(key string, n, most int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.ofLocked(key)
	if k.units+n > most {
		k.units = 0
	}
	k.units += n
	k.checked = time.Now()
	w.tidyLocked(k)
}

// unhold undoes hold.
func (w *waitQueues) unhold(key string, n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k := w.held[key]; k != nil {
		k.units = max(0, k.units-n) // less after forget
		w.tidyLocked(k)
	}
}

// forget counts no units of key, and wakes a call that sleeps until some are released.
func (w *waitQueues) forget(key string) {
	w.mu.Lock()
	if k := w.held[key]; k != nil {
		k.units = 0
		w.tidyLocked(k)
	}
	w.mu.Unlock()
	w.release(key)
}

// full reports whether n units do not fit within most beside the units of key that this process
// holds, and whether these have been checked within trustsFor.
func (w *waitQueues) full(key string, n, most int64) (full, believed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.held[key]
	if k == nil || k.units+n <= most {
		return false, false
	}
	return true, time.Since(k.checked) < trustsFor
}

// leaves reports whether units of key that are released are left to other processes.
func (w *waitQueues) leaves(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.held[key]
	return k != nil && k.leaving
}

// check records that the store is asked about key.
func (w *waitQueues) check(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k := w.held[key]; k != nil {
		k.checked = time.Now()
	}
}

// sleep makes early receive a value when this process releases units of key, until awake is called.
func (w *waitQueues) sleep(key string, early chan struct{}) *list.Element {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ofLocked(key).asleep.PushBack(early)
}

// awake undoes sleep.
func (w *waitQueues) awake(key string, self *list.Element) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.held[key]
	k.asleep.Remove(self)
	w.tidyLocked(k)
}

// release wakes the call that nothing has woken for longest, of those that sleep for units of key.
// handsFor after it first did so, units are left to other processes instead, for lastReleasePause.
func (w *waitQueues) release(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.held[key]
	if k == nil || k.asleep.Len() == 0 {
		return
	}
	switch now := time.Now(); {
	case k.leaving:
		k.left++
		return
	case k.handing.IsZero():
		k.handing = now
	case now.Sub(k.handing) >= handsFor:
		k.handing, k.leaving, k.left = time.Time{}, true, 1
		time.AfterFunc(lastReleasePause, func() { w.stopLeaving(k) })
		return
	}
	k.wakeLocked()
}

// stopLeaving ends the time for other processes, and wakes a call for each release in it.
func (w *waitQueues) stopLeaving(k *heldKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k.leaving = false
	for range min(k.left, k.asleep.Len()) {
		k.wakeLocked()
	}
	w.tidyLocked(k)
}

func (k *heldKey) wakeLocked() {
	first := k.asleep.Front()
	k.asleep.MoveToBack(first)
	select {
	case first.Value.(chan struct{}) <- struct{}{}:
	default: // it was woken by another key
	}
}
