//! The same done to many things, as many at once as there are processors.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{available_parallelism, scope};

use anyhow::{Context, Result};

/// What `each` makes of every item, in their order; the first item is begun first. After an error no further one is
/// begun.
///
/// # Errors
/// One of those of `each`.
pub fn side_by_side<T: Sync, R: Send>(items: &[T], each: impl Fn(&T) -> Result<R> + Sync) -> Result<Vec<R>> {
    at_once(available_parallelism()?.get(), items, each)
}

/// The same, at most so many at once.
///
/// # Errors
/// One of those of `each`.
pub fn at_once<T: Sync, R: Send>(most: usize, items: &[T], each: impl Fn(&T) -> Result<R> + Sync) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let worker = || -> Result<Vec<(usize, R)>> {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { return Ok(done) };
            done.push((index, each(item).inspect_err(|_| next.store(items.len(), Ordering::Relaxed))?));
        }
    };
    let mut done = scope(|scope| -> Result<Vec<(usize, R)>> {
        let workers = most.max(1).min(items.len());
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        let parts: Vec<_> = threads.into_iter().map(|thread| thread.join().ok()).collect();
        let parts: Result<Vec<_>> =
            parts.into_iter().map(|part| part.context("a thread panicked; see its output above")?).collect();
        Ok(parts?.into_iter().flatten().collect())
    })?;
    done.sort_by_key(|&(index, _)| index);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let items: Vec<u64> = (0..50).collect();
        let slow_first = |&item: &u64| {
            std::thread::sleep(std::time::Duration::from_millis((50 - item) / 10));
            Ok(item * 2)
        };
        assert_eq!(side_by_side(&items, slow_first).unwrap(), (0..50).map(|item| item * 2).collect::<Vec<_>>());
        assert_eq!(side_by_side(&[], |item: &u64| Ok(*item)).unwrap(), Vec::<u64>::new());
    }

    #[test]
    fn no_more_than_wanted_are_at_work_at_once() {
        let (at_work, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let count = |_: &u64| {
            most.fetch_max(at_work.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::sleep(std::time::Duration::from_millis(1));
            at_work.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        };
        let items: Vec<u64> = (0..50).collect();
        for (jobs, expected) in [(0, 1), (1, 1), (3, 3)] {
            most.store(0, Ordering::SeqCst);
            at_once(jobs, &items, count).unwrap();
            assert!(most.load(Ordering::SeqCst) <= expected, "{jobs}: {most:?}");
        }
    }

    #[test]
    fn after_an_error_nothing_more_is_begun() {
        let items: Vec<u64> = (0..100_000).collect();
        let begun = Mutex::new(0);
        let error = side_by_side(&items, |&item| {
            *begun.lock().unwrap() += 1;
            anyhow::ensure!(item != 3, "three");
            // The thread with the error may be kept from its processor meanwhile, though not for minutes.
            std::thread::sleep(std::time::Duration::from_millis(5));
            Ok(())
        });
        assert_eq!(error.unwrap_err().to_string(), "three");
        let begun = *begun.lock().unwrap();
        assert!(begun < items.len() / 2, "{begun} were begun");
    }
}
