// Package jobs has workers of asynq, River and Temporal whose jobs are under limits that all
// workers share. The documentation quotes it.
package jobs

import (
	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
)

// Background is the queue of jobs for which nobody waits.
const Background = "background"

// Limits are those of each tenant.
type Limits struct {
	quick, background *ratelimit.Limiter
}

// NewLimits returns limits on a store that all workers share: a quota, of which background jobs
// get at most 80 %, and the jobs that run at once.
func NewLimits(
	store ratelimit.Store, quota ratelimit.Limit, running algorithm.Held,
) (*Limits, error) {
	share := ratelimit.Limit{Name: Background, Max: quota.Max * 4 / 5, Window: quota.Window}
	quick, err := ratelimit.New(store, algorithm.SlidingLog(quota), running)
	if err != nil {
		return nil, err
	}
	background, err := ratelimit.New(store, algorithm.SlidingLog(quota), running,
		algorithm.SlidingLog(share))
	return &Limits{quick, background}, err
}

// Claims returns what a job costs its tenant.
func (l *Limits) Claims(tenant, queue string) []ratelimit.Claim {
	if queue == Background {
		return []ratelimit.Claim{{Limiter: l.background, Key: tenant, N: 1}}
	}
	return []ratelimit.Claim{{Limiter: l.quick, Key: tenant, N: 1}}
}
