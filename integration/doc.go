// Package integration holds the tests that run on real Redis and Valkey servers, in folders by
// subject:
//
//	access       passwords, rights and TLS
//	cache        the cache of refusals
//	clocks       clocks that step, processes that stand still
//	commands     the commands of cmd/ratelimit, and a Prometheus that scrapes the daemon
//	conformance  the conformance suite and exactness, on every server and client library
//	edges        clients behind nginx and Caddy, forward auth, and two processes under load
//	examples     programs that the documents quote
//	faults       what callers get while servers and networks fail
//	scripts      the Lua scripts, the states that they store, and what a decision costs
//	soak         random demands while random things go wrong
//	stores       batches, connections, errors, deadlines, observations, probes, URLs, waiting
//
// They share three packages: servers starts servers and clusters, counts tests and reports; clients
// has the client libraries and the stores on them; daemon runs the command.
//
// Nothing outside of integration imports these packages: they are the only ones that depend on
// testcontainers, which therefore stays out of the go.sum of programs that import a backend.
//
// "make servers" runs all folders. Each is a process, which looks for servers when a test first
// needs one, in this order:
//
//   - Docker containers. It pulls the images that the engine lacks, and builds those that no
//     registry gives (scripts/offline-images.sh). Tests connect to the nodes of a cluster by the
//     containers' own addresses, so these tests need an engine on the same machine, with Linux.
//   - redis-server and valkey-server from PATH, on ports of the loopback interface. Tests that need
//     a network of containers are skipped.
//
// Without either, all tests on servers are skipped.
//
// Environment:
//
//	RATELIMIT_REDIS_ADDR       run on this Redis, host:port, instead of containers; a cluster
//	                           is recognized
//	RATELIMIT_VALKEY_ADDR      the same for Valkey
//	RATELIMIT_IMAGES           run on these images, separated by commas, instead of all
//	RATELIMIT_FULL             1: all combinations of the conformance suite, and the other
//	                           tests in their long form
//	RATELIMIT_FAULTS_MD        page to which the measured effects of faults are written, from
//	                           the folder faults; only "make faults" measures all
//	RATELIMIT_EXACTNESS_MD     page to which TestExactness writes its table
//	RATELIMIT_SOAK             how long TestSoak runs, such as 10m
//	RATELIMIT_SOAK_SEED        makes TestSoak repeat the demands and faults of the run that
//	                           printed this seed
//	RATELIMIT_SOAK_PLANT       a bug that TestSoak has to catch: clock-step, double-record,
//	                           lost-giveback or stale-cache
//	RATELIMIT_SOAK_HISTORIES   directory for the histories that broke a promise, where
//	                           TestSoakAgain checks them again
//	RATELIMIT_REQUIRE_SERVERS  1: fail where a test would be skipped because a server is missing
//	RATELIMIT_BEGAN            when the run began, in seconds since 1970, for the times that it
//	                           prints
//	RATELIMIT_PROGRESS         file to which all folders append what they say, instead of
//	                           printing it
//
// What the tests of a folder measure is written to measured/<folder>.txt. The tests flush the
// script cache of a server that is given by address, and leave keys that expire.
//
// Containers are removed when the tests end. Testcontainers' reaper, for which it needs an image of
// its own, is off unless TESTCONTAINERS_RYUK_DISABLED says otherwise; what a killed run leaves
// behind is removed by a run at least an hour later.
package integration
