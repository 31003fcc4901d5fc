# SPDX-License-Identifier: Apache-2.0
"""Programs that people run, one row each: 98 % of their user stacks must be complete, and functions of the program
must be in them. Each program runs as in a container: in a root of Debian's packages below an overlay, in mount and PID
namespaces of its own, with files of `programs/` in /tmp.

To add a program, add a row: to SERVERS if a load makes it work, to COMMANDS if it ends by itself.
"""

import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections import namedtuple

import pytest

from recorder import Completeness, read, record

HERE = os.path.dirname(os.path.abspath(__file__))
FETCH = os.path.join(HERE, "../../tools/vm/fetch")
SECONDS = os.environ.get("CULPRIT_RUNTIME_SECONDS", "5")
SAMPLES = 300 # user stacks that a test needs

# Packages of Debian 12, each with what a line of sh needs.
STARMAN = "dash coreutils perl starman libplack-perl libdancer2-perl"
APACHE = "dash coreutils apache2 libapache2-mod-perl2"
NGINX = "dash coreutils nginx-light libnginx-mod-http-lua libnginx-mod-http-perl lua-cjson lua-lpeg"
PHP = "dash coreutils sed grep php8.2-fpm php8.2-cli php8.2-mysql php8.2-xml php8.2-mbstring php8.2-zip phpmyadmin " \
      "mariadb-server nginx-light"
COMPOSER = "dash coreutils grep composer php8.2-cli"
ERLANG = "dash coreutils sed grep elixir rebar3 erlang-base erlang-dev"
RUBY = "dash coreutils ruby ruby-sinatra puma jekyll ruby-bundler"
PROSODY = "dash coreutils prosody lua-expat python3"
RABBITMQ = "dash coreutils sed grep gawk hostname procps rabbitmq-server python3-pika"

# files: of programs/, for /tmp. command: a line of sh; $PORT is a free port. comm: the names of the processes (SERVERS) or
# threads (COMMANDS) that count, as a regular expression. inside: functions that must appear, with their least shares
# of the user stacks; a name that ends in + stands for all code of a file without symbols.
# load: the page that wrk asks for, and a text in the answer; or a file of programs/, which makes the load after it has
# printed "ready", and ends with an error if an answer is wrong.
Server = namedtuple("Server", "packages files command comm inside load")
Command = namedtuple("Command", "packages files command comm inside")
SERVERS = {
    "starman": Server(
        STARMAN, "dancer.psgi dancer.tt", "exec starman --host 127.0.0.1 --port $PORT --workers 2 /tmp/dancer.psgi", "starman.*",
        {"Starman::Server::process_request": 0.5, "Dancer2::Core::App::dispatch": 0.4, "Shop::prices_of": 0.02},
        ("/parts/60", "part 60")),
    "phpmyadmin": Server(
        PHP, "php.ini phpmyadmin.php nginx-fpm.conf fpm.conf phpmyadmin.sh", "exec sh /tmp/phpmyadmin.sh", "php-fpm8.2",
        {"PhpMyAdmin\\Routing::callControllerForRoute": 0.2, "Twig\\Template::display": 0.05},
        ("/index.php?route=/database/structure&db=mysql&server=1", "help_relation")),
    "sinatra": Server(
        RUBY, "sinatra.ru", "exec puma --bind tcp://127.0.0.1:$PORT --threads 2:2 --quiet /tmp/sinatra.ru", "puma.*|ruby.*",
        {"process_client": 0.5, "dispatch!": 0.4, "prices_of": 0.05}, ("/parts/60", "part 60")),
    "nginx_lua": Server(
        NGINX, "nginx-lua.conf parts.lua", "exec nginx -c /tmp/nginx-lua.conf", "nginx",
        {"ngx_http_lua_run_thread": 0.5, "page": 0.5, "parse": 0.04, "<parts.lua:15>": 0.01, "liblua5.1-cjson.so.0.0.0+": 0.1,
         "liblua5.1-lpeg.so.2.0.0+": 0.02}, ("/", "ready")),
    "prosody": Server(
        PROSODY, "prosody.cfg.lua", "exec lua5.4 /usr/bin/prosody --config /tmp/prosody.cfg.lua -F", "lua.*|prosody",
        {"onreadable": 0.5, "XML_ParseBuffer": 0.5, "cb_handlestanza": 0.2, "core_post_stanza": 0.05}, "xmpp.py"),
    "rabbitmq": Server(
        RABBITMQ, "rabbitmq.sh", "exec sh /tmp/rabbitmq.sh", "beam.smp", {"rabbit_channel:handle_cast/2": 0.02}, "amqp.py"),
    "mod_perl": Server(
        APACHE, "modperl.conf Parts.pm", "exec apache2 -f /tmp/modperl.conf -D FOREGROUND", "apache2",
        {"modperl_callback": 0.5, "Parts::modperl": 0.5, "Parts::price_of": 0.2}, ("/", "part 60")),
    "nginx_perl": Server(
        NGINX, "nginx-perl.conf Parts.pm", "exec nginx -c /tmp/nginx-perl.conf", "nginx",
        {"ngx_http_perl_handle_request": 0.5, "Parts::nginx": 0.5, "Parts::price_of": 0.2}, ("/", "part 60")),
}
COMMANDS = {
    "ffi": Command(PHP, "ffi.php", "exec php8.2 -n -d extension=ffi -d ffi.enable=1 /tmp/ffi.php 5", "php.*",
                   {"sort_by_digest": 0.8, "qsort": 0.5, "compare": 0.5, "digest": 0.2}),
    "composer": Command(COMPOSER, "composer.sh", "exec sh /tmp/composer.sh", "php.*",
                        {"Composer\\ClassMapGenerator\\PhpFileParser::findClasses": 0.3, "[regular expression]": 0.01}),
    "mix": Command(ERLANG, "mix.sh", "exec sh /tmp/mix.sh", "beam.smp",
                   {"elixir_erl_compiler:compile/3": 0.2, "beam_ssa_opt:module/2": 0.1}),
    "rebar3": Command(ERLANG, "rebar3.sh", "exec sh /tmp/rebar3.sh", "beam.smp",
                      {"rebar_compiler:compile_worker/2": 0.2, "beam_ssa_opt:module/2": 0.1}),
    "jekyll": Command(RUBY, "jekyll.sh", "exec sh /tmp/jekyll.sh", "jekyll.*", {"render_document": 0.1, "render_liquid": 0.05}),
    "bundle_install": Command(RUBY, "bundle.sh", "exec sh /tmp/bundle.sh", "bundle.*|ruby.*", {"install": 0.05}),
}

