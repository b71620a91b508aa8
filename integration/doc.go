// Package integration holds the tests that run on real Redis and Valkey servers, in containers or given by address. It has
// no code of its own, and nothing imports it: it is the one package that depends on testcontainers, which so stays out of
// the go.sum of those who import a backend.
//
// Servers run in Docker containers from the images of package variable images. Where a registry is out of reach,
// scripts/offline-images.sh builds them. The cluster tests reach containers by their own addresses, so the engine must run on
// the same machine, with Linux.
//
// Environment:
//
//	RATELIMIT_REDIS_ADDR       run on this Redis, host:port, instead of containers; a cluster is recognized
//	RATELIMIT_VALKEY_ADDR      the same for Valkey
//	RATELIMIT_IMAGES           run on these images, separated by commas, instead of all
//	RATELIMIT_FULL             1: all combinations of the conformance suite, and the other tests in their long form
//	RATELIMIT_FAULTS_MD        write into this page what faults were measured to do; only the tests of "make faults" measure all of it
//	RATELIMIT_SOAK             let TestSoak run for so long, such as 10m
//	RATELIMIT_SOAK_SEED        let it make the demands and faults of the run that printed this seed
//	RATELIMIT_SOAK_PLANT       plant a bug that it has to catch: clock-step, double-record, lost-giveback or stale-cache
//	RATELIMIT_SOAK_HISTORIES   keep the histories that broke a promise in this directory, where TestSoakAgain judges them anew
//	RATELIMIT_REQUIRE_SERVERS  1: fail where a test would be skipped because a server is missing
//
// The tests flush the script cache of a server that is given by address, and leave keys that expire.
//
// Containers go when the tests end. Testcontainers' reaper, for which it needs an image of its own, is off unless
// TESTCONTAINERS_RYUK_DISABLED says otherwise; what a killed run leaves behind is removed by a run at least an hour later.
package integration
