// Package budgetmodel plays random histories of claims and reservations by several clients of one
// store: either one call at a time, each compared with a model, or many at once, whose recorded
// calls and final sums are checked.
package budgetmodel
