package soak

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit/integration/faultproxy"
	"github.com/truewindow/ratelimit/integration/servers"
)

// A soakRig is a server with the means to disturb it and the processes' connections.
type soakRig struct {
	t       testing.TB
	server  *servers.Server
	proxies []*faultproxy.Proxy // one for each process
	control *redis.Client       // without a proxy
	// killClient kills a client process, and starts another.
	killClient func()
}

// A soakFault causes a fault for a while and returns when it is over.
type soakFault struct {
	name string
	do   func(rig *soakRig, random *rand.Rand)
}

var soakFaults = []soakFault{
	{"SIGSTOP", func(rig *soakRig, random *rand.Rand) {
		rig.server.Signal(rig.t, "SIGSTOP")
		soakWhile(random)
		rig.server.Signal(rig.t, "SIGCONT")
	}},
	{"kill and start", func(rig *soakRig, _ *rand.Rand) {
		rig.server.Kill(rig.t)
		rig.server.Start(rig.t)
	}},
	{"kill of a client", func(rig *soakRig, _ *rand.Rand) { rig.killClient() }},
	{"CLIENT KILL",
		func(rig *soakRig, _ *rand.Rand) { rig.do("CLIENT", "KILL", "TYPE", "normal") }},
	{"SCRIPT FLUSH", func(rig *soakRig, _ *rand.Rand) { rig.do("SCRIPT", "FLUSH") }},
	{"CLIENT PAUSE", func(rig *soakRig, random *rand.Rand) {
		rig.do("CLIENT", "PAUSE", 50+random.IntN(250), []string{"WRITE", "ALL"}[random.IntN(2)])
		soakWhile(random)
	}},
	proxyFault(faultproxy.Fault{Kind: faultproxy.CutBefore, Holding: "evalsha", Times: 2}),
	proxyFault(faultproxy.Fault{Kind: faultproxy.CutAfter, Holding: "evalsha", Times: 2}),
	proxyFault(faultproxy.Fault{Kind: faultproxy.Delay, Pause: 60 * time.Millisecond}),
	proxyFault(faultproxy.Fault{Kind: faultproxy.Delay, Pause: 200 * time.Millisecond}),
	proxyFault(faultproxy.Fault{Kind: faultproxy.Freeze}),
	proxyFault(faultproxy.Fault{Kind: faultproxy.LoseRequests}),
	proxyFault(faultproxy.Fault{Kind: faultproxy.LoseAnswers}),
	proxyFault(faultproxy.Fault{Kind: faultproxy.Drip, Pause: 300 * time.Microsecond}),
	{"cut all and refuse", func(rig *soakRig, random *rand.Rand) {
		for _, p := range rig.victims(random) {
			p.Set(faultproxy.Fault{Kind: faultproxy.Refuse})
			p.CutAll()
		}
		soakWhile(random)
		rig.heal()
	}},
}

// proxyFault causes f on the connections of one process, or of all.
func proxyFault(f faultproxy.Fault) soakFault {
	return soakFault{f.Kind.String(), func(rig *soakRig, random *rand.Rand) {
		for _, p := range rig.victims(random) {
			p.Set(f)
		}
		soakWhile(random)
		rig.heal()
	}}
}

func (rig *soakRig) victims(random *rand.Rand) []*faultproxy.Proxy {
	i := random.IntN(len(rig.proxies))
	if random.IntN(3) == 0 {
		return rig.proxies
	}
	return rig.proxies[i : i+1]
}

func (rig *soakRig) heal() {
	for _, p := range rig.proxies {
		p.Heal()
	}
}

// soakWhile waits as long as a fault lasts: longer than some calls' timeout.
func soakWhile(random *rand.Rand) {
	time.Sleep(80*time.Millisecond + time.Duration(random.IntN(250))*time.Millisecond)
}

// do repeats a command until the server has run it.
func (rig *soakRig) do(args ...any) {
	servers.Within(rig.t,
		func() bool { return rig.control.Do(rig.t.Context(), args...).Err() == nil },
		fmt.Sprint(args...))
}

// soakSteps are the offsets to which a server's clock is set.
var soakSteps = []time.Duration{-30 * time.Second, -5 * time.Second, -time.Hour,
	20 * time.Second, time.Hour}

// disturb causes faults during a round, those of one name if only is not "", and returns when they
// are over.
func (rig *soakRig) disturb(round soakRound, only string, count func(fault string)) {
	random := round.random(1 << 15)
	var faults []soakFault
	for _, f := range soakFaults {
		if only == "" || f.name == only {
			faults = append(faults, f)
		}
	}
	rest := func() {
		time.Sleep(100*time.Millisecond + time.Duration(random.IntN(400))*time.Millisecond)
	}
	rest()
	if round.Clock {
		step := soakSteps[random.IntN(len(soakSteps))]
		rig.server.SetClock(rig.t, step)
		count(map[bool]string{true: "clock back", false: "clock forward"}[step < 0])
	} else {
		for range random.IntN(4) {
			f := faults[random.IntN(len(faults))]
			f.do(rig, random)
			count(f.name)
			rest()
		}
	}
	rest()
	rest()
}
