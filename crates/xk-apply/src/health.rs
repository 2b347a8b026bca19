//! Whether a new value of a loaded tune would come into force at all of its sites.

use thiserror::Error;
use xk_runtime::{Probe, TuneStatus};

/// A site at which a new value would not come into force.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum IllSite {
    /// Kprobes are switched off.
    #[error(
        "{title}: the probe at {site} is disarmed, a value would not come into force there: `echo 1 > \
         /sys/kernel/debug/kprobes/enabled`, then repeat"
    )]
    Disarmed {
        /// The constant.
        title: String,
        /// `function+0x12`.
        site: String,
    },
    /// The code of the module differs from the analysed code.
    #[error(
        "{title}: module {module} is not the one that was analysed, a value would not come into force at {site} \
         ({reason}): `xk unset {title}`, and `xk build` it again"
    )]
    Broken {
        /// The constant.
        title: String,
        /// The module.
        module: String,
        /// `function+0x12`.
        site: String,
        /// The reason that the kernel gives.
        reason: String,
    },
    /// Something else has written to the object.
    #[error("{title}: {site} was changed from outside xk ({reason}), and xk would overwrite this: `xk unset {title}` keeps it")]
    Drifted {
        /// The constant.
        title: String,
        /// `object+0x12`.
        site: String,
        /// The reason that the kernel gives.
        reason: String,
    },
}

/// Refuses to change a tune if a new value would not come into force at every site.
///
/// # Errors
/// The first such site.
pub fn refuse_ill(title: &str, tune: &TuneStatus) -> Result<(), IllSite> {
    for site in &tune.sites {
        let title = title.to_owned();
        let reason = || site.reason.clone().unwrap_or_else(|| "the kernel gave no reason".into());
        let place = format!("{}+{:#x}", site.symbol, site.offset);
        match site.probe {
            Probe::Disarmed => return Err(IllSite::Disarmed { title, site: place }),
            Probe::Broken => {
                let module = site.module.clone().unwrap_or_else(|| "?".into());
                return Err(IllSite::Broken { title, module, site: place, reason: reason() });
            }
            Probe::Drifted => return Err(IllSite::Drifted { title, site: place, reason: reason() }),
            // `xk status` reports a livepatch.
            Probe::Jump
            | Probe::Int3
            | Probe::Detour
            | Probe::Patch
            | Probe::Data
            | Probe::Waiting
            | Probe::Unknown
            | Probe::Bypassed => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use xk_harness::example;

    use super::*;

    #[test]
    fn a_site_without_the_value_is_named() {
        let mut tune = example::tune();
        assert_eq!(refuse_ill("A", &tune), Ok(()));
        for (probe, words) in [
            (Probe::Disarmed, "A: the probe at blk_add_rq_to_plug+0x59 is disarmed"),
            (Probe::Broken, "A: module ? is not the one that was analysed"),
            (Probe::Drifted, "A: blk_add_rq_to_plug+0x59 was changed from outside xk"),
        ] {
            tune.sites[0].probe = probe;
            let message = refuse_ill("A", &tune).map_err(|error| error.to_string());
            assert!(message.as_ref().is_err_and(|message| message.starts_with(words)), "{message:?}");
        }
        tune.sites[0].probe = Probe::Bypassed;
        assert_eq!(refuse_ill("A", &tune), Ok(()));
    }
}
