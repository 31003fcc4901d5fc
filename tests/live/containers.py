# SPDX-License-Identifier: Apache-2.0
"""Containers as engines make them, without the engines: cgroups in this machine's trees, and state files below a folder
that stands for the host's /. Each knows what a profile has to say of its processes."""

import json
import os
import pathlib
import secrets

import pytest

USER = 54321  # runs engines without root; any number


def hierarchies():
    """The mount points of cgroup v2 and of a v1 hierarchy; None if there is none."""
    v2 = v1 = None
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        where, kind = line.split()[4], line.partition(" - ")[2].split()
        if kind[0] == "cgroup2":
            v2 = v2 or where
        elif kind[0] == "cgroup" and "pids" in kind[2].split(","):
            v1 = where
    return v2 and pathlib.Path(v2), v1 and pathlib.Path(v1)


class Cgroups:
    """Makes cgroups, and removes those that it made, with what is below."""

    def __init__(self):
        self.v2, self.v1 = hierarchies()
        self.made = []
        if not self.v2:
            pytest.skip("no cgroup v2")

    def make(self, path, v1=False):
        folder = self.v1 if v1 and self.v1 else self.v2
        for part in path.strip("/").split("/"):
            folder = folder / part
            try:
                folder.mkdir()
            except FileExistsError:
                continue
            except OSError as e:
                pytest.skip(f"no cgroup can be made: {e}")
            self.made.append(folder)
        return folder

    def remove(self):
        for folder in reversed(self.made):
            try:
                folder.rmdir()
            except OSError:
                pass  # somebody else's below it
        self.made = []


def put(path, text, uid=0):
    """Writes a state file as engines do: beside it, then renamed."""
    made = []
    for parent in reversed(path.parents):
        if not parent.exists():
            parent.mkdir()
            made.append(parent)
    fresh = path.with_name(path.name + ".tmp")
    fresh.write_text(text if isinstance(text, str) else json.dumps(text))
    for p in [*made, fresh] if uid else []:
        os.chown(p, uid, uid)
    fresh.rename(path)


class Container:
    """`cgroup`: its path; `pod` and `name`: what the profile has to call them, None: it has no such root."""

    def __init__(self, cgroup, name=None, pod=None, v1=False, state=None):
        self.cgroup, self.name, self.pod, self.v1, self.state = cgroup, name, pod, v1, state

    def write(self, host):
        if self.state:
            self.state(host)

    @property
    def roots(self):
        named = (("[Pod]", self.pod), ("[Con]", self.name))
        return [prefix + clean(name) for prefix, name in named if name]


def clean(name):
    return "".join(":" if c == ";" else " " if ord(c) < 32 else c for c in name).strip()


def new_id():
    return secrets.token_hex(32)


def new_uid():
    h = secrets.token_hex(16)
    return "-".join((h[:8], h[8:12], h[12:16], h[16:20], h[20:]))


def docker_state(cid, name, folder="var/lib/docker/containers", uid=0, **labels):
    return lambda host: put(host / folder / cid / "config.v2.json",
                            {"ID": cid, "Name": "/" + name, "Config": {"Image": "nginx", "Labels": labels}}, uid)


def docker(name, systemd, v1):
    cid = new_id()
    path = f"system.slice/docker-{cid}.scope" if systemd else f"docker/{cid}"
    return Container(path, name, v1=v1, state=docker_state(cid, name))


def isulad(name, engine, v1):
    cid = new_id()
    return Container(f"isulad/{cid}", name, v1=v1, state=lambda host: put(
        host / f"var/lib/isulad/engines/{engine}" / cid / "config.v2.json",
        {"CommonConfig": {"id": cid, "Name": name, "Image": "busybox", "Config": {"Labels": {}, "Annotations": {}}}}))


