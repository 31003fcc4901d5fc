-- SPDX-License-Identifier: Apache-2.0
-- Two components that programs connect to.
daemonize = false
run_as_root = true
pidfile = "/tmp/prosody.pid"
data_path = "/tmp"
log = {error = "*console"}
modules_enabled = {"component"}
modules_disabled = {"s2s", "c2s"}
component_ports = {@PORT@}
component_interfaces = {"127.0.0.1"}
VirtualHost "localhost"
Component "one.localhost"
	component_secret = "secret"
Component "two.localhost"
	component_secret = "secret"
