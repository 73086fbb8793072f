"""Newton's method, the path over the threshold, leave-one-out, view weights."""