ENTER = """
mount -t tmpfs none "$1/overlay"
mkdir "$1/overlay/upper" "$1/overlay/work"
mount -t overlay -o "lowerdir=$2,upperdir=$1/overlay/upper,workdir=$1/overlay/work" none "$1/root"
cd "$1/root"
mkdir -p proc dev tmp run var/tmp
mount -t proc proc proc
mount --rbind /dev dev
mount --bind "$1/tmp" tmp
echo root:x:0:0::/root:/bin/sh >etc/passwd
echo root:x:0: >etc/group
echo www-data:x:33:33::/:/bin/sh >>etc/passwd
echo www-data:x:33: >>etc/group
echo "127.0.0.1 localhost $(hostname)" >etc/hosts
exec env -i PATH=/usr/sbin:/usr/bin HOME=/tmp LC_ALL=C.UTF-8 PORT="$3" /usr/sbin/chroot . /bin/sh -c "$4"
"""


class Place:
    """A root for a program, in a folder: `root`, with the folder `tmp` as its /tmp."""

    def __init__(self, program, folder, port=None):
        got = subprocess.run([FETCH, "root", "bookworm", "amd64", *program.packages.split()], capture_output=True, text=True)
        if got.returncode:
            pytest.skip(got.stderr.strip())
        self.program, self.folder, self.lower = program, str(folder), got.stdout.split()[-1]
        for name in ("overlay", "root", "tmp"):
            os.makedirs(f"{self.folder}/{name}")
        os.chmod(f"{self.folder}/tmp", 0o1777)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = port or s.getsockname()[1]
        for name in program.files.split():
            with open(os.path.join(HERE, "programs", name), encoding="utf-8") as f:
                text = f.read().replace("@PORT@", str(self.port))
            with open(f"{self.folder}/tmp/{name}", "w", encoding="utf-8") as f:
                f.write(text)

    def enter(self, command):
        """Returns a command that runs a line of sh in the root. All of its processes end with the command."""
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", ENTER, "sh", self.folder, self.lower,
                str(self.port), command]

    def log(self):
        with open(f"{self.folder}/log", encoding="utf-8", errors="replace") as f:
            return f.read()[-2000:]


