// Package integration holds the tests that run on real servers, in folders by subject:
//
//	access       passwords, rights and TLS
//	cache        the cache of refusals
//	clocks       clocks that step, processes that are stopped
//	commands     the commands of cmd, and a Prometheus that scrapes the daemon
//	conformance  the conformance suite and exactness, on every server and client library
//	edges        clients behind nginx and Caddy, forward auth, and two processes under load
//	examples     programs that the documentation quotes, and a store on etcd
//	faults       what callers get while servers and networks fail
//	jobs         workers of asynq, River and Temporal that share limits
//	leases       processes with leases of the same keys
//	scripts      the Lua scripts, the states that they store, and what a decision costs
//	service      the service with a file of limits: reloads, stops, kills, rolling deploys
//	shipping     the image, and the files for Compose, systemd and Kubernetes
//	soak         random demands under random faults
//	sql          the store in a database, on PostgreSQL, MariaDB, MySQL and SQLite
//	stores       batches, connections, errors, deadlines, observations, probes, URLs, waiting
//
// They share five packages: servers starts servers and clusters, counts tests and reports; clients
// has the client libraries and the stores on them; daemon runs the daemon's command; gateway is a
// server of xDS; faultproxy is a TCP proxy that injects faults.
//
// This is a module of its own, so that users of a backend need neither testcontainers nor drivers.
//
// "make servers" runs all folders but jobs, shipping and soak. Each is a process, which looks for
// servers when a test first needs one, in this order:
//
//   - Docker containers. Missing images are pulled, or built by scripts/offline-images.sh where no
//     registry has them. Servers use the network of this machine. An engine in a virtual machine
//     publishes their ports; then tests of clusters, and of networks that are cut, are skipped.
//   - redis-server and valkey-server from PATH, on ports of the loopback interface. Tests that need
//     a network of containers are skipped.
//
// Without either, all tests on servers are skipped.
//
// Environment:
//
//	RATELIMIT_REDIS_ADDR       run on this Redis, host:port; a cluster is recognized. Tests
//	                           that need a server of their own still start one
//	RATELIMIT_VALKEY_ADDR      the same for Valkey
//	RATELIMIT_IMAGES           run on these images, separated by commas, instead of redis:8 and
//	                           valkey/valkey:9; "make test-rest" also runs some tests on redis:7,
//	                           redis:8.6 and valkey/valkey:8
//	RATELIMIT_FULL             1: the full depth: all combinations of the conformance suite,
//	                           redis:7 beside the newest, and the other tests in their long
//	                           form; one needs the program lua5.4
//	RATELIMIT_CONFORMANCE_FULL 1: the conformance suite at full depth
//	RATELIMIT_CONFORMANCE_SEED makes the suite repeat the random cases of the run that printed
//	                           this seed
//	RATELIMIT_FAULTS_DIR       directory to which the folder faults writes the measured effects
//	                           of faults; only "make faults" measures all of them
//	RATELIMIT_EXACTNESS_MD     page to which TestExactness writes its table
//	RATELIMIT_REPLAY_MD        page to which TestReplayLargeLog writes its table
//	RATELIMIT_RELOADS          how long each case of TestReloads changes files, such as 30m
//	RATELIMIT_SOAK             how long TestSoak runs, such as 10m
//	RATELIMIT_SOAK_SEED        makes TestSoak repeat the demands and faults of the run that
//	                           printed this seed
//	RATELIMIT_SOAK_PLANT       a planted bug that TestSoak has to catch: clock-step,
//	                           double-record, lost-settlement or stale-cache
//	RATELIMIT_SOAK_HISTORIES   directory to which TestSoak writes histories that break a promise,
//	                           and from which TestSoakAgain reads them
//	RATELIMIT_SQL_REST         1: the folder sql runs on other versions and drivers instead
//	RATELIMIT_REQUIRE_SERVERS  1: get the images of other programs too, and fail where a test
//	                           would be skipped because something is missing
//	RATELIMIT_BEGAN            start of the run, in seconds since 1970; progress lines print the
//	                           time since then
//	RATELIMIT_PROGRESS         file to which all folders append their progress lines, instead of
//	                           printing them
//
// The measurements of a folder are written to measured/<folder>.txt. On a server given by address,
// the tests flush the script cache, and they leave keys behind that expire.
//
// Containers are removed when the tests end. Testcontainers' reaper, which needs an image of its
// own, is off unless TESTCONTAINERS_RYUK_DISABLED says otherwise. A run removes the containers that
// a killed run left behind at least an hour before.
package integration
