# SPDX-License-Identifier: Apache-2.0
"""Links to source files in their repositories, by version."""

import json
import subprocess
import time

import pytest

from test_api import get
from test_traces import attribute

GITHUB = "https://github.com/acme/shop/blob/{version}/{path}#L{line}"
GITLAB = "http://gitlab.example/acme/shop/-/blob/{version}/lib/{path}#L{line}"


def push(server, file, version=None):
    """A sample of a function in the file, from a service of this version."""
    attributes = [attribute("service.name", "shop"), *([attribute("service.version", version)] if version else [])]
    now = str((int(time.time()) - 60) * 10**9)
    body = {"resourceProfiles": [{"resource": {"attributes": attributes}, "scopeProfiles": [{"profiles": [{
        "sampleType": {"typeStrindex": 1, "unitStrindex": 2}, "samples": [{"stackIndex": 1, "linkIndex": 0, "values": ["10"], "timestampsUnixNano": [now]}],
        "period": "10", "periodType": {"typeStrindex": 1, "unitStrindex": 2}, "timeUnixNano": now}]}]}],
        "dictionary": {"mappingTable": [{}], "attributeTable": [{}], "linkTable": [{}], "stackTable": [{}, {"locationIndices": [1]}],
                       "locationTable": [{}, {"lines": [{"functionIndex": 1, "line": "7"}]}],
                       "functionTable": [{}, {"nameStrindex": 3, "filenameStrindex": 4}], "stringTable": ["", "cpu", "nanoseconds", "work", file]}}
    a = server.request("POST", "/v1development/profiles", json.dumps(body).encode(), {"Content-Type": "application/json"})
    assert a.status == 200 and a.json() == {}, a.text


def links(server, file):
    return [(e["version"], e["url"]) for e in get(server, "/api/v1/source", file=file)["links"]]


def test_a_file_at_its_versions(serve):
    s = serve("--source-links", f"/build/={GITHUB} /build/lib/={GITLAB}")
    push(s, "/build/src/a b#1.c", "1.0")
    assert links(s, "/build/src/a b#1.c") == [("1.0", "https://github.com/acme/shop/blob/1.0/src/a%20b%231.c#L{line}")]
    push(s, "/build/lib/x.py", "2\"><script>")
    found = dict(links(s, "/build/lib/x.py"))
    # The longest prefix decides; each version of the selection has its link.
    assert found.keys() == {"1.0", "2\"><script>"} and found["1.0"] == "http://gitlab.example/acme/shop/-/blob/1.0/lib/x.py#L{line}"
    assert not set('"<> ') & set(found["2\"><script>"])
    assert links(s, "/elsewhere/x.py") == []
    # A version that would lead to another repository has no link.
    push(s, "/build/src/c.c", "../../../evil/repo")
    assert "../../../evil/repo" not in dict(links(s, "/build/src/c.c"))


def test_without_a_version_there_is_no_link_that_needs_one(serve):
    s = serve("--source-links", f"/build/={GITHUB} /any/=https://git.example/{{path}}")
    push(s, "/build/a.c")
    push(s, "/any/../../secret")
    push(s, "/any/b.c")
    assert links(s, "/build/a.c") == []
    assert links(s, "/any/b.c") == [("", "https://git.example/b.c")]
    assert links(s, "/any/../../secret") == []


def test_without_the_option_there_are_none(server):
    push(server, "/build/a.c", "1")
    assert links(server, "/build/a.c") == []


@pytest.mark.parametrize("wrong", ["/a", "/a=javascript:alert(1)//{path}", "/a=ftp://x/{path}", "/a=https://x/", '/a=https://x/"{path}', "=", "/a=https://x/{path} b",
                                   "/a=https://x/{path}" + "y" * 20000])
def test_a_wrong_option_is_told_at_the_start(executable, tmp_path, wrong):
    p = subprocess.run([executable, "server", "--data-dir", tmp_path, "--listen", "127.0.0.1:0", "--otlp-grpc", "off", "--otlp-grpc-old", "off", "--otlp-http", "off",
                        "--source-links", wrong], capture_output=True, text=True, timeout=30)
    assert p.returncode != 0 and "source-links" in p.stderr
