package algorithm

import (
	"fmt"
	"math"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// A Rate is a number of units a second. One of 1,000 an hour is 1000.0 / 3600; in Go, 1000 / 3600
// is 0.
type Rate float64

// Every returns the rate of one unit in each interval, such as Every(10*time.Minute). That of an
// interval of 0 or less is not valid.
func Every(interval time.Duration) Rate {
	if interval <= 0 {
		return Rate(math.Inf(1))
	}
	return 1 / Rate(interval.Seconds())
}

// window returns the time in which burst units come back at rate r, rounded to whole microseconds.
// If no limit has it, problem says why, and what to do.
func (r Rate) window(burst int64) (window time.Duration, problem string) {
	const shortest, longest = float64(driver.MinWindow) / 1e9, float64(driver.MaxWindow) / 1e9
	const days = driver.MaxWindow / (24 * time.Hour)
	us := func(burst int64) float64 { return math.Round(float64(burst) / float64(r) * 1e6) }
	switch {
	case !(r > 0) || math.IsInf(float64(r), 1):
		return 0, fmt.Sprintf("a rate of %v is not a number of units a second above 0", r)
	case burst < 1 || burst > driver.MaxUnits:
		return 0, fmt.Sprintf("a burst of %d is not between 1 and %d", burst, driver.MaxUnits)
	case us(driver.MaxUnits) < shortest*1e6:
		return 0, fmt.Sprintf("%v units a second are too many: use at most %d",
			r, driver.MaxUnits*int64(time.Second/driver.MinWindow))
	case us(1) > longest*1e6:
		return 0, fmt.Sprintf("%v units a second are less than one in %d days: use at least that",
			r, days)
	case us(burst) < shortest*1e6:
		return 0, fmt.Sprintf("a burst of %d comes back in less than %v at %v units a second: "+
			"use a burst of at least %.0f", burst, driver.MinWindow, r,
			min(math.Ceil(float64(r)*shortest), float64(driver.MaxUnits)))
	case us(burst) > longest*1e6:
		return 0, fmt.Sprintf("a burst of %d comes back in more than %d days at %v units a "+
			"second: use a burst of at most %.0f", burst, days, r,
			max(1, math.Floor(float64(r)*longest)))
	}
	return time.Duration(us(burst)) * time.Microsecond, ""
}
