//! Policies: BPF programs that choose the value of each execution.

use std::os::fd::{AsRawFd, BorrowedFd};

use xk_table::{Mode, ScopeTable};

use crate::abi::{self, Plain};
use crate::device::Device;
use crate::error::Error;

/// What a tune's value is left to.
#[derive(Debug, Clone)]
pub struct Policy<'fd> {
    /// A loaded BPF program of type kprobe.
    pub program: BorrowedFd<'fd>,
    /// BPF links that stay attached for as long as the tune has the policy.
    pub links: Vec<BorrowedFd<'fd>>,
    /// Scopes of the table in one activation of which it decides once ...
    pub scopes: Vec<u32>,
    /// ... for all of these sites.
    pub sites: Vec<u32>,
}

impl<'fd> Policy<'fd> {
    /// A policy that decides once in an activation of the outermost function that is
    /// in a safe span, for all sites, since their values may meet there. That is
    /// needless where no value outlives its critical span, and where there is one site:
    /// what follows from several executions of it is what a policy asks for, unless a number is counted from one
    /// to the next ([`ScopeTable::tests_for_order`]).
    #[must_use]
    pub fn new(program: BorrowedFd<'fd>, table: &ScopeTable) -> Self {
        let mut policy = Self::for_each_site(program);
        if table.mode != Mode::Now && (table.spans.len() > 1 || table.tests_for_order()) {
            policy.scopes = (0..table.scopes.len() as u32).collect();
            policy.sites = (0..table.spans.len() as u32).collect();
        }
        policy
    }

    /// A policy that decides wherever a site is reached: two decisions may meet.
    #[must_use]
    pub fn for_each_site(program: BorrowedFd<'fd>) -> Self {
        Self { program, links: Vec::new(), scopes: Vec::new(), sites: Vec::new() }
    }
}

impl Device {
    /// Gives tune `id` a policy. Nothing changes before a transition to
    /// [`crate::Destination::Policy`]; a policy that is in force stays until then.
    ///
    /// # Errors
    /// [`Error::NoSuchTune`], [`Error::Owned`], [`Error::Busy`]; [`Error::Forbidden`] if this
    /// process may not change anything; or [`Error::Refused`] with the kernel's reason: what
    /// the program could do, or where it cannot decide.
    pub fn give_policy(&self, id: u32, policy: &Policy<'_>) -> Result<(), Error> {
        let links: Vec<i32> = policy.links.iter().map(AsRawFd::as_raw_fd).collect();
        let mut request = abi::Policy::zeroed();
        request.size = size_of::<abi::Policy>() as u32;
        request.id = id;
        request.program = policy.program.as_raw_fd();
        request.nr_scopes = policy.scopes.len() as u32;
        request.scopes = policy.scopes.as_ptr() as u64;
        request.nr_sites = policy.sites.len() as u32;
        request.sites = policy.sites.as_ptr() as u64;
        request.nr_links = links.len() as u32;
        request.links = links.as_ptr() as u64;
        self.policy_ioctl(&mut request)
    }

    /// Takes the policy of tune `id` away again; one that is in force stays until the
    /// next transition.
    ///
    /// # Errors
    /// As [`Device::give_policy`].
    pub fn take_policy(&self, id: u32) -> Result<(), Error> {
        let mut request = abi::Policy::zeroed();
        request.size = size_of::<abi::Policy>() as u32;
        request.id = id;
        request.program = -1;
        self.policy_ioctl(&mut request)
    }

    fn policy_ioctl(&self, request: &mut abi::Policy) -> Result<(), Error> {
        let Err(error) = self.ioctl(abi::IOC_POLICY, request) else { return Ok(()) };
        let reason = abi::text(&request.error);
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::EPERM) => Err(Error::of_tune(request.id, error)),
            Some(libc::EBUSY) => Err(Error::Busy(reason)),
            Some(libc::EACCES | libc::EKEYREJECTED) => Err(Error::Forbidden(reason)),
            _ if reason.is_empty() => Err(Error::Device(error)),
            errno => Err(Error::Refused { reason, errno: errno.unwrap_or(0) }),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::fd::AsFd;

    use xk_harness::{empty_table, site};
    use xk_table::{AsmLine, Order};

    use super::*;

    #[test]
    fn one_site_decides_once_in_an_activation_where_a_number_is_counted() {
        let program = std::fs::File::open("/dev/null").unwrap();
        let sites = |table: &ScopeTable| Policy::new(program.as_fd(), table).sites;
        let mut table = empty_table("A", 32, Mode::Task);
        table.spans = vec![site(0, 0, 5)];
        assert_eq!(sites(&table), Vec::<u32>::new());
        table.spans.push(site(0, 5, 5));
        assert_eq!(sites(&table), [0, 1], "values may meet");
        table.spans.truncate(1);
        table.spans[0].assembly =
            vec![AsmLine { offset: 0, text: "cmp $0x20,%eax".into(), iv: Some(0), order: Some(Order::AtLeast) }];
        assert_eq!(sites(&table), [0]);
        table.mode = Mode::Now;
        assert_eq!(sites(&table), Vec::<u32>::new());
    }
}
