package conformance

// Sentences of the contract that rules of several files prove.
const (
	saysAtomic = "TakeAll is atomic over its states: all demands are admitted, or none leaves a " +
		"trace."
	saysCheck = "Take begins with [CheckTake] and TakeAll with [CheckTakeAll]: their errors are " +
		"returned unchanged, before any I/O."
	saysClock = "The store owns the clock: microseconds since the Unix epoch, one reading for a " +
		"call, the same clock for all who share the store."
	saysCorrupt = "A negative keep means that the state is not one the algorithm wrote: the " +
		"store writes nothing and returns ErrCorruptState. " +
		"keep < 0 means: state is not one that this Name writes; nothing may be written."
	saysError = "An error means undecided. ErrUnavailable alone says that nothing was recorded; " +
		"ErrOutcomeUnknown that the demand was sent and may have been recorded. " +
		"A store never sends a demand twice once it may have been received."
	saysExpiry = "Expiry is only garbage collection: a state is forgotten no sooner than keep " +
		"after the step that returned it, and whether a state " +
		"that has run out was forgotten yet changes no decision."
	saysGiveBack = "OpGiveBack removes up to N units from the record with the stamp At, even " +
		"if another call recorded them: never more than the record " +
		"still holds, and nothing after the record has left the window. It is always allowed."
	saysIdentity = "A state belongs to the key, the limit's name and the algorithm's name, and " +
		"to nothing else: the same three are the same " +
		"history, whatever Max, Window or other parameter, and any two that differ in one of the " +
		"three share nothing."
	saysKeep = "keep > 0 means: store next, and forget it no sooner than keep from now; with an " +
		"empty next: delete the state. " +
		"Unless keep == 0, Step may write into state: next may reuse its array, and the store " +
		"may not use state again. " +
		"A store that may have to undo calls Peek for all demands first; one that compares and " +
		"swaps passes a copy."
	saysKeys = "Keys are arbitrary bytes that come from end users: a store isolates them " +
		"whatever they hold, and never writes one to an error or a log."
	saysOut = "out has the length of ds, and out[i] is set to the Result of ds[i]. The store " +
		"keeps neither slice."
	saysRetry = "RetryAfter is zero if allowed. If refused, the same demand is admitted after " +
		"exactly this long, provided that nothing else is " +
		"admitted meanwhile, and not one microsecond sooner (at a Resolution of 1µs)."
	saysReturn = "They return when the context ends, at the latest by the store's own " +
		"deadline."
	saysShared = "Steps on one state are atomic and linearizable, also across processes that " +
		"share the store."
	saysStep = "The store calls Step with the state, its own clock and the demand, and returns " +
		"exactly Step's Result."
	saysUnsupported = "A store that cannot decide these demands together (Redis Cluster, keys of " +
		"several slots) returns an error that wraps [errors.ErrUnsupported] " +
		"before anything was written."
	saysWrites = "A peek and a refusal write nothing: when Step returns keep == 0 the stored " +
		"state does not change, its time to live included. " +
		"(For these Step returns another keep only after the clock has stepped back by more than " +
		"a Window.) " +
		"keep == 0 means: write nothing; state is then byte for byte what it was."
)
