"""serve_app: models on Ray Serve, whose replicas each run `qkv serve` and pass requests on to it.

    from ray import serve
    serve.run(qkv.serve_app("minilm.pt2", replicas=2, cpus=4), route_prefix="/")     # then as docs/SERVE.md says
"""
import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
import time

from ._lib import Error

HOP = {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "proxy-authorization", "host",
       "content-length", "expect"}  # of one connection, not of the request


def find_command(command):
    found = shutil.which(command or os.environ.get("QKV", "qkv"))
    if not found:
        raise Error(f"there is no program '{command or 'qkv'}' on this machine; install qkv, or say where it is: "
                    "serve_app(..., command=PATH)", 2)
    return found


class Server:
    """`qkv serve` on a unix socket of its own, which is started again where it ended."""

    def __init__(self, arguments, command=None):
        self.folder = tempfile.TemporaryDirectory(prefix="qkv-serve-")
        self.path = os.path.join(self.folder.name, "s")
        self.line = [find_command(command), "serve", *arguments, "--unix", self.path, "-q"]
        self.process, self.idle, self.starting = None, [], asyncio.Lock()
        self.start()

    def start(self, seconds=600):
        self.idle.clear()
        if os.path.exists(self.path):
            os.unlink(self.path)  # of one that was killed
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(self.line, stdin=subprocess.DEVNULL, stdout=self.errors, stderr=self.errors)
        end = time.monotonic() + seconds
        while not os.path.exists(self.path):  # it listens once the models are loaded
            if self.process.poll() is not None or time.monotonic() > end:
                self.stop()
                self.errors.seek(0)
                said = self.errors.read().decode(errors="replace").strip()
                raise Error(f"qkv serve did not start: {said or 'it was not ready in time'}", 2)
            time.sleep(0.02)

    def runs(self):
        return self.process is not None and self.process.poll() is None

    def stop(self):
        """Everything that was accepted is answered first."""
        if self.runs():
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(130)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    async def ask(self, method, target, headers, body):
        """(status, [(name, value)], bytes). A connection that the server has closed meanwhile is opened again."""
        head = [f"{method} {target} HTTP/1.1", "Host: qkv", f"Content-Length: {len(body)}"]
        head += [f"{name}: {value}" for name, value in headers if name.lower() not in HOP]
        data = "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body
        while self.idle:
            link = self.idle.pop()
            try:
                return await self._exchange(link, data, method)
            except (ConnectionError, asyncio.IncompleteReadError):
                pass
        async with self.starting:
            if not self.runs():
                await asyncio.get_running_loop().run_in_executor(None, self.start)
        return await self._exchange(await asyncio.open_unix_connection(self.path), data, method)

    async def _exchange(self, link, data, method):
        reader, writer = link
        try:
            writer.write(data)
            await writer.drain()
            first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
            headers = [tuple(part.strip() for part in line.split(":", 1)) for line in lines]
            named = {name.lower(): value for name, value in headers}
            length = 0 if method == "HEAD" else int(named.get("content-length", 0))
            answer = int(first.split()[1]), headers, await reader.readexactly(length)
        except BaseException:  # a client that went away, too: the server notices and does not begin
            writer.close()
            raise
        if named.get("connection", "").lower() == "close":
            writer.close()
        else:
            self.idle.append(link)
        return answer


class Replica:
    """One of Ray Serve's: requests go to the server as they are, which joins them without padding."""

    def __init__(self, arguments, command):
        self.server = Server(arguments, command)

    async def __call__(self, request):
        from starlette.responses import Response
        root, target = request.scope.get("root_path", ""), request.scope["path"]
        target = target[len(root):] if root and target.startswith(root) else target
        if request.url.query:
            target += "?" + request.url.query
        status, headers, data = await self.server.ask(request.method, target or "/", request.headers.items(),
                                                      await request.body())
        out = Response(data, status)
        for name, value in headers:
            if name.lower() not in HOP and name.lower() != "date":
                out.headers[name] = value
        out.headers["Qkv-Replica"] = str(self.server.process.pid)
        return out

    def check_health(self):
        if not self.server.runs():
            raise RuntimeError("qkv serve has ended")

    def __del__(self):
        if getattr(self, "server", None):
            self.server.stop()


def serve_app(*models, replicas=1, cpus=1, options=(), command=None, name="qkv", **deployment):
    """A Ray Serve application of these models ([NAME=]MODEL, files that every machine has), for `serve.run`.

    Each of `replicas` is a `qkv serve` with `cpus` CPUs and threads on any machine of the cluster: Ray spreads requests
    over them, each joins those that it has. options are further ones of the command ("--max-tokens", "4096");
    command is the program, by default $QKV or `qkv`. Everything else goes to serve.deployment
    (max_ongoing_requests=512, autoscaling_config=...)."""
    try:
        from ray import serve
    except ImportError as e:
        raise Error(f"serve_app needs Ray Serve ({e}): pip install 'ray[serve]'", 4) from None
    if not models:
        raise Error("serve_app: give one model at least", 2)
    arguments = [*map(os.fspath, models), "--threads", str(max(1, int(cpus))), *map(str, options)]
    settings = {"max_ongoing_requests": 512, "graceful_shutdown_timeout_s": 130, "health_check_period_s": 5,
                "ray_actor_options": {"num_cpus": cpus}, **deployment}
    if "autoscaling_config" not in settings:
        settings["num_replicas"] = replicas
    return serve.deployment(Replica, name=name, **settings).bind(arguments, command)