def descendants(pid):
    """Returns {pid: comm} of the processes below a process."""
    parents, comms = {}, {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as f:
                head, _, tail = f.read().rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents[int(name)], comms[int(name)] = int(tail.split()[1]), head.partition("(")[2]
    found = {pid}
    while more := {p for p, parent in parents.items() if parent in found} - found:
        found |= more
    return {p: comms[p] for p in found - {pid}}


def contains(stack, function):
    return any(f == function or function.endswith("+") and f.startswith(function) for f in stack.frames)


def is_of_erlang(stack):
    """Tells whether the stack begins at an Erlang process, by its function or by its name."""
    return any(re.fullmatch(r"[\w.@]+:.+/\d+", f) for f in stack.frames[:2]) and not stack.note \
        and not any(f.endswith("frames not read]") for f in stack.frames)


def judge(name, place, stacks):
    """Prints and checks the shares."""
    c = Completeness([s for s in stacks if not is_of_erlang(s)], place.lower)
    of_erlang = sum(s.count for s in stacks if is_of_erlang(s))
    for count in "samples", "user", "complete":
        setattr(c, count, getattr(c, count) + of_erlang)
    inside = {f: sum(s.count for s in stacks if contains(s, f)) for f in place.program.inside}
    shares = ", ".join(f"{100 * n / max(c.user, 1):.0f} % in {f}" for f, n in inside.items())
    print(f"{name}: {100 * c.share:.2f} % of {c.user} user stacks complete; {shares}\n{c}")
    assert c.user >= SAMPLES, "hardly any samples"
    assert c.complete >= 0.98 * c.user, str(c)
    for f, share in place.program.inside.items():
        assert inside[f] >= share * c.user, f"{f} in {inside[f]} of {c.user} stacks"


def answer(port, path):
    """Returns the status and the body of a page."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        got = connection.getresponse()
        return got.status, got.read().decode(errors="replace")
    finally:
        connection.close()


def is_open(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


def start_wrk(place):
    """Starts wrk, if the page is what it should be."""
    path, word = place.program.load
    status, text = answer(place.port, path)
    assert status == 200 and word in text, (status, text[:2000], place.log())
    return subprocess.Popen(["wrk", "-t", "1", "-c", "2", "-d", "120", "--timeout", "30",
                             f"http://127.0.0.1:{place.port}{path}"], stdout=subprocess.PIPE, text=True)


def end_wrk(load):
    load.send_signal(signal.SIGINT)
    said = load.communicate(timeout=30)[0]
    assert "Requests/sec" in said and "Non-2xx" not in said and "Socket errors" not in said, said


def start_client(place):
    """Starts a client in a root of its own."""
    client = place.program._replace(files=place.program.load)
    there = Place(client, f"{place.folder}/client", place.port)
    load = subprocess.Popen(there.enter(f"exec python3 /tmp/{client.load} {place.port} 120"), stdout=subprocess.PIPE, text=True)
    assert load.stdout.readline() == "ready\n", place.log()
    return load


@pytest.fixture
def server(request, tmp_path):
    """Starts a server with load. Yields (its name, Place, Popen)."""
    place = Place(SERVERS[request.param], tmp_path)
    by_wrk = isinstance(place.program.load, tuple)
    if by_wrk and not shutil.which("wrk"):
        pytest.skip("no wrk (tools/install test)")
    with open(f"{tmp_path}/log", "wb") as log:
        process = subprocess.Popen(place.enter(place.program.command), stdout=log, stderr=log)
        load = None
        try:
            end = time.monotonic() + 90
            while not is_open(place.port):
                assert process.poll() is None and time.monotonic() < end, place.log()
                time.sleep(0.2)
            load = start_wrk(place) if by_wrk else start_client(place)
            yield request.param, place, process
            assert load.poll() is None and process.poll() is None, "it ended: " + place.log()
            if by_wrk:
                end_wrk(load)
        finally:
            for p in (load, process):
                if p:
                    p.kill()
                    p.wait()


@pytest.mark.parametrize("server", SERVERS, indirect=True)
def test_server(culprit, server, tmp_path):
    name, place, process = server
    time.sleep(2) # the first requests compile
    stacks = []
    for n in range(4): # on a busy machine a recording may have few samples
        pids = [p for p, comm in descendants(process.pid).items() if re.fullmatch(place.program.comm, comm)]
        assert pids, descendants(process.pid)
        out = tmp_path / f"{n}.folded"
        record(culprit, out, "-p", ",".join(map(str, pids)), "-d", SECONDS, "-F", "199")
        stacks += read(out)
        if sum(s.count for s in stacks if s.frames) >= 2 * SAMPLES:
            break
    judge(name, place, stacks)


@pytest.mark.parametrize("name", COMMANDS)
def test_command(culprit, name, tmp_path):
    place = Place(COMMANDS[name], tmp_path)
    out = tmp_path / "out.folded"
    record(culprit, out, "-F", "199", "--", *place.enter(place.program.command), timeout=400)
    judge(name, place, [s for s in read(out) if re.fullmatch(place.program.comm, s.comm)])
