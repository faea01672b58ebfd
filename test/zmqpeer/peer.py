# SPDX-License-Identifier: Apache-2.0
"""Sockets of libzmq, driven by lines of JSON; see package zmqpeer."""
import json
import os
import sys
import time

import zmq

context = zmq.Context()
poller = zmq.Poller()
poller.register(sys.stdin.fileno(), zmq.POLLIN)
sockets = {}
echoed = {}  # by socket, what a request contains that is answered by itself
beats = {}  # by socket, what is published every BEAT
buffered = b""
beaten = 0
BEAT = 200  # milliseconds


def say(**what):
    print(json.dumps(what), flush=True)


def bind(s, address):
    """Waits for a socket that was closed: libzmq closes it in a thread of its own."""
    for left in reversed(range(1000)):
        try:
            return s.bind(address)
        except zmq.ZMQError as e:
            if e.errno != zmq.EADDRINUSE or not left:
                raise
            time.sleep(0.01)


def do(c):
    name = c["socket"]
    if c["do"] == "open":
        s = context.socket(getattr(zmq, c["type"]))
        s.setsockopt(zmq.LINGER, 0)
        s.setsockopt(zmq.RECONNECT_IVL, 20)
        for option, value in c.get("options", {}).items():
            s.setsockopt(getattr(zmq, option), value)
        if "connect" in c:
            s.connect("tcp://" + c["connect"])
        else:
            bind(s, "tcp://" + c["bind"])
        sockets[name] = s
        poller.register(s, zmq.POLLIN)
        say(socket=name, at=s.getsockopt(zmq.LAST_ENDPOINT).decode().removeprefix("tcp://").rstrip("\0"))
        return
    s = sockets[name]
    if c["do"] == "close":
        poller.unregister(s)
        s.close()
        for of in (sockets, echoed, beats):
            of.pop(name, None)
    elif c["do"] == "pause":
        poller.unregister(s)
    elif c["do"] == "send":
        s.send_multipart([p.encode("latin-1") for p in c["parts"]])
    elif c["do"] == "echo":
        echoed[name] = c["text"].encode()
    elif c["do"] == "beat":
        beats[name] = [p.encode() for p in c["parts"]]
    elif c["do"] == "subscribe":
        s.setsockopt(zmq.SUBSCRIBE, c["topic"].encode())
    elif c["do"] == "unsubscribe":
        s.setsockopt(zmq.UNSUBSCRIBE, c["topic"].encode())
    say(socket=name)


while True:
    ready = dict(poller.poll(BEAT if beats else None))
    due = time.monotonic() >= beaten + BEAT / 1000
    for name, s in list(sockets.items()):
        if s in ready:
            parts = s.recv_multipart()
            if name in echoed and echoed[name] in parts[-1]:
                s.send_multipart(parts)
            else:
                say(socket=name, parts=[p.decode("latin-1") for p in parts])
    if due:
        beaten = time.monotonic()
        for name, parts in beats.items():
            sockets[name].send_multipart(parts)
    if sys.stdin.fileno() in ready:
        more = os.read(sys.stdin.fileno(), 1 << 20)
        if not more:
            break
        buffered += more
        while b"\n" in buffered:
            line, buffered = buffered.split(b"\n", 1)
            try:
                do(json.loads(line))
            except Exception as e:
                say(socket="", error=repr(e))
context.destroy(0)
