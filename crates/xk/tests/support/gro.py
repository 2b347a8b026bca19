#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What generic receive offload makes of eight flows that arrive at once.

In: the names of two ends of a pair of interfaces, which is made if it is not there. Two segments of each flow are
held back by a queue and let go together, first segments first, so that all flows are under way at the same time.
Out: how many packets of one segment, and how many of two, the kernel's own tracepoint saw at the far end.
"""

import fcntl
import socket
import struct
import subprocess
import sys
import time

FLOWS = 8
PAYLOAD = 100
SIOCETHTOOL, SIOCGIFHWADDR = 0x8946, 0x8927
ETHTOOL_STSO, ETHTOOL_SGRO = 0x1F, 0x2C
TRACING = "/sys/kernel/tracing/"


def run(*words):
    subprocess.run(words, check=True)


def ioctl(name, request, argument):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        return fcntl.ioctl(any_socket, request, struct.pack("16s", name.encode()) + argument)


def switch(name, command, on):
    """A feature of an interface, as ethtool switches it."""
    import array

    value = array.array("I", [command, on])
    ioctl(name, SIOCETHTOOL, struct.pack("P16x", value.buffer_info()[0]))


def make(near, far):
    run("ip", "link", "add", near, "type", "veth", "peer", "name", far)
    for name in (near, far):
        with open(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6", "w") as file:
            file.write("1")
        run("ip", "link", "set", name, "up")
    # Segments that the sender could have kept together are not put together again.
    switch(near, ETHTOOL_STSO, 0)
    switch(far, ETHTOOL_SGRO, 1)


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def segment(to, flow, number):
    source, target = socket.inet_aton("10.9.0.1"), socket.inet_aton("10.9.0.2")
    payload = b"x" * PAYLOAD

    def tcp(check):
        # No PSH: it would end a packet.
        return struct.pack("!HHIIBBHHH", 1000 + flow, 2000, 1 + number * PAYLOAD, 1, 5 << 4, 0x10, 500, check, 0)

    def ip(check):
        length = 40 + PAYLOAD
        return struct.pack("!BBHHHBBH", 0x45, 0, length, number, 0x4000, 64, 6, check) + source + target

    pseudo = source + target + struct.pack("!BBH", 0, 6, 20 + PAYLOAD)
    body = tcp(checksum(pseudo + tcp(0) + payload)) + payload
    return to + b"\x02\0\0\0\0\x01" + b"\x08\0" + ip(checksum(ip(0))) + body


def write(path, text):
    with open(TRACING + path, "w") as file:
        file.write(text)


def main(near, far):
    if subprocess.run(["ip", "link", "show", near], capture_output=True).returncode:
        make(near, far)
    to = ioctl(far, SIOCGIFHWADDR, bytes(24))[18:24]
    subprocess.run(["tc", "qdisc", "del", "dev", near, "root"], capture_output=True)
    run("tc", "qdisc", "add", "dev", near, "root", "plug")
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind((near, 0))
        for number in range(2):
            for flow in range(FLOWS):
                raw.send(segment(to, flow, number))
    write("trace", "")
    write("events/net/netif_receive_skb/enable", "1")
    run("tc", "qdisc", "change", "dev", near, "root", "plug", "release_indefinite")
    time.sleep(0.5)
    write("events/net/netif_receive_skb/enable", "0")
    with open(TRACING + "trace") as file:
        lines = [line for line in file if f"dev={far} " in line]
    print(*(sum(f"len={40 + PAYLOAD * n}" in line for line in lines) for n in (1, 2)))


main(*sys.argv[1:])
