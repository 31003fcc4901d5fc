<?php
// SPDX-License-Identifier: Apache-2.0
// phpMyAdmin logs in by itself, as root of a server that asks for no password.
$cfg['blowfish_secret'] = str_repeat('x', 32);
$cfg['TempDir'] = '/tmp';
$cfg['SendErrorReports'] = 'never';
$cfg['Servers'][1] = ['auth_type' => 'config', 'user' => 'root', 'password' => '', 'AllowNoPassword' => true,
	'host' => 'localhost', 'socket' => '/tmp/mariadb.sock'];
