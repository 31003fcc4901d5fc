<?php
// SPDX-License-Identifier: Apache-2.0
// Included by chains.php.
return leaf(3000); // @included
