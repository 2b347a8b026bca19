//! Sites on the path of a request: instructions of the kernel's network code at which `rax` is dead, that kprobes
//! make jumps, and that requests execute.

use anyhow::{ensure, Context, Result};
use xk_bench_trigger::place::{self, Place};
use xk_bench_trigger::update::{self, At};
use xk_kernel::Image;
use xk_runtime::{Backend, Device, Probe, Tune};

use crate::settle;

/// On the way of a request and its answer, from system call to system call. Those that are
/// not there, or have no such instruction, are left out.
const FUNCTIONS: [&str; 71] = [
    "tcp_sendmsg_locked",
    "tcp_write_xmit",
    "__tcp_transmit_skb",
    "__ip_queue_xmit",
    "tcp_v4_rcv",
    "tcp_rcv_established",
    "tcp_recvmsg_locked",
    "do_epoll_wait",
    "tcp_ack",
    "ep_poll_callback",
    "__dev_queue_xmit",
    "ip_finish_output2",
    "net_rx_action",
    "process_backlog",
    "__netif_receive_skb_core.constprop.0",
    "ip_rcv_core",
    "tcp_clean_rtx_queue.constprop.0",
    "tcp_data_queue",
    "tcp_queue_rcv",
    "tcp_rcv_space_adjust",
    "__tcp_cleanup_rbuf",
    "tcp_cleanup_rbuf",
    "__tcp_select_window",
    "tcp_established_options",
    "tcp_rate_gen",
    "tcp_rate_skb_sent",
    "tcp_rate_skb_delivered",
    "tcp_rate_check_app_limited",
    "tcp_rack_advance",
    "tcp_ack_update_rtt.isra.0",
    "tcp_rearm_rto",
    "tcp_event_data_recv",
    "tcp_event_new_data_sent",
    "tcp_schedule_loss_probe",
    "tcp_mstamp_refresh",
    "tcp_push",
    "tcp_stream_alloc_skb",
    "tcp_wfree",
    "tcp_update_skb_after_send",
    "tcp_poll",
    "tcp_recvmsg",
    "tcp_current_mss",
    "tcp_send_mss",
    "tcp_v4_do_rcv",
    "tcp_v4_fill_cb",
    "tcp_inbound_hash",
    "tcp_data_ready",
    "tcp_release_cb",
    "__inet_lookup_established",
    "sock_def_readable",
    "sock_write_iter",
    "sock_read_iter",
    "sock_poll",
    "__sys_sendto",
    "__sys_recvfrom",
    "__sk_mem_schedule",
    "sk_wait_data",
    "sk_reset_timer",
    "__alloc_skb",
    "__skb_clone",
    "__skb_datagram_iter",
    "skb_release_data",
    "skb_release_head_state",
    "netif_skb_features",
    "validate_xmit_skb",
    "loopback_xmit",
    "enqueue_to_backlog",
    "ip_rcv_finish_core.isra.0",
    "ip_protocol_deliver_rcu",
    "ip_output",
    "__mod_timer",
];
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
const NOP5: [u8; 5] = [0x0f, 0x1f, 0x44, 0, 0];
/// Of one function.
const MOST: usize = 8;

/// An instruction of a function.
pub struct Site {
    /// The function.
    pub symbol: &'static str,
    address: u64,
    code: Vec<u8>,
    /// The instruction.
    pub place: Place,
}

impl Site {
    /// A constant of its own, by whose value `eax` is set there.
    ///
    /// # Errors
    /// The kernel's, such as that this backend cannot be there.
    pub fn load(&self, device: &Device, backend: Backend) -> Result<Tune> {
        let mut table = update::value().table(self.symbol, &self.code, &self.place);
        table.constant.id = format!("bench:L1:{}+{:#x}:0", self.symbol, self.place.offset);
        table.constant.name = None;
        Ok(device.load_by(&table, &At(self.address), backend)?)
    }
}

/// Sites that requests reach, in an order in which each function comes once before any comes again.
///
/// # Errors
/// When there are none, or `work`, which makes requests, fails.
pub fn choose(device: &Device, work: impl FnOnce() -> Result<u64>) -> Result<Vec<Site>> {
    let mut tried = Vec::new();
    for site in candidates()? {
        // Code that patches itself, and whatever else kprobes keep away from.
        if let Ok(tune) = site.load(device, Backend::Kprobe) {
            tried.push((site, tune));
        }
    }
    ensure!(!tried.is_empty(), "the kernel takes no probe anywhere");
    settle();
    let requests = work()?;
    let mut reached = Vec::new();
    for (site, tune) in tried {
        let status = tune.status()?.sites.into_iter().next().context("the tune has no site")?;
        // Seldom: an error path, or only of some requests.
        if status.probe == Probe::Jump && status.hits >= requests / 2 {
            reached.push(site);
        }
        tune.unload()?;
    }
    settle();
    // Windows of some lie over others; all of them are jumps at once.
    let mut beside = Vec::new();
    for site in reached {
        if let Ok(tune) = site.load(device, Backend::Detour) {
            beside.push((site, tune));
        }
    }
    beside.into_iter().map(|(site, tune)| tune.unload().map(|()| site).map_err(Into::into)).collect()
}

/// Whether the function begins with the function tracer's call: perf places no probe in others.
fn is_traced(code: &[u8]) -> bool {
    let code = code.strip_prefix(&ENDBR64).unwrap_or(code);
    code.starts_with(&NOP5)
}

/// In their order of preference.
fn candidates() -> Result<Vec<Site>> {
    let image = Image::live()?;
    let mut found = Vec::new();
    for symbol in FUNCTIONS {
        let [at] = &image.symbols(symbol)[..] else { continue };
        if at.module.is_some() {
            continue;
        }
        let code = image.read(at.address, at.size_hint as usize)?;
        if !is_traced(&code) {
            continue;
        }
        let places = place::jumps(&code);
        let sites = places.into_iter().take(MOST).enumerate();
        found
            .extend(sites.map(|(rank, place)| (rank, Site { symbol, address: at.address, code: code.clone(), place })));
    }
    found.sort_by_key(|&(rank, _)| rank);
    Ok(found.into_iter().map(|(_, site)| site).collect())
}
