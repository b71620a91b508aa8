package jobs

import (
	"context"
	"time"

	"github.com/hibiken/asynq"

	"github.com/truewindow/ratelimit/edge"
)

// Asynq decides each task before next handles it.
func (l *Limits) Asynq(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		queue, _ := asynq.GetQueueName(ctx)
		claims := l.Claims(t.Headers()["tenant"], queue)
		opts := edge.Options{Wait: lastTry(ctx)}
		return edge.Do(ctx, claims, opts, func(ctx context.Context) error {
			return next.ProcessTask(ctx, t)
		})
	})
}

// lastTry reports whether asynq would archive the task in place of putting it back.
func lastTry(ctx context.Context) bool {
	retried, _ := asynq.GetRetryCount(ctx)
	most, _ := asynq.GetMaxRetry(ctx)
	return retried >= most
}

// AsynqConfig puts refused tasks back.
func AsynqConfig() asynq.Config {
	return asynq.Config{
		Queues: map[string]int{"default": 4, Background: 1},
		IsFailure: func(err error) bool {
			_, later := edge.RetryAfter(err)
			return !later
		},
		RetryDelayFunc: func(n int, err error, t *asynq.Task) time.Duration {
			if wait, later := edge.RetryAfter(err); later {
				return wait + time.Second // asynq drops the fraction of the second
			}
			return asynq.DefaultRetryDelayFunc(n, err, t)
		},
	}
}
