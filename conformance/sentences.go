package conformance

// Sentences of the contract that rules of several files prove.
const (
	saysAtomic = "TakeAll is atomic over its states: all demands are admitted, or none leaves a " +
		"trace."
	saysCheck = "Take begins with [CheckTake] and TakeAll with [CheckTakeAll]: their errors are " +
		"returned unchanged, before any I/O."
	saysClock = "The store owns the clock: microseconds since the Unix epoch, the same clock for " +
		"all who share the store. A call reads the clock once, after it has locked its states, " +
		"so from one step on a state to the next the time does not go back unless the clock was " +
		"set back."
	saysContended = "A call that other calls with its key keep from a decision returns " +
		"ErrContended, whether these wait in the store, in its server or in another process."
	saysCorrupt = "If Step returns keep < 0, the store writes nothing and returns " +
		"ErrCorruptState. " +
		"keep < 0 means: the bytes are not a state of an algorithm with this Name; nothing may " +
		"be written."
	saysError = "An error means that the demand is undecided. ErrUnavailable without " +
		"ErrOutcomeUnknown says that nothing was recorded. " +
		"ErrOutcomeUnknown says that the demand may have been recorded. " +
		"A store never sends a demand twice once it may have been received."
	saysExpiry = "A state is forgotten no sooner than keep after the step that returned it. " +
		"After that time a step decides on the state as on an empty one, so it does not matter " +
		"when the state is forgotten, unless the clock steps back afterwards."
	saysIdentity = "The key, the limit's name and the algorithm's name identify a state, and " +
		"nothing else does: demands with the same three share one history, whatever Max, Window " +
		"and other parameters, and demands that differ in one of the three share nothing."
	saysKeep = "keep > 0 means: store next, and forget it no sooner than keep from now; with an " +
		"empty next: delete the state. keep is in whole microseconds. " +
		"Step may write into state only if it returns keep > 0: then next may reuse its array, " +
		"and the store must not use state again. " +
		"A step cannot be undone, so TakeAll calls Peek for all demands first. " +
		"A store that compares and swaps passes a copy."
	saysKeys = "Keys are arbitrary bytes that come from end users: a store isolates them " +
		"whatever they hold, and never writes one to an error or a log."
	saysOut = "out has the length of ds, and out[i] is set to the Result of ds[i]. The store " +
		"keeps neither slice."
	saysRetry = "RetryAfter is zero if allowed. If refused, the same demand is admitted after " +
		"exactly this long, provided that nothing else is " +
		"admitted meanwhile, and not one microsecond sooner (at a Resolution of 1µs)."
	saysReturn = "Calls return when the context ends, and at the latest by the store's own " +
		"deadline."
	saysShared = "Steps on one state are atomic and linearizable, also across processes that " +
		"share the store."
	saysStep = "The store calls Step with the state, its own clock and the demand, and returns " +
		"exactly Step's Result. For takes it may instead repeat an earlier refusal that still " +
		"holds, with SourceCache; see [Result.Source]."
	saysUnsupported = "A store that cannot decide the demands of a TakeAll together (Redis " +
		"Cluster, keys of several slots) returns an error that wraps [errors.ErrUnsupported] " +
		"before it writes anything."
	saysWrites = "A peek and a refusal write nothing: when Step returns keep == 0 the stored " +
		"state does not change, its time to live included. " +
		"For a peek or a refusal, Step returns keep > 0 only after the clock has stepped back by " +
		"more than a Window, or after the limit has changed. " +
		"keep == 0 means: write nothing; state is then byte for byte what it was."
)
