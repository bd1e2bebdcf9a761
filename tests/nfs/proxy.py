# SPDX-License-Identifier: Apache-2.0
"""Between a driver and an NFS server: counts the calls that pass, and does something after a given one.

The server has executed that call by then, but the driver has not seen its answer: the worst moment to stop.
"""
import socket
import struct
import threading


class Proxy:
    def __init__(self, port):
        self.server_port = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.lock = threading.Lock()
        self.calls = 0
        self.stop_after, self.on_stop = None, None
        threading.Thread(target=self.accept, daemon=True).start()

    def arm(self, stop_after, on_stop):
        with self.lock:
            self.calls, self.stop_after, self.on_stop = 0, stop_after, on_stop

    def disarm(self):
        with self.lock:
            self.stop_after = None
            return self.calls

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            upstream = socket.create_connection(("127.0.0.1", self.server_port))
            threading.Thread(target=self.calls_of, args=(client, upstream), daemon=True).start()
            threading.Thread(target=self.answers_to, args=(client, upstream), daemon=True).start()

    @staticmethod
    def receive(sock, size):
        data = b""
        while len(data) < size:
            more = sock.recv(size - len(data))
            if not more:
                raise OSError("closed")
            data += more
        return data

    def record(self, sock):
        header = self.receive(sock, 4)
        return header + self.receive(sock, struct.unpack(">I", header)[0] & 0x7FFFFFFF)

    def calls_of(self, client, upstream):
        try:
            while True:
                upstream.sendall(self.record(client))
        except OSError:
            self.close_both(client, upstream)

    def answers_to(self, client, upstream):
        try:
            while True:
                answer = self.record(upstream)
                with self.lock:
                    self.calls += 1
                    stop = self.stop_after is not None and self.calls >= self.stop_after
                    action = self.on_stop if stop else None
                    if stop:
                        self.on_stop = None
                if stop:
                    if action:
                        action()
                    raise OSError("stopped")
                client.sendall(answer)
        except OSError:
            self.close_both(client, upstream)

    @staticmethod
    def close_both(client, upstream):
        for sock in (client, upstream):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            sock.close()

    def close(self):
        self.listener.close()
