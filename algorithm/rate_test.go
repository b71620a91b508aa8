package algorithm_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// TestRateWindow: the Window of a bucket is burst / rate, rounded to a microsecond.
func TestRateWindow(t *testing.T) {
	for _, tt := range []struct {
		rate   algorithm.Rate
		burst  int64
		window time.Duration
	}{
		{10, 20, 2 * time.Second},
		{3, 10, 3_333_333 * time.Microsecond},
		{7, 1, 142_857 * time.Microsecond},
		{0.3, 1, 3_333_333 * time.Microsecond},
		{0.3, 3, 10 * time.Second},
		{1000, 1, driver.MinWindow},
		{999.7, 1, driver.MinWindow},
		{1_000_000, 1000, driver.MinWindow},
		{algorithm.Rate(driver.MaxUnits) * 1000, driver.MaxUnits, driver.MinWindow},
		{algorithm.Every(time.Minute), 60, time.Hour},
		{algorithm.Every(3 * time.Second), 10, 30 * time.Second},
		{algorithm.Every(driver.MaxWindow), 1, driver.MaxWindow},
		{algorithm.Every(time.Nanosecond), 1_000_000, driver.MinWindow},
	} {
		a := algorithm.TokenBucket("b", tt.rate, tt.burst)
		limit := driver.Limit{Name: "b", Max: tt.burst, Window: tt.window}
		if err := a.Validate(); err != nil || a != algorithm.GCRA(limit) {
			t.Errorf("%v a second, a burst of %d: %v, %v; want %v", tt.rate, tt.burst, a.Limit(),
				err, limit)
		}
	}
}

// TestRateOff: by how much rounding the Window changes a rate.
func TestRateOff(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		burst := 1 + random.Int64N(1<<random.IntN(41))
		rate := algorithm.Rate(float64(burst) / math.Pow(10, -2.9+10*random.Float64()))
		a := algorithm.TokenBucket("b", rate, burst)
		if err := a.Validate(); err != nil {
			t.Fatal(err)
		}
		window := a.Limit().Window.Seconds()
		off := math.Abs(float64(burst)/window/float64(rate) - 1)
		if most := 0.5e-6 / window; off > most*1.001+1e-15 {
			t.Fatalf("%v a second, a burst of %d: wrong by %v, want %v at most", rate, burst, off,
				most)
		}
	}
}

// TestRateInvalid: what no bucket can have is an error that says what to do.
func TestRateInvalid(t *testing.T) {
	inf := algorithm.Rate(math.Inf(1))
	for _, tt := range []struct {
		rate  algorithm.Rate
		burst int64
		want  string
	}{
		{0, 1, "a rate of 0 is not a number of units a second above 0"},
		{-1, 1, "a rate of -1 is not"},
		{algorithm.Rate(math.NaN()), 1, "a rate of NaN is not"},
		{inf, 1, "a rate of +Inf is not"},
		{-inf, 1, "a rate of -Inf is not"},
		{algorithm.Every(0), 1, "a rate of +Inf is not"},
		{algorithm.Every(-time.Second), 1, "a rate of +Inf is not"},
		{1, 0, "a burst of 0 is not between 1 and 1099511627776"},
		{1, -1, "a burst of -1 is not"},
		{1, driver.MaxUnits + 1, "a burst of 1099511627777 is not"},
		{5000, 1, "a burst of 1 comes back in less than 1ms at 5000 units a second: use a burst " +
			"of at least 5"},
		{0.001, 40_000, "a burst of 40000 comes back in more than 366 days at 0.001 units a " +
			"second: use a burst of at most 31622"},
		{1e16, driver.MaxUnits, "1e+16 units a second are too many: use at most 1099511627776000"},
		{math.MaxFloat64, 1, "units a second are too many"},
		{1e-8, 1, "1e-08 units a second are less than one in 366 days: use at least that"},
		{math.SmallestNonzeroFloat64, 1, "are less than one in 366 days"},
	} {
		a := algorithm.TokenBucket("b", tt.rate, tt.burst)
		err := a.Validate()
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(fmt.Sprint(err), tt.want) {
			t.Errorf("%v a second, a burst of %d: %v, want %q", tt.rate, tt.burst, err, tt.want)
		}
		if a != algorithm.TokenBucket("b", tt.rate, tt.burst) {
			t.Errorf("%v a second, a burst of %d: not equal to itself", tt.rate, tt.burst)
		}
	}
	if err := algorithm.TokenBucket("a name", 1, 1).Validate(); !errors.Is(err,
		driver.ErrInvalid) {
		t.Errorf("a name with a space: %v, want ErrInvalid", err)
	}
}

// TestRateAdvice: a bucket with the burst that an error names is valid.
func TestRateAdvice(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 3))
	number := regexp.MustCompile(`use a burst of at (?:least|most) (\d+)$`)
	tries, advised := depth.Of(20_000, 100_000), 0
	for range tries {
		rate := algorithm.Rate(math.Pow(10, -8+24*random.Float64()))
		burst := 1 + random.Int64N(1<<random.IntN(41))
		err := algorithm.TokenBucket("b", rate, burst).Validate()
		if err == nil {
			continue
		}
		found := number.FindStringSubmatch(err.Error())
		if found == nil {
			continue
		}
		advised++
		burst, _ = strconv.ParseInt(found[1], 10, 64)
		if again := algorithm.TokenBucket("b", rate, burst).Validate(); again != nil {
			t.Fatalf("%v; then: %v", err, again)
		}
	}
	if advised < tries/10 {
		t.Errorf("only %d errors name a burst", advised)
	}
}
