package conformance

import (
	"slices"
)

// rules returns the table of all rules.
func rules() []rule {
	return slices.Concat(identityRules, stepRules, opRules, resultRules, clockRules, expiryRules,
		takeAllRules, errorRules,
		concurrencyRules, algorithmRules, holdRules, leastRules, serverRules(),
		keyRules, volumeRules, windowRules, writeRules, takeAllManyRules, aheadRules)
}

// serverRules are about what happens between a store and a server.
func serverRules() []rule {
	return slices.Concat(orderRules, bytesRules, lostRules, frozenRules, skewRules, sweepRules)
}
