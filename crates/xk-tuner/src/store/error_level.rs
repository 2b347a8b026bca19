//! The share of the error level that the next search or check of a name may spend, and the seeds of searches.
//!
//! In: what the database records of earlier searches and checks of that name, in all contexts. Out: a share
//! (`../engine/level.rs` has the rule, its source, and what it guarantees). A search stores its share when it begins, so
//! that it is the same when it is resumed or replayed.
//!
//! **What counts as a test.** A search that has begun pairs, or may still begin them, because it can be resumed. It does
//! not count if it confirmed a remembered setting again. A search that tested no candidate, or was told by a memory that
//! nothing is better, has spent nothing. Searches of older versions count like others. A comparison of
//! a kept setting is such a search. A discovery, which is a newly confirmed setting, ends the count: it begins with 0 again.

use std::fs;

use sha2::{Digest, Sha256};

use super::Store;
use crate::engine::level;
use crate::Error;

/// Names the machine, in a file that systemd and dbus maintain.
const MACHINE: &str = "/etc/machine-id";

/// Names the boot, where nothing names the machine.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

impl Store {
    /// What the next search or check of this name may spend.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn share(&self, name: &str) -> Result<f64, Error> {
        let found = self.last_discovery(name)?;
        let searches = self.count(
            "SELECT count(*) FROM search WHERE name = ?1 AND id > ?2
             AND json_extract(conclusion, '$.ground.remembered') IS NULL
             AND (state = 'open' OR EXISTS (SELECT 1 FROM trial WHERE trial.search = search.id
                                            AND json_extract(trial.trial, '$.kind') NOT IN ('sandwich', 'alone')))",
            (name, found),
        )?;
        Ok(level::share(u32::try_from(searches).unwrap_or(u32::MAX)))
    }

    /// The last search of this name that confirmed a new setting; 0 if there is none.
    fn last_discovery(&self, name: &str) -> Result<i64, Error> {
        self.count(
            "SELECT ifnull(max(id), 0) FROM search
             WHERE name = ?1 AND json_extract(conclusion, '$.ground.confirmed') IS NOT NULL",
            [name],
        )
    }

    /// A seed for the next search of this name: another one for each machine, name and search. Machines with the same
    /// seed would toss the same order of windows.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn draw_seed(&self, name: &str) -> Result<u64, Error> {
        let number = self.count("SELECT count(*) FROM search WHERE name = ?1", [name])?;
        let machine = fs::read_to_string(MACHINE).or_else(|_| fs::read_to_string(BOOT)).unwrap_or_default();
        Ok(seed_of(machine.trim(), name, number))
    }

    fn count(&self, sql: &str, parameters: impl rusqlite::Params) -> Result<i64, Error> {
        self.db.query_row(sql, parameters, |row| row.get(0)).map_err(|error| self.error(error))
    }
}

/// The first eight bytes of a digest, without the sign bit: SQLite and many readers of JSON have no larger integers.
fn seed_of(machine: &str, name: &str, number: i64) -> u64 {
    let digest = Sha256::digest(format!("xk tune\0{machine}\0{name}\0{number}"));
    digest.iter().take(8).fold(0, |seed, byte| seed << 8 | u64::from(*byte)) >> 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::level::share;
    use crate::engine::{Conclusion, Ground, SearchSpec};
    use crate::history::{Order, Outcome, Trial};
    use crate::statistics::Interval;
    use crate::store::tests::{context, signature, spec, trial};
    use crate::store::{Context, State};
    use crate::Point;

    fn store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        (folder, store)
    }

    fn search(store: &Store, context: &Context, orders: &[Order], end: Option<(State, Option<Ground>)>) {
        let id = store.begin("disk", context, &signature(1.0), &spec()).unwrap();
        for (number, &order) in orders.iter().enumerate() {
            store.begin_trial(id, number, &Trial { order, ..trial() }).unwrap();
            store.end_trial(id, number, &Outcome::failed("x")).unwrap();
        }
        if let Some((state, ground)) = end {
            let conclusion = ground.map(|ground| Conclusion { best: Point(vec![1]), ground });
            store.end(id, state, conclusion.as_ref()).unwrap();
        }
    }

    const PAIRS: [Order; 2] = [Order::Bracketed, Order::DefaultLast];

    #[test]
    fn only_searches_that_test_something_spend() {
        let (_folder, store) = store();
        assert_eq!(store.share("disk").unwrap(), share(0));
        let nothing = |orders: &[Order]| search(&store, &context(), orders, Some((State::Done, Some(Ground::Nothing))));
        // Told by a memory; no candidate; abandoned before it had one.
        nothing(&[]);
        nothing(&[Order::Bracketed, Order::Alone]);
        search(&store, &context(), &[Order::Bracketed], Some((State::Abandoned, None)));
        assert_eq!(store.share("disk").unwrap(), share(0));
        nothing(&PAIRS);
        assert_eq!((store.share("disk").unwrap(), store.share("other").unwrap()), (share(1), share(0)));
        // In another context, abandoned in the middle, and one that may yet be resumed.
        search(
            &store,
            &Context { build_id: "c".into(), ..context() },
            &PAIRS,
            Some((State::Done, Some(Ground::Nothing))),
        );
        search(&store, &context(), &PAIRS, Some((State::Abandoned, None)));
        search(&store, &context(), &[], None);
        assert_eq!(store.share("disk").unwrap(), share(4));
    }

    #[test]
    fn a_discovery_gives_level_back_and_a_confirmation_again_only_its_own() {
        let (_folder, store) = store();
        let end = |ground| search(&store, &context(), &PAIRS, Some((State::Done, Some(ground))));
        end(Ground::Nothing);
        end(Ground::Nothing);
        end(Ground::Remembered { effect: 0.1, interval: None, p: None });
        assert_eq!(store.share("disk").unwrap(), share(2));
        end(Ground::Confirmed { effect: Interval { middle: 0.1, low: 0.0, high: 0.2 }, p: 0.001 });
        assert_eq!(store.share("disk").unwrap(), share(0));
        end(Ground::Nothing);
        assert_eq!(store.share("disk").unwrap(), share(1));
    }

    #[test]
    fn machines_names_and_searches_have_seeds_of_their_own() {
        let seeds = [seed_of("a", "disk", 0), seed_of("b", "disk", 0), seed_of("a", "net", 0), seed_of("a", "disk", 1)];
        let different: std::collections::BTreeSet<u64> = seeds.into_iter().collect();
        assert_eq!(different.len(), 4);
        assert_eq!(seed_of("a", "disk", 0), seeds[0]);
        let (_folder, store) = store();
        let first = store.draw_seed("disk").unwrap();
        store.begin("disk", &context(), &signature(1.0), &SearchSpec { seed: first, ..spec() }).unwrap();
        assert_ne!(store.draw_seed("disk").unwrap(), first);
    }

    /// Older versions wrote one number.
    #[test]
    fn a_conclusion_of_an_older_version_is_understood() {
        let old: Ground = serde_json::from_str(r#"{"remembered":{"effect":0.1}}"#).unwrap();
        assert_eq!(old, Ground::Remembered { effect: 0.1, interval: None, p: None });
        assert_eq!(serde_json::to_string(&old).unwrap(), r#"{"remembered":{"effect":0.1}}"#);
    }
}
