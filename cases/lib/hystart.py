# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Measures how much extra delay CUBIC's HyStart takes for noise.

In slow start, HyStart compares the smallest round-trip time of the current round with the smallest
one of the connection. If it is larger by more than a threshold, slow start ends and the kernel
counts TCPHystartDelayDetect. Here the threshold is found from outside: a connection over a path
with a constant delay sends one round, then the delay grows in steps, one round each, until the
counter moves.

Time in a guest is uneven, and a stall makes a round-trip time longer, never shorter. Hence the
minimum of many samples that are spread in time is compared (by the kernel itself), the steps lie
several milliseconds away from the thresholds, and two connections have to agree.
"""

import contextlib
import fcntl
import socket
import struct
import time

import xkcase

ADDRESS = "127.0.0.1"
SIOCOUTQ = 0x5411
TCP_CONGESTION = 13
CONNECTIONS = 5
SAMPLES_PER_ROUND = 16
SAMPLE_DISTANCE = 0.006
ROUND_TIMEOUT = 20.0
MESSAGE = bytes(100)


def netem(verb, round_trip):
    """Delays the loopback device; every packet and its acknowledgement pass it once."""
    delay = f"{round(round_trip * 1e6 / 2)}us"
    xkcase.command(*f"tc qdisc {verb} dev lo root netem delay {delay} limit 10000".split())


def no_netem():
    """No delay any more, and no user of the module."""
    xkcase.command(*"tc qdisc replace dev lo root noqueue".split())


@contextlib.contextmanager
def delayed_path(round_trip):
    """A network of our own with that round-trip time and an acknowledgement for each segment."""
    xkcase.own_network()
    # The window holds more than a round and is above hystart_low_window from the start.
    metrics = f"initcwnd {4 * SAMPLES_PER_ROUND} quickack 1"
    xkcase.command(*f"ip route replace local {ADDRESS} dev lo table local {metrics}".split())
    with contextlib.ExitStack() as stack:
        stack.enter_context(xkcase.sysctl("net.ipv4.tcp_slow_start_after_idle", 0))
        stack.enter_context(xkcase.sysctl("net.ipv4.tcp_no_metrics_save", 1))
        stack.enter_context(xkcase.module("sch_netem"))
        with xkcase.changed(lambda: netem("add", round_trip), no_netem):
            yield


@contextlib.contextmanager
def connection():
    """A CUBIC connection: the sending and the receiving end."""
    with socket.socket() as listener, socket.socket() as sender:
        listener.bind((ADDRESS, 0))
        listener.listen()
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sender.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, b"cubic")
        sender.connect(listener.getsockname())
        receiver, _ = listener.accept()
        with receiver:
            yield sender, receiver


def unacknowledged(sender):
    """Bytes sent and not yet acknowledged."""
    return struct.unpack("i", fcntl.ioctl(sender, SIOCOUTQ, bytes(4)))[0]


def send_round(sender, receiver):
    """One round: small segments at a distance, each gives one sample of the round-trip time."""
    for _ in range(SAMPLES_PER_ROUND):
        sender.send(MESSAGE)
        time.sleep(SAMPLE_DISTANCE)
    deadline = time.monotonic() + ROUND_TIMEOUT
    while unacknowledged(sender) > 0:
        if time.monotonic() > deadline:
            raise xkcase.CaseError("a round was not acknowledged in time")
        time.sleep(0.005)
    received = 0
    while received < SAMPLES_PER_ROUND * len(MESSAGE):
        received += len(receiver.recv(1 << 16))


def first_step_noticed(round_trip, steps):
    """The first step at which HyStart left slow start, or None if the round proves nothing."""
    netem("change", round_trip)
    delays = xkcase.netstat("TCPHystartDelayDetect")
    trains = xkcase.netstat("TCPHystartTrainDetect")
    with connection() as (sender, receiver):
        for step in (0, *steps):
            netem("change", round_trip + step)
            send_round(sender, receiver)
            if xkcase.netstat("TCPHystartTrainDetect") > trains:
                return None  # the other heuristic came first: acknowledgements were bunched
            if xkcase.netstat("TCPHystartDelayDetect") > delays:
                return step
    raise xkcase.CaseError(f"HyStart did not notice {steps[-1] * 1000:.0f} ms of extra delay")


def noticed_delay(round_trip_ms, steps_ms):
    """The smallest of the given extra delays (ms) that HyStart notices at this round-trip time."""
    round_trip, steps = round_trip_ms / 1000, [step / 1000 for step in steps_ms]
    seen = []
    with delayed_path(round_trip):
        for _ in range(CONNECTIONS):
            step = first_step_noticed(round_trip, steps)
            result = None if step is None else round(step * 1000)
            xkcase.note(f"round-trip time {round_trip_ms} ms, extra delay noticed: {result} ms")
            if result is not None and result in seen:
                return result
            seen.append(result)
    raise xkcase.CaseError(f"no two of {CONNECTIONS} connections agree")
