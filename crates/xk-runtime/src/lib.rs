//! Talks to xk.ko: load, change, unload, status.