def isulad_pod(pod, name, v1):
    cid, uid = new_id(), new_uid()
    labels = {"io.kubernetes.pod.name": pod, "io.kubernetes.container.name": name, "io.kubernetes.pod.uid": uid}
    return Container(f"kubepods/burstable/pod{uid}/{cid}", name, pod, v1, lambda host: put(
        host / "var/lib/isulad/engines/lcr" / cid / "config.v2.json",
        {"CommonConfig": {"id": cid, "Name": f"k8s_{name}_{pod}_default_{uid}_0", "Config": {"Labels": labels}}}))


def kubepods(uid, leaf, systemd):
    if systemd:
        return f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid.replace('-', '_')}.slice/{leaf}.scope"
    return f"kubepods/burstable/pod{uid}/{leaf.rpartition('-')[2]}"


def containerd(pod, name, systemd, v1, folder="run/containerd/io.containerd.runtime.v2.task/k8s.io"):
    cid, uid = new_id(), new_uid()
    return Container(kubepods(uid, f"cri-containerd-{cid}", systemd), name, pod, v1, lambda host: put(
        host / folder / cid / "config.json",
        {"annotations": {"io.kubernetes.cri.container-name": name, "io.kubernetes.cri.sandbox-name": pod,
                         "io.kubernetes.cri.sandbox-uid": uid, "io.kubernetes.cri.sandbox-namespace": "prod"}}))


def crio(pod, name, systemd, v1):
    cid, uid = new_id(), new_uid()
    return Container(kubepods(uid, f"crio-{cid}", systemd), name, pod, v1, lambda host: put(
        host / "run/containers/storage/overlay-containers" / cid / "userdata/config.json",
        {"annotations": {"io.kubernetes.container.name": name, "io.kubernetes.pod.name": pod,
                         "io.kubernetes.pod.uid": uid}}))


def runc_pod(pod, name, v1):
    cid, uid = new_id(), new_uid()
    labels = [f"io.kubernetes.pod.name={pod}", f"io.kubernetes.container.name={name}"]
    return Container(kubepods(uid, f"cri-containerd-{cid}", True), name, pod, v1, lambda host: put(
        host / "run/containerd/runc/k8s.io" / cid / "state.json", {"id": cid, "config": {"labels": labels}}))


class PodmanList:
    """containers.json, which has all containers of podman."""

    def __init__(self, folder, uid=0):
        self.folder, self.uid, self.all = folder, uid, []

    def add(self, cid, name):
        def write(host):
            self.all.append({"id": cid, "names": [name]})
            put(host / self.folder / "containers.json", self.all, self.uid)
        return write


PODMAN = "var/lib/containers/storage/overlay-containers"
USER_PODMAN = "home/alice/.local/share/containers/storage/overlay-containers"
USER_SLICE = f"user.slice/user-{USER}.slice/user@{USER}.service"


def podman(name, names, v1):
    cid = new_id()
    return Container(f"machine.slice/libpod-{cid}.scope/container", name, v1=v1, state=names.add(cid, name))


def podman_of_user(name, names):
    cid = new_id()
    return Container(f"{USER_SLICE}/user.slice/libpod-{cid}.scope/container", name, state=names.add(cid, name))


def docker_of_user(name):
    cid = new_id()
    return Container(f"{USER_SLICE}/user.slice/docker-{cid}.scope", name,
                     state=docker_state(cid, name, "home/alice/.local/share/docker/containers", USER))


def lxc(name, folder, v1, group=None):
    return Container(group or f"lxc.payload.{name}/system.slice", name, v1=v1,
                     state=lambda host: put(host / folder / name / "config", "lxc.uts.name = x\n"))


def nspawn(name, service):
    escaped = "".join(c if c.isalnum() or c in "_." else f"\\x{ord(c):02x}" for c in name)
    unit = f"systemd-nspawn@{escaped}.service" if service else f"machine-{escaped}.scope"
    return Container(f"machine.slice/{unit}/payload", name, state=lambda host: put(
        host / "run/systemd/machines" / name, f"# This is private data.\nNAME={name}\nCLASS=container\nSCOPE={unit}\n"))


