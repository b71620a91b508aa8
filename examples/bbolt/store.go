// Package bbolt keeps limits in a bbolt file, which only one process can open.
package bbolt

import (
	"context"
	"encoding/binary"
	"time"

	"go.etcd.io/bbolt"

	"github.com/truewindow/ratelimit/backend/transactional"
)

// The bucket has, by stored key, the µs since the Unix epoch when a state expires, and the state.
var bucket = []byte("ratelimit")

type tx struct{ *bbolt.Tx }

// New returns a store on db. A transaction locks the whole file, so one at a time is best.
func New(db *bbolt.DB, opts *transactional.Options) (*transactional.Store, error) {
	return transactional.New(func(context.Context) (transactional.Tx, error) {
		t, err := db.Begin(true)
		return tx{t}, err
	}, opts)
}

func (t tx) Load(_ context.Context, keys []string) (states [][]byte, now int64, err error) {
	b, err := t.CreateBucketIfNotExists(bucket)
	for i := 0; err == nil && i < len(keys); i++ {
		value := b.Get([]byte(keys[i]))
		states = append(states, value[min(8, len(value)):])
	}
	return states, time.Now().UnixMicro(), err
}

func (t tx) Save(_ context.Context, states []transactional.State) error {
	for _, s := range states {
		value := append(binary.BigEndian.AppendUint64(nil, uint64(s.Expires)), s.Bytes...)
		if err := t.Bucket(bucket).Put([]byte(s.Key), value); err != nil {
			return err
		}
	}
	return nil
}

func (t tx) Commit(context.Context) error { return t.Tx.Commit() }
func (t tx) Rollback()                    { _ = t.Tx.Rollback() }

// Sweep deletes states that expired by now, in µs since the Unix epoch. Call it every few minutes.
func Sweep(db *bbolt.DB, now int64) error {
	return db.Update(func(t *bbolt.Tx) error {
		b, err := t.CreateBucketIfNotExists(bucket)
		if err != nil {
			return err
		}
		c := b.Cursor()
		for key, value := c.First(); key != nil && err == nil; key, value = c.Seek(append(key, 0)) {
			if int64(binary.BigEndian.Uint64(value)) <= now {
				err = c.Delete()
			}
		}
		return err
	})
}
