<?php
// SPDX-License-Identifier: Apache-2.0
// Included by stopped.php.
include_once __DIR__ . '/scene_once.php';