def virtual_machine(name):
    unit = f"machine-{name}.scope"
    return Container(f"machine.slice/{unit}", state=lambda host: put(
        host / "run/systemd/machines" / name, f"NAME={name}\nCLASS=vm\nSCOPE={unit}\n"))


def nested(name, pod):
    """Docker in a pod's container. The host has no files on the inner one; those that bear its id are another's."""
    outer, inner, uid = new_id(), new_id(), new_uid()

    def write(host):
        put(host / "run/containerd/io.containerd.runtime.v2.task/k8s.io" / outer / "config.json",
            {"annotations": {"io.kubernetes.cri.container-name": name, "io.kubernetes.cri.sandbox-name": pod}})
        docker_state(inner, "not-this")(host)
    return Container(f"kubepods/pod{uid}/{outer}/docker/{inner}", inner[:12], pod, state=write)


def claimed():
    """A user's cgroup with the id of a container of root's."""
    cid = new_id()
    return Container(f"{USER_SLICE}/docker-{cid}.scope", cid[:12], state=docker_state(cid, "not-this-one"))


def hostile(kind):
    """State files that are not read: its id is all that is known."""
    cid = new_id()

    def write(host):
        file = host / "var/lib/docker/containers" / cid / "config.v2.json"
        docker_state(cid, "evil")(host)
        if kind == "owner":
            os.chown(file, 65534, 65534)
            return
        text = file.read_text()
        file.unlink()
        if kind == "fifo":
            os.mkfifo(file)
        elif kind == "link":
            (host / "evil.json").write_text(text)
            file.symlink_to(host / "evil.json")
        elif kind == "size":
            file.write_text(text + " " * (1 << 20))
        elif kind == "depth":
            file.write_text("[" * 100000)
        elif kind == "folder":
            file.mkdir()
    return Container(f"docker/{cid}", cid[:12], state=write)


def conmon():
    """The monitor of a container is not in it."""
    return Container(f"machine.slice/libpod-conmon-{new_id()}.scope")


def all_kinds(v1_too):
    """50 containers, of all engines, drivers and state files that are known."""
    names, of_user = PodmanList(PODMAN), PodmanList(USER_PODMAN, USER)
    odd = ['a;b', 'two words', '"quoted" \'n\' <b>&', 'tab\tand\x1bescape', 'x' * 120, 'ünïcödé']
    out = [docker(n, i % 2, v1_too and i % 3 == 0) for i, n in enumerate(odd)]
    out += [docker(f"web-{i}", i % 2, v1_too and i % 4 < 2) for i in range(4)]
    out += [isulad("is-1", "lcr", False), isulad("is-2", "runc", v1_too), isulad_pod("ipod-1", "icon", False)]
    out += [containerd(f"cpod-{i}", f"con{i}", i % 2, v1_too and i % 4 < 2) for i in range(6)]
    out += [containerd("k3s-pod", "k3s-con", True, False, "run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io")]
    out += [crio(f"opod-{i}", f"ocon{i}", i % 2, v1_too and i == 2) for i in range(4)]
    out += [runc_pod("rpod", "rcon", v1_too)]
    out += [podman(f"pm-{i}", names, v1_too and i == 1) for i in range(3)]
    out += [podman_of_user(f"mine-{i}", of_user) for i in range(2)] + [docker_of_user("my-docker")]
    out += [lxc("lx1", "var/lib/lxc", False), lxc("lx2", "var/lib/lxc", v1_too, "lxc/lx2/ns"),
            lxc("shop_inc", "var/lib/incus/containers", False),
            lxc("lxd1", "var/snap/lxd/common/lxd/containers", False),
            lxc("again", "var/lib/lxc", False, "lxc.payload.again-1"), lxc("n-7", "var/lib/lxc", False)]
    out += [nspawn("box", False), nspawn("my-box", True), nspawn("with-dash", False), virtual_machine("vm1")]
    out += [nested("dind", "dind-pod"), claimed(), conmon()]
    out += [hostile(k) for k in ("owner", "fifo", "link", "size", "depth", "folder")]
    return out
